"""A template for your own figure: copy this file, then change the policies, the axes and the plot.

`python experiments/figure.py --seeds 8`

The example asks how much trust the learned graph needs to gain over the nearest transmitter.
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path

from matplotlib.figure import Figure

import d2djax
from d2djax.analysis import looks, readout, statistics

# 1. The settings and policies to compare. `d2djax run --help` lists all settings; pass your own policies in a
# `d2djax.Recipe`.
CONFIG = d2djax.Config(num_devices=12, num_states=3, num_episodes=1000, policies=("uniform", "nearest", "rl"))
# 2. The axes. Numbers share one compiled program; each value of a static setting compiles its own.
AXES = {"trust_probability": [0.25, 0.5, 0.75, 1.0]}


def main(num_seeds: int, out: Path) -> None:
    # 3. The runs. Interrupt them at any time: the same command resumes and reads the finished runs. With
    # `training=False`, a run stops after discovery; omit it to get accuracies and energies.
    d2djax.use_all_cores()
    d2djax.use_compilation_cache()
    results = d2djax.sweep(CONFIG, AXES, num_seeds, out, training=False)

    # 4. One number for each point, run and policy. The README lists all variables; `counted` omits diverged runs.
    # Rewards with the reference weights can be compared between points with different weights.
    reward = d2djax.running.results.counted(results, "graph_reference_reward").mean("state")

    # 5. The picture: one line per policy with the 95 % interval of the mean over the seeds.
    figure = Figure(figsize=(4.5, 3.5), layout="constrained")
    axes = figure.subplots()
    looks.policy_lines(axes, reward, "trust_probability", marker="o")
    axes.set(xlabel="probability that a device trusts another with a class", ylabel="mean total reward")
    axes.legend(title=looks.told(num_seeds))
    picture = out / "trust.png"
    figure.savefig(picture, dpi=200)
    # The numbers in the picture, for other programs.
    picture.with_suffix(".csv").write_text(readout.numbers_of(figure))

    # 6. The claim. Policies share the network of a seed, so their differences are paired and vary much less than
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
