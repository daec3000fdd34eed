"""Shared checks of arguments: values formatted for messages, and checks of arrays outside `jit`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Most characters of a value in a message, which keeps the message to one line.
MOST_SHOWN = 60
# Limits the output before it is formatted, as a list may have millions of entries.
_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = 20
_REPR.maxdict = 8
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = MOST_SHOWN


def shown(value: Any) -> str:
    """Formats a value for a message, in one line of at most `MOST_SHOWN` characters.

    Args:
        value: anything.

    Returns:
        Type and shape of an array or a table, otherwise the shortened `repr`.
    """
    if getattr(value, "shape", ()):
        return f"{getattr(value, 'dtype', type(value).__name__)} of shape {tuple(value.shape)}"
    return cut(_REPR.repr(value))


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """Shortens a text to one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def listed(names: Sequence[str]) -> str:
    """Joins names for a sentence: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def in_one_line(error: Exception) -> str:
    """Formats an error of custom code in one line.

    Args:
        error: with its traceback.

    Returns:
        Type, message (at most 200 characters), and the innermost file and line outside libraries and this package.
    """
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # The innermost frame outside libraries and this package.
        if "site-packages" not in file and not file.startswith((str(Path(__file__).parent), "<")):
            place = f" ({Path(file).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {cut((str(error).splitlines() or ['no message'])[0], 200)}{place}"


def is_number(value: Any, kinds: str = "iuf") -> bool:
    """Whether a value is a scalar number of Python, NumPy or JAX, and not a boolean or traced.

    Args:
        value: anything.
        kinds: NumPy's codes of the allowed kinds: `i` and `u` for integers, `f` for floats.
    """
    if isinstance(value, (int, float)):
        return ("f" if isinstance(value, float) else "i") in kinds and not isinstance(value, bool)
    return getattr(value, "shape", None) == () and value.dtype.kind in kinds and not is_traced(value)


def is_whole(value: Any) -> bool:
    """Whether a value is a scalar integer of Python, NumPy or JAX; see `is_number`."""
    return is_number(value, "iu")


def check_count(name: str, value: Any, least: int = 1, most: int = 2**31 - 1) -> int:
    """Checks an integer and returns it as a Python `int`.

    Args:
        name: of the argument, for the message.
        value: anything.
        least: smallest allowed number.
        most: largest allowed number.

    Raises:
        ValueError: the value is no integer, or out of range.
    """
    if not is_whole(value):
        raise ValueError(f"{name} must be a whole number; got {shown(value)}")
    if not least <= value <= most:
        rule = f"at least {least}" if value < least else f"at most {most}"
        raise ValueError(f"{name} must be {rule}; got {shown(value)}")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Checks a boolean and returns it as a Python `bool`; Python would treat a string such as "no" as true.

    Args:
        name: of the argument, for the message.
        value: anything; booleans of NumPy are accepted.

    Raises:
        ValueError: the value is no boolean.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def is_traced(value: Any) -> bool:
    """Whether a value is a JAX tracer, which has a shape but no values yet."""
    # Imported here so that `--help` does not wait for JAX.
    from jax.core import Tracer

    return isinstance(value, Tracer)


def check_shape(name: str, array: Any, shape: tuple[int, ...], symbols: str) -> None:
    """Checks the shape of an array, traced or not.

    Args:
        name: of the argument, for the message.
        array: anything with a shape, or a number.
        shape: the expected shape.
        symbols: the expected shape in symbols, such as `[N, L]`.

    Raises:
        ValueError: the shape differs.
    """
    if np.shape(array) != shape:
        raise ValueError(f"{name} must be {symbols} = {list(shape)}; got shape {list(np.shape(array))}")


def check_values(name: str, array: Any, rule: str, holds: Callable[[np.ndarray], np.ndarray]) -> None:
    """Checks the values of an array; skips traced arrays, whose values are unknown.

    Args:
        name: of the argument, for the message.
        array: numbers.
        rule: in words, such as `0 or more`.
        holds: from the array to booleans of its shape, whether each value keeps the rule; false for NaN.

    Raises:
        ValueError: a value breaks the rule; names the first one and its index.
    """
    if is_traced(array):
        return
    values = np.asarray(array)
    if values.dtype.kind not in "biuf" and values.dtype.name != "bfloat16":
        raise ValueError(f"{name} must be numbers; got {shown(array)}")
    broken = ~holds(values)
    if broken.any():
        place = np.unravel_index(np.argmax(broken), broken.shape)
        where = f" at {[int(index) for index in place]}" if place else ""
        raise ValueError(f"{name} must be {rule}; got {values[place].item()}{where}")


def check_in_order(name: str, array: Any, size: int, of: str) -> None:
    """Checks indices of devices, states or classes, which JAX would clip silently.

    Args:
        name: of the argument, for the message.
        array: integers.
        size: number of devices, states or classes.
        of: what the integers index, such as `devices`.

    Raises:
        ValueError: they are no integers, or one is not in 0..size-1.
    """
    if getattr(array, "dtype", np.asarray(0).dtype).kind not in "iu":
        raise ValueError(f"{name} must be whole numbers; got {shown(array)}")
    check_values(name, array, f"in 0..{size - 1} for {size} {of}", lambda values: (values >= 0) & (values < size))


def check_links(links: Any, num_devices: int) -> None:
    """Checks `links`, [N] int, the transmitter of each device, for N = `num_devices`.

    Raises:
        ValueError: the shape is not [N], or an entry is no device.
    """
    check_shape("links", links, (num_devices,), "[N]")
    check_in_order("links", links, num_devices, "devices")


def is_finite(values: np.ndarray) -> np.ndarray:
    """Elementwise rule for `check_values`: finite."""
    return np.isfinite(values)


def is_not_negative(values: np.ndarray) -> np.ndarray:
    """Elementwise rule for `check_values`: finite and 0 or more."""
    return np.isfinite(values) & (values >= 0)


def is_share(values: np.ndarray) -> np.ndarray:
    """Elementwise rule for `check_values`: in [0, 1]."""
    return (values >= 0) & (values <= 1)
