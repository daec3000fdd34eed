"""Reads the arrays of user files that `numpy.savez` wrote; reading a file never runs code in it."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from d2djax.checks import cut, listed
from d2djax.data.types import DataError


def arrays(
    path: str | os.PathLike[str], needed: Sequence[str], others: Sequence[str], most_bytes: int = 0
) -> tuple[Path, dict[str, np.ndarray]]:
    """Reads the arrays of an .npz file.

    Args:
        path: the file.
        needed: names of required arrays.
        others: names of optional arrays; if none is required, at least one of these must be present.
        most_bytes: limit on the total size of the arrays; 0: no limit.

    Returns:
        `(place, arrays)`: the file's absolute path, and its arrays by name.

    Raises:
        DataError: the file is missing, damaged, too large or of another kind, or has other arrays; one line with
            the file, the rule and what was found.
    """
    try:
        place = Path(path).expanduser().resolve()
        return place, _arrays(place, needed, others, most_bytes)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: expected a readable .npz file; found {error.strerror or error}") from error
    except Exception as error:
        # A damaged file raises different errors in zipfile, zlib and NumPy.
        found = cut(str(error), 100) or type(error).__name__
        raise DataError(f"{path}: expected the arrays of an .npz file; found damage ({found})") from error


def _arrays(place: Path, needed: Sequence[str], others: Sequence[str], most_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of a file by name; checks all headers before it reads any array."""
    if not place.is_file():
        raise DataError(f"{place}: expected an .npz file; found {'no file' if place.exists() else 'nothing'}")
    if not zipfile.is_zipfile(place):
        raise DataError(f"{place}: expected an .npz file, as written by numpy.savez; found a file of another kind")
    with zipfile.ZipFile(place) as archive:
        parts = {part.filename.removesuffix(".npy"): part for part in archive.infolist()}
        wrong = [name for name in parts if name not in (*needed, *others)]
        missing = [name for name in needed if name not in parts]
        if wrong or missing or not parts or len(parts) < len(archive.infolist()):
            found = ", ".join(part.filename for part in archive.infolist()) or "none"
            what = f"one or more of the arrays {listed(others)}"
            if needed:
                what = f"the arrays {listed(needed)} and optionally {listed(others)}"
            raise DataError(f"{place}: expected {what}; found {cut(found)}")
        total = sum(_claimed_bytes(archive, part, place) for part in parts.values())
        if most_bytes and total > most_bytes:
            there = f"{most_bytes / 2**30:,.1f} GiB"
            raise DataError(
                f"{place}: expected arrays that fit into memory, {there}; found {total / 2**30:,.1f} GiB"
            )
        found = {}
        for name, part in parts.items():
            with archive.open(part) as file:
                found[name] = npy.read_array(file, allow_pickle=False)
        return found


def _claimed_bytes(archive: zipfile.ZipFile, part: zipfile.ZipInfo, place: Path) -> int:
    """Size of an array by its header; checks that the file holds that many bytes before any memory is reserved."""
    with archive.open(part) as file:
        version = npy.read_magic(file)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        start = file.tell()
    if dtype.hasobject:
        raise DataError(
            f"{place}: expected numbers or strings in {part.filename}; found a pickle, which could run code"
        )
    if math.prod(shape) * dtype.itemsize != part.file_size - start:
        raise DataError(
            f"{place}: expected {part.filename} of {dtype} {list(shape)}; found {part.file_size - start:,} bytes"
        )
    return part.file_size
