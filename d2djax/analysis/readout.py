"""Reads the numbers that a figure shows back from its artists, as CSV."""

from __future__ import annotations

import csv
import functools
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import matplotlib.colors
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PolyCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FixedFormatter, FuncFormatter


def _limits_of(collection: PolyCollection) -> dict[float, tuple[float, float]]:
    """Returns the lower and upper limit of a band at each x, from the polygon of `fill_between`."""
    found = {}
    for path in collection.get_paths():
        corners = np.asarray(path.vertices)
        count = (len(corners) - 3) // 2
        lower, upper = corners[1 : count + 1], corners[count + 2 : 2 * count + 2][::-1]
        found |= {float(x): (float(low), float(high)) for (x, low), (_, high) in zip(lower, upper, strict=True)}
    return found


def _texts(axis: Axis, places: np.ndarray) -> list[str]:
    """Returns the tick texts that were set by hand at some coordinates; none unless each has a distinct text."""
    formatter = axis.get_major_formatter()
    # `set_xticks` with texts installs a partial as formatter; any other function formats numbers.
    is_by_hand = isinstance(formatter, (FixedFormatter, StrCategoryFormatter)) or (
        isinstance(formatter, FuncFormatter) and isinstance(formatter.func, functools.partial)
    )
    ticks = np.asarray(axis.get_majorticklocs(), float)
    if not is_by_hand or not len(ticks):
        return []
    texts = formatter.format_ticks(list(ticks))
    # Bars of a group are beside their tick, closer to it than to the next one.
    reach = np.diff(np.unique(ticks)).min(initial=np.inf) / 2 if len(ticks) > 1 else 0.5
    distances = np.abs(places[:, None] - ticks)
    nearest = distances.argmin(axis=1)
    found = [texts[number] for number in nearest]
    is_own = len(set(nearest)) == len(places) and bool((distances.min(axis=1) < reach).all())
    return found if is_own and all(found) else []


def _ends_of(held: ErrorbarContainer, x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    """Returns the ends of each whisker, NaN where none is drawn; empty if they are not plain intervals of y."""
    _, caps, collections = held.lines
    # Arrows instead of caps mark an open end.
    is_open = any(cap.get_marker() not in ("_", "|") for cap in caps)
    if not held.has_yerr or held.has_xerr or is_open or len(segments := collections[0].get_segments()) != len(y):
        return []
    ends = []
    for place, value, segment in zip(x, y, segments, strict=True):
        corners = np.asarray(segment, float).reshape(-1, 2)
        if len(corners) < 2:
            ends.append((np.nan, np.nan))
            continue
        (left, low), (right, high) = corners
        if not (left == right == place and low <= value <= high):
            return []
        ends.append((float(low), float(high)))
    return ends


def _cells(axes: Axes, image: AxesImage, values: np.ndarray) -> Iterator[list[Any]]:
    """Yields row, column and value of each cell of a heat map."""
    left, right, bottom, top = image.get_extent()
    first, last = (bottom, top) if image.origin == "lower" else (top, bottom)
    rows, columns = ((np.arange(number) + 0.5) / number for number in values.shape)
    rows, columns = first + rows * (last - first), left + columns * (right - left)
    names = _texts(axes.yaxis, rows) or [_shown(row) for row in rows]
    texts = _texts(axes.xaxis, columns) or columns
    for (row, column), value in np.ndenumerate(values):
        yield [f"{axes.get_ylabel()} = {names[row]}", texts[column], value]


def _rows(axes: Axes) -> Iterator[list[Any]]:
    """Yields panel, series, x, y and limits of what axes show, except arrows and texts; warns of omissions."""
    panel = axes.get_title() or axes.get_ylabel()
    bands = [one for one in axes.collections if isinstance(one, PolyCollection)]
    whiskers = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    read: list[Artist] = []
    of_whiskers = [one for held in whiskers for one in (held.lines[0], *held.lines[1])]
    for line in (one for one in axes.lines if one not in of_whiskers):
        name = str(line.get_label())
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        # A band follows its line, with the same colour and the same coordinates.
        own = [one for one in bands if _belongs(one, line)]
        limits_at = _limits_of(own[0]) if own else {}
        bands = [one for one in bands if one not in own[:1]]
        # A horizontal level has no x coordinates.
        x = np.full(len(x[:1]), np.nan) if line.get_transform() != axes.transData else x
        for place, value in zip(x, y, strict=False):
            yield [panel, name, place, value, *limits_at.get(float(place), (np.nan, np.nan))]
    for bars in (one for one in axes.containers if isinstance(one, BarContainer)):
        is_wide = bars.orientation == "horizontal"
        read += bars.patches
        starts = [(bar.get_y(), bar.get_height()) if is_wide else (bar.get_x(), bar.get_width()) for bar in bars]
        places = np.array([start + size / 2 for start, size in starts], float)
        texts = _texts(axes.yaxis if is_wide else axes.xaxis, places)
        for number, (bar, place) in enumerate(zip(bars.patches, places, strict=True)):
            name = bar.get_gid() or str(bars.get_label()).lstrip("_")
            if is_wide:
                yield [panel, texts[number] if texts else name, place, bar.get_width(), np.nan, np.nan]
            else:
                # The ends of a stacked bar.
                ends = bar.get_y(), bar.get_y() + bar.get_height()
                yield [panel, name, texts[number] if texts else place, bar.get_height(), *ends]
    for held in (one for one in whiskers if one.lines[0] is not None):
        x, y = (np.asarray(one, float) for one in held.lines[0].get_data(orig=False))
        ends, texts = _ends_of(held, x, y), _texts(axes.xaxis, x)
        read += held.lines[2] if ends else []
        for number, (place, value) in enumerate(zip(x, y, strict=True)):
            limits = ends[number] if ends else (np.nan, np.nan)
            yield [panel, str(held.get_label()).lstrip("_"), texts[number] if texts else place, value, *limits]
    for image in axes.images:
        values = np.ma.filled(np.ma.asarray(image.get_array()).astype(float), np.nan)
        # An image of given colours has no numbers.
        if values.ndim == 2:
            read.append(image)
            yield from ([panel, *row, np.nan, np.nan] for row in _cells(axes, image, values))
    _tell_what_is_left(axes, panel, bands, read)


def _tell_what_is_left(axes: Axes, panel: str, bands: list[PolyCollection], read: list[Artist]) -> None:
    """Warns of artists that are not in the rows; `bands` are those without a line."""
    others = [one for one in axes.collections if one in bands or not isinstance(one, PolyCollection)]
    drawn = (*axes.patches, *axes.images, *others)
    shown = [one for one in drawn if one not in read and not isinstance(one, FancyArrowPatch)]
    # A colour bar has no numbers of its own.
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
    """Formats rows as CSV.

    Args:
        head: names of the columns.
        rows: values of each row. Floats get nine digits, which represent single precision exactly; NaN and
            infinities become empty.
    """
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
    """Returns the numbers that a figure shows as CSV: panel, series, x, y, and limits of a band or ends of a bar.

    It reads lines, their bands, bars, whiskers and heat maps. Tick texts that were set by hand replace the
    coordinates of bars, whiskers and cells. A warning names what else a panel shows, such as the `PathCollection`
    of a scatter plot, or the `LineCollection` of whiskers that are not one interval of y for each value.

    Args:
        figure: the figure.
    """
    rows = (row for axes in figure.axes for row in _rows(axes))
    return table(("panel", "series", "x", "y", "low", "high"), rows)
