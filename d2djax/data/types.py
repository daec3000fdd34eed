"""The record of a data set in memory, and its checks."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from os import PathLike, fspath
from typing import Any

import numpy as np

from d2djax.checks import shown

# float32, in which networks compute, holds all whole numbers up to here exactly.
LARGEST_WHOLE = 2**24


class DataError(ValueError):
    """A data set cannot be used; the message names it, the rule and what was found."""


@dataclass(frozen=True)
class Description:
    """A data set without its points; enough for runs that stop after discovery.

    Attributes:
        name: name of the data set.
        class_names: `L` names, in label order.
        shape: shape of a point.
        dtype: type of its numbers.
        source: says that no points were read, in words for the user.
        owner: always None, as in a `Dataset` whose points have no owner.
        file: always None, as in a `Dataset` that was not read from a user's file.
    """

    name: str
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    source: str = "not read: nothing is trained"
    owner: None = None
    file: None = None

    @property
    def num_classes(self) -> int:
        """`L`, the number of classes."""
        return len(self.class_names)

    @property
    def num_points(self) -> int:
        """Number of points that were read: 0."""
        return 0


@dataclass(frozen=True)
class Dataset:
    """All points of a labelled data set, training and test files merged (Section IV-A).

    Anything that NumPy can convert to an array (lists, tables, tensors) is accepted and checked here, once. No
    value changes silently: conversions are exact, except that 64-bit floats are rounded to single precision
    (float32), in which networks compute.

    Attributes:
        x: [n, ...] uint8 for images, which are standardised before use (booleans become 0 and 1); otherwise
            float32, float16 or integers of at most 32 bits, used unchanged. Integers beyond +-`2**24`, which single
            precision cannot hold, NaN and infinity are refused.
        y: [n] int32, class of each point, in 0..L-1; given as whole numbers of any type.
        class_names: `L` names, in label order.
        name: the name passed to `d2djax.data.load`, or any other.
        source: where the points come from, in words for the user (a folder, or how they were made).
        owner: [n] int32, the device that owns each point (a writer, a user, a site); must use all of 0..N-1, given
            as whole numbers of any type. None: `config.partition` distributes the points to the devices.
        file: the user's file that the data was read from, see `d2djax.data.own.read`; otherwise None.

    Raises:
        DataError: a field breaks a rule; one line with the field, the rule and the first such value.
    """

    x: np.ndarray
    y: np.ndarray
    class_names: tuple[str, ...]
    name: str
    source: str
    owner: np.ndarray | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        """Checks the fields, and converts them to the types given above."""
        for field in ("name", "source"):
            value = getattr(self, field)
            if not isinstance(value, (str, PathLike)):
                raise DataError(f"{field} of a data set must be a string; got {shown(value)}")
            object.__setattr__(self, field, str(fspath(value)))
        object.__setattr__(self, "class_names", _class_names(self, self.class_names))
        object.__setattr__(self, "x", _points(self, _array(self, "x", self.x)))
        object.__setattr__(self, "y", _labels(self, _array(self, "y", self.y)))
        if len(self.x) != len(self.y):
            raise _error(
                self, f"x and y must have one entry per point; got {len(self.x)} points and {len(self.y)} labels"
            )
        if self.owner is not None:
            object.__setattr__(self, "owner", _owners(self, _array(self, "owner", self.owner)))

    @property
    def num_classes(self) -> int:
        """`L`, the number of classes."""
        return len(self.class_names)

    @property
    def num_points(self) -> int:
        """Number of all points."""
        return len(self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a point."""
        return self.x.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        """Type of its numbers."""
        return self.x.dtype


def _error(data: Dataset, message: str) -> DataError:
    # The source identifies files, the name identifies a user's data.
    return DataError(f"{data.name} ({data.source[:80]}): {message}")


