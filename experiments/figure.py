"""A figure of your own, as a template: copy this file, then change what is compared, over what, and what is drawn.

`python experiments/figure.py --seeds 8`

It asks how much trust the learned graph needs to gain over the nearest transmitter.
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path

from matplotlib.figure import Figure

import d2djax
from d2djax.analysis import looks, readout, statistics

# 1. What is compared. `d2djax run --help` lists the settings; policies of your own come in a `d2djax.Recipe`.
CONFIG = d2djax.Config(num_devices=12, num_states=3, num_episodes=1000, policies=("uniform", "nearest", "rl"))
# 2. Over what. Numbers share one compiled program; static settings compile one for each value.
AXES = {"trust_probability": [0.25, 0.5, 0.75, 1.0]}


def main(num_seeds: int, out: Path) -> None:
    # 3. The runs. Interrupt them at any time: the same command resumes, and reads what is done already. With
    # `training=False` a run ends with its graphs; leave that out for accuracies and energies.
    d2djax.use_all_cores()
    d2djax.use_compilation_cache()
    results = d2djax.sweep(CONFIG, AXES, num_seeds, out, training=False)

    # 4. One number for each point, run and policy. The README lists all variables; `counted` leaves out runs that
    # diverged. Rewards by the reference weights can be compared between points of any weights.
    reward = d2djax.running.results.counted(results, "graph_reference_reward").mean("state")

    # 5. The picture: a line for each policy with the 95 % interval of the mean over the seeds.
    figure = Figure(figsize=(4.5, 3.5), layout="constrained")
    axes = figure.subplots()
    looks.policy_lines(axes, reward, "trust_probability", marker="o")
    axes.set(xlabel="probability that a device trusts another with a class", ylabel="mean total reward")
    axes.legend(title=looks.told(num_seeds))
    picture = out / "trust.png"
    figure.savefig(picture, dpi=200)
    # What it shows, as numbers for other programs.
    picture.with_suffix(".csv").write_text(readout.numbers_of(figure))

    # 6. The claim. Policies share the network of a seed, so their differences are paired and much more certain than
    # their means.
    gain = statistics.over_seeds(statistics.paired_differences(reward, "nearest").sel(policy="rl"))
    for trust, mean, low, high in zip(
        gain["trust_probability"], gain["mean"], gain["low"], gain["high"], strict=True
    ):
        print(f"trust {trust:.2f}: rl above nearest by {mean:.2f} ({low:.2f} to {high:.2f})")
    print(picture)


if __name__ == "__main__":
    parser = ArgumentParser(
        description="Computes and draws the figure.", formatter_class=ArgumentDefaultsHelpFormatter
    )
    text = "networks at each point; the same ones at all points and for all policies"
    parser.add_argument("--seeds", type=int, default=8, help=text)
    text = "folder of the results and the picture"
    parser.add_argument("--out", type=Path, default=Path("figures/trust"), help=text)
    given = parser.parse_args()
    main(given.seeds, given.out)
