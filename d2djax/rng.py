"""Random keys by address: a draw depends on its name and step, never on what was drawn before."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum

import jax
import jax.numpy as jnp
from jax import Array


class Stream(IntEnum):
    """Names of the independent random streams of a run.

    Append only: each number is part of every published result.
    """

    POSITION = 0
    CHANNEL = 1
    TRUST = 2
    PARTITION = 3
    STATE = 4
    POLICY = 5
    BASELINE = 6
    DEPLOYMENT = 7
    DELIVERY = 8
    SPLIT = 9
    MODEL = 10
    MINIBATCH = 11
    POOL = 12
    STRAGGLER = 13
    DROPOUT = 14
    RULE = 15


def run_key(seed: int | Array) -> Array:
    """Key of the run with this seed, whatever other runs there are.

    Args:
        seed: [] int32.

    Returns:
        A typed key, shape [].
    """
    # Another generator, which JAX can be set to, would draw other runs.
    return jax.random.key(seed, impl="threefry2x32")


def at(key: Array, stream: Stream, step: int | Array = 0) -> Array:
    """Key of one stream at one step; `key` itself may be used again.

    Args:
        key: the key of the run.
        stream: which kind of draw.
        step: [] int32, the episode, training step or device that the draw belongs to.

    Returns:
        A typed key, shape [].
    """
    return jax.random.fold_in(jax.random.fold_in(key, int(stream)), step)


def draw_rounded_up(key: Array, draw: Callable[..., Array], shape: tuple[int, ...], least: int = 256) -> Array:
    """Random numbers from the start of a list that may be longer: a few lengths serve all shapes.

    Number i of a list does not depend on its length, and what is equal in a program XLA compiles once: draws of one
    length, as lists, take far less time to compile than draws of many shapes.

    Args:
        key: a key.
        draw: gives random numbers of a key and a shape, such as `jax.random.uniform`.
        shape: shape of the result.
        least: length of the list for shorter ones.

    Returns:
        `draw(key, shape)`; at most a quarter more is drawn, or `least`.
    """
    size = math.prod(shape)
    step = 2 ** max(0, size.bit_length() - 3)
    return draw(key, (max(least, -(-size // step) * step),))[:size].reshape(shape)


def uniform_numbers(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform numbers in [0, 1), float32: those of `jax.random.uniform`.

    Args:
        key: of the draw.
        shape: of the numbers.

    Returns:
        Numbers in this shape, float32 in [0, 1).
    """
    return draw_rounded_up(key, jax.random.uniform, shape)


def normal_numbers(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers, float32: those of `jax.random.normal`.

    Args:
        key: of the draw.
        shape: of the numbers.

    Returns:
        Numbers in this shape, float32.
    """
    return draw_rounded_up(key, jax.random.normal, shape)


def uniform_integer(key: Array, shape: tuple[int, ...], bound: int) -> Array:
    """Whole numbers uniform over 0..bound-1, from one uniform number each.

    `jax.random.randint` draws twice to remove a bias that is far below float32 for the small bounds used here.

    Args:
        key: a key.
        shape: shape of the result.
        bound: at least 1, far below 2**23.

    Returns:
        int32 of the given shape.
    """
    drawn = jnp.floor(uniform_numbers(key, shape) * bound).astype(jnp.int32)
    return jnp.minimum(drawn, bound - 1)
