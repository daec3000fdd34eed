"""RadioML as a built-in data set: the published file, or as many windows synthesised in process as needed."""

from __future__ import annotations

from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.checks import shown
from d2djax.data import kept, rml2016
from d2djax.data.modulations import MODULATIONS
from d2djax.data.source import Maker, Source
from d2djax.data.types import DataError, Dataset

# Windows of each modulation and SNR, for ten SNRs: enough for 25 devices with 990 points of 4 classes each.
FEWEST_WINDOWS = 404
_FILE_OPTIONS = ("min_snr", "modulations")


def _snrs(min_snr: float) -> list[int]:
    """SNR labels of at least `min_snr`, dB."""
    return [snr for snr in range(-20, 20, 2) if snr >= min_snr]


def _check_least(min_snr: Any) -> None:
    if isinstance(min_snr, bool) or not isinstance(min_snr, (Real, np.number)):
        raise DataError(f"radioml: option min_snr must be a number, dB; got {shown(min_snr)}")


def _read(path: Path, *, min_snr: float = -20, **options: Any) -> Dataset:
    _check_least(min_snr)
    return rml2016.read(path, min_snr=min_snr, **options)


def _make(*, min_snr: float = -20, **options: Any) -> Dataset:
    from d2djax.data import modulations, radio_channel, radioml

    _check_least(min_snr)
    snrs = _snrs(min_snr)
    if not snrs:
        raise DataError(f"radioml: option min_snr must be at most 18 dB; got {min_snr}")
    try:
        make = partial(radioml.synthesise, snrs=snrs, **options)
        makers = radioml.__file__, modulations.__file__, radio_channel.__file__
        return kept.made_once("radioml", makers, options | {"snrs": snrs}, make)
    except ValueError as error:
        raise DataError(f"radioml: {error}") from error


def windows_per_key(needed: float, *, min_snr: float) -> int:
    """Windows of each modulation and SNR: enough for the paper's setting, or more if a run needs more.

    All small settings get the same number, so that their held-out points are the same.

    Args:
        needed: points of each class that a run needs.
        min_snr: lowest SNR label, dB.
    """
    num_snrs = len(_snrs(min_snr))
    return max(FEWEST_WINDOWS * 10 // num_snrs, int(np.ceil(needed / num_snrs)))


def _amount(needed: float, *, min_snr: float) -> dict[str, int]:
    return {"windows_per_key": windows_per_key(needed, min_snr=min_snr)}


def _points_per_class(*, min_snr: float, windows_per_key: int) -> int:
    return windows_per_key * len(_snrs(min_snr))


SOURCE = Source(
    name="radioml",
    title="RadioML",
    class_names=MODULATIONS,
    shape=rml2016.WINDOW_SHAPE,
    dtype=np.dtype(np.float32),
    points_per_device=990,
    model="radio_cnn",
    learning_rate=0.2,
    find=rml2016.find,
    read=_read,
    how_to_get=f"{rml2016.FILE} from RML2016.10a.tar.bz2 (www.deepsig.ai/datasets), or another single .pkl",
    options=_FILE_OPTIONS,
    settings=("min_snr",),
    maker=Maker(
        make=_make,
        options=("windows_per_key", "seed", "imitate_published", *_FILE_OPTIONS),
        amount=_amount,
        points_per_class=_points_per_class,
        what="the radio windows",
    ),
    by_hand=f"is made in process and needs no file; the published {rml2016.FILE} has to be fetched by hand from "
    "RML2016.10a.tar.bz2 (www.deepsig.ai/datasets)",
    label="from {min_snr} dB, {windows_per_key} of a key",
)
