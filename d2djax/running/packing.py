"""Packs settings and results of many runs into few arrays, because every array of a program adds overhead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any


def _by_dtype(places: Iterable[tuple[int, Any]]) -> dict[np.dtype, list[int]]:
    """Returns the indices of the leaves of each dtype, from indices and dtypes."""
    kinds: dict[np.dtype, list[int]] = {}
    for place, dtype in places:
        kinds.setdefault(np.dtype(dtype), []).append(place)
    return kinds


def _kinds(leaves: Sequence[tuple[tuple[int, ...], np.dtype]]) -> dict[np.dtype, list[int]]:
    """Returns, for each dtype, the indices of the leaves that hold one number per item."""
    return _by_dtype((place, dtype) for place, (shape, dtype) in enumerate(leaves) if len(shape) == 1)


def abstract(tree: Tree, rows: int | None = None) -> tuple[Any, tuple]:
    """Returns the structure of a tree and the (shape, dtype) of each leaf, both hashable.

    Args:
        tree: pytree of arrays.
        rows: replaces the length of the first axis of every leaf; None: the shapes stay.
    """
    leaves, structure = jax.tree.flatten(tree)
    start = (lambda shape: shape) if rows is None else (lambda shape: (rows, *shape[1:]))
    return structure, tuple((start(np.shape(leaf)), np.dtype(leaf.dtype)) for leaf in leaves)


def packed_shapes(item: tuple[Any, tuple], rows: int) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Returns shape and dtype of each array that `pack` makes.

    Args:
        item: result of `abstract` for the items.
        rows: number of items.
    """
    together = [((rows, len(places)), dtype) for dtype, places in _kinds(item[1]).items()]
    return together + [((rows, *shape[1:]), dtype) for shape, dtype in item[1] if len(shape) > 1]


def pack(items: Tree) -> list[np.ndarray]:
    """Packs items into few arrays.

    Args:
        items: pytree of arrays [R, ...].

    Returns:
        One array [R, K] for each dtype of the leaves [R], then all other leaves [R, ...].
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(items)]
    kinds = _kinds([(leaf.shape, leaf.dtype) for leaf in leaves])
    together = [np.stack([leaves[place] for place in places], axis=1) for places in kinds.values()]
    return together + [leaf for leaf in leaves if leaf.ndim > 1]


def unpack(packed: Sequence[jax.Array], item: tuple[Any, tuple]) -> Tree:
    """Restores one item.

    Args:
        packed: one row of each array that `pack` made.
        item: result of `abstract` for the items.
    """
    structure, leaves = item
    kinds = _kinds(leaves)
    found: dict[int, jax.Array] = {}
    for row, places in zip(packed, kinds.values(), strict=False):
        found |= {place: row[number] for number, place in enumerate(places)}
    others = iter(packed[len(kinds) :])
    return structure.unflatten([found[place] if place in found else next(others) for place in range(len(leaves))])


def _columns(shapes: Tree) -> dict[np.dtype, list[int]]:
    """Returns, for each dtype, the indices of the leaves of one result."""
    return _by_dtype((place, leaf.dtype) for place, leaf in enumerate(jax.tree.leaves(shapes)))


def result_rows(shapes: Tree, rows: int) -> list[tuple[tuple[int, int], np.dtype]]:
    """Returns shape and dtype of each array that `pack_results` makes.

    Args:
        shapes: pytree of `jax.ShapeDtypeStruct`, of one result.
        rows: number of results.
    """
    leaves = jax.tree.leaves(shapes)
    return [
        ((rows, sum(math.prod(leaves[place].shape) for place in places)), dtype)
        for dtype, places in _columns(shapes).items()
    ]


def pack_results(results: Tree) -> list[jax.Array]:
    """Packs results inside a program: one array takes far less compiled code than thirty.

    Args:
        results: pytree of arrays [B, ...].

    Returns:
        One array [B, K] for each dtype.
    """
    leaves = [leaf.reshape(leaf.shape[0], math.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(results)]
    return [jnp.concatenate([leaves[place] for place in places], axis=1) for places in _columns(results).values()]


def unpack_results(packed: Sequence[np.ndarray], shapes: Tree) -> Tree:
    """Restores results, as views.

    Args:
        packed: the arrays that `pack_results` made, [R, K] each.
        shapes: pytree of `jax.ShapeDtypeStruct`, of one result.

    Returns:
        Pytree of arrays [R, ...].
    """
    leaves, structure = jax.tree.flatten(shapes)
    found: dict[int, np.ndarray] = {}
    for rows, places in zip(packed, _columns(shapes).values(), strict=True):
        ends = np.cumsum([math.prod(leaves[place].shape) for place in places])
        for place, part in zip(places, np.split(rows, ends[:-1], axis=1), strict=True):
            found[place] = part.reshape(len(rows), *leaves[place].shape)
    return structure.unflatten([found[place] for place in range(len(leaves))])
