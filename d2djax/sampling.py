"""Minibatch and straggler draws of federated training (Section IV)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config
from d2djax.rng import Stream, at
from d2djax.transfer import Holding


def minibatch(key: Array, step: Array, holding: Holding, config: Config) -> Array:
    """Draws each device's minibatch with replacement from the points that it holds.

    The uniform numbers depend only on key, step and position in the batch, so compared policies share them.

    Args:
        key: key of the run.
        step: [] int32, training step.
        holding: the points of each device.
        config: `batch_size` B.

    Returns:
        [N, B] int32, indices of points.
    """
    shape = (holding.size.shape[0], config.batch_size)
    # A 1-D draw, which compiles faster; its length is exact, unlike in `draw_rounded_up`, since each step draws.
    uniform = jax.random.uniform(at(key, Stream.MINIBATCH, step), (math.prod(shape),)).reshape(shape)
    rank = jnp.floor(uniform * holding.size[:, None]).astype(jnp.int32)
    # A device without points draws those of another device; it has weight 0 in all averages.
    rank = jnp.maximum(jnp.minimum(rank, holding.size[:, None] - 1), 0)
    return holding.points[holding.start[:, None] + rank]


def participants(key: Array, aggregation: Array, config: Config) -> Array:
    """Devices whose update reaches the server: all except `num_stragglers` random ones (Section IV-B).

    Args:
        key: key of the run.
        aggregation: [] int32, number of the aggregation.
        config: `num_devices` N, `num_stragglers` m, `straggler_draw`: once per run or per aggregation.

    Returns:
        [N] bool, False for stragglers; the same for all policies of a run.
    """
    draw = 0 if config.straggler_draw == "run" else aggregation + 1
    order = jax.random.uniform(at(key, Stream.STRAGGLER, draw), (config.num_devices,))
    # Each device's rank by counting: a sort would take far longer to compile.
    index = jnp.arange(config.num_devices)
    is_before = (order < order[:, None]) | ((order == order[:, None]) & (index < index[:, None]))
    return jnp.sum(is_before, axis=1) >= config.num_stragglers
