"""The look of figures: colours, line styles, bands, panels. The package's style leaves the user's axes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from d2djax.analysis.statistics import bounds_of, limits

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

# Okabe and Ito's palette, which suits all common types of colour vision, with the best contrast on white first.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
LOOKS: dict[str, tuple[str, Any]] = {
    "none": ("#000000", ":"),
    "uniform": ("#E69F00", "--"),
    "rl": ("#0072B2", "-"),
    "nearest": ("#009E73", "-."),
    "best_response": ("#CC79A7", (0, (5, 1))),
    "pooled": ("#56B4E9", (0, (1, 1))),
    "offers": ("#D55E00", ":"),
    "informed": ("#D55E00", "--"),
    "matching": ("#CC79A7", "-."),
    "exact": ("#000000", (0, (5, 1))),
    "exponential": ("#E69F00", ":"),
    "epsilon_greedy": ("#D55E00", "-"),
    "ucb": ("#009E73", "-"),
    "thompson": ("#CC79A7", "-"),
    "gumbel": ("#56B4E9", "-"),
    "exp3": ("#000000", "-"),
    "commit": ("#E69F00", "-"),
}
# References for the other policies, drawn thin and without a band.
REFERENCES = ("nearest", "best_response", "pooled", "exact")
INTER_COLOUR, INSIDE_COLOUR = "#D55E00", "#555555"
# Colours of devices: the palette without the colour of links between clusters.
CLUSTER_COLOURS = tuple(colour for colour in PALETTE if colour != INTER_COLOUR)
CLUSTER_MARKERS = "osD^vphX"

STYLE = Path(__file__).with_name("figures.mplstyle")
P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorates a drawing function to use the package's style, unless the caller gives `ax`."""

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> Figure:
        is_ours = options.get("ax") is None
        # Artists read the style when they are created, so it covers the whole drawing.
        with matplotlib.style.context(STYLE) if is_ours else nullcontext():
            return draw(*args, **options)

    return drawn


def panels(
    ax: Any = None, rows: int = 1, columns: int = 1, width: float = 3.5, height: float = 2.5, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Returns a figure and its panels, which need no display.

    Args:
        ax: the user's axes, one for each panel; None: makes a new figure.
        rows: number of rows of panels.
        columns: number of columns of panels.
        width: width of a new figure, inches.
        height: height of a new figure, inches.
        options: options of `Figure.subplots`.

    Returns:
        The figure, and its axes [rows, columns].

    Raises:
        ValueError: `ax` has another number of axes.
    """
    if ax is None:
        figure = Figure(figsize=(width, height))
        return figure, figure.subplots(rows, columns, squeeze=False, **options)
    given = np.asarray(ax, object)
    if given.size != rows * columns:
        raise ValueError(f"ax must be {rows * columns} axes for this figure; got {given.size}")
    given = given.reshape(rows, columns)
    return given[0, 0].get_figure(root=True), given


def legend(figure: Figure, axes: Axes, is_ours: bool, columns: int = 2, **options: Any) -> None:
    """Adds a legend above a new figure, or inside the user's axes.

    Args:
        figure: the figure.
        axes: axes whose labels the legend lists.
        is_ours: whether the package made the figure.
        columns: number of columns above a figure.
        options: options of `legend`.
    """
    handles = options.pop("handles", None) or axes.get_legend_handles_labels()[0]
    if is_ours:
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, **options)
    else:
        axes.legend(handles=handles, **options)


def looks_of(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns a distinct colour and line style for each policy; beyond about 50 policies, the others are grey.

    Args:
        policies: names of policies, built in or not.

    Returns:
        `color` and `linestyle` of Matplotlib for each policy.
    """
    free = (one for one in product(DASHES, PALETTE) if (one[1], one[0]) not in LOOKS.values())
    found = {}
    for policy in policies:
        if policy in LOOKS:
            colour, dash = LOOKS[policy]
        else:
            dash, colour = next(free, ("-", "#999999"))
        found[policy] = {"color": colour, "linestyle": dash}
    return found


def policies_of(values: xarray.DataArray | xarray.Dataset) -> list[str]:
    """Returns the names of the policies in results."""
    return [str(name) for name in values["policy"].values]


def learning(results: xarray.Dataset) -> list[str]:
    """Returns the names of the policies that learn.

    Args:
        results: results of `run` or `sweep`; a policy learns if it has a curve of the reward during discovery.
    """
    if "discovery_reward" not in results:
        return []
    curves = results["discovery_reward"]
    has_curve = curves.notnull().any([dim for dim in curves.dims if dim != "policy"])
    return [str(name) for name in results["policy"].values[has_curve.values]]


def told(runs: int) -> str:
    """Describes the bands of a figure for its legend, given the number of runs."""
    if runs == 1:
        return "1 seed"
    return "bands: range of 2 seeds" if runs == 2 else f"bands: 95 % interval, {runs} seeds"


def band(axes: Axes, x: np.ndarray, samples: np.ndarray, *, bounds: tuple[float, float], **style: Any) -> None:
    """Draws the mean over seeds with the band of `statistics.limits`.

    Args:
        axes: where to draw.
        x: [K] coordinates.
        samples: [R, K] float, one row for each seed.
        bounds: limits of the band, see `statistics.bounds_of`.
        style: options of the line.
    """
    mean, low, high = limits(samples, bounds)
    (line,) = axes.plot(x, mean, **style)
    if np.isfinite(low).any():
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def whiskers(axes: Axes, x: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, label: str) -> None:
    """Draws the limits of bars, unless none of them has limits.

    Args:
        axes: where to draw.
        x: [K] coordinates.
        mean: [K] heights of the bars.
        low: [K] lower limits; see `statistics.limits`.
        high: [K] upper limits.
        label: of the artist, for the numbers of the figure; one that begins with `_` is not in the legend.
    """
    if np.isfinite(low).any():
        style = {"fmt": " ", "ecolor": "black", "elinewidth": 0.6, "capsize": 1.2, "capthick": 0.6}
        axes.errorbar(x, mean, (mean - low, high - mean), label=label, **style)


def policy_lines(axes: Axes, values: xarray.DataArray, dim: str, **style: Any) -> None:
    """Draws one line for each policy along a dimension, with a band, or thin and without one for `REFERENCES`.

    Args:
        axes: where to draw.
        values: (run, policy, dim) in any order; its name determines the bounds of the bands.
        dim: the dimension along the x axis.
        style: options of all lines.
    """
    for policy, look in looks_of(policies_of(values)).items():
        one = values.sel(policy=policy).dropna(dim, how="all").transpose("run", dim)
        options: dict[str, Any] = {"label": policy} | look | style
        if policy in REFERENCES:
            options["linewidth"] = 0.8
            axes.plot(one[dim].values, one.mean("run").values, **options)
        else:
            band(axes, one[dim].values, one.values, bounds=bounds_of(str(values.name)), **options)
