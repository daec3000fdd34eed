"""Lists the paper's figures 2a to 2h and further ones, with their studies and claims, and computes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from d2djax.analysis import claims, drawings, league, studies
from d2djax.analysis.claims import Claim
from d2djax.analysis.plots import accuracy_curves
from d2djax.analysis.readout import numbers_of
from d2djax.analysis.statistics import data_of
from d2djax.analysis.studies import CIFAR10, COMPARED, FASHION_MNIST, GRAPHS, RADIOML, REGIME_STUDIES, Study
from d2djax.storage import files

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureOf:
    """One figure: its studies and its functions.

    Attributes:
        title: what it shows.
        studies: the sweeps that it needs; different studies have different names.
        draw: draws the figure from the results of each study.
        claims: returns the claims for the results of one study.
    """

    title: str
    studies: tuple[Study, ...]
    draw: Callable[..., Figure]
    claims: Callable[[xarray.Dataset], list[Claim]] = lambda results: []


# Each figure is an entry here and a function that draws it. The command line takes its names from here.
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
    "league": FigureOf("All policies, from plenty to scarcity", REGIME_STUDIES, league.league, league.claims),
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
                # Without best response: a central search over 400 devices takes much longer than everything else.
                {"policies": ("uniform", "rl", "nearest"), "num_states": 3},
                {"num_devices": (10, 25, 50, 100, 200, 400)},
                trains=False,
                toy_axes={"num_devices": (8, 12)},
            ),
        ),
        drawings.devices,
    ),
}


# Suffixes of the files of a figure: images, claims, and the numbers that it shows.
SUFFIXES = (".png", ".pdf", ".json", ".csv")


def check_names(names: Sequence[str]) -> list[str]:
    """Checks names of figures and expands `all`.

    Args:
        names: keys of `FIGURES`, or `all`.

    Returns:
        The keys, in the order of `FIGURES`.

    Raises:
        ValueError: a name is unknown, or there is none.
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
    """Computes each study of the figures once, and saves each figure as PNG and PDF.

    Beside each figure, it saves the claims as JSON and the numbers that the figure shows as CSV.

    Args:
        names: keys of `FIGURES`, or `all`.
        size: toy, small or paper.
        out: figures go to `<out>/<size>`, and the results of each study to a subfolder.
        seeds: number of runs of each point; None: the number of the size.
        folders: folder of each data set by name; None: the standard folders.
        progress: whether to show progress on standard error.

    Yields:
        The path of each PNG file, and the claims of the figure.

    Raises:
        DataError: a data set cannot be found or read; this is checked before any computation.
        ValueError: a name is unknown, or the folder holds other results.
    """
    needed = {study.name: study for name in check_names(names) for study in FIGURES[name].studies}
    # A study may use the default data set; a study without training reads no points.
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
    """Adds a note to a figure of size toy or with stand-in data that its numbers mean nothing.

    Args:
        figure: the figure, which is changed.
        size: size of its studies.
        results: results of its studies.

    Returns:
        The same figure.
    """
    made_up = any(data_of(one).startswith("stand-in") for one in results)
    if size == "toy" or made_up:
        data = ", stand-in data drawn in process" if made_up else ""
        figure.supxlabel(f"size {size}{data}: the numbers mean nothing", fontsize=7, color="#B00000")
    return figure


def _save(figure: Figure, picture: Path) -> None:
    for suffix in (".png", ".pdf"):
        with files.replacing(picture.with_suffix(suffix)) as new:
            figure.savefig(new, format=suffix[1:])
