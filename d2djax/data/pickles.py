"""Reads pickled dictionaries of plain values without running any code that a pickle names.

A pickle is a program. This reader supports only the opcodes that build plain containers, numbers and strings, and
replaces the few functions that NumPy arrays need by safe versions that check every argument.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from d2djax.data.types import DataError

_PLAIN_NAMES = """
    PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_TUPLE EMPTY_LIST LIST APPEND APPENDS
    EMPTY_DICT DICT SETITEM SETITEMS PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL
"""
_PLAIN_OPCODES = [getattr(pickle, name)[0] for name in _PLAIN_NAMES.split()]
_SCALARS = (int, float, bool, str, bytes, type(None))


class _Dtype:
    """A numeric dtype under construction."""

    __slots__ = ("value",)

    def __init__(self, code: Any) -> None:
        text = _text(code)
        if not isinstance(text, str) or not re.fullmatch(r"[biufc][0-9]{1,2}", text):
            raise ValueError(f"an array of dtype {str(text)[:20]!r}, which is not numeric")
        self.value = np.dtype(text)

    def build(self, state: Any) -> None:
        """Sets the byte order; raises ValueError for a dtype with fields or a base dtype."""
        order, *composite = _text(state[1:5])
        if order not in ("<", ">", "|", "=") or composite != [None, None, None]:
            raise ValueError("a dtype that is not a plain number")
        if order in "<>":
            self.value = self.value.newbyteorder(order)


class _Array:
    """An array under construction; `value` is None until its bytes are read."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: np.ndarray | None = None

    def build(self, state: Any) -> None:
        """Fills the array from `(version, shape, dtype, is_fortran, bytes)`."""
        _, shape, dtype, is_fortran, data = state
        if isinstance(data, str):
            data = data.encode("latin1")
        self.fill(data, dtype, shape, "F" if is_fortran else "C")

    def fill(self, data: Any, dtype: Any, shape: Any, order: Any) -> None:
        """Makes an array of `data`; raises ValueError unless it has exactly the bytes that the shape needs."""
        is_shape = type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape)
        if not isinstance(dtype, _Dtype) or not is_shape or type(data) is not bytes or self.value is not None:
            raise ValueError("an array with odd contents")
        needed = math.prod(shape) * dtype.value.itemsize
        if needed != len(data):
            raise ValueError(f"an array of shape {shape} with {len(data)} bytes instead of {needed}")
        self.value = np.frombuffer(data, dtype.value).reshape(shape, order="F" if order == "F" else "C")


def _ndarray(*_: Any) -> None:
    raise ValueError("an array made in an unusual way")


def _reconstruct(kind: Any, _shape: Any, _code: Any) -> _Array:
    if kind is not _ndarray:
        raise ValueError("an array of another type than numpy.ndarray")
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.fill(data, dtype, shape, _text(order))
    return array


def _dtype(code: Any, *_flags: Any) -> _Dtype:
    return _Dtype(code)


def _encode(text: Any, encoding: Any) -> bytes:
    if type(text) is not str or encoding != "latin1":
        raise ValueError("an unusual call of _codecs.encode")
    return text.encode("latin1")


# Only full names: a prefix such as "numpy." would let numpy.memmap and numpy.f2py.os.system through.
_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    ("_codecs", "encode"): _encode,
}


class _Opcodes(dict):
    def __missing__(self, code: int) -> Any:
        raise ValueError(f"opcode 0x{code:02x}, which plain values do not need")


