"""Arrays in files of one's own, as `numpy.savez` writes them; reading one runs nothing that is in it."""

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
    """Reads the arrays of a file.

    Args:
        path: an .npz file.
        needed: names of arrays that it must have.
        others: names of arrays that it may have; where none is needed, it must have one of these.
        most_bytes: what the arrays may take of memory; 0: any number.

    Returns:
        `(place, arrays)`: the file's full path, and its arrays by name.

    Raises:
        DataError: there is no such file, it is damaged, too large or of another kind, or has other arrays; one line
            with the file, the rule and what was found.
    """
    try:
        place = Path(path).expanduser().resolve()
        return place, _arrays(place, needed, others, most_bytes)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: expected a readable .npz file; found {error.strerror or error}") from error
    except Exception as error:
        # Damage shows in many ways: zipfile, zlib and NumPy each have their own.
        found = cut(str(error), 100) or type(error).__name__
        raise DataError(f"{path}: expected the arrays of an .npz file; found damage ({found})") from error


def _arrays(place: Path, needed: Sequence[str], others: Sequence[str], most_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of a file by name, after a look at what they claim to be."""
    if not place.is_file():
        raise DataError(f"{place}: expected an .npz file; found {'no file' if place.exists() else 'nothing'}")
    if not zipfile.is_zipfile(place):
        raise DataError(f"{place}: expected an .npz file, as numpy.savez writes it; found a file of another kind")
    with zipfile.ZipFile(place) as archive:
        parts = {part.filename.removesuffix(".npy"): part for part in archive.infolist()}
        wrong = [name for name in parts if name not in (*needed, *others)]
        missing = [name for name in needed if name not in parts]
        if wrong or missing or not parts or len(parts) < len(archive.infolist()):
            found = ", ".join(part.filename for part in archive.infolist()) or "none"
            what = f"one or more of the arrays {listed(others)}"
            if needed:
                what = f"the arrays {listed(needed)} and, if it likes, {listed(others)}"
            raise DataError(f"{place}: expected {what}; found {cut(found)}")
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
