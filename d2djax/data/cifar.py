"""CIFAR-10 in its official Python or binary batches, in a folder or an archive, or as one .npz file."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data import pickles
from d2djax.data.source import Download, Source
from d2djax.data.types import DataError, Dataset

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGE_SHAPE = (32, 32, 3)
ROW = 3072
PYTHON_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARY_BATCHES = tuple(f"{name}.bin" for name in PYTHON_BATCHES)
FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
FILES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "cifar10.npz", "cifar10_subset.npz")
# An official batch has 31 MB; larger archive members are refused.
_LARGEST_MEMBER = 1 << 26
_MEMBERS = (*PYTHON_BATCHES, *BINARY_BATCHES, "batches.meta")


def _has_batches(folder: Path) -> bool:
    return any((folder / name).is_file() for name in PYTHON_BATCHES + BINARY_BATCHES)


def find(place: Path) -> Path | None:
    """Returns what `read` should read at `place`, or None.

    Args:
        place: a .npz or .tar.gz file; a folder with the batches; or a folder that holds, in this order of
            preference, one of `FOLDERS` or one of `FILES`.
    """
    if place.is_file():
        return place if place.name.endswith((".npz", ".tar.gz", ".tgz")) else None
    for folder in (place, *(place / name for name in FOLDERS)):
        if _has_batches(folder):
            return folder
    return next((place / name for name in FILES if (place / name).is_file()), None)


def _from_folder(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in _MEMBERS if (folder / name).is_file()}


def _from_archive(path: Path) -> dict[str, bytes]:
    members = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            if not member.isfile() or name not in _MEMBERS:
                continue
            if member.size > _LARGEST_MEMBER:
                raise DataError(f"{path}: expected {name} of at most {_LARGEST_MEMBER} bytes; found {member.size}")
            file = archive.extractfile(member)
            members[name] = file.read() if file else b""
    return members


def _check_class_names(names: Any, source: str) -> None:
    found = [name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names]
    if found != list(CLASS_NAMES):
        raise DataError(f"{source}: expected the classes {', '.join(CLASS_NAMES)}; found {', '.join(found)[:200]}")


def _parse_python(data: bytes, source: str) -> tuple[np.ndarray, np.ndarray]:
    batch = pickles.load_dict(io.BytesIO(data), source)
    pixels, labels = batch.get("data"), batch.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (ROW,):
        found = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(f"{source}: expected 'data' uint8 [n, {ROW}]; found {found}")
    if type(labels) is not list or not all(type(label) is int for label in labels):
        raise DataError(f"{source}: expected 'labels', a list of whole numbers; found {type(labels).__name__}")
    return pixels, np.clip(np.array(labels, object), -1, 256).astype(np.int32)


def _parse_binary(data: bytes, source: str) -> tuple[np.ndarray, np.ndarray]:
    if len(data) % (ROW + 1):
        raise DataError(f"{source}: expected whole records of {ROW + 1} bytes; found {len(data)} bytes")
    records = np.frombuffer(data, np.uint8).reshape(-1, ROW + 1)
    return records[:, 1:], records[:, 0]


def _checked(images: np.ndarray, labels: np.ndarray, source: str) -> tuple[np.ndarray, np.ndarray]:
    if labels.shape != (len(images),) or len(images) == 0:
        raise DataError(
            f"{source}: expected one label for each image; found {len(images)} images, {labels.shape} labels"
        )
    wrong = labels[(labels < 0) | (labels >= len(CLASS_NAMES))]
    if len(wrong):
        raise DataError(f"{source}: expected labels 0..{len(CLASS_NAMES) - 1}; found {wrong[0]}")
    return images, labels.astype(np.int32)


def _read_batches(path: Path, members: dict[str, bytes]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    if any(name in members for name in PYTHON_BATCHES):
        names, parse = PYTHON_BATCHES, _parse_python
    else:
        names, parse = BINARY_BATCHES, _parse_binary
    missing = [name for name in names if name not in members]
    if missing:
        raise DataError(f"{path}: expected the six files {', '.join(names)}; {', '.join(missing)} not found")
    if "batches.meta" in members:
        source = f"{path}/batches.meta"
        listed = pickles.load_dict(io.BytesIO(members["batches.meta"]), source).get("label_names")
        _check_class_names(listed if type(listed) is list else [], source)
    images, labels = [], []
    for name in names:
        rows, classes = _checked(*parse(members[name], f"{path}/{name}"), f"{path}/{name}")
        # A row is 1024 red, 1024 green, 1024 blue values.
        images.append(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(classes)
    return images, labels


def _read_npz(path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    # Opened here because np.load leaves a damaged file open.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
        arrays = {key: content[key] for key in content.files}
    wanted = ("x_train", "y_train", "x_test", "y_test")
    missing = [key for key in wanted if key not in arrays]
    if missing:
        raise DataError(f"{path}: expected the arrays {', '.join(wanted)}; {', '.join(missing)} not found")
    if "class_names" in arrays:
        _check_class_names(arrays["class_names"].ravel(), str(path))
    images, labels = [], []
    for split in ("train", "test"):
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if x.dtype != np.uint8 or x.shape[1:] != IMAGE_SHAPE:
            raise DataError(f"{path}: expected x_{split} uint8 [n, 32, 32, 3]; found {x.dtype} {x.shape}")
        if y.dtype.kind not in "iu":
            raise DataError(f"{path}: expected whole numbers in y_{split}; found {y.dtype}")
        x, y = _checked(x, y, f"{path} ({split})")
        images.append(x)
        labels.append(y)
    return images, labels


def read(path: Path) -> Dataset:
    """Reads CIFAR-10 from a path that `find` returned.

    Args:
        path: folder with the six batches (Python or binary; Python wins), a .tar.gz of such a folder, or a
            .npz with x_train, y_train, x_test, y_test and, optionally, class_names.

    Returns:
        x uint8 [n, 32, 32, 3], training images before test images; y int32 [n]. Batches may have any number of
        images, so subsets can be read.

    Raises:
        DataError: a file is missing, damaged, of another layout, or would run code.
    """
    try:
        if path.suffix == ".npz":
            images, labels = _read_npz(path)
        else:
            images, labels = _read_batches(path, _from_folder(path) if path.is_dir() else _from_archive(path))
    except DataError:
        raise
    except Exception as error:
        # A damaged archive raises different errors in tarfile, gzip, zlib, zipfile and NumPy.
        raise DataError(f"{path}: expected readable CIFAR-10 files; found damage ({error})") from error
    return Dataset(
        x=np.concatenate(images),
        y=np.concatenate(labels),
        class_names=CLASS_NAMES,
        name="cifar10",
        source=str(path),
    )


SOURCE = Source(
    name="cifar10",
    title="CIFAR-10",
    class_names=CLASS_NAMES,
    shape=IMAGE_SHAPE,
    dtype=np.dtype(np.uint8),
    points_per_device=1200,
    model="image_cnn",
    learning_rate=0.05,
    find=find,
    read=read,
    how_to_get=(
        "cifar-10-python.tar.gz or cifar-10-binary.tar.gz (www.cs.toronto.edu/~kriz/cifar.html), packed "
        "or unpacked, or cifar10.npz with the arrays x_train, y_train, x_test and y_test"
    ),
    is_in_tfds=True,
    # The binary archive has no pickles, and its hash is in the url_checksums of TensorFlow Datasets.
    download=Download(
        "https://www.cs.toronto.edu/~kriz",
        {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    ),
)
