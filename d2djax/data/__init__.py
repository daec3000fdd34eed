"""Labelled data sets: `load` reads or synthesises them without network access; `download` fetches files."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import NoneType
from typing import Any

from d2djax.checks import shown
from d2djax.data import tfds
from d2djax.data.built_in import SOURCES
from d2djax.data.download import download
from d2djax.data.source import Source
from d2djax.data.types import DataError, Dataset, Description

__all__ = ["SOURCES", "DataError", "Dataset", "Description", "describe", "download", "load"]


def load(name: str, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Loads a data set into memory, training and test files merged (Section IV-A). Needs no network.

    Args:
        name: a key of `SOURCES`: "radioml", "fashion_mnist" or "cifar10".
        data_dir: folder, or the file of a one-file data set, in any layout that this package reads. None searches
            for images in $D2DJAX_DATA/<name>, $D2DJAX_DATA, ~/.cache/d2djax/<name>, $TFDS_DATA_DIR or
            ~/tensorflow_datasets, and Debian's folder, and synthesises RadioML in process.
        **options: for "radioml" only: `min_snr` (dB, default -20) and `modulations` (names, default all); without
            `data_dir` also `windows_per_key`, `seed` and `imitate_published`, see `radioml.synthesise`.

    Returns:
        x [n, 28, 28, 1] or [n, 32, 32, 3] uint8, or [n, 2, 128] float32; y [n] int32.

    Raises:
        DataError: the name or an option is unknown, no data is found, or the data is incomplete, damaged, of the
            wrong shape or type, or a pickle that would run code. Only the first folder that holds data is read, so
            damage there is never hidden by a later folder.
    """
    if not isinstance(name, str) or name not in SOURCES:
        raise DataError(f"expected a data set among {', '.join(SOURCES)}; got {shown(name)}")
    if not isinstance(data_dir, (str, os.PathLike, NoneType)):
        raise DataError(f"{name}: data_dir must be a folder or a file; got {shown(data_dir)}")
    source = SOURCES[name]
    maker = source.maker if data_dir is None else None
    allowed = source.options if maker is None else maker.options
    for option in options:
        if option not in allowed:
            known = ", ".join(allowed) or "none"
            where = "" if data_dir is None else f" read from {data_dir}"
            raise DataError(f"{name}{where} has no option {option!r}; options: {known}")
    if maker is not None:
        return _checked(source, maker.make(**options))
    places = _search_path(source) if data_dir is None else _inside(name, Path(data_dir).expanduser())
    for place in places:
        try:
            dataset = _read(source, place, options)
        except OSError as error:
            raise DataError(f"{place}: expected a readable folder or file; found {error}") from error
        if dataset is not None:
            return _checked(source, dataset)
    raise DataError(_not_found(source, data_dir, places))


def describe(name: str) -> Description:
    """Describes a built-in data set without reading or synthesising any point.

    Args:
        name: a key of `SOURCES`.

    Raises:
        KeyError: there is no such data set.
    """
    source = SOURCES[name]
    return Description(name, source.class_names, source.shape, source.dtype)


def _inside(name: str, root: Path) -> list[Path]:
    return [root, root / name]


def _search_path(source: Source) -> list[Path]:
    root = os.environ.get("D2DJAX_DATA")
    folder = Path(root or "").expanduser()
    if root and not folder.is_dir():
        raise DataError(
            f"$D2DJAX_DATA={root}: expected a folder; found {'a file' if folder.exists() else 'nothing'}"
        )
    places = [] if not root else _inside(source.name, folder)[::-1]
    places.append(Path("~/.cache/d2djax", source.name).expanduser())
    if source.is_in_tfds:
        places.append(Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser())
    return [*places, *source.places]


def _read(source: Source, place: Path, options: dict[str, Any]) -> Dataset | None:
    """Reads a data set from `place`; None if nothing there is in a known layout."""
    if found := source.find(place):
        return source.read(found, **options)
    if source.is_in_tfds and (found := tfds.find(place, source.name)):
        return tfds.read(found, source.name, source.shape, source.class_names)
    return None


def _not_found(source: Source, data_dir: str | os.PathLike[str] | None, places: list[Path]) -> str:
    name = source.name
    searched = ", ".join(f"{place}{'' if place.exists() else ' (missing)'}" for place in places)
    message = f"{name}: found no data in {searched}; expected {source.how_to_get}"
    if source.is_in_tfds:
        message += (
            f"; or a folder prepared by TensorFlow Datasets ({name}/<version>/{tfds.INFO} and its array_record or "
            "tfrecord files)"
        )
    if source.download is not None:
        # Without a `data_dir`, the command names a folder that `load` searches.
        folder = "~/.cache/d2djax" if data_dir is None else shlex.quote(str(data_dir))
        message += f"; or, online: d2djax download {name} --data-dir {folder}"
    return message


def _checked(source: Source, dataset: Dataset) -> Dataset:
    """Returns `dataset`, or raises DataError if its shape, type or name differs from that of its source."""
    if (dataset.shape, dataset.dtype) != (source.shape, source.dtype):
        expected = f"{source.dtype} [n, {', '.join(map(str, source.shape))}]"
        raise DataError(f"{dataset.source}: expected x {expected}; found {dataset.dtype} {dataset.x.shape}")
    if dataset.name != source.name:
        # The name selects its default settings, its title and its position in results.
        raise DataError(f"{dataset.source}: expected data named {source.name!r}; found {dataset.name!r}")
    return dataset
