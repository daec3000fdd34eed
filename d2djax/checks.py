"""What checks of arguments share: values as messages show them, and checks of arrays outside `jit`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Characters of a value in a message, so that the message stays a line.
MOST_SHOWN = 60
# Does not print all of a list of millions only to cut it.
_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = 20
_REPR.maxdict = 8
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = MOST_SHOWN


def shown(value: Any) -> str:
    """A value as a message shows it, in one line: arrays and tables by shape, all else as Python prints it, cut."""
    if getattr(value, "shape", ()):
        return f"{getattr(value, 'dtype', type(value).__name__)} of shape {tuple(value.shape)}"
    return cut(_REPR.repr(value))


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """A text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def listed(names: Sequence[str]) -> str:
    """Names as people list them: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def in_one_line(error: Exception) -> str:
    """An error of code from outside the package in one line: its kind, and in which line of which file it began."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # The innermost code that is neither a library's nor of this package.
        if "site-packages" not in file and not file.startswith((str(Path(__file__).parent), "<")):
            place = f" ({Path(file).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {cut((str(error).splitlines() or ['no message'])[0], 200)}{place}"


def is_number(value: Any, kinds: str = "iuf") -> bool:
    """Whether a value is one number of Python, NumPy or JAX; truth values are none.

    Args:
        value: anything.
        kinds: of NumPy: `i` and `u` are whole, `f` are real.
    """
    if isinstance(value, (int, float)):
        return ("f" if isinstance(value, float) else "i") in kinds and not isinstance(value, bool)
    return getattr(value, "shape", None) == () and value.dtype.kind in kinds and not is_traced(value)


def is_whole(value: Any) -> bool:
    """Whether a value is one whole number of Python, NumPy or JAX."""
    return is_number(value, "iu")


def check_count(name: str, value: Any, least: int = 1, most: int = 2**31 - 1) -> int:
    """Checks a whole number and returns it as Python's.

    Args:
        name: of the argument.
        value: as given.
        least: smallest number allowed.
        most: largest.

    Raises:
        ValueError: it is none, or out of its range.
    """
    if not is_whole(value):
        raise ValueError(f"{name} must be a whole number; got {shown(value)}")
    if not least <= value <= most:
        rule = f"at least {least}" if value < least else f"at most {most}"
        raise ValueError(f"{name} must be {rule}; got {shown(value)}")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Checks that a value is true or false: texts such as "no" would count as true.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def is_traced(value: Any) -> bool:
    """Whether a value is one of a function that is being traced, which has a shape but no numbers yet."""
    # Imported here: help on the command line does not wait for JAX.
    from jax.core import Tracer

    return isinstance(value, Tracer)


def check_shape(name: str, array: Any, shape: tuple[int, ...], symbols: str) -> None:
    """Checks the shape of an array, traced or not.

    Args:
        name: of the argument.
        array: anything with a shape, or a number.
        shape: that it must have.
        symbols: the shape in words, such as `[N, L]`.

    Raises:
        ValueError: it has another one.
    """
    if np.shape(array) != shape:
        raise ValueError(f"{name} must be {symbols} = {list(shape)}; got shape {list(np.shape(array))}")


def check_values(name: str, array: Any, rule: str, holds: Callable[[np.ndarray], np.ndarray]) -> None:
    """Checks the values of an array, unless they are traced and not known yet.

    Args:
        name: of the argument.
        array: numbers.
        rule: in words, such as `0 or more`.
        holds: for each value, whether it keeps the rule; what is NaN should not.

    Raises:
        ValueError: a value breaks the rule; the first one is named with its place.
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
    """Checks numbers of devices, states or classes, which JAX would cut to what there is without a word.

    Args:
        name: of the argument.
        array: whole numbers.
        size: how many there are.
        of: what they number, such as `devices`.

    Raises:
        ValueError: one is not in 0..size-1.
    """
    if getattr(array, "dtype", np.asarray(0).dtype).kind not in "iu":
        raise ValueError(f"{name} must be whole numbers; got {shown(array)}")
    check_values(name, array, f"in 0..{size - 1}, numbers of {of}", lambda values: (values >= 0) & (values < size))


def check_links(links: Any, num_devices: int) -> None:
    """Checks `links`, [N] int: the transmitter of each device.

    Raises:
        ValueError: they have another shape, or one is no device.
    """
    check_shape("links", links, (num_devices,), "[N]")
    check_in_order("links", links, num_devices, "devices")


def is_finite(values: np.ndarray) -> np.ndarray:
    """For `check_values`: finite."""
    return np.isfinite(values)


def is_not_negative(values: np.ndarray) -> np.ndarray:
    """For `check_values`: finite and 0 or more."""
    return np.isfinite(values) & (values >= 0)


def is_share(values: np.ndarray) -> np.ndarray:
    """For `check_values`: in [0, 1]."""
    return (values >= 0) & (values <= 1)
