"""Networks that the devices train (Section IV-A), in Flax, without batch normalisation."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config
from d2djax.partition import Points, inputs


class MLP(nn.Module):
    """A fully connected network: one hidden layer of 200 units; 784-200-10 on Fashion-MNIST.

    Attributes:
        num_classes: `L`, outputs.
        num_hidden: units of the hidden layer.
    """

    num_classes: int
    num_hidden: int = 200

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of inputs [B, ...]."""
        hidden = nn.relu(nn.Dense(self.num_hidden)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes)(hidden)


class Conv1D(nn.Module):
    """A 1-D convolution without padding, written as one matrix product of shifted slices.

    With a kernel of its own for every device, `nn.Conv` under `vmap` becomes a grouped convolution, which
    XLA runs slowly; a batched matrix product it runs fast, forward and backward.

    Attributes:
        features: output channels.
        width: taps of the kernel.
        stride: steps between outputs.
    """

    features: int
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[B, T, C] to [B, (T - width) // stride + 1, features]."""
        channels = x.shape[-1]
        length = (x.shape[1] - self.width) // self.stride + 1
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (self.width, channels, self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        last = (length - 1) * self.stride + 1
        shifted = [x[:, tap : tap + last : self.stride] for tap in range(self.width)]
        patches = jnp.concatenate(shifted, axis=-1).reshape(-1, self.width * channels)
        out = patches @ kernel.reshape(self.width * channels, self.features) + bias
        return out.reshape(x.shape[0], length, self.features)


class RadioCNN(nn.Module):
    """A light 1-D convolutional network for radio windows [2, 128].

    Attributes:
        num_classes: `L`, outputs.
    """

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of windows [B, 2, 128]."""
        x = jnp.swapaxes(x, 1, 2)
        x = nn.relu(Conv1D(16, width=8, stride=4)(x))
        x = nn.relu(Conv1D(32, width=5, stride=2)(x))
        x = nn.relu(Conv1D(32, width=3, stride=1)(x))
        hidden = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes)(hidden)


MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "radio_cnn": RadioCNN}


def make_model(config: Config) -> nn.Module:
    """The network that `config.model` names.

    Raises:
        ValueError: the name is unknown.
    """
    if config.model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}; got {config.model!r}")
    return MODELS[config.model](num_classes=config.num_classes)


def count_parameters(model: nn.Module, points: Points) -> int:
    """Numbers that a device sends to the server for one aggregation."""
    start = lambda: model.init(jax.random.key(0), inputs(points, jnp.zeros(1, jnp.int32)))  # noqa: E731
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(start)))
