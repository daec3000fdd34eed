"""Evaluates a model on held-out points: accuracy, loss and accuracy per class (Section IV-B)."""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from d2djax.models import Parameters, logits_of
from d2djax.points import Points, inputs

# Most points evaluated together: the activations of an image model for more would not fit into the cache.
EVALUATION_BLOCK = 512


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Evaluation:
    """A model's quality on held-out points.

    Attributes:
        accuracy: [] float32, share of points classified correctly; NaN if the loss is not finite.
        loss: [] float32, mean cross entropy, nats.
        class_accuracy: [L] float32, share of each class's points classified correctly; NaN for a class without
            points, and if the loss is not finite.
    """

    accuracy: Array
    loss: Array
    class_accuracy: Array


def cross_entropies(
    model: nn.Module, parameters: Parameters, x: Array, y: Array, key: Array | None = None
) -> Array:
    """Cross entropy of each point of a batch (the paper's CELoss).

    Args:
        model: the model.
        parameters: its parameters.
        x: [B, ...] float32.
        y: [B] int32, classes.
        key: key of the model's draws in training; None: evaluation; see `logits_of`.

    Returns:
        [B] float32, nats.
    """
    return optax.softmax_cross_entropy_with_integer_labels(logits_of(model, parameters, x, key), y)


def evaluate(model: nn.Module, parameters: Parameters, points: Points, test: Array) -> Evaluation:
    """Evaluates a model on held-out points, in blocks that bound the memory.

    Args:
        model: the model.
        parameters: its parameters.
        points: all points.
        test: [n] int32, numbers of the held-out points.

    Returns:
        The evaluation, averaged over all held-out points.
    """
    size, num_classes = test.shape[0], len(points.sizes)
    num_blocks = -(-size // EVALUATION_BLOCK)
    # Blocks of equal size, so that the last one is not mostly padding.
    padded = jnp.pad(test, (0, -size % num_blocks)).reshape(num_blocks, -1)
    is_real = (jnp.arange(padded.size) < size).reshape(padded.shape)

    def block(numbers_and_mask: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        numbers, mask = numbers_and_mask
        y = points.y[numbers]
        logits = logits_of(model, parameters, inputs(points, numbers))
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        is_class = (y[:, None] == jnp.arange(num_classes)) & mask[:, None]
        right = is_class & (jnp.argmax(logits, axis=-1) == y)[:, None]
        return jnp.sum(right, axis=0), jnp.sum(is_class, axis=0), jnp.sum(jnp.where(mask, loss, 0.0))

    right, seen, loss = (jnp.sum(part, axis=0) for part in jax.lax.map(block, (padded, is_real)))
    # `argmax` of NaN logits is class 0, which would count as correct for every point of that class.
    known = lambda share: jnp.where(jnp.isfinite(loss), share, jnp.nan)  # noqa: E731
    return Evaluation(known(jnp.sum(right) / size), loss / size, known(right / seen))
