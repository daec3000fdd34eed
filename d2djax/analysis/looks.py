"""How pictures look: colours, line styles, bands, panels; the style is ours only in figures of our own."""

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

# Okabe and Ito's palette, those first that stand out on white: told apart by people with any common colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
LOOKS: dict[str, tuple[str, Any]] = {
    "none": ("#000000", ":"),
    "uniform": ("#E69F00", "--"),
    "rl": ("#0072B2", "-"),
    "nearest": ("#009E73", "-."),
    "best_response": ("#CC79A7", (0, (5, 1))),
    "pooled": ("#56B4E9", (0, (1, 1))),
}
# Thin and without a band: these put the others into proportion.
REFERENCES = ("nearest", "best_response", "pooled")
INTER_COLOUR, INSIDE_COLOUR = "#D55E00", "#555555"
# Of devices: the palette without the colour of the links between clusters.
CLUSTER_COLOURS = tuple(colour for colour in PALETTE if colour != INTER_COLOUR)
CLUSTER_MARKERS = "osD^vphX"

STYLE = Path(__file__).with_name("figures.mplstyle")
P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draws in the style of this package, unless `ax` is given: then the user's own style stays as it is."""

    @wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> Figure:
        is_ours = options.get("ax") is None
        # Text of the size of a caption; read when an artist is made, so around all of a drawing.
        with matplotlib.style.context(STYLE) if is_ours else nullcontext():
            return draw(*args, **options)

    return drawn


def panels(
    ax: Any = None, rows: int = 1, columns: int = 1, width: float = 3.5, height: float = 2.5, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure and its panels, [rows, columns], drawn without a display; those of `ax` if it is given.

    Args:
        ax: axes of the user's, as many as there are panels; none: a figure of our own.
        rows: of panels.
        columns: of panels.
        width: of the figure, inches.
        height: of the figure, inches.
        options: of `Figure.subplots`.

    Raises:
        ValueError: `ax` has another number of axes.
    """
    if ax is None:
        figure = Figure(figsize=(width, height))
        return figure, figure.subplots(rows, columns, squeeze=False, **options)
    given = np.asarray(ax, object)
    if given.size != rows * columns:
        raise ValueError(f"ax must be {rows * columns} axes for this picture; got {given.size}")
    given = given.reshape(rows, columns)
    return given[0, 0].get_figure(root=True), given


def legend(figure: Figure, axes: Axes, is_ours: bool, columns: int = 2, **options: Any) -> None:
    """A legend above a figure of our own, inside axes of the user's."""
    handles = options.pop("handles", None) or axes.get_legend_handles_labels()[0]
    if is_ours:
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, **options)
    else:
        axes.legend(handles=handles, **options)


def looks_of(policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each policy; no two of them are drawn alike, however many there are."""
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
    """Names of the policies of results."""
    return [str(name) for name in values["policy"].values]


def learning(results: xarray.Dataset) -> list[str]:
    """Names of the policies of results that learn: those that have learning curves."""
    if "discovery_reward" not in results:
        return []
    curves = results["discovery_reward"]
    has_curve = curves.notnull().any([dim for dim in curves.dims if dim != "policy"])
    return [str(name) for name in results["policy"].values[has_curve.values]]


def told(runs: int) -> str:
    """What the bands of a picture are, in words."""
    if runs == 1:
        return "1 seed"
    return "bands: range of 2 seeds" if runs == 2 else f"bands: 95 % interval, {runs} seeds"


def band(axes: Axes, x: np.ndarray, samples: np.ndarray, *, bounds: tuple[float, float], **style: Any) -> None:
    """Mean over seeds, [R, ...], with the band of `statistics.limits` around it."""
    mean, low, high = limits(samples, bounds)
    (line,) = axes.plot(x, mean, **style)
    if np.isfinite(low).any():
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def policy_lines(axes: Axes, values: xarray.DataArray, dim: str, **style: Any) -> None:
    """One line for each policy over a dimension: with a band, or thin for those that are only references.

    Args:
        axes: where.
        values: (run, policy, dim), in any order; its name says between which bounds a band stays.
        dim: what goes along the axis.
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
