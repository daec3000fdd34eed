"""The numbers behind a picture, read back from what it shows, as CSV."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import matplotlib.colors
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch


def _limits_of(collection: PolyCollection) -> dict[float, tuple[float, float]]:
    """Lower and upper limit of a band at each x; what `fill_between` drew, read back."""
    found = {}
    for path in collection.get_paths():
        corners = np.asarray(path.vertices)
        count = (len(corners) - 3) // 2
        lower, upper = corners[1 : count + 1], corners[count + 2 : 2 * count + 2][::-1]
        found |= {float(x): (float(low), float(high)) for (x, low), (_, high) in zip(lower, upper, strict=True)}
    return found


def _rows(axes: Axes) -> Iterator[list[Any]]:
    """Panel, series, x, y and limits of all that axes show, except arrows and texts; warns of what is left out."""
    panel = axes.get_title() or axes.get_ylabel()
    bands = [one for one in axes.collections if isinstance(one, PolyCollection)]
    whiskers = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    for line in (one for one in axes.lines if one not in [held.lines[0] for held in whiskers]):
        name = str(line.get_label())
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        # A band is drawn right after its line, in its colour and over the same places.
        own = [one for one in bands if _belongs(one, line)]
        limits_at = _limits_of(own[0]) if own else {}
        bands = [one for one in bands if one not in own[:1]]
        # A level has no places of its own.
        x = np.full(len(x[:1]), np.nan) if line.get_transform() != axes.transData else x
        for place, value in zip(x, y, strict=False):
            yield [panel, name, place, value, *limits_at.get(float(place), (np.nan, np.nan))]
    ticks = [[tick.get_text() for tick in axis.get_ticklabels()] for axis in (axes.xaxis, axes.yaxis)]
    for bars in (one for one in axes.containers if isinstance(one, BarContainer)):
        is_wide = bars.orientation == "horizontal"
        for number, bar in enumerate(bars.patches):
            if is_wide:
                place, name, ends = bar.get_y() + bar.get_height() / 2, ticks[1][number], (np.nan, np.nan)
            else:
                # The text under a group of bars; where a bar that stands on another begins and ends.
                place = (ticks[0][number : number + 1] or [""])[0] or bar.get_x() + bar.get_width() / 2
                name = bar.get_gid() or str(bars.get_label()).lstrip("_")
                ends = bar.get_y(), bar.get_y() + bar.get_height()
            yield [panel, name, place, bar.get_width() if is_wide else bar.get_height(), *ends]
    for held in whiskers:
        values, ends = np.asarray(held.lines[0].get_ydata(), float), held.lines[2][0].get_segments()
        for number, (value, ((_, low), (_, high))) in enumerate(zip(values, ends, strict=True)):
            place = (ticks[0][number : number + 1] or [""])[0] or number
            yield [panel, str(held.get_label()).lstrip("_"), place, value, low, high]
    for image in axes.images:
        for (row, column), value in np.ndenumerate(np.asarray(image.get_array(), float)):
            yield [panel, f"{axes.get_ylabel()} = {ticks[1][row]}", ticks[0][column], value, np.nan, np.nan]
    _tell_what_is_left(axes, panel, bands)


def _tell_what_is_left(axes: Axes, panel: str, bands: list[PolyCollection]) -> None:
    """Warns of what axes show that is no row; `bands` are those that belong to no line."""
    read: list[Artist] = []
    for held in axes.containers:
        read += held.patches if isinstance(held, BarContainer) else []
        read += held.lines[2] if isinstance(held, ErrorbarContainer) else []
    others = [one for one in axes.collections if one in bands or not isinstance(one, PolyCollection)]
    shown = [one for one in (*axes.patches, *others) if one not in read and not isinstance(one, FancyArrowPatch)]
    # The scale of a heat map has no numbers of its own.
    if shown and axes.get_label() != "<colorbar>":
        kinds = ", ".join(sorted({type(one).__name__ for one in shown}))
        warnings.warn(f"panel {panel!r} also shows {kinds}: not in the CSV of its numbers", stacklevel=5)


def _belongs(collection: PolyCollection, line: Line2D) -> bool:
    colour = matplotlib.colors.to_rgb(line.get_color())
    face = collection.get_facecolor()
    same_colour = len(face) and np.allclose(np.asarray(face)[0][:3], colour)
    places = {float(x) for x in np.asarray(line.get_xdata(), float)}
    return bool(same_colour and set(_limits_of(collection)) <= places)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; nine digits hold all of a single-precision number, and what is no number is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_shown(value) for value in row])
    return text.getvalue()


def _shown(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.9g}" if np.isfinite(value) else ""
    return str(value)


def numbers_of(figure: Figure) -> str:
    """The numbers that a figure shows, as CSV: panel, series, x, y, and limits of a band or ends of a bar.

    Lines, bands around them, bars, whiskers and heat maps are read; a warning names what else a panel shows, such
    as the `PathCollection` of a scatter.
    """
    rows = (row for axes in figure.axes for row in _rows(axes))
    return table(("panel", "series", "x", "y", "low", "high"), rows)
