"""Parameters of custom policies and rewards (their numbers): names, checks, and replacement by other values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from d2djax.checks import check_values, shown
from d2djax.validation import plain_number


def has_numbers(part: Any) -> bool:
    """Whether a part is a dataclass, which can have numbers; a function has none."""
    return dataclasses.is_dataclass(part) and not isinstance(part, type)


def check_part(where: str, part: Any) -> None:
    """Checks that a part is a pytree whose leaves are numbers and whose remaining fields are hashable.

    Args:
        where: name of the part, for the message.
        part: any object.

    Raises:
        ValueError: it is no registered dataclass, a leaf is no number of 32 bits, or the rest is not hashable.
    """
    numbers = jax.tree.leaves(part)
    if not has_numbers(part) or any(leaf is part for leaf in numbers):
        raise ValueError(
            f"{where} must be a frozen dataclass that is a pytree: write @jax.tree_util.register_dataclass "
            f"and @dataclass(frozen=True) above {type(part).__name__}"
        )
    for name, number in numbers_of(part).items():
        _check_number(where, f"{where}.{name}", number)
    try:
        hash(without_numbers(part))
    except TypeError as error:
        raise ValueError(f"{where} must be hashable except for its numbers: {error}") from None


def _check_number(where: str, name: str, number: Any) -> None:
    """Checks a number of a part like a setting: 32 bits must hold it, or it would change silently."""
    # NumPy cannot convert JAX's PRNG keys.
    array = np.asarray(None if jnp.issubdtype(getattr(number, "dtype", int), jax.dtypes.extended) else number)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where} must consist of numbers and arrays; got {shown(number)}")
    if array.ndim == 0 and array.dtype.kind != "b":
        plain_number(name, int if is_whole(number) else float, number)
    elif array.dtype.kind == "f":
        most = float(np.finfo(np.float32).max)
        check_values(name, number, "finite numbers that single precision holds", lambda values: abs(values) <= most)
    elif array.dtype.kind in "iu":
        held = np.iinfo(_KINDS[array.dtype.kind])
        check_values(name, number, "numbers of 32 bits", lambda values: (values >= held.min) & (values <= held.max))


def without_numbers(part: Any) -> Any:
    """The part with all its numbers set to 0, which is equal for parts that share a compiled program.

    Args:
        part: a dataclass, or a function, which is returned unchanged.
    """
    return jax.tree.map(lambda leaf: 0, part) if has_numbers(part) else part


def numbers_of(part: Any) -> dict[str, Any]:
    """The numbers of a part, by name; those of the wrapped part if it has `__wrapped__`.

    Args:
        part: a pytree; a number of a nested part gets a dotted name, such as `noise.scale`.

    Returns:
        Numbers and arrays, in the order of the pytree's leaves.
    """
    places = jax.tree_util.tree_leaves_with_path(getattr(part, "__wrapped__", part))
    text = lambda key: str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))  # noqa: E731
    return {".".join(map(text, path)): leaf for path, leaf in places}


def as_declared(part: Any) -> Any:
    """Converts integers in fields declared `float`: `UCB(2)` becomes `UCB(2.0)`.

    Args:
        part: a dataclass, whose nested parts are converted too, or anything else, which is returned unchanged.
    """
    if not has_numbers(part):
        return part
    own = {one.name: getattr(part, one.name) for one in dataclasses.fields(part) if one.init}
    types = {one.name: one.type for one in dataclasses.fields(part)}
    found = {name: as_declared(value) for name, value in own.items()}
    for name, value in own.items():
        if types[name] in (float, "float") and isinstance(value, Integral) and abs(int(value)) < 2**63:
            found[name] = float(value)
    changed = {name: value for name, value in found.items() if value is not own[name]}
    return dataclasses.replace(part, **changed) if changed else part


def is_whole(number: Any) -> bool:
    """Whether a number, or array, of a part is of an integer type."""
    return np.asarray(number).dtype.kind in "iu"


def with_numbers(name: str, part: Any, numbers: Mapping[str, Any]) -> Any:
    """Replaces some numbers of a part.

    Args:
        name: of the part, such as `ucb`.
        part: a part with numbers.
        numbers: new values by the names of axes, such as `my_ucb.width`; names of other parts are ignored.

    Returns:
        The part with the new values.
    """
    names = [f"{name}.{number}" for number in numbers_of(part)]
    leaves, structure = jax.tree.flatten(part)
    return structure.unflatten([numbers.get(name, leaf) for name, leaf in zip(names, leaves, strict=True)])


# The types in which numbers of parts are computed with.
_KINDS = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": bool}


def as_arrays(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the numbers of parts to arrays of float32, int32, uint32 or bool.

    Args:
        parts: parts by name; `check_part` ensures that the conversion is exact.

    Returns:
        The parts, by the same names.
    """

    def plain(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(_KINDS[array.dtype.kind])

    return {name: jax.tree.map(plain, part) for name, part in parts.items()}
