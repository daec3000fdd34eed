"""What chance decides in training (Section IV): the minibatches of the devices, and which of them straggle."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config
from d2djax.rng import Stream, at
from d2djax.transfer import Holding


def minibatch(key: Array, step: Array, holding: Holding, config: Config) -> Array:
    """Points of every device's minibatch, drawn with replacement from what the device holds.

    The uniform numbers depend on key, step and place in the batch alone, so policies that are compared see
    the same stream.

    Args:
        key: key of the run.
        step: [] int32, training step.
        holding: who holds which points.
        config: `batch_size` B.

    Returns:
        [N, B] int32, numbers of points.
    """
    shape = (holding.size.shape[0], config.batch_size)
    # As a list, which XLA compiles sooner; none of the longer ones of `drawn`, since every step draws one.
    uniform = jax.random.uniform(at(key, Stream.MINIBATCH, step), (math.prod(shape),)).reshape(shape)
    rank = jnp.floor(uniform * holding.size[:, None]).astype(jnp.int32)
    # A device without a point draws a neighbour's: it has weight 0 wherever devices are averaged.
    rank = jnp.maximum(jnp.minimum(rank, holding.size[:, None] - 1), 0)
    return holding.points[holding.start[:, None] + rank]


def participants(key: Array, aggregation: Array, config: Config) -> Array:
    """Devices whose update reaches the server: all but `num_stragglers` random ones (Section IV-B).

    Args:
        key: key of the run.
        aggregation: [] int32, number of the aggregation.
        config: `num_devices` N, `num_stragglers` m, `straggler_draw`: once per run, or anew per aggregation.

    Returns:
        [N] bool, False for the stragglers; policies of a run have the same ones.
    """
    draw = 0 if config.straggler_draw == "run" else aggregation + 1
    order = jax.random.uniform(at(key, Stream.STRAGGLER, draw), (config.num_devices,))
    # The place of each in the order, counted: a sort would take far longer to compile.
    index = jnp.arange(config.num_devices)
    is_before = (order < order[:, None]) | ((order == order[:, None]) & (index < index[:, None]))
    return jnp.sum(is_before, axis=1) >= config.num_stragglers
