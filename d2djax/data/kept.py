"""Points that were made once: kept in the cache folder, since making many takes minutes."""

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

# Of the points of one data set that are kept, the oldest go.
MOST_FILES = 4
MOST_BYTES = 2**31


def folder(data_set: str) -> Path | None:
    """`$XDG_CACHE_HOME/d2djax/<data set>-made`, or under `~/.cache`; none where `D2DJAX_CACHE=0`."""
    base = files.cache_folder()
    return None if base is None else base / f"{data_set}-made"


def _name(makers: Sequence[str], options: Mapping[str, Any]) -> str:
    """A name for what is made: by the code that makes it, NumPy, which draws it, and the options."""
    found = hashlib.blake2b(digest_size=16)
    for file in makers:
        found.update(Path(file).read_bytes())
    found.update(repr((np.__version__, sorted(options.items()))).encode())
    return f"{found.hexdigest()}.npz"


def _read(path: Path, data_set: str) -> Dataset | None:
    """What is kept; none where nothing is, or where it is damaged (every part has a checksum)."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            names = tuple(str(name) for name in kept["class_names"])
            return Dataset(kept["x"], kept["y"], names, data_set, str(kept["source"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, DataError):
        return None


def made_once(
    data_set: str, makers: Sequence[str], options: Mapping[str, Any], make: Callable[[], Dataset]
) -> Dataset:
    """Makes points, or reads those that were made before with the same code and options.

    Args:
        data_set: name of the data set that `make` gives.
        makers: files of the code that makes them.
        options: with which they are made.
        make: makes them.

    Returns:
        The data set, equal bit for bit to what `make` gives. Where it cannot be kept, it is made each time.
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
            # A full disk or a folder of somebody else's costs time, and no result.
            return made
    return made
