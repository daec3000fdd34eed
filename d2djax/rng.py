"""Counter-based random keys: a draw depends on its stream and step, never on earlier draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Stream(IntEnum):
    """The independent random streams of a run.

    Append only: all published results depend on these numbers.
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
    """Key of the run with a seed; independent of all other runs.

    Args:
        seed: [] int32.

    Returns:
        A typed key, shape [].
    """
    # Fixed, since a generator chosen in JAX's settings would change the results.
    return jax.random.key(seed, impl="threefry2x32")


def at(key: Array, stream: Stream, step: int | Array = 0) -> Array:
    """Key of one stream at one step; `key` can be reused for others.

    Args:
        key: the key of the run.
        stream: the kind of draw.
        step: [] int32, the episode, training step or device of the draw.

    Returns:
        A typed key, shape [].
    """
    return jax.random.fold_in(jax.random.fold_in(key, int(stream)), step)


def draw_rounded_up(key: Array, draw: Callable[..., Array], shape: tuple[int, ...], least: int = 256) -> Array:
    """Random numbers as a prefix of a 1-D draw whose length is rounded up.

    Entry i of a 1-D draw does not depend on its length, and XLA compiles equal computations once: 1-D draws of a
    few lengths compile far faster than draws of many shapes.

    Args:
        key: key of the draw.
        draw: `(key, shape) -> numbers`, such as `jax.random.uniform`.
        shape: shape of the result.
        least: smallest length of a draw.

    Returns:
        The first entries of the draw, in the given shape. The draw is at most a quarter longer, or `least` long.
    """
    size = math.prod(shape)
    step = 2 ** max(0, size.bit_length() - 3)
    return draw(key, (max(least, -(-size // step) * step),))[:size].reshape(shape)


def uniform_numbers(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform numbers; see `draw_rounded_up` and `jax.random.uniform`.

    Args:
        key: key of the draw.
        shape: shape of the result.

    Returns:
        float32 in [0, 1), in the given shape.
    """
    return draw_rounded_up(key, jax.random.uniform, shape)


def normal_numbers(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers; see `draw_rounded_up` and `jax.random.normal`.

    Args:
        key: key of the draw.
        shape: shape of the result.

    Returns:
        float32 in the given shape.
    """
    return draw_rounded_up(key, jax.random.normal, shape)


def uniform_integer(key: Array, shape: tuple[int, ...], bound: int) -> Array:
    """Uniform integers in 0..bound-1, from one uniform number each.

    `jax.random.randint` draws twice to remove a bias, which is far below float32 precision for small bounds.

    Args:
        key: key of the draw.
        shape: shape of the result.
        bound: at least 1, far below 2**23.

    Returns:
        int32 of the given shape.
    """
    drawn = jnp.floor(uniform_numbers(key, shape) * bound).astype(jnp.int32)
    return jnp.minimum(drawn, bound - 1)


def quick_uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform numbers for noise in each of many small steps: a hash of the key and the number of the entry.

    JAX's generator takes longer than the rest of an episode. This hash is a few operations, which XLA fuses with
    the arithmetic around it. The key comes from JAX's generator, so steps are as independent as keys.

    # Ours: two rounds of the 32-bit hash `lowbias32` of Wellons, 2018, "Prospecting for Hash Functions", one for
    each word of the key.

    Args:
        key: key of the draw, used for no other draw.
        shape: shape of the result, fewer than 2**32 entries.

    Returns:
        float32 in (0, 1), in the given shape.
    """
    bits = jax.lax.iota(jnp.uint32, math.prod(shape))
    for word in jax.random.key_data(key)[:2]:
        bits = bits ^ word
        bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
        bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
        bits = bits ^ (bits >> 16)
    # The upper 23 bits as the mantissa of a number in [1, 2), then the middle of its interval.
    bits = (bits >> 9) | np.uint32(0x3F800000)
    return (jax.lax.bitcast_convert_type(bits, jnp.float32) - (1.0 - 2.0**-24)).reshape(shape)
