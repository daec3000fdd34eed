"""The layout of a sweep's results: its dimensions and chunks, and how it is merged with a larger one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

Region = tuple[slice, ...]
Coordinates = Mapping[str, tuple[str, np.ndarray, dict[str, str]]]


@dataclass(frozen=True)
class Layout:
    """The dimensions, chunks and variables of a store.

    Attributes:
        dims: length of each chunked dimension, by name; `run` is the last.
        chunk: length of a chunk along each of these dimensions.
        coordinates: (dimension, values, attributes) of each coordinate, by name.
        variables: (dimensions, kind, attributes) of each variable, by name.
        attributes: of the store; `manifest` is JSON that states what the results were computed from.
    """

    dims: dict[str, int]
    chunk: tuple[int, ...]
    coordinates: dict[str, tuple[str, np.ndarray, dict[str, str]]]
    variables: dict[str, tuple[tuple[str, ...], np.dtype, dict[str, str]]]
    attributes: dict[str, str]

    def length(self, name: str) -> int:
        """Length of any dimension, chunked or within a run."""
        return self.dims[name] if name in self.dims else len(self.coordinates[name][1])

    def regions(self) -> list[Region]:
        """The chunks in C order, each as one slice for each dimension in `dims`."""
        starts = [
            [slice(first, min(first + step, length)) for first in range(0, length, step)]
            for length, step in zip(self.dims.values(), self.chunk, strict=True)
        ]
        return list(product(*starts))

    def within(self) -> dict[str, np.ndarray]:
        """Coordinate values of each dimension within a run, by name."""
        return {name: values for name, (dim, values, _) in self.coordinates.items() if dim not in self.dims}


def chunk_lengths(dims: dict[str, int], most: int) -> tuple[int, ...]:
    """Lengths of a chunk of at most `most` runs; the last dimension, `run`, is split first.

    The grid points of one seed thus stay together: they share the stages that do not depend on the axes.

    Args:
        dims: length of each dimension, in order.
        most: runs in a chunk, at least 1.
    """
    lengths = list(dims.values())
    for number in reversed(range(len(lengths))):
        others = int(np.prod(lengths)) // lengths[number]
        lengths[number] = max(1, min(lengths[number], most // others))
    return tuple(lengths)


def fill_value(kind: np.dtype) -> Any:
    """The value of a variable without a result: NaN, or -1 for integers."""
    return np.nan if np.issubdtype(kind, np.floating) else -1


def labels(coordinates: Coordinates, dim: str) -> list[tuple[Any, ...]]:
    """The label of each position along a dimension: the values of all its coordinates.

    Args:
        coordinates: see `Layout`.
        dim: the dimension.

    Returns:
        One tuple for each position, with one value for each coordinate, sorted by coordinate name. Floats are
        rounded to single precision, in which they are computed with; NaN becomes None.
    """
    every = [values.tolist() for _, (along, values, _) in sorted(coordinates.items()) if along == dim]
    return list(zip(*([_label(value) for value in values] for values in every), strict=True))


def _label(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return None if np.isnan(value) else float(np.float32(value))


def places(wanted: Sequence[Any], there: Sequence[Any]) -> np.ndarray:
    """The positions of labels in a list.

    Args:
        wanted: W labels; see `labels`.
        there: the list of labels, without repeats.

    Returns:
        [W] int, the index of each wanted label in `there`, or -1.
    """
    number = {label: place for place, label in enumerate(there)}
    return np.array([number.get(label, -1) for label in wanted], int)


def places_of_runs(wanted: Layout, there: Layout) -> np.ndarray:
    """Index of each run of one layout in another.

    Args:
        wanted: the layout whose runs are counted, in C order.
        there: a layout with the same dimensions, in any order.

    Returns:
        int in the shape of `there.dims`: the run's index in `wanted`, or -1 if `wanted` lacks the run.
    """
    number = np.arange(int(np.prod(list(wanted.dims.values())))).reshape(tuple(wanted.dims.values()))
    number = number.transpose([list(wanted.dims).index(dim) for dim in there.dims])
    for axis, dim in enumerate(there.dims):
        place = places(labels(there.coordinates, dim), labels(wanted.coordinates, dim))
        is_wanted = (place >= 0).reshape([-1 if other == axis else 1 for other in range(number.ndim)])
        number = np.where(is_wanted, number.take(place, axis), -1)
    return number


def merged(old: Layout, new: Layout) -> Layout:
    """Merges two layouts: all runs of the first in its order, then the new runs of the second in its order.

    Args:
        old: the layout of the existing store.
        new: the requested layout, with the same dimensions and coordinates, in any order.

    Returns:
        The layout. Its attribute `order` holds the display order of positions if it differs from the stored order.
        Chunks keep their lengths unless they hold less than a quarter of the runs of a chunk of `new`.
    """
    coordinates = dict(old.coordinates)
    order: dict[str, list[int]] = {}
    for dim in old.dims:
        before, now = labels(old.coordinates, dim), labels(new.coordinates, dim)
        fresh = [place for place, label in enumerate(now) if label not in set(before)]
        for name, (along, values, attributes) in old.coordinates.items():
            if along == dim:
                coordinates[name] = (dim, _joined(values, new.coordinates[name][1][fresh]), attributes)
        order[dim] = _order(labels(coordinates, dim), now, json.loads(old.attributes.get("order", "{}")).get(dim))
    for name, values in new.within().items():
        dim, before, attributes = old.coordinates.get(name, new.coordinates[name])
        is_text = before.dtype == object
        coordinates[name] = (dim, before if is_text else np.union1d(before, values), attributes)
    dims = {dim: len(labels(coordinates, dim)) for dim in old.dims}
    most = int(np.prod(new.chunk))
    chunk = old.chunk if int(np.prod(old.chunk)) * 4 >= most else chunk_lengths(dims, most)
    attributes = old.attributes | new.attributes | {"manifest": _joined_manifest(old, new, coordinates)}
    attributes.pop("order", None)
    order = {dim: places for dim, places in order.items() if places != sorted(places)}
    if order:
        attributes["order"] = json.dumps(order)
    return replace(
        old,
        dims=dims,
        chunk=chunk,
        coordinates=coordinates,
        attributes=attributes,
    )


def _joined(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    is_text = object in (before.dtype, after.dtype)
    return np.concatenate([before, after], dtype=object) if is_text else np.concatenate([before, after])


def _order(every: list[Any], asked: list[Any], before: list[int] | None) -> list[int]:
    """Positions in display order: the requested order if the request covers all of them."""
    if len(asked) == len(every):
        return places(asked, every).tolist()
    return [*(before or []), *range(len(before or []), len(every))]


def _joined_manifest(old: Layout, new: Layout, coordinates: Coordinates) -> str:
    """The manifest of both layouts' runs: their axes and seeds, and all settings and data that any point reads."""
    there, now = (json.loads(one.attributes["manifest"]) for one in (old, new))
    for name, values in there["axes"].items():
        dim = coordinates[name][0]
        fresh = places(labels(coordinates, dim), labels(new.coordinates, dim))[old.dims[dim] :]
        there["axes"][name] = [*values, *(now["axes"][name][place] for place in fresh)]
    there["seeds"] = [int(seed) for seed in coordinates["run"][1]]
    for entries, more in ((there, now), (there.get("data", {}), now.get("data", {}))):
        for name in ("config", "digest"):
            if name in more:
                entries[name] = entries.get(name, {}) | more[name]
    return json.dumps(there, sort_keys=True)


def selected_manifest(manifest: str, asked: Layout) -> str:
    """The manifest of a selection of a store's runs.

    Args:
        manifest: of the store, JSON.
        asked: layout of the requested runs.

    Returns:
        The manifest of the requested runs, JSON, with the commit recorded in the store.
    """
    found, wanted = json.loads(manifest), json.loads(asked.attributes["manifest"])
    return json.dumps(wanted | {name: found[name] for name in ("commit",) if name in found}, sort_keys=True)
