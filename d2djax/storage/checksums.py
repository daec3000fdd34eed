"""Checksums of stored results: the root metadata holds its own SHA-256, and each chunk ends with its CRC-32C."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import google_crc32c

SEAL = re.compile(rb'"checksum": "([0-9a-f]{64})"')
NO_SUM = b"0" * 64
THREADS = 16
Arrays = Mapping[str, Mapping[str, Any]]


def codecs() -> dict[str, Any]:
    """Codecs of every array, for `create_array` or an xarray encoding: compression, then a checksum."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    return {"compressors": (ZstdCodec(level=0), Crc32cCodec())}


def seal(path: Path, without: Iterable[str] = ()) -> None:
    """Consolidates the metadata of all arrays of a zarr store in its root, and adds a checksum of that root.

    The root also lists the checksum of each chunk, which reveals a chunk that was swapped with another.

    Args:
        path: the store's folder; its metadata files are rewritten.
        without: names of the arrays whose chunks are not written yet; their checksums are left out.
    """
    root = json.loads((path / "zarr.json").read_bytes())
    files = sorted(path.glob("*/zarr.json"))
    arrays = {file.parent.name: json.loads(file.read_bytes()) for file in files}
    root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": arrays}
    chunks = [
        chunk_file(path, name, array, place)
        for name, array in arrays.items()
        if name not in without
        for place in places(array)
    ]
    sums = {file.relative_to(path).as_posix(): end_of(file.read_bytes()) for file in chunks}
    root["attributes"] = {"checksum": NO_SUM.decode(), "sums": sums} | root["attributes"]
    content = _text(root)
    (path / "zarr.json").write_bytes(content.replace(NO_SUM, _sum(content), 1))
    for file, array in zip(files, arrays.values(), strict=True):
        file.write_bytes(_text(array))


def _text(metadata: Any) -> bytes:
    return json.dumps(metadata, indent=2).encode()


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def is_sealed(content: bytes) -> bool:
    """Whether the bytes of a root `zarr.json` match the checksum that they contain."""
    found = SEAL.search(content)
    return found is not None and _sum(content[: found.start(1)] + NO_SUM + content[found.end(1) :]) == found[1]


def is_older(content: bytes) -> bool:
    """Whether the bytes of a root `zarr.json` are of a store written before d2djax had checksums."""
    try:
        root = json.loads(content)
        is_group = root["node_type"] == "group"
        return is_group and "checksum" not in root["attributes"] and "consolidated_metadata" not in root
    except (ValueError, KeyError, TypeError):
        return False


def metadata_files(path: Path, content: bytes) -> tuple[dict[str, Any], dict[Path, bytes]]:
    """Reads a sealed root.

    Args:
        path: the store's folder.
        content: the bytes of its root `zarr.json`; see `is_sealed`.

    Returns:
        The root as JSON, and the bytes that each metadata file must hold, by path.
    """
    root = json.loads(content)
    arrays = root["consolidated_metadata"]["metadata"]
    return root, {path / "zarr.json": content} | {
        path / name / "zarr.json": _text(one) for name, one in arrays.items()
    }


def content_of(file: Path) -> bytes | None:
    """The bytes of a file, or None if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return None


def is_sound(file: Path) -> bool:
    """Whether the file of a chunk exists and ends with the checksum of the bytes before it."""
    content = content_of(file)
    return content is not None and is_sound_content(content)


def is_the_one(file: Path, expected: str | None) -> bool:
    """Whether a chunk is sound and belongs here; a chunk swapped with another is sound too.

    Args:
        file: the chunk.
        expected: its checksum, see `end_of`, or None if unknown: then any sound chunk passes.
    """
    content = content_of(file)
    return content is not None and is_sound_content(content) and expected in (None, end_of(content))


def is_sound_content(content: bytes) -> bool:
    """Whether the last four bytes are the checksum of the bytes before them; false if nothing is before them."""
    # The CRC-32C of no bytes is 0, so four zero bytes alone would pass.
    return len(content) > 4 and google_crc32c.value(content[:-4]) == int.from_bytes(content[-4:], "little")


def with_sum(content: bytes) -> bytes:
    """Appends the CRC-32C of the content, four bytes, little-endian."""
    return content + google_crc32c.value(content).to_bytes(4, "little")


def end_of(content: bytes) -> str:
    """The checksum that a chunk ends with, as eight hexadecimal digits."""
    return content[-4:].hex()


def chunk_file(path: Path, name: str, array: Mapping[str, Any], place: Iterable[int]) -> Path:
    """The file of a chunk.

    Args:
        path: the store's folder.
        name: of the array.
        array: its metadata.
        place: the chunk's index along each dimension.
    """
    separator = array["chunk_key_encoding"]["configuration"]["separator"]
    return path / name / separator.join(["c", *map(str, place)])


def places(array: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """The index of each chunk of an array along each dimension, in C order; `array` is its metadata."""
    lengths = zip(array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"], strict=True)
    return product(*(range(math.ceil(length / max(1, step))) for length, step in lengths))


def unsound(sums: Mapping[Path, str | None]) -> list[Path]:
    """The chunks that are missing, damaged or not the expected ones, read by several threads.

    Args:
        sums: the expected checksum of each chunk, or None if unknown; see `is_the_one`.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        good = pool.map(is_the_one, sums.keys(), sums.values())
        return [file for file, is_good in zip(sums, good, strict=True) if not is_good]


def fault(file: Path) -> str:
    """Describes a file that failed its check, in one line: its path, and `damaged` or `missing`."""
    return f"{file}: {'damaged' if file.is_file() else 'missing'}"
