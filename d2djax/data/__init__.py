"""Labelled data sets: `load` reads them from disk or makes them, and never goes online; `download` fetches."""

from __future__ import annotations

import os
import shlex
from functools import partial
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from d2djax.checks import shown
from d2djax.data import cifar, idx, kept, rml2016, tfds
from d2djax.data.download import download
from d2djax.data.modulations import MODULATIONS
from d2djax.data.types import DataError, Dataset, Description

__all__ = ["DataError", "Dataset", "Description", "describe", "download", "load"]

NAMES = ("radioml", "fashion_mnist", "cifar10")
_SHAPES = {"radioml": (2, 128), "fashion_mnist": (*idx.IMAGE_SHAPE, 1), "cifar10": cifar.IMAGE_SHAPE}
_DTYPES = {name: np.dtype(np.float32 if name == "radioml" else np.uint8) for name in NAMES}
_CLASSES = {"radioml": MODULATIONS, "fashion_mnist": idx.CLASS_NAMES, "cifar10": cifar.CLASS_NAMES}
_FILE_OPTIONS = ("min_snr", "modulations")
_SYNTHESIS_OPTIONS = ("windows_per_key", "seed", "imitate_published", *_FILE_OPTIONS)
_DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

_HOW_TO_GET = {
    "fashion_mnist": (
        "the four IDX files train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], "
        "t10k-images-idx3-ubyte[.gz] and t10k-labels-idx1-ubyte[.gz] "
        "(Debian: apt-get install dataset-fashion-mnist; else github.com/zalandoresearch/fashion-mnist)"
    ),
    "cifar10": (
        "cifar-10-python.tar.gz or cifar-10-binary.tar.gz (www.cs.toronto.edu/~kriz/cifar.html), unpacked "
        "or not, or cifar10.npz with the arrays x_train, y_train, x_test and y_test"
    ),
    "radioml": f"{rml2016.FILE} from RML2016.10a.tar.bz2 (www.deepsig.ai/datasets), or another single .pkl",
}


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Loads a data set into memory, training and test files merged (Section IV-A). Never goes online.

    Args:
        name: "radioml", "fashion_mnist" or "cifar10".
        data_dir: folder (or, where the data is one file, that file) in any layout that the readers in this
            package know. None searches for images in $D2DJAX_DATA/<name>, $D2DJAX_DATA,
            ~/.cache/d2djax/<name>, $TFDS_DATA_DIR or ~/tensorflow_datasets, and Debian's folder, and makes RadioML
            in process.
        **options: for "radioml" only: `min_snr` (dB, default -20) and `modulations` (names, default all); and
            when it is made in process, `windows_per_key`, `seed` and `imitate_published`.

    Returns:
        x [n, 28, 28, 1] or [n, 32, 32, 3] uint8, or [n, 2, 128] float32; y [n] int32.

    Raises:
        DataError: the name or an option is unknown, nothing is found, or what is found is missing a part,
            damaged, of the wrong shape or type, or a pickle that would run code. The first folder that holds
            anything is the one that is read: damage there is not passed over in silence.
    """
    if name not in NAMES:
        raise DataError(f"expected a data set among {', '.join(NAMES)}; got {shown(name)}")
    if not isinstance(data_dir, (str, os.PathLike, NoneType)):
        raise DataError(f"{name}: data_dir must be a folder or a file; got {shown(data_dir)}")
    least = options.get("min_snr", 0)
    if isinstance(least, bool) or not isinstance(least, (Real, np.number)):
        raise DataError(f"{name}: option min_snr must be a number, dB; got {shown(least)}")
    makes_data = name == "radioml" and data_dir is None
    allowed = () if name != "radioml" else _SYNTHESIS_OPTIONS if makes_data else _FILE_OPTIONS
    for option in options:
        if option not in allowed:
            known = ", ".join(allowed) or "none"
            where = "" if data_dir is None else f" read from {data_dir}"
            raise DataError(f"{name}{where} has no option {option!r}; options: {known}")
    if makes_data:
        return _checked(_synthesised(**options))
    places = _search_path(name) if data_dir is None else _inside(name, Path(data_dir).expanduser())
    for place in places:
        try:
            dataset = _read(name, place, options)
        except OSError as error:
            raise DataError(f"{place}: expected a readable folder or file; found {error}") from error
        if dataset is not None:
            return _checked(dataset)
    raise DataError(_not_found(name, data_dir, places))


def describe(name: str) -> Description:
    """What is known of one of the data sets without reading or making a point of it."""
    return Description(name, _CLASSES[name], _SHAPES[name], _DTYPES[name])


def _synthesised(*, min_snr: float = -20, **options: Any) -> Dataset:
    from d2djax.data import radioml

    snrs = [snr for snr in range(-20, 20, 2) if snr >= min_snr]
    if not snrs:
        raise DataError(f"radioml: option min_snr must be at most 18 dB; got {min_snr}")
    try:
        make = partial(radioml.synthesise, snrs=snrs, **options)
        return kept.made_once(radioml.__file__, options | {"snrs": snrs}, make)
    except ValueError as error:
        raise DataError(f"radioml: {error}") from error


def _inside(name: str, root: Path) -> list[Path]:
    return [root, root / name]


def _search_path(name: str) -> list[Path]:
    root = os.environ.get("D2DJAX_DATA")
    folder = Path(root or "").expanduser()
    if root and not folder.is_dir():
        raise DataError(
            f"$D2DJAX_DATA={root}: expected a folder; found {'a file' if folder.exists() else 'nothing'}"
        )
    places = [] if not root else _inside(name, folder)[::-1]
    tfds_folder = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    places += [Path("~/.cache/d2djax", name).expanduser(), Path(tfds_folder).expanduser()]
    return [*places, _DEBIAN_FOLDER] if name == "fashion_mnist" else places


def _read(name: str, place: Path, options: dict[str, Any]) -> Dataset | None:
    """Reads data set `name` from `place`; None if nothing there is in a known layout."""
    if name == "radioml":
        return rml2016.read(found, **options) if (found := rml2016.find(place)) else None
    find, read = (idx.find, idx.read) if name == "fashion_mnist" else (cifar.find, cifar.read)
    if found := find(place):
        return read(found)
    if found := tfds.find(place, name):
        return tfds.read(found, name, _SHAPES[name], _CLASSES[name])
    return None


def _not_found(name: str, data_dir: str | os.PathLike[str] | None, places: list[Path]) -> str:
    searched = ", ".join(f"{place}{'' if place.exists() else ' (missing)'}" for place in places)
    message = f"{name}: found no data in {searched}; expected {_HOW_TO_GET[name]}"
    if name == "radioml":
        return message
    # Without a folder of their own, people get one that is searched.
    folder = "~/.cache/d2djax" if data_dir is None else shlex.quote(str(data_dir))
    return (
        f"{message}; or a folder prepared by TensorFlow Datasets ({name}/<version>/{tfds.INFO} and its "
        f"array_record or tfrecord files); or, online: d2djax download {name} --data-dir {folder}"
    )


def _checked(dataset: Dataset) -> Dataset:
    """Returns `dataset`, or raises DataError if its points are not those of the data set that it is named after."""
    shape, dtype = _SHAPES[dataset.name], _DTYPES[dataset.name]
    if (dataset.shape, dataset.dtype) != (shape, dtype):
        expected, found = f"{dtype} [n, {', '.join(map(str, shape))}]", f"{dataset.dtype} {dataset.x.shape}"
        raise DataError(f"{dataset.source}: expected x {expected}; found {found}")
    return dataset
