"""Figure 2d: accuracy while training with FedProx and with FedSGD.

    python experiments/figure_2d.py --size small

The points are those of the study `schemes` in `d2djax/studies.py`; the same as `d2djax figure 2d --size small`.
"""

from pathlib import Path

import tyro
from rich import print

from d2djax import claims, drawings, machine, studies


def main(size: studies.Size = "toy", out: Path = Path("figures"), data_dir: str | None = None) -> None:
    """Accuracy while training with FedProx and with FedSGD.

    Args:
        size: toy, small or paper.
        out: folder of results and picture.
        data_dir: folder of the data set; by default the usual places.
    """
    machine.use_all_cores()
    machine.use_compilation_cache()
    results = studies.compute("schemes", size, out, data_dir=data_dir)
    drawings.schemes(results).savefig(out / size / "2d.png")
    for claim in claims.learning(results):
        print(f"{claim.text}: {claim.measured}: {claim.verdict}")


if __name__ == "__main__":
    tyro.cli(main)
