"""Figure 2c: accuracy on Fashion-MNIST while training, for every way to choose the graph.

    python experiments/figure_2c.py --size small

The points are those of the study `fashion_mnist` in `d2djax/studies.py`; the same as
`d2djax figure 2c --size small`.
"""

from pathlib import Path

import tyro
from rich import print

from d2djax import claims, machine, plotting, studies


def main(size: studies.Size = "toy", out: Path = Path("figures"), data_dir: str | None = None) -> None:
    """Accuracy on Fashion-MNIST while training, for every way to choose the graph.

    Args:
        size: toy, small or paper.
        out: folder of results and picture.
        data_dir: folder of the data set; by default the usual places.
    """
    machine.use_all_cores()
    machine.use_compilation_cache()
    results = studies.compute("fashion_mnist", size, out, data_dir=data_dir)
    plotting.accuracy_curves(results).savefig(out / size / "2c.png")
    for claim in claims.learning(results):
        print(f"{claim.text}: {claim.measured}: {claim.verdict}")


if __name__ == "__main__":
    tyro.cli(main)
