"""Reads data sets that TensorFlow Datasets (TFDS) prepared, without TensorFlow."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data import tfrecord
from d2djax.data.types import DataError, Dataset

INFO = "dataset_info.json"
FORMATS = ("array_record", "tfrecord")
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_Shards = list[tuple[Path, int]]  # Files of a split, with the number of records in each.


def find(place: Path, name: str) -> Path | None:
    """Returns the version folder of a prepared data set at `place`, or None.

    Args:
        place: the version folder itself (`.../fashion_mnist/3.0.1`), the folder with the versions, or its
            parent. The newest version wins.
        name: name of the data set.
    """
    if (place / INFO).is_file():
        return place
    for folder in (place, place / name):
        prepared = [path.parent for path in folder.glob(f"*/{INFO}")]
        versions = [path for path in prepared if re.fullmatch(r"\d+(\.\d+)*", path.name)]
        if versions:
            return max(versions, key=lambda path: [int(part) for part in path.name.split(".")])
    return None


def _shards(folder: Path, name: str) -> tuple[str, dict[str, _Shards]]:
    """Returns the file format and the files of each split; checks that every file exists."""
    path = folder / INFO
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        found, file_format = info["name"], info.get("fileFormat", "tfrecord")
        splits = {split["name"]: split for split in info["splits"]}
        shards = {label: _files(folder, splits[label], name, file_format) for label in ("train", "test")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise DataError(f"{path}: expected TFDS's description of train and test; found {found}") from error
    if found != name:
        raise DataError(f"{path}: expected the data set {name}; found {found}")
    if file_format not in FORMATS:
        raise DataError(f"{path}: expected the file format {' or '.join(FORMATS)}; found {file_format}")
    for file, _ in shards["train"] + shards["test"]:
        if not file.is_file():
            raise DataError(f"{file}: expected this file, which {INFO} lists; it is missing")
    return file_format, shards


def _files(folder: Path, split: dict[str, Any], name: str, file_format: str) -> _Shards:
    lengths = [int(length) for length in split["shardLengths"]]
    template = split.get("filepathTemplate") or _TEMPLATE
    for field, value in (("DATASET", name), ("SPLIT", split["name"]), ("FILEFORMAT", file_format)):
        template = template.replace(f"{{{field}}}", value)
    numbers = [f"{i:05d}-of-{len(lengths):05d}" for i in range(len(lengths))]
    paths = [folder / template.replace("{SHARD_X_OF_Y}", number) for number in numbers]
    return list(zip(paths, lengths, strict=True))


def _read_array_record(path: Path) -> list[bytes]:
    # Not `tfds.data_source`, which wraps this class: it would import any module that features.json names, decode
    # three times slower, and ignore records beyond the count in dataset_info.json.
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    try:
        with ArrayRecordDataSource(str(path)) as source:
            return list(source.__getitems__(range(len(source))))
    except Exception as error:
        # Damage raises RuntimeError, IndexError or ValueError, depending on its position.
        raise DataError(f"{path}: expected readable array_record data; found {_line(error)}") from error


def _records(file_format: str, shards: _Shards) -> Iterator[tuple[str, bytes]]:
    """Yields each record after its name for messages."""
    read_file = _read_array_record if file_format == "array_record" else tfrecord.read_records
    for path, length in shards:
        records = read_file(path)
        if len(records) != length:
            raise DataError(f"{path}: expected {length} records ({INFO}); found {len(records)}")
        yield from ((f"{path}: record {i}", record) for i, record in enumerate(records))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _check_class_names(path: Path, class_names: tuple[str, ...]) -> None:
    try:
        found = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected the class names; found {error}") from error
    if found != list(class_names):
        raise DataError(f"{path}: expected the classes {', '.join(class_names)}; found others")


def _decode(record: bytes, shape: tuple[int, ...], num_classes: int, source: str) -> tuple[np.ndarray, int]:
    from PIL import Image

    size, mode = (shape[1], shape[0]), "L" if shape[2] == 1 else "RGB"
    try:
        example = tfrecord.parse_example(record)
        (encoded,), (label,) = example["image"], example["label"]
        if type(label) is not int or label >= num_classes:
            raise ValueError(f"label {label!r}")
        with Image.open(io.BytesIO(encoded), formats=("PNG",)) as image:
            # Checked before the pixels are unpacked, so that a false size reserves no memory.
            if (image.size, image.mode) != (size, mode):
                raise ValueError(f"{image.mode} {image.size}")
            return np.asarray(image).reshape(shape), label
    except Exception as error:
        # A damaged image makes Pillow raise OSError, SyntaxError, struct.error and others.
        raise DataError(
            f"{source}: expected a PNG ({mode} {size}) and a label 0..{num_classes - 1}; "
            f"found {type(error).__name__}: {_line(error)}"
        ) from error


def read(folder: Path, name: str, shape: tuple[int, ...], class_names: tuple[str, ...]) -> Dataset:
    """Reads a prepared image data set, training split before test split, in TFDS's order.

    Args:
        folder: the version folder that `find` returned; its files are array_record or tfrecord.
        name: the data set that the folder must hold.
        shape: height, width and channels of every image.
        class_names: names that label.labels.txt must list, in label order.

    Returns:
        x uint8 [n, *shape], y int32 [n].

    Raises:
        DataError: a file is missing or damaged, its number of records differs from dataset_info.json, or a record
            is not a PNG of that shape with a label in range.
    """
    file_format, splits = _shards(folder, name)
    _check_class_names(folder / "label.labels.txt", class_names)
    images, labels = [], []
    for shards in splits.values():
        for source, record in _records(file_format, shards):
            image, label = _decode(record, shape, len(class_names), source)
            images.append(image)
            labels.append(label)
    if not images:
        raise DataError(f"{folder / INFO}: expected images; found none")
    return Dataset(
        x=np.stack(images),
        y=np.array(labels, np.int32),
        class_names=class_names,
        name=name,
        source=f"{folder} (TFDS, {file_format})",
    )