class _Unpickler(pickle._Unpickler):
    """Python's unpickler in its pure Python form, whose table of opcodes can be restricted.

    The public `pickle.Unpickler` is not enough: its `find_class` restricts imports, but not the memory that a false
    size reserves or the nesting depth of tuples. A separate parser would need another file. The table is as old as
    Python 3; if a version of Python changes it, the tests of pickles fail.
    """

    # Set by the base class, which declares no types.
    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    dispatch = _Opcodes({code: pickle._Unpickler.dispatch[code] for code in _PLAIN_OPCODES})

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            wanted = repr(f"{module}.{name}"[:100])
            raise ValueError(f"a call for {wanted}, which is refused (nothing was run)") from None

    def _instance(self) -> None:
        pickle._Unpickler.dispatch[pickle.GLOBAL[0]](self)  # type: ignore[arg-type]
        raise ValueError("an object of a class")

    def _bytearray(self) -> None:
        # Python's version reserves the claimed size before it checks that so many bytes follow.
        self.append(self.read(*struct.unpack("<Q", self.read(8))))

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        if function not in _STAND_INS.values() or type(arguments) is not tuple:
            raise ValueError("a call of something that is not a function")
        self.stack[-1] = function(*arguments)

    def _build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, (_Array, _Dtype)) or type(state) is not tuple:
            raise ValueError("a state set on something that has none")
        target.build(state)

    def _tuple(self, items: list[Any]) -> None:
        # Hashing nested tuples recurses in C without a limit: a very deep key would crash the interpreter.
        if any(type(inner) is tuple for item in items if type(item) is tuple for inner in item):
            raise ValueError("tuples nested more than two deep")
        self.append(tuple(items))

    def _last(self, count: int) -> list[Any]:
        return [self.stack.pop() for _ in range(count)][::-1]

    dispatch.update(
        {
            pickle.INST[0]: _instance,
            pickle.BYTEARRAY8[0]: _bytearray,
            pickle.REDUCE[0]: _reduce,
            pickle.BUILD[0]: _build,
            pickle.TUPLE[0]: lambda self: self._tuple(self.pop_mark()),
            pickle.TUPLE1[0]: lambda self: self._tuple(self._last(1)),
            pickle.TUPLE2[0]: lambda self: self._tuple(self._last(2)),
            pickle.TUPLE3[0]: lambda self: self._tuple(self._last(3)),
        }
    )


def _text(value: Any) -> Any:
    """Decodes the byte strings of Python 2, also inside a tuple."""
    if type(value) is bytes:
        return value.decode("latin1")
    return tuple(_text(item) for item in value) if type(value) is tuple else value


def _value(value: Any, seen: set[int]) -> Any:
    """Returns a finished value: an array, a number, a string, or a list or tuple of numbers and strings."""
    if isinstance(value, _Array):
        if value.value is None:
            raise ValueError("an array without contents")
        return value.value
    # A list that several keys share is checked once.
    items = (value,) if type(value) not in (list, tuple) else () if id(value) in seen else value
    for item in items:
        if type(item) not in _SCALARS:
            raise ValueError(f"a value of type {type(item).__name__} (or nested too deep)")
    seen.add(id(value))
    return value


def load_dict(stream: BinaryIO | mmap.mmap, source: str) -> dict[Any, Any]:
    """Reads one pickled dictionary of plain values; protocols 0 to 5, written by Python 2 or 3.

    Args:
        stream: the pickle; its `read(n)` must not reserve memory for more bytes than it has.
        source: name of the file, for messages.

    Returns:
        The dictionary; its keys are strings, numbers or tuples of them, its values arrays, numbers, strings, or
        flat lists and tuples of numbers and strings. Byte strings of Python 2 in values stay `bytes`.

    Raises:
        DataError: the pickle is damaged, is not a dictionary, or needs anything but plain values and
            numeric arrays. Nothing that it names is imported or run.
    """
    try:
        content = _Unpickler(stream, encoding="bytes").load()
        if type(content) is not dict:
            raise ValueError(f"a {type(content).__name__}")
        if stream.read(1):
            raise ValueError("bytes after its end")
        seen: set[int] = set()
        result = {_text(key): _value(value, seen) for key, value in content.items()}
        if len(result) != len(content):
            raise ValueError("the same key twice")
        return result
    except Exception as error:
        # A damaged pickle can make the unpickler raise any kind of error.
        found = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        found = " ".join(found.split())[:200]
        raise DataError(
            f"{source}: expected a pickled dictionary of numbers, strings and numeric arrays; found {found}"
        ) from error


def read_dict(path: Path) -> dict[Any, Any]:
    """Reads the pickled dictionary in a file, which is mapped instead of copied to memory.

    Args:
        path: the file.

    Returns:
        The dictionary; see `load_dict`.

    Raises:
        DataError: see `load_dict`.
        OSError: the file cannot be opened.
    """
    if path.stat().st_size == 0:
        return load_dict(io.BytesIO(), str(path))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as stream:
        return load_dict(stream, str(path))
