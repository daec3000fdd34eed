"""What checks of arguments share: values as messages show them, and checks of arrays outside `jit`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
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
    broken = ~holds(values)
    if broken.any():
        place = np.unravel_index(np.argmax(broken), broken.shape)
        where = f" at {[int(index) for index in place]}" if place else ""
        raise ValueError(f"{name} must be {rule}; got {values[place].item()}{where}")
