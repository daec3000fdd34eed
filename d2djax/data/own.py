"""Reads user data from a file such as `mine.npz`, written by `numpy.savez`; reading it never runs code in it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from d2djax.data import npz
from d2djax.data.types import DataError, Dataset

NEEDED, OTHERS = ("x", "y"), ("class_names", "owner")


def read(path: str | os.PathLike[str], most_bytes: int = 0) -> Dataset:
    """Reads a user's points from a file.

    Args:
        path: an .npz file with the arrays `x` [n, ...] and `y` [n] and, optionally, `class_names` [L] (default: 0,
            1, ... up to the largest entry of `y`) and `owner` [n]; see `Dataset`.
        most_bytes: limit on the total size of the arrays; 0: no limit.

    Returns:
        The data set; its name is that of the file.

    Raises:
        DataError: the file is missing, damaged, too large or of another kind, or its arrays do not form a data set;
            one line with the file, the rule and what was found.
    """
    place, arrays = npz.arrays(path, NEEDED, OTHERS, most_bytes)
    names: Any = arrays.get("class_names")
    if names is None:
        names = _numbered(arrays["y"])
    elif names.ndim != 1:
        raise DataError(f"{place}: expected class_names [L]; found shape {list(names.shape)}")
    return Dataset(arrays["x"], arrays["y"], tuple(names), place.name, str(place), arrays.get("owner"), str(place))


def _numbered(y: np.ndarray) -> range:
    """Class names for labels without names; `Dataset` refuses invalid labels later."""
    last = y.max() if y.dtype.kind in "biuf" and y.size else 0
    return range(int(np.clip(np.nan_to_num(last), 0, max(y.size, 1) - 1)) + 1)
