"""Results on disk while they are made: laid out first, filled chunk by chunk, readable all the time."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from d2djax import files
from d2djax.identity import differences

DONE = "done"
Region = tuple[slice, ...]


@dataclass(frozen=True)
class Layout:
    """Where results go.

    Attributes:
        dims: length of each dimension over which chunks run, by name; `run` is the last.
        chunk: length of a chunk along each of them.
        coordinates: (dimension, values, attributes) of each coordinate, by name.
        variables: (dimensions, kind, attributes) of each variable, by name.
        attributes: of the whole; `manifest` is JSON that says what the results are of.
    """

    dims: dict[str, int]
    chunk: tuple[int, ...]
    coordinates: dict[str, tuple[str, np.ndarray, dict[str, str]]]
    variables: dict[str, tuple[tuple[str, ...], np.dtype, dict[str, str]]]
    attributes: dict[str, str]

    def length(self, name: str) -> int:
        """Length of any dimension."""
        return self.dims[name] if name in self.dims else len(self.coordinates[name][1])

    def regions(self) -> list[Region]:
        """The chunks, each as a slice of every dimension in `dims`."""
        starts = [
            [slice(first, min(first + step, length)) for first in range(0, length, step)]
            for length, step in zip(self.dims.values(), self.chunk, strict=True)
        ]
        return list(product(*starts))


def chunk_lengths(dims: dict[str, int], most: int) -> tuple[int, ...]:
    """Lengths of a chunk of at most `most` runs, whole in as many of the first dimensions as possible.

    The points of a seed are computed together, since they share what does not depend on the axes: `run`, the
    last dimension, is cut first.
    """
    lengths = list(dims.values())
    for number in reversed(range(len(lengths))):
        others = int(np.prod(lengths)) // lengths[number]
        lengths[number] = max(1, min(lengths[number], most // others))
    return tuple(lengths)


def fill_value(kind: np.dtype) -> Any:
    """What stands where there is no result: NaN, or -1 for whole numbers."""
    return np.nan if np.issubdtype(kind, np.floating) else -1


def create(layout: Layout, path: Path) -> None:
    """Lays a store out, whole or not at all; where another process was faster, its store stays."""
    import xarray
    import zarr

    with files.replacing(path, keep=True) as new:
        empty = xarray.Dataset(coords=layout.coordinates, attrs=layout.attributes)
        empty.to_zarr(new, mode="w-", zarr_format=3, consolidated=False)
        group = zarr.open_group(new, mode="r+")
        marks = {DONE: (tuple(layout.dims), np.dtype(np.int8), {"long_name": "1: this run is finished"})}
        by_dim = dict(zip(layout.dims, layout.chunk, strict=True))
        for name, (dims, kind, attributes) in (layout.variables | marks).items():
            array = group.create_array(
                name,
                shape=tuple(layout.length(dim) for dim in dims),
                chunks=tuple(by_dim.get(dim, layout.length(dim)) for dim in dims),
                dtype=kind,
                fill_value=0 if name == DONE else fill_value(kind),
                dimension_names=dims,
            )
            array.attrs.update(attributes)


def check_same(path: Path, wanted: dict[str, Any]) -> None:
    """Checks that a store holds the results that a sweep would put there.

    Args:
        path: the store.
        wanted: the manifest of the sweep.

    Raises:
        ValueError: `path` is something else, or a store of other results; the differences are named.
    """
    import zarr

    try:
        found = json.loads(str(zarr.open_group(path, mode="r").attrs["manifest"]))
    except (OSError, KeyError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: there is something here that is not a sweep; choose another folder")
    different = differences(found, wanted)
    if different:
        raise ValueError(f"{path}: results of another sweep are here ({different}); choose another folder")


def progress_of(path: Path) -> tuple[tuple[int, ...], np.ndarray]:
    """Lengths of a chunk of a store, and for every run 1 if it is done, in the shape of the first dimensions."""
    import zarr

    marks = zarr.open_array(path / DONE, mode="r")
    return marks.chunks, np.asarray(marks[...])


def write(path: Path, region: Region, values: dict[str, np.ndarray]) -> None:
    """Writes the results of one chunk, and marks it as finished when all of them are there.

    Raises:
        OSError: the disk is full or gone; the chunk counts as not computed.
    """
    import zarr

    marks = np.ones(tuple(part.stop - part.start for part in region), np.int8)
    # The marks last: what is not marked is computed again.
    for name, array in (values | {DONE: marks}).items():
        zarr.open_array(path / name, mode="r+")[region] = array


def clean(path: Path) -> None:
    """Removes what a process left that was stopped while it wrote; for a store that nobody else writes to."""
    leftovers = (*path.rglob("*.partial"), *path.parent.glob(f"{path.name}.*.partial"))
    for one in leftovers:
        shutil.rmtree(one) if one.is_dir() else one.unlink(missing_ok=True)
