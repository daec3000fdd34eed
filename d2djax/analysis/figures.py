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
from d2djax.analysis.studies import CIFAR10, COMPARED, FASHION_MNIST, GRAPHS, RADIOML, Study
from d2djax.storage import files

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureOf:
    """One figure: what it is drawn from, and by what.

    Attributes:
        title: what it shows.
        studies: the sweeps that it is drawn from; studies of different content have different names.
        draw: makes the picture from the results of each study.
        claims: makes the claims from the results of one study.
    """

    title: str
    studies: tuple[Study, ...]
    draw: Callable[..., Figure]
    claims: Callable[[xarray.Dataset], list[Claim]] = lambda results: []


# A figure is one entry here, and a function that draws it. The command line takes its names from here.
FIGURES: dict[str, FigureOf] = {
    "2a": FigureOf("RadioML: accuracy while training", (RADIOML,), accuracy_curves, claims.learning),
    "2b": FigureOf("CIFAR-10: accuracy while training", (CIFAR10,), accuracy_curves, claims.learning),
    "2c": FigureOf("Fashion-MNIST: accuracy while training", (FASHION_MNIST,), accuracy_curves, claims.learning),
    "2d": FigureOf(
        "FedProx and FedSGD",
        (Study("schemes", {"dataset": "fashion_mnist", "policies": COMPARED}, {"scheme": ("fedprox", "fedsgd")}),),
        drawings.schemes,
        claims.learning,
    ),
    "2e": FigureOf(
        "Stragglers",
        (
            Study(
                "stragglers",
                {"dataset": "fashion_mnist", "policies": COMPARED},
                {"num_stragglers": (0, 5, 10, 15)},
                toy_axes={"num_stragglers": (0, 4)},
            ),
        ),
        drawings.stragglers,
        claims.stragglers,
    ),
    "2f": FigureOf("Energy to a benchmark", (RADIOML, CIFAR10, FASHION_MNIST), drawings.energy, claims.energy),
    "2g": FigureOf("Reliability of the links", (GRAPHS,), drawings.reliability, claims.reliability),
    "2h": FigureOf(
        "Aggregation interval",
        (
            Study(
                "intervals",
                {"dataset": "fashion_mnist", "policies": COMPARED},
                {"aggregation_interval": (10, 25, 50, 100, 250)},
                toy_axes={"aggregation_interval": (5, 10)},
            ),
        ),
        drawings.intervals,
        claims.intervals,
    ),
    "regret": FigureOf("Regret against the best response", (GRAPHS,), drawings.regret),
    "degrees": FigureOf("Degrees and clusters of the graphs", (GRAPHS,), drawings.degrees),
    "weights": FigureOf(
        "Terms of the reward against its weights",
        (
            Study(
                "weights",
                {"policies": ("rl",)},
                {
                    "gamma": (0.0, 0.25, 0.5, 1.0, 2.0),
                    "alpha_outage": (0.5, 1.0, 2.0, 4.0, 8.0),
                    "alpha_budget": (0.0, 0.001, 0.003, 0.01, 0.03),
                },
                trains=False,
                toy_axes={"gamma": (0.0, 0.5), "alpha_outage": (0.5, 2.0), "alpha_budget": (0.0, 0.001)},
            ),
        ),
        drawings.weights,
    ),
    "exploration": FigureOf(
        "Temperature and the value of untried links",
        (
            GRAPHS,
            Study(
                "exploration",
                {"policies": ("rl",)},
                {
                    "temperature": (0.1, 0.3, 1.0, 3.0, 10.0),
                    "initial_value": (0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 40.0),
                },
                trains=False,
                toy_axes={"temperature": (0.3, 1.0), "initial_value": (0.0, 16.0)},
            ),
        ),
        drawings.exploration,
    ),
    "devices": FigureOf(
        "Number of devices",
        (
            Study(
                "devices",
                # No best response: a central search over 400 devices takes many times what all else does.
                {"policies": ("uniform", "rl", "nearest"), "num_states": 3},
                {"num_devices": (10, 25, 50, 100, 200, 400)},
                trains=False,
                toy_axes={"num_devices": (8, 12)},
            ),
        ),
        drawings.devices,
    ),
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
    needed = {study.name: study for name in check_names(names) for study in FIGURES[name].studies}
    # Also of a study that leaves the data set at its default; of graphs alone no points are read.
    data_sets = {name: studies.settings_of(study, size)[0].dataset for name, study in needed.items()}
    place = {name: folders.get(data_sets[name]) if study.trains else None for name, study in needed.items()}
    for name, study in needed.items():
        studies.check_data(study, size, place[name])
    done: dict[str, xarray.Dataset] = {}
    for name in check_names(names):
        figure, picture = FIGURES[name], Path(out) / size / f"{name}.png"
        for study in figure.studies:
            if study.name not in done:
                done[study.name] = studies.compute(
                    study, size, out, seeds=seeds, data_dir=place[study.name], progress=progress
                )
        results = [done[study.name] for study in figure.studies]
        found = [claim for one in results for claim in figure.claims(one)]
        drawn = noted(figure.draw(*results), size, results)
        _save(drawn, picture)
        files.write_text(picture.with_suffix(".csv"), numbers_of(drawn))
        seeds_used = [int(seed) for seed in results[-1]["run"].values]
        numbers = {"title": figure.title, "size": size, "seeds": seeds_used}
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
