"""The paper's figures 2a to 2h, and more: which studies each is drawn from, and what it claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from d2djax.analysis import claims, drawings, studies
from d2djax.analysis.claims import Claim
from d2djax.analysis.plots import accuracy_curves
from d2djax.analysis.readout import numbers_of
from d2djax.analysis.statistics import data_of
from d2djax.storage import files

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure.

    Attributes:
        title: what it shows.
        studies: keys of `studies.STUDIES`.
        draw: makes the picture from the results of each study.
        claims: makes the claims from the results of one study.
    """

    title: str
    studies: tuple[str, ...]
    draw: Callable[..., Figure]
    claims: Callable[[xarray.Dataset], list[Claim]] = lambda results: []


FIGURES: dict[str, Drawing] = {
    "2a": Drawing("RadioML: accuracy while training", ("radioml",), accuracy_curves, claims.learning),
    "2b": Drawing("CIFAR-10: accuracy while training", ("cifar10",), accuracy_curves, claims.learning),
    "2c": Drawing("Fashion-MNIST: accuracy while training", ("fashion_mnist",), accuracy_curves, claims.learning),
    "2d": Drawing("FedProx and FedSGD", ("schemes",), drawings.schemes, claims.learning),
    "2e": Drawing("Stragglers", ("stragglers",), drawings.stragglers, claims.stragglers),
    "2f": Drawing("Energy to a benchmark", ("radioml", "cifar10", "fashion_mnist"), drawings.energy, claims.energy),
    "2g": Drawing("Reliability of the links", ("graphs",), drawings.reliability, claims.reliability),
    "2h": Drawing("Aggregation interval", ("intervals",), drawings.intervals, claims.intervals),
    "regret": Drawing("Regret against the best response", ("graphs",), drawings.regret),
    "degrees": Drawing("Degrees and clusters of the graphs", ("graphs",), drawings.degrees),
    "weights": Drawing("Terms of the reward against its weights", ("weights",), drawings.weights),
    "exploration": Drawing(
        "Temperature and the value of untried links", ("graphs", "exploration"), drawings.exploration
    ),
    "devices": Drawing("Number of devices", ("devices",), drawings.devices),
}


# Of the files that a figure is written to: pictures, claims, the numbers that it shows.
SUFFIXES = (".png", ".pdf", ".json", ".csv")


def check_names(names: Sequence[str]) -> list[str]:
    """Names of figures, `all` written out.

    Raises:
        ValueError: there is none of that name.
    """
    unknown = [name for name in names if name not in (*FIGURES, "all")]
    if unknown or not names:
        raise ValueError(f"figure must be one of {', '.join(FIGURES)}, all; got {', '.join(unknown) or 'none'}")
    return [name for name in FIGURES if name in names or "all" in names]


def draw(
    names: Sequence[str],
    size: studies.Size = "toy",
    out: str | Path = "figures",
    *,
    seeds: int | None = None,
    folders: Mapping[str, str | None] = {},
    progress: bool = True,
) -> Iterator[tuple[Path, list[Claim]]]:
    """Computes what figures need, once for all of them, and saves each as PNG and PDF.

    Beside each are what it claims, as JSON, and the numbers that it shows, as CSV.

    Args:
        names: keys of `FIGURES`.
        size: toy, small or paper.
        out: pictures go to `<out>/<size>`, results to a folder in it for each study.
        seeds: number of runs; none: as the size says.
        folders: of data sets, by name; none: the usual places.
        progress: shows progress on standard error.

    Yields:
        Path of each PNG, and the claims that the figure is about.

    Raises:
        DataError: a data set cannot be found or read; nothing has been computed then.
        ValueError: there are other results in the folder.
    """
    needed = list(dict.fromkeys(study for name in check_names(names) for study in FIGURES[name].studies))
    place = {study: folders.get(str(studies.STUDIES[study].settings.get("dataset"))) for study in needed}
    for study in needed:
        studies.check_data(study, size, place[study])
    done: dict[str, xarray.Dataset] = {}
    for name in check_names(names):
        drawing, picture = FIGURES[name], Path(out) / size / f"{name}.png"
        for study in drawing.studies:
            if study not in done:
                done[study] = studies.compute(
                    study, size, out, seeds=seeds, data_dir=place[study], progress=progress
                )
        results = [done[study] for study in drawing.studies]
        found = [claim for one in results for claim in drawing.claims(one)]
        drawn = noted(drawing.draw(*results), size, results)
        _save(drawn, picture)
        files.write_text(picture.with_suffix(".csv"), numbers_of(drawn))
        seeds_used = [int(seed) for seed in results[-1]["run"].values]
        numbers = {"title": drawing.title, "size": size, "seeds": seeds_used}
        numbers["claims"] = [asdict(one) for one in found]
        files.write_text(picture.with_suffix(".json"), json.dumps(numbers, indent=1) + "\n")
        yield picture, found


def noted(figure: Figure, size: studies.Size, results: Sequence[xarray.Dataset]) -> Figure:
    """Says in the picture that its numbers mean nothing, where they are those of a toy or of stand-in data."""
    made_up = any(data_of(one).startswith("stand-in") for one in results)
    if size == "toy" or made_up:
        data = ", stand-in data drawn in process" if made_up else ""
        figure.supxlabel(f"size {size}{data}: the numbers mean nothing", fontsize=7, color="#B00000")
    return figure


def _save(figure: Figure, picture: Path) -> None:
    for suffix in (".png", ".pdf"):
        with files.replacing(picture.with_suffix(suffix)) as new:
            figure.savefig(new, format=suffix[1:])
