"""Figure 2e: final accuracy against the number of stragglers.

    python experiments/figure_2e.py --size small

The points are those of the study `stragglers` in `d2djax/studies.py`; the same as `d2djax figure 2e --size small`.
"""

from pathlib import Path

import tyro
from rich import print

from d2djax import claims, drawings, machine, studies


def main(size: studies.Size = "toy", out: Path = Path("figures"), data_dir: str | None = None) -> None:
    """Final accuracy against the number of stragglers.

    Args:
        size: toy, small or paper.
        out: folder of results and picture.
        data_dir: folder of the data set; by default the usual places.
    """
    machine.use_all_cores()
    machine.use_compilation_cache()
    results = studies.compute("stragglers", size, out, data_dir=data_dir)
    drawings.stragglers(results).savefig(out / size / "2e.png")
    for claim in claims.stragglers(results):
        print(f"{claim.text}: {claim.measured}: {claim.verdict}")


if __name__ == "__main__":
    tyro.cli(main)
