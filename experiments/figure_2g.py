"""Figure 2g: success of the links and points between clusters, while the policies learn.

    python experiments/figure_2g.py --size small

The points are those of the study `graphs` in `d2djax/studies.py`; the same as `d2djax figure 2g --size small`.
"""

from pathlib import Path

import tyro
from rich import print

from d2djax import claims, drawings, machine, studies


def main(size: studies.Size = "toy", out: Path = Path("figures")) -> None:
    """Success of the links and points between clusters, while the policies learn.

    Args:
        size: toy, small or paper.
        out: folder of results and picture.
    """
    machine.use_all_cores()
    machine.use_compilation_cache()
    results = studies.compute("graphs", size, out)
    drawings.reliability(results).savefig(out / size / "2g.png")
    for claim in claims.reliability(results):
        print(f"{claim.text}: {claim.measured}: {claim.verdict}")


if __name__ == "__main__":
    tyro.cli(main)
