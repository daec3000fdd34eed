"""Federated training after the exchange (Sections II-A.4, IV): local SGD, weighted averaging, evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from d2djax.config import Config
from d2djax.partition import Points, inputs
from d2djax.rng import Stream, at
from d2djax.transfer import Holding

EVALUATION_BLOCK = 2048
Parameters = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learning:
    """Learning curves of the global model on the held-out points, one value per evaluation.

    Attributes:
        accuracy: [rounds] float32, share of held-out points classified right.
        loss: [rounds] float32, mean cross entropy of held-out points, nats.
        train_loss: [rounds] float32, mean cross entropy of the minibatches since the last evaluation, nats.
    """

    accuracy: Array
    loss: Array
    train_loss: Array


def logits_of(model: nn.Module, parameters: Parameters, x: Array) -> Array:
    """Logits [B, L] of a batch [B, ...]."""
    return jnp.asarray(model.apply(parameters, x))


def cross_entropy(model: nn.Module, parameters: Parameters, x: Array, y: Array) -> Array:
    """Mean cross entropy of a batch, nats (the paper's CELoss; it sums, a mean only rescales the step size)."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits_of(model, parameters, x), y))


def weighted_average(local: Parameters, weights: Array) -> Parameters:
    """Average of the local models by weight, leaf by leaf.

    Args:
        local: parameters with a leading device axis [N, ...].
        weights: [N] float, not all 0; they need not sum to 1.

    Returns:
        Parameters without the device axis.
    """
    share = weights / jnp.sum(weights)
    return jax.tree.map(lambda leaf: jnp.tensordot(share, leaf, axes=1), local)


def minibatch(key: Array, step: Array, holding: Holding, config: Config) -> Array:
    """Points of every device's minibatch, drawn with replacement from what the device holds.

    The uniform numbers depend on key, step and place in the batch alone, so methods that are compared see
    the same stream.

    Args:
        key: key of the run.
        step: [] int32, training step.
        holding: who holds which points.
        config: `batch_size` B.

    Returns:
        [N, B] int32, numbers of points.
    """
    uniform = jax.random.uniform(at(key, Stream.MINIBATCH, step), (holding.size.shape[0], config.batch_size))
    rank = jnp.floor(uniform * holding.size[:, None]).astype(jnp.int32)
    rank = jnp.minimum(rank, holding.size[:, None] - 1)
    return holding.points[holding.start[:, None] + rank]


def evaluate(model: nn.Module, parameters: Parameters, points: Points, test: Array) -> tuple[Array, Array]:
    """Accuracy and mean loss of a model on held-out points, in blocks that bound the memory.

    Args:
        model: the network.
        parameters: its parameters.
        points: all points.
        test: [n] int32, numbers of the held-out points.

    Returns:
        Accuracy in [0, 1] and mean cross entropy in nats, [] float32.
    """
    num_blocks = -(-test.shape[0] // EVALUATION_BLOCK)
    padded = jnp.pad(test, (0, num_blocks * EVALUATION_BLOCK - test.shape[0]))
    is_real = (jnp.arange(padded.shape[0]) < test.shape[0]).reshape(num_blocks, -1)

    def block(numbers_and_mask: tuple[Array, Array]) -> tuple[Array, Array]:
        numbers, mask = numbers_and_mask
        logits = logits_of(model, parameters, inputs(points, numbers))
        y = points.y[numbers]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        right = jnp.argmax(logits, axis=-1) == y
        return jnp.sum(right & mask), jnp.sum(jnp.where(mask, loss, 0.0))

    right, loss = jax.lax.map(block, (padded.reshape(num_blocks, -1), is_real))
    return jnp.sum(right) / test.shape[0], jnp.sum(loss) / test.shape[0]


def train(key: Array, model: nn.Module, points: Points, test: Array, holding: Holding, config: Config) -> Learning:
    """Trains one global model by federated averaging and records it on held-out points.

    Every device takes `tau_a` steps of minibatch SGD from the global model on its own points; the server
    averages the local models with weights `|D-hat_i|` and broadcasts the average.

    Args:
        key: key of the run.
        model: the network; every device starts from the same parameters.
        points: all points.
        test: [n] int32, numbers of the held-out points.
        holding: who holds which points.
        config: `num_steps` T, `aggregation_interval` tau_a, `evaluate_every`, `batch_size`, `learning_rate`.

    Returns:
        The learning curves.
    """
    optimizer = optax.sgd(jnp.asarray(config.learning_rate))
    num_devices = holding.size.shape[0]
    weights = holding.size.astype(jnp.float32)
    loss_and_gradient = jax.value_and_grad(lambda parameters, x, y: cross_entropy(model, parameters, x, y))

    def device_step(parameters, state, x, y):
        loss, gradient = loss_and_gradient(parameters, x, y)
        change, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, change), state, loss

    def local_step(carry, step):
        batch = minibatch(key, step, holding, config)
        parameters, state = carry
        parameters, state, loss = jax.vmap(device_step)(parameters, state, inputs(points, batch), points.y[batch])
        return (parameters, state), jnp.mean(loss)

    def aggregation(parameters, first_step):
        local = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_devices, *leaf.shape)), parameters)
        steps = first_step + jnp.arange(config.aggregation_interval)
        (local, _), loss = jax.lax.scan(local_step, (local, jax.vmap(optimizer.init)(local)), steps)
        return weighted_average(local, weights), jnp.mean(loss)

    def recorded(parameters, first_steps):
        parameters, train_loss = jax.lax.scan(aggregation, parameters, first_steps)
        accuracy, loss = evaluate(model, parameters, points, test)
        return parameters, Learning(accuracy, loss, jnp.mean(train_loss))

    start = model.init(at(key, Stream.MODEL), inputs(points, jnp.zeros(1, jnp.int32)))
    first_steps = jnp.arange(0, config.num_steps, config.aggregation_interval)
    _, curves = jax.lax.scan(recorded, start, first_steps.reshape(-1, config.evaluate_every))
    return curves
