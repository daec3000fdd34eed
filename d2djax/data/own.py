"""Data of one's own in a file, `mine.npz`, as `numpy.savez` writes it; reading it runs nothing that is in it."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from d2djax.checks import cut
from d2djax.data.types import DataError, Dataset

NEEDED, OTHERS = ("x", "y"), ("class_names", "owner")


def read(path: str | os.PathLike[str], most_bytes: int = 0) -> Dataset:
    """Reads points of one's own from a file.

    Args:
        path: an .npz file with the arrays `x` [n, ...] and `y` [n] and, if it likes, `class_names` [L] (by default
            0, 1, ... up to the largest of `y`) and `owner` [n]; see `Dataset`.
        most_bytes: what its arrays may take of memory; 0: any number.

    Returns:
        The data set, named as the file.

    Raises:
        DataError: there is no such file, it is damaged, too large or of another kind, or its arrays are not those
            of a data set; one line with the file, the rule and what was found.
    """
    try:
        place = Path(path).expanduser().resolve()
        arrays = _arrays(place, most_bytes)
        names: Any = arrays.get("class_names")
        if names is None:
            names = _numbered(arrays["y"])
        elif names.ndim != 1:
            raise DataError(f"{place}: expected class_names [L]; found shape {list(names.shape)}")
        return Dataset(
            arrays["x"], arrays["y"], tuple(names), place.name, str(place), arrays.get("owner"), str(place)
        )
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: expected a readable .npz file; found {error.strerror or error}") from error
    except Exception as error:
        # Damage shows in many ways: zipfile, zlib and NumPy each have their own.
        found = cut(str(error), 100) or type(error).__name__
        raise DataError(f"{path}: expected the arrays of an .npz file; found damage ({found})") from error


def _numbered(y: np.ndarray) -> range:
    """Classes of labels without names; what is no label, `Dataset` will refuse."""
    last = y.max() if y.dtype.kind in "biuf" and y.size else 0
    return range(int(np.clip(np.nan_to_num(last), 0, max(y.size, 1) - 1)) + 1)


def _arrays(place: Path, most_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of a file by name, after a look at what they claim to be."""
    if not place.is_file():
        raise DataError(f"{place}: expected an .npz file; found {'no file' if place.exists() else 'nothing'}")
    if not zipfile.is_zipfile(place):
        raise DataError(f"{place}: expected an .npz file, as numpy.savez writes it; found a file of another kind")
    with zipfile.ZipFile(place) as archive:
        parts = {part.filename.removesuffix(".npy"): part for part in archive.infolist()}
        wrong = [name for name in parts if name not in NEEDED + OTHERS]
        missing = [name for name in NEEDED if name not in parts]
        if wrong or missing or len(parts) < len(archive.infolist()):
            found = ", ".join(part.filename for part in archive.infolist()) or "none"
            raise DataError(
                f"{place}: expected the arrays x and y and, if it likes, class_names and owner; found {cut(found)}"
            )
        total = sum(_claimed_bytes(archive, part, place) for part in parts.values())
        if most_bytes and total > most_bytes:
            there = f"{most_bytes / 2**30:,.1f} GiB"
            raise DataError(
                f"{place}: expected arrays of at most {there}, the memory; found {total / 2**30:,.1f} GiB"
            )
        found = {}
        for name, part in parts.items():
            with archive.open(part) as file:
                found[name] = npy.read_array(file, allow_pickle=False)
        return found


def _claimed_bytes(archive: zipfile.ZipFile, part: zipfile.ZipInfo, place: Path) -> int:
    """What an array takes by its header, which must be as much as the file has of it: nothing is made before."""
    with archive.open(part) as file:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        start = file.tell()
    if dtype.hasobject:
        raise DataError(
            f"{place}: expected numbers or texts in {part.filename}; found a pickle, which could run code"
        )
    if math.prod(shape) * dtype.itemsize != part.file_size - start:
        raise DataError(
            f"{place}: expected {part.filename} of {dtype} {list(shape)}; found {part.file_size - start:,} bytes"
        )
    return part.file_size
