"""A cache of synthesised points, since synthesising many takes minutes."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data.types import DataError, Dataset
from d2djax.storage import files

# Limits of the cache of each data set: the oldest files are removed, and larger data sets are not cached.
MOST_FILES = 4
MOST_BYTES = 2**31


def folder(data_set: str) -> Path | None:
    """The cache folder of a data set.

    Args:
        data_set: its name.

    Returns:
        `$XDG_CACHE_HOME/d2djax/<data set>-made`, or under `~/.cache`; None if `D2DJAX_CACHE=0`.
    """
    base = files.cache_folder()
    return None if base is None else base / f"{data_set}-made"


def _name(makers: Sequence[str], options: Mapping[str, Any]) -> str:
    """File name of a cached data set: a digest of the code that makes it, NumPy's version and the options."""
    found = hashlib.blake2b(digest_size=16)
    for file in makers:
        found.update(Path(file).read_bytes())
    found.update(repr((np.__version__, sorted(options.items()))).encode())
    return f"{found.hexdigest()}.npz"


def _read(path: Path, data_set: str) -> Dataset | None:
    """The cached data set, or None if it is missing or damaged (every part has a checksum)."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            names = tuple(str(name) for name in kept["class_names"])
            return Dataset(kept["x"], kept["y"], names, data_set, str(kept["source"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, DataError):
        return None


def made_once(
    data_set: str, makers: Sequence[str], options: Mapping[str, Any], make: Callable[[], Dataset]
) -> Dataset:
    """Synthesises points, or reads them from the cache if the same code made them with the same options.

    Args:
        data_set: name of the data set that `make` returns.
        makers: paths of the source files whose code makes the points.
        options: the options of `make`, by name.
        make: makes the data set; called without arguments.

    Returns:
        The data set, bit for bit equal to the result of `make`. If it cannot be cached, it is made each time.
    """
    place = folder(data_set)
    if place is None:
        return make()
    path = place / _name(makers, options)
    kept = _read(path, data_set)
    if kept is not None:
        return kept
    made = make()
    if made.x.nbytes <= MOST_BYTES:
        try:
            place.mkdir(parents=True, exist_ok=True)
            with files.replacing(path) as new, new.open("wb") as file:
                names = np.array(made.class_names)
                np.savez(file, x=made.x, y=made.y, class_names=names, source=np.array(made.source))
            for old in sorted(place.glob("*.npz"), key=os.path.getmtime)[:-MOST_FILES]:
                old.unlink(missing_ok=True)
        except OSError:
            # A full disk or a read-only folder costs time but no result.
            return made
    return made
