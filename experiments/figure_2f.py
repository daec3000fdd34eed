"""Figure 2f: energy of the exchange and of the uploads until a benchmark is reached.

    python experiments/figure_2f.py --size small

The points are those of the studies of figures 2a to 2c; the same as `d2djax figure 2f --size small`.
"""

from pathlib import Path

import tyro
from rich import print

from d2djax import claims, drawings, machine, studies


def main(
    size: studies.Size = "toy",
    out: Path = Path("figures"),
    cifar10: str | None = None,
    fashion_mnist: str | None = None,
) -> None:
    """Energy of the exchange and of the uploads until a benchmark is reached.

    Args:
        size: toy, small or paper.
        out: folder of results and picture.
        cifar10: folder of CIFAR-10; by default the usual places.
        fashion_mnist: folder of Fashion-MNIST; by default the usual places.
    """
    machine.use_all_cores()
    machine.use_compilation_cache()
    folders = {"radioml": None, "cifar10": cifar10, "fashion_mnist": fashion_mnist}
    results = [studies.compute(study, size, out, data_dir=folder) for study, folder in folders.items()]
    drawings.energy(*results).savefig(out / size / "2f.png")
    for claim in (claim for one in results for claim in claims.energy(one)):
        print(f"{claim.text}: {claim.measured}: {claim.verdict}")


if __name__ == "__main__":
    tyro.cli(main)
