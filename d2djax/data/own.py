"""Data of one's own in a file, `mine.npz`, as `numpy.savez` writes it; reading it runs nothing that is in it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from d2djax.data import npz
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
    place, arrays = npz.arrays(path, NEEDED, OTHERS, most_bytes)
    names: Any = arrays.get("class_names")
    if names is None:
        names = _numbered(arrays["y"])
    elif names.ndim != 1:
        raise DataError(f"{place}: expected class_names [L]; found shape {list(names.shape)}")
    return Dataset(arrays["x"], arrays["y"], tuple(names), place.name, str(place), arrays.get("owner"), str(place))


def _numbered(y: np.ndarray) -> range:
    """Classes of labels without names; what is no label, `Dataset` will refuse."""
    last = y.max() if y.dtype.kind in "biuf" and y.size else 0
    return range(int(np.clip(np.nan_to_num(last), 0, max(y.size, 1) - 1)) + 1)
