"""Flax models that the devices train (Section IV-A), without batch normalisation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import InvalidRngError
from jax import Array

from d2djax.checks import cut
from d2djax.config import Config
from d2djax.convolution import convolve, max_pool
from d2djax.rng import draw_rounded_up, run_key

Parameters = Any

# Flax's names of the argument that selects training mode, and its value in training.
SWITCHES = {"train": True, "training": True, "deterministic": False}
# Above the weights of any layer of the default model, so that all its layers share one drawing program.
LEAST_DRAWN = 2**15


def _lecun_normal(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Initial weights [..., inputs, outputs], as `nn.initializers.lecun_normal`; see `draw_rounded_up`."""
    draw = lambda key, shape: jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)  # noqa: E731
    # A standard normal truncated at two deviations has a standard deviation of 0.8796.
    scale = np.sqrt(np.float32(1.0 / math.prod(shape[:-1]))) / np.float32(0.87962566103423978)
    return draw_rounded_up(key, draw, shape, LEAST_DRAWN) * scale


class MLP(nn.Module):
    """A fully connected model with one hidden layer of 200 units: 784-200-10 on Fashion-MNIST.

    Attributes:
        num_classes: `L`, outputs.
        num_hidden: units of the hidden layer.
    """

    num_classes: int
    num_hidden: int = 200

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of inputs [B, ...]."""
        return _head(x, self.num_hidden, self.num_classes)


class Conv(nn.Module):
    """A convolution with the parameters and results of `nn.Conv`, but with the batch as the last axis.

    Attributes:
        features: output channels.
        window: taps along each spatial axis.
        strides: steps between outputs along each spatial axis; None: 1.
        padding: zeros before and after each spatial axis; None: no zeros.
        pool: pooling, applied before the bias, which is faster; it must commute with adding a constant, as a
            maximum does. None: no pooling.
    """

    features: int
    window: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    padding: tuple[int, ...] | None = None
    pool: Callable[[Array], Array] | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[C, *spatial, B] to [features, *spatial', B], `(size + 2 padding - window) // stride + 1` per axis."""
        rank = len(self.window)
        strides, padding = self.strides or (1,) * rank, self.padding or (0,) * rank
        kernel = self.param("kernel", _lecun_normal, (*self.window, x.shape[0], self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        x = jnp.pad(x, ((0, 0), *((zeros, zeros) for zeros in padding), (0, 0)))
        out: Any = convolve(x, kernel.reshape(-1, self.features), self.window, strides)
        out = out if self.pool is None else self.pool(out)
        return out + bias.reshape(-1, *(1,) * (rank + 1))


def _head(x: Array, num_hidden: int, num_classes: int) -> Array:
    """Two dense layers on flattened features [B, ...]; to be called inside a compact module."""
    hidden = nn.relu(nn.Dense(num_hidden, kernel_init=_lecun_normal)(x.reshape(x.shape[0], -1)))
    return nn.Dense(num_classes, kernel_init=_lecun_normal)(hidden)


class ImageCNN(nn.Module):
    """A convolutional model for colour images: 3 x 3 convolutions of 32 and 64 channels, then 128 units.

    Attributes:
        num_classes: `L`, outputs.
    """

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of images [B, H, W, C], H and W multiples of 4."""
        x = jnp.swapaxes(x, 0, -1)
        for features in (32, 64):
            # ReLU after pooling gives the same result at a quarter of the cost.
            x = nn.relu(Conv(features, (3, 3), padding=(1, 1), pool=max_pool)(x))
        return _head(jnp.swapaxes(x, 0, -1), 128, self.num_classes)


class RadioCNN(nn.Module):
    """A light 1-D convolutional model for radio windows [2, 128].

    Attributes:
        num_classes: `L`, outputs.
    """

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of windows [B, 2, 128]."""
        x = jnp.moveaxis(x, 0, -1)
        for features, taps, stride in ((16, 8, 4), (32, 5, 2), (32, 3, 1)):
            x = nn.relu(Conv(features, (taps,), strides=(stride,))(x))
        return _head(jnp.swapaxes(x, 0, -1), 64, self.num_classes)


class VTCNN2(nn.Module):
    """The model published with RML2016.10a; 2,830,427 parameters for 11 classes.

    Attributes:
        num_classes: `L`, outputs.
    """

    num_classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of windows [B, 2, 128]."""
        # Deviation: without the published dropout.
        x = nn.relu(Conv(256, (1, 3), padding=(0, 2))(jnp.moveaxis(x, 0, -1)[None]))
        x = nn.relu(Conv(80, (2, 3), padding=(0, 2))(x))
        return _head(jnp.swapaxes(x, 0, -1), 256, self.num_classes)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "image_cnn": ImageCNN,
    "radio_cnn": RadioCNN,
    "vt_cnn2": VTCNN2,
}


def make_model(config: Config) -> nn.Module:
    """Makes the model that a validated config names.

    Args:
        config: `model` and `num_classes`.

    Returns:
        A Flax module from [B, ...] to logits [B, L].
    """
    return MODELS[config.model](num_classes=config.num_classes)


def _arguments(model: nn.Module) -> dict[str, inspect.Parameter]:
    """The arguments of a model besides its inputs, by name."""
    return dict(list(inspect.signature(type(model).__call__).parameters.items())[2:])


def is_switched(model: nn.Module) -> bool:
    """Whether a Flax module has a training mode: its `__call__` takes one of `SWITCHES`."""
    return not SWITCHES.keys().isdisjoint(_arguments(model))


def _mode(model: nn.Module, trains: bool) -> dict[str, Any]:
    """The argument that selects training or evaluation; empty for a model without modes."""
    return {name: SWITCHES[name] == trains for name in _arguments(model) if name in SWITCHES}


def first_parameters(model: nn.Module, key: Array, x: Array) -> Parameters:
    """Initial parameters of a model, in evaluation mode.

    Args:
        model: a Flax module.
        key: key of the draw.
        x: [B, ...] float32, of which only the shape and the type matter.

    Returns:
        The parameters, a pytree of arrays.
    """
    return model.init(key, x, **_mode(model, trains=False))


def logits_of(model: nn.Module, parameters: Parameters, x: Array, key: Array | None = None) -> Array:
    """Logits of a batch.

    Args:
        model: the model.
        parameters: its parameters.
        x: [B, ...] float32.
        key: key of the draws, such as dropout, of a model that `is_switched`, in training; None: evaluation.

    Returns:
        [B, L] float.
    """
    if key is None:
        return jnp.asarray(model.apply(parameters, x, **_mode(model, trains=False)))
    # Flax uses this key for every name under which a model draws.
    return jnp.asarray(model.apply(parameters, x, rngs={"params": key}, **_mode(model, trains=True)))


def _check_arguments(model: nn.Module) -> None:
    """Checks that a model can be called with just its inputs and one of `SWITCHES`."""
    name, arguments = type(model).__name__, _arguments(model)
    switches = [one for one in arguments if one in SWITCHES]
    if len(switches) > 1:
        raise ValueError(f"model {name} must take one of {', '.join(SWITCHES)}; it takes {' and '.join(switches)}")
    is_left = lambda one: one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)  # noqa: E731
    by_name = lambda one: one.name in SWITCHES and one.kind is not one.POSITIONAL_ONLY  # noqa: E731
    needed = [one.name for one in arguments.values() if is_left(one) and not by_name(one)]
    if needed:
        raise ValueError(
            f"model {name} must take its inputs and at most one of {', '.join(SWITCHES)}; "
            f"it also needs {', '.join(needed)}"
        )


class _UnfitError(ValueError):
    """A property of a model that training does not support."""


def _refuse_idle_dropout(next_call: Callable, args: tuple, options: dict[str, Any], context: Any) -> Any:
    """Flax calls this for each layer of a model in training; raises an error for a dropout that is switched off."""
    layer = context.module
    rate = getattr(layer, "dropout_rate", getattr(layer, "rate", 0.0))
    given = args[1] if isinstance(layer, nn.Dropout) and len(args) > 1 else options.get("deterministic")
    is_off = getattr(layer, "deterministic", None) if given is None else given
    if isinstance(rate, (int, float)) and rate > 0 and is_off is True:
        raise _UnfitError(
            f"has a {type(layer).__name__} of rate {rate} that is off in training: pass it the argument of "
            f"__call__ ({', '.join(SWITCHES)})"
        )
    return next_call(*args, **options)


def check_model(model: nn.Module, shape: tuple[int, ...], num_classes: int) -> Parameters:
    """Checks that a model takes points of a shape and returns one logit per class; compiles nothing.

    Args:
        model: a Flax module.
        shape: shape of a point, such as (28, 28, 1).
        num_classes: L.

    Returns:
        The parameters as `jax.ShapeDtypeStruct`.

    Raises:
        ValueError: it does not, or it has other variables than parameters (as batch normalisation has), draws
            random numbers in evaluation, or has a dropout that is off in training.
    """
    name = type(model).__name__
    _check_arguments(model)
    x, key = jax.ShapeDtypeStruct((2, *shape), jnp.float32), run_key(0)
    logits = []
    try:
        variables = jax.eval_shape(partial(first_parameters, model), key, x)
        if set(variables) != {"params"}:
            raise _UnfitError(f"must have only params; it has {', '.join(sorted(variables))}")
        if is_switched(model):
            logits.append(jax.eval_shape(partial(logits_of, model), variables, x))
        with nn.intercept_methods(_refuse_idle_dropout):
            training_key = key if is_switched(model) else None
            logits.append(jax.eval_shape(partial(logits_of, model, key=training_key), variables, x))
    except _UnfitError as error:
        raise ValueError(f"model {name} {error}") from None
    except InvalidRngError:
        raise ValueError(
            f"model {name} must draw no random numbers in evaluation; its __call__ must take one of "
            f"{', '.join(SWITCHES)}, and draw only in training"
        ) from None
    except Exception as error:
        if isinstance(model, tuple(MODELS.values())):  # type: ignore[arg-type]
            help = 'give model="mlp", which takes all shapes, or a model of your own, recipe=Recipe(model)'
        else:
            help = cut(f"{type(error).__name__}: {error}", 100)
        raise ValueError(f"model {name} cannot take points of shape {tuple(shape)}: {help}") from error
    for one in logits:
        if one.shape != (2, num_classes):
            raise ValueError(
                f"model {name} must return [2, {num_classes}] logits for 2 points; got {list(one.shape)}"
            )
    return variables


def num_numbers(parameters: Parameters) -> int:
    """Number of numbers in parameters, which a device uploads at each aggregation."""
    return sum(leaf.size for leaf in jax.tree.leaves(parameters))


def count_parameters(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of parameters of a model; see `num_numbers`.

    Args:
        model: a Flax module.
        shape: shape of a point, such as (28, 28, 1).
    """
    x = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    return num_numbers(jax.eval_shape(partial(first_parameters, model), run_key(0), x))
