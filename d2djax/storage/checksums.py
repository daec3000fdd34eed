"""Checksums of stored results: metadata that is sealed, and chunks that are compared with their own sums."""

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
    """How arrays are kept, as `create_array` and the encoding of xarray take it: compressed, then summed."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    return {"compressors": (ZstdCodec(level=0), Crc32cCodec())}


def seal(path: Path, without: Iterable[str] = ()) -> None:
    """Gathers the metadata of all arrays of a zarr store in its root, which then bears a checksum of itself.

    The root also keeps the checksums of all chunks, so that one that lies in the place of another is seen.

    Args:
        path: the store.
        without: arrays whose chunks are still to be written.
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
    """Whether the metadata of a root are those that its checksum is of."""
    found = SEAL.search(content)
    return found is not None and _sum(content[: found.start(1)] + NO_SUM + content[found.end(1) :]) == found[1]


def is_older(content: bytes) -> bool:
    """Whether the metadata of a root are of a store from before there were checksums."""
    try:
        root = json.loads(content)
        is_group = root["node_type"] == "group"
        return is_group and "checksum" not in root["attributes"] and "consolidated_metadata" not in root
    except (ValueError, KeyError, TypeError):
        return False


def metadata_files(path: Path, content: bytes) -> tuple[dict[str, Any], dict[Path, bytes]]:
    """A sealed root, read, and what each file of metadata must hold."""
    root = json.loads(content)
    arrays = root["consolidated_metadata"]["metadata"]
    return root, {path / "zarr.json": content} | {
        path / name / "zarr.json": _text(one) for name, one in arrays.items()
    }


def content_of(file: Path) -> bytes | None:
    """The bytes of a file; none if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return None


def is_sound(file: Path) -> bool:
    """Whether a chunk of an array is there, and ends with the checksum of what comes before."""
    content = content_of(file)
    return content is not None and is_sound_content(content)


def is_the_one(file: Path, expected: str | None) -> bool:
    """Whether a chunk is sound, and the one that belongs here: that of another place is sound as well."""
    content = content_of(file)
    return content is not None and is_sound_content(content) and expected in (None, end_of(content))


def is_sound_content(content: bytes) -> bool:
    """Whether bytes end with the checksum of what comes before."""
    # A sum of nothing is nothing.
    return len(content) > 4 and google_crc32c.value(content[:-4]) == int.from_bytes(content[-4:], "little")


def with_sum(content: bytes) -> bytes:
    """Bytes that end with the checksum of what comes before."""
    return content + google_crc32c.value(content).to_bytes(4, "little")


def end_of(content: bytes) -> str:
    """The checksum that a chunk ends with."""
    return content[-4:].hex()


def chunk_file(path: Path, name: str, array: Mapping[str, Any], place: Iterable[int]) -> Path:
    """The file of a chunk of an array of a store."""
    separator = array["chunk_key_encoding"]["configuration"]["separator"]
    return path / name / separator.join(["c", *map(str, place)])


def places(array: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
    """Where the chunks of an array are among each other."""
    lengths = zip(array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"], strict=True)
    return product(*(range(math.ceil(length / max(1, step))) for length, step in lengths))


def unsound(sums: Mapping[Path, str | None]) -> list[Path]:
    """Chunks that are missing or damaged, or have another checksum than they should, where one is known."""
    with ThreadPoolExecutor(THREADS) as pool:
        good = pool.map(is_the_one, sums.keys(), sums.values())
        return [file for file, is_good in zip(sums, good, strict=True) if not is_good]


def fault(file: Path) -> str:
    """What is wrong with a file, in one line."""
    return f"{file}: {'damaged' if file.is_file() else 'missing'}"
