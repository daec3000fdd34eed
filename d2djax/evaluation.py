"""How good a global model is: accuracy, loss and accuracy per class on held-out points (Section IV-B)."""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from d2djax.models import Parameters, logits_of
from d2djax.points import Points, inputs

# Points that are evaluated together at most: what an image model keeps of more does not fit a cache.
EVALUATION_BLOCK = 512


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Evaluation:
    """A model's quality on held-out points.

    Attributes:
        accuracy: [] float32, share of points classified right; NaN if the loss is not finite.
        loss: [] float32, mean cross entropy, nats.
        class_accuracy: [L] float32, share of each class's points classified right; NaN for a class without points,
            and if the loss is not finite.
    """

    accuracy: Array
    loss: Array
    class_accuracy: Array


def cross_entropies(
    model: nn.Module, parameters: Parameters, x: Array, y: Array, key: Array | None = None
) -> Array:
    """Cross entropy of each point of a batch (the paper's CELoss), [B] float32, nats; `key` as in `logits_of`.

    Args:
        model: the model.
        parameters: its parameters.
        x: [B, ...] float32.
        y: [B] int32, classes.
        key: of what a model draws in training; none: evaluation.

    Returns:
        [B] float32, nats.
    """
    return optax.softmax_cross_entropy_with_integer_labels(logits_of(model, parameters, x, key), y)


def evaluate(model: nn.Module, parameters: Parameters, points: Points, test: Array) -> Evaluation:
    """Measures a model on held-out points, in blocks that bound the memory.

    Args:
        model: the model.
        parameters: its parameters.
        points: all points.
        test: [n] int32, numbers of the held-out points.

    Returns:
        The evaluation.
    """
    size, num_classes = test.shape[0], len(points.sizes)
    num_blocks = -(-size // EVALUATION_BLOCK)
    # Blocks of equal size, so that the last one is not mostly filling.
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
    # The largest of logits that are no numbers is class 0: right for every point of that class, and yet nothing.
    known = lambda share: jnp.where(jnp.isfinite(loss), share, jnp.nan)  # noqa: E731
    return Evaluation(known(jnp.sum(right) / size), loss / size, known(right / seen))
