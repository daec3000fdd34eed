"""Code of one's own that has numbers, such as a policy or a reward: their names, and other values for them."""

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
    """Whether a part is of the kind that has numbers, a dataclass that JAX can take apart; a function is none."""
    return dataclasses.is_dataclass(part) and not isinstance(part, type)


def check_part(where: str, part: Any) -> None:
    """Checks that JAX can take a part apart into its numbers, and that all else of it is fixed.

    Args:
        where: what the part is called, for the message.
        part: any object.

    Raises:
        ValueError: it is no such dataclass.
    """
    numbers = jax.tree.leaves(part)
    if not has_numbers(part) or any(leaf is part for leaf in numbers):
        raise ValueError(
            f"{where} must be a frozen dataclass that JAX can take apart: write @jax.tree_util.register_dataclass "
            f"and @dataclass(frozen=True) above {type(part).__name__}"
        )
    for name, number in numbers_of(part).items():
        _check_number(where, f"{where}.{name}", number)
    try:
        hash(without_numbers(part))
    except TypeError as error:
        raise ValueError(f"{where} must be fixed but for its numbers: {error}") from None


def _check_number(where: str, name: str, number: Any) -> None:
    """Checks a number of a part as a setting is checked: what 32 bits cannot hold would be another number."""
    # A key of JAX cannot be made an array of NumPy.
    array = np.asarray(None if jnp.issubdtype(getattr(number, "dtype", int), jax.dtypes.extended) else number)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where} must be made of numbers and arrays; got {shown(number)}")
    if array.ndim == 0 and array.dtype.kind != "b":
        plain_number(name, int if is_whole(number) else float, number)
    elif array.dtype.kind == "f":
        most = float(np.finfo(np.float32).max)
        check_values(name, number, "finite numbers that single precision holds", lambda values: abs(values) <= most)
    elif array.dtype.kind in "iu":
        held = np.iinfo(_KINDS[array.dtype.kind])
        check_values(name, number, "numbers of 32 bits", lambda values: (values >= held.min) & (values <= held.max))


def without_numbers(part: Any) -> Any:
    """A part in which all numbers are 0: what two that share a program have in common. A function stays itself."""
    return jax.tree.map(lambda leaf: 0, part) if has_numbers(part) else part


def numbers_of(part: Any) -> dict[str, Any]:
    """The numbers of a part by name, of one that wraps another those of the other.

    Those of a part of the part are called by the names of both, such as `noise.scale`.
    """
    places = jax.tree_util.tree_leaves_with_path(getattr(part, "__wrapped__", part))
    text = lambda key: str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))  # noqa: E731
    return {".".join(map(text, path)): leaf for path, leaf in places}


def as_declared(part: Any) -> Any:
    """A part whose fields of type `float` are no whole numbers: `UCB(2)` is `UCB(2.0)`, and so are its axes."""
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
    """Whether a number of a part is whole."""
    return np.asarray(number).dtype.kind in "iu"


def with_numbers(name: str, part: Any, numbers: Mapping[str, Any]) -> Any:
    """A part with other values for some of its numbers, which are called as on an axis, such as `ucb.width`.

    Args:
        name: of the part.
        part: with numbers.
        numbers: the values; those of other parts do not count.
    """
    names = [f"{name}.{number}" for number in numbers_of(part)]
    leaves, structure = jax.tree.flatten(part)
    return structure.unflatten([numbers.get(name, leaf) for name, leaf in zip(names, leaves, strict=True)])


# What numbers of parts are computed as.
_KINDS = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": bool}


def as_arrays(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts by name, their numbers as arrays of 32 bits, which hold them."""

    def plain(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(_KINDS[array.dtype.kind])

    return {name: jax.tree.map(plain, part) for name, part in parts.items()}