def _class_names(data: Dataset, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not np.iterable(given):
        raise _error(data, f"class_names must be a list of names; got {shown(given)}")
    names = tuple(str(name) if isinstance(name, (str, int, np.integer)) else name for name in given)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise _error(data, f"class_names must be strings; got {shown(wrong[0])}")
    if not names or len(set(names)) < len(names):
        raise _error(data, f"class_names must be distinct, and at least one; got {shown(given)}")
    return names


def _array(data: Dataset, field: str, given: Any) -> np.ndarray:
    """Converts numbers to a NumPy array in the byte order of the machine."""
    if np.ma.is_masked(given):
        raise _error(data, f"{field} must have no masked values; got {shown(given)}")
    try:
        array = np.asarray(given)
        # An array of objects that are numbers, as from a table with columns of several types.
        array = np.array(array.tolist()) if array.dtype == object else array
    except Exception:
        raise _error(data, f"{field} must be an array of numbers; got {shown(given)}") from None
    if array.dtype.kind in "biufc":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float32):
        return array.astype(np.float32)  # bfloat16 and similar types.
    odd = [entry for entry in np.asarray(given, object).flat if not isinstance(entry, Real)]
    found = f"{shown(odd[0])} in it" if odd else str(array.dtype)
    is_text = field != "x" and array.dtype.kind in "UT"
    hint = f"; np.unique({field}, return_inverse=True) turns names into numbers" if is_text else ""
    raise _error(data, f"{field} must be numbers; got {found}{hint}")


def _refuse(data: Dataset, field: str, values: np.ndarray, wrong: np.ndarray, rule: str) -> None:
    """Raises DataError with the first value that breaks a rule, and its index."""
    if wrong.any():
        place = np.unravel_index(np.argmax(wrong), wrong.shape)
        found = f"{values[place].item()!r} at {[int(index) for index in place]}"
        raise _error(data, f"{field} must be {rule}; found {found}")


def _points(data: Dataset, x: np.ndarray) -> np.ndarray:
    if x.ndim == 0 or x.size == 0:
        raise _error(data, f"x must be [n, ...] with at least one point; got shape {list(x.shape)}")
    if x.dtype.kind == "c":
        raise _error(data, f"x must be real numbers, such as np.stack([x.real, x.imag], 1); got {x.dtype}")
    if x.dtype.kind == "b":
        return x.astype(np.uint8)
    if x.dtype.kind in "iu":
        if x.dtype.itemsize <= 2:
            return x
        wrong = (x > LARGEST_WHOLE) | (x < -LARGEST_WHOLE)
        _refuse(data, "x", x, wrong, "whole numbers within +-2**24, or floats, which are rounded")
        return x.astype(np.int32, copy=False)
    _refuse(data, "x", x, ~np.isfinite(x), "finite")
    if x.dtype.itemsize <= 4:
        return x
    with np.errstate(over="ignore", under="ignore"):
        single = x.astype(np.float32)
    _refuse(data, "x", x, np.isinf(single), "within the range of single precision, +-3.4e38")
    lost = (x != 0) & ~single.any()
    _refuse(data, "x", x, lost, "numbers that do not all round to 0 in single precision; scale them")
    return single


def _whole(data: Dataset, field: str, values: np.ndarray, of: str) -> np.ndarray:
    """Checks whole numbers, one per point; flattens a single column."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise _error(data, f"{field} must be [n], {of} of each point; got shape {list(values.shape)}")
    if values.dtype.kind == "c":
        raise _error(data, f"{field} must be whole numbers; got {values.dtype}")
    if values.dtype.kind == "f":
        _refuse(data, field, values, values != np.rint(values), "whole numbers")
    return values


def _labels(data: Dataset, y: np.ndarray) -> np.ndarray:
    y, last = _whole(data, "y", y, "the class"), data.num_classes - 1
    _refuse(data, "y", y, (y < 0) | (y > last), f"labels in 0..{last}, one for each of class_names")
    return y.astype(np.int32, copy=False)


def _owners(data: Dataset, owner: np.ndarray) -> np.ndarray:
    owner = _whole(data, "owner", owner, "the device")
    if len(owner) != len(data.y):
        raise _error(data, f"owner must have one entry per point; got {len(data.y)} points and {len(owner)} owners")
    _refuse(data, "owner", owner, owner < 0, "device numbers, 0 or more")
    there = np.unique(owner)
    missing = np.flatnonzero(there != np.arange(len(there)))
    if missing.size:
        raise _error(
            data,
            f"owner must number the devices from 0 without a gap; {missing[0]} is unused and "
            f"{int(there[-1])} is the largest; np.unique(owner, return_inverse=True) renumbers them",
        )
    return owner.astype(np.int32, copy=False)
