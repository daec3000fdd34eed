"""RadioML 2016.10a: a pickled dictionary `(modulation, SNR) -> float [N, 2, 128]`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data import pickles
from d2djax.data.types import DataError, Dataset

FILE = "RML2016.10a_dict.pkl"
WINDOW_SHAPE = (2, 128)


def find(place: Path) -> Path | None:
    """Returns the pickle at `place`, or None.

    Args:
        place: the file itself, or a folder with RML2016.10a_dict.pkl or with a single other *.pkl.

    Raises:
        DataError: the folder has several *.pkl, none of them with the official name.
    """
    if place.is_file():
        return place
    if (place / FILE).is_file():
        return place / FILE
    candidates = sorted(path for path in place.glob("*.pkl") if path.is_file())
    if len(candidates) > 1:
        names = ", ".join(path.name for path in candidates)
        raise DataError(f"{place}: expected {FILE} or a single *.pkl; found {names}; name one of these files")
    return candidates[0] if candidates else None


def _check_entry(path: Path, key: Any, windows: Any) -> None:
    if not (type(key) is tuple and len(key) == 2 and type(key[0]) is str and type(key[1]) is int):
        raise DataError(f"{path}: expected keys (modulation, SNR); found {str(key)[:60]}")
    if not isinstance(windows, np.ndarray):
        raise DataError(f"{path}: expected an array at {key}; found {type(windows).__name__}")
    if windows.dtype.kind != "f":
        raise DataError(f"{path}: expected floats at {key}; found {windows.dtype}")
    if windows.ndim != 3 or windows.shape[1:] != WINDOW_SHAPE or len(windows) == 0:
        raise DataError(f"{path}: expected shape [N, 2, 128] with N > 0 at {key}; found {windows.shape}")


def _chosen(path: Path, present: list[str], modulations: Iterable[str] | None) -> tuple[str, ...]:
    if modulations is None:
        return tuple(present)
    asked = [modulations] if isinstance(modulations, str) else list(modulations)
    for name in asked:
        if name not in present:
            raise DataError(f"{path}: expected modulations among {', '.join(present)}; got {name!r}")
    if not asked:
        raise DataError(f"{path}: option modulations must name at least one of {', '.join(present)}")
    return tuple(sorted(set(asked)))


def read(path: Path, *, min_snr: float = -20, modulations: Iterable[str] | None = None) -> Dataset:
    """Reads RadioML 2016.10a, or another file of the same layout.

    Args:
        path: pickle of any protocol; reading it never runs code that it names.
        min_snr: lowest SNR label to keep, dB.
        modulations: names to keep; None keeps all.

    Returns:
        x float32 [n, 2, 128], y int32 [n]; labels number the kept modulations in alphabetical order. Points are
        sorted by label, then SNR, whatever their order in the file.

    Raises:
        DataError: the file is damaged or of another layout, has a value that is not finite, lacks a requested
            modulation, or has no window of some modulation at `min_snr` or above.
    """
    content = pickles.read_dict(path)
    for key, windows in content.items():
        _check_entry(path, key, windows)
    if not content:
        raise DataError(f"{path}: expected windows; found an empty dictionary")
    names = _chosen(path, sorted({modulation for modulation, _ in content}), modulations)
    keys = sorted(key for key in content if key[0] in names and key[1] >= min_snr)
    empty = sorted(set(names) - {modulation for modulation, _ in keys})
    if empty:
        raise DataError(
            f"{path}: expected windows of every modulation at {min_snr} dB or above; {empty[0]} has none"
        )
    sizes = [len(content[key]) for key in keys]
    x = np.empty((sum(sizes), *WINDOW_SHAPE), np.float32)
    start = 0
    for key, size in zip(keys, sizes, strict=True):
        with np.errstate(over="ignore"):  # An overflow becomes inf, which is refused below.
            x[start : start + size] = content.pop(key)
        if not np.isfinite(x[start : start + size]).all():
            raise DataError(f"{path}: expected finite float32 values at {key}; found NaN or infinity")
        start += size
    labels = [names.index(modulation) for modulation, _ in keys]
    return Dataset(
        x=x,
        y=np.repeat(np.array(labels, np.int32), sizes),
        class_names=names,
        name="radioml",
        source=str(path),
    )
