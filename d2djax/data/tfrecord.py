"""Reads TFRecord files and the `tf.train.Example` messages in them, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data.types import DataError

# Far above any image of the two data sets; longer records would make the checksums slow.
_LONGEST_RECORD = 1 << 20
_VARINT, _BYTES = 0, 2


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


def masked_crc32c(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Checksums of many byte ranges at once, as TFRecord stores them (CRC-32C, rotated, plus a constant).

    Args:
        data: [m] uint8, all bytes.
        starts: [k] int64, start of each range.
        sizes: [k] int64, bytes in each range; 0 is allowed.

    Returns:
        [k] uint32.
    """
    table = _crc_table()
    # A table look-up per byte is too slow in Python range by range, so all ranges advance together; they are sorted
    # longest first, so that those with bytes left are always a prefix.
    order = np.argsort(-sizes, kind="stable")
    position, left = starts[order], sizes[order]
    crc = np.full(len(order), 0xFFFFFFFF, np.uint32)
    active = len(order)
    for step in range(int(left[0]) if active else 0):
        while left[active - 1] <= step:
            active -= 1
        head = crc[:active]
        crc[:active] = table[(head ^ data[position[:active] + step]) & 0xFF] ^ (head >> 8)
    crc = ~crc
    result = np.empty_like(crc)
    result[order] = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
    return result


def _check(path: Path, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, what: str) -> None:
    after = (starts + sizes)[:, np.newaxis] + np.arange(4)
    stored = np.ascontiguousarray(data[after]).view("<u4")[:, 0]
    wrong = np.flatnonzero(masked_crc32c(data, starts, sizes) != stored)
    if len(wrong):
        raise DataError(f"{path}: the checksum of {what} of record {wrong[0]} must match; it does not")


def read_records(path: Path) -> list[bytes]:
    """Reads the records of one TFRecord file, and checks each length and checksum.

    A record is its length (8 bytes), the checksum of the length (4), its bytes, and their checksum (4).

    Args:
        path: uncompressed TFRecord file; an empty file has no records.

    Returns:
        The records in the order of the file.

    Raises:
        DataError: the file is truncated or a checksum is wrong.
        OSError: the file cannot be opened.
    """
    content = path.read_bytes()
    data = np.frombuffer(content, np.uint8)
    starts, sizes = [], []
    position = 0
    while position < len(content):
        size = int.from_bytes(content[position : position + 8], "little")
        start = position + 12
        position = start + size + 4
        if position > len(content) or size > _LONGEST_RECORD:
            raise DataError(
                f"{path}: expected record {len(starts)} of {size} bytes; "
                f"found {max(len(content) - start, 0)} bytes (truncated or damaged)"
            )
        starts.append(start)
        sizes.append(size)
    if not starts:
        return []
    first, length = np.array(starts, np.int64), np.array(sizes, np.int64)
    _check(path, data, first - 12, np.full_like(length, 8), "the length")
    _check(path, data, first, length, "the bytes")
    return [content[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number of more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field of a protocol buffer message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        value, position = _varint(data, position)
        if kind == _BYTES:
            value, position = data[position : position + value], position + value
        if kind not in (_VARINT, _BYTES) or position > len(data):
            raise ValueError(f"a damaged field {tag >> 3}")
        yield tag >> 3, value


def _numbers(value: int | bytes) -> Iterator[int]:
    if isinstance(value, int):
        yield value
        return
    position = 0
    while position < len(value):
        number, position = _varint(value, position)
        yield number


def parse_example(record: bytes) -> dict[str, list[Any]]:
    """Reads a `tf.train.Example`.

    Args:
        record: the serialised message.

    Returns:
        The values of each feature, by name: bytes, or integers (unsigned, 64 bits). Lists of floats, which no
        feature of these data sets has, are skipped.

    Raises:
        ValueError: the message is damaged.
    """
    features: dict[str, list[Any]] = {}
    try:
        for entry in (entry for _, message in _fields(record) for _, entry in _fields(message)):
            # An entry is (1: name, 2: feature); a feature is one of 1: bytes, 2: floats, 3: integers.
            pair = dict(_fields(entry))
            name = pair[1].decode()
            for kind, values in _fields(pair[2]):
                if kind == 1:
                    features[name] = [value for _, value in _fields(values)]
                elif kind == 3:
                    features[name] = [number for _, value in _fields(values) for number in _numbers(value)]
    except (IndexError, KeyError, AttributeError, TypeError) as error:
        raise ValueError("a damaged message") from error
    return features
