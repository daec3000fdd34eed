"""Fashion-MNIST in its official IDX files, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np

from d2djax.data.source import Download, Source
from d2djax.data.types import DataError, Dataset

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
IMAGE_SHAPE = (28, 28)
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CHUNK = 1 << 20


def _path(folder: Path, name: str) -> Path | None:
    """Path of the file `name` in any of its four spellings, or None."""
    for spelling in (name, name.replace("-idx", ".idx")):
        for path in (folder / spelling, folder / f"{spelling}.gz"):
            if path.is_file():
                return path
    return None


def find(folder: Path) -> Path | None:
    """Returns what `read` should read, or None.

    Args:
        folder: it is returned if at least one of the four files is in it.
    """
    return folder if any(_path(folder, name) for name in FILES) else None


def _take(stream: io.BufferedIOBase, count: int) -> bytes:
    """Reads up to `count` bytes in pieces, so that a false count in a header reserves no memory."""
    pieces = []
    while count > 0 and (piece := stream.read(min(count, _CHUNK))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _parse(stream: io.BufferedIOBase, path: Path, dimensions: int) -> np.ndarray:
    header_size = 4 + 4 * dimensions
    header = _take(stream, header_size)
    if len(header) < header_size:
        raise DataError(f"{path}: expected an IDX header of {header_size} bytes; found {len(header)}")
    magic, *shape = np.frombuffer(header, ">u4").tolist()
    # Third byte of the magic number: element type (8 is unsigned byte); fourth: number of axes.
    expected = 0x0800 + dimensions
    if magic != expected:
        raise DataError(
            f"{path}: expected magic number {expected} (unsigned bytes, axes: {dimensions}); found {magic}"
        )
    size = math.prod(shape)
    # Reading one more byte reveals trailing bytes, and makes gzip verify its checksum.
    data = _take(stream, size + 1)
    if len(data) != size:
        found = "more" if len(data) > size else f"only {len(data)}"
        raise DataError(f"{path}: expected {size} bytes for shape {tuple(shape)}; found {found}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def read_array(path: Path, dimensions: int) -> np.ndarray:
    """Reads one IDX file of unsigned bytes.

    Args:
        path: the file; it is decompressed if it starts with gzip's magic number, whatever its name.
        dimensions: number of axes that the file must have.

    Returns:
        uint8 array with that many axes, read-only.

    Raises:
        DataError: the file is unreadable or truncated, has trailing bytes, or is of another type or rank.
    """
    try:
        with path.open("rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not is_compressed:
                return _parse(file, path, dimensions)
            with gzip.GzipFile(fileobj=file) as stream:
                return _parse(stream, path, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a complete IDX file; found damage ({error})") from error


def _read_split(folder: Path, images_name: str, labels_name: str) -> tuple[np.ndarray, np.ndarray]:
    paths = []
    for name in (images_name, labels_name):
        path = _path(folder, name)
        if path is None:
            raise DataError(f"{folder / name}: expected this file or {name}.gz; found neither")
        paths.append(path)
    images, labels = read_array(paths[0], 3), read_array(paths[1], 1)
    if images.shape[1:] != IMAGE_SHAPE or len(images) == 0:
        raise DataError(f"{paths[0]}: expected images of shape {IMAGE_SHAPE}; found array {images.shape}")
    if len(labels) != len(images):
        raise DataError(f"{paths[1]}: expected {len(images)} labels, one per image; found {len(labels)}")
    if labels.max() >= len(CLASS_NAMES):
        raise DataError(f"{paths[1]}: expected labels 0..{len(CLASS_NAMES) - 1}; found {labels.max()}")
    return images, labels


def read(folder: Path) -> Dataset:
    """Reads Fashion-MNIST from a folder with the four IDX files.

    Args:
        folder: holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k- files, each plain or
            with .gz (plain wins), `-idx` or `.idx` in the name.

    Returns:
        x uint8 [n, 28, 28, 1], training images before test images; y int32 [n].

    Raises:
        DataError: a file is missing or damaged, or the numbers of images and labels differ.
    """
    images, labels = zip(_read_split(folder, *FILES[:2]), _read_split(folder, *FILES[2:]), strict=True)
    return Dataset(
        x=np.concatenate(images)[..., np.newaxis],
        y=np.concatenate(labels).astype(np.int32),
        class_names=CLASS_NAMES,
        name="fashion_mnist",
        source=f"{folder} (IDX files)",
    )


SOURCE = Source(
    name="fashion_mnist",
    title="Fashion-MNIST",
    class_names=CLASS_NAMES,
    shape=(*IMAGE_SHAPE, 1),
    dtype=np.dtype(np.uint8),
    points_per_device=1200,
    model="mlp",
    learning_rate=0.05,
    find=find,
    read=read,
    how_to_get=(
        "the four IDX files train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], "
        "t10k-images-idx3-ubyte[.gz] and t10k-labels-idx1-ubyte[.gz] "
        "(Debian: apt-get install dataset-fashion-mnist; else github.com/zalandoresearch/fashion-mnist)"
    ),
    is_in_tfds=True,
    # Debian's package installs it here.
    places=(Path("/usr/share/datasets/fashion-mnist"),),
    # The address and the hashes are those in the url_checksums of TensorFlow Datasets.
    download=Download(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            f"{FILES[0]}.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            f"{FILES[1]}.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            f"{FILES[2]}.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            f"{FILES[3]}.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
)
