"""Convolution and pooling for models with separate weights per device (Section IV-A), with the batch last.

With a separate kernel for each device, `nn.Conv` under `vmap` becomes a grouped convolution, which XLA runs slowly;
a batched matrix product runs fast. With the batch as the last axis, all other operations work on long contiguous
rows.
"""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

Taps = tuple[int, ...]


def _seen(x: Array, window: Taps, strides: Taps) -> Array:
    """Inputs of each tap of a window (im2col), [C, *spatial, B] to [taps * C, *spatial', B]."""
    # From the first to the last output along each axis, before strides.
    lengths = [
        (size - taps) // step * step + 1 for size, taps, step in zip(x.shape[1:-1], window, strides, strict=True)
    ]
    every = tuple(slice(None, None, step) for step in strides[1:])

    def gathered(part: Array) -> Array:
        sizes = (*part.shape[:2], *lengths[1:], part.shape[-1])
        seen = lambda tap: jax.lax.dynamic_slice(part, (0, 0, *tap, 0), sizes)[:, :, *every]  # noqa: E731
        return jax.vmap(seen)(jnp.asarray(list(itertools.product(*map(range, window[1:])))))

    # XLA fuses up to eight concatenated arrays into one fast loop, so taps along further axes are gathered.
    parts = [jax.lax.slice_in_dim(x, tap, tap + lengths[0], strides[0], axis=1) for tap in range(window[0])]
    rows = jnp.concatenate([part[None] if len(window) == 1 else gathered(part) for part in parts])
    return rows.reshape(-1, *rows.shape[2:])


def _sent_back(slope: Array, shape: tuple[int, ...], window: Taps, strides: Taps) -> Array:
    """The transpose of `_seen`: sums the gradients of all taps that read the same input (col2im)."""
    # A sum of padded arrays: scattering to overlapping positions is slow, and on a GPU in random order.
    total = jnp.zeros(shape, slope.dtype)
    taps = list(itertools.product(*map(range, window)))
    for tap, part in zip(taps, slope.reshape(len(taps), -1, *slope.shape[1:]), strict=True):
        pads = [
            (before, size - before - (length - 1) * step - 1, step - 1)
            for before, size, length, step in zip(tap, shape[1:-1], part.shape[1:-1], strides, strict=True)
        ]
        total += jax.lax.pad(part, jnp.zeros((), part.dtype), ((0, 0, 0), *pads, (0, 0, 0)))
    return total


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve(x: Array, kernel: Array, window: Taps, strides: Taps) -> Array:
    """Convolution without padding; differentiable in reverse mode only.

    Args:
        x: [C, *spatial, B] float.
        kernel: [taps * C, F] float, taps in C order of the window's axes.
        window: taps along each spatial axis.
        strides: steps between outputs along each spatial axis.

    Returns:
        [F, *spatial', B], `(size - window) // stride + 1` per axis.
    """
    return _convolve_forward(x, kernel, window, strides)[0]


def _convolve_forward(x: Array, kernel: Array, window: Taps, strides: Taps) -> tuple[Array, tuple]:
    seen = _seen(x, window, strides)
    patches = seen.reshape(kernel.shape[0], -1)
    # The barrier makes XLA transpose the kernel first; without it the product takes twice as long on a CPU.
    out = jax.lax.optimization_barrier(kernel.T) @ patches
    return out.reshape(-1, *seen.shape[1:]), (x.shape, kernel, patches)


def _convolve_backward(window: Taps, strides: Taps, saved: tuple, slope: Array) -> tuple[Array, Array]:
    # Written out, since automatic differentiation would lead XLA to the slow product.
    shape, kernel, patches = saved
    flat = slope.reshape(kernel.shape[1], -1)
    by_tap = (kernel @ flat).reshape(-1, *slope.shape[1:])
    return _sent_back(by_tap, shape, window, strides), patches @ flat.T


convolve.defvjp(_convolve_forward, _convolve_backward)


def _squares(x: Array) -> Array:
    channels, height, width, batch = x.shape
    return x.reshape(channels, height // 2, 2, width // 2, 2, batch)


@jax.custom_vjp
def max_pool(x: Array) -> Array:
    """Maximum of each 2 x 2 square, [C, H, W, B] to [C, H / 2, W / 2, B]; H and W must be even.

    Equal maxima of a square share its gradient, as in `jnp.max`.
    """
    return jnp.max(_squares(x), axis=(2, 4))


def _max_pool_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    largest = max_pool(x)
    return largest, (x, largest)


def _max_pool_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array]:
    # Written out, since JAX counts equal maxima with a reduction, which takes twice as long.
    x, largest = saved
    squares = _squares(x)
    equals = sum(squares[:, :, place // 2, :, place % 2] == largest for place in range(4))
    wide = lambda part: part[:, :, None, :, None]  # noqa: E731
    return (jnp.where(squares == wide(largest), wide(slope / equals), 0.0).reshape(x.shape),)


max_pool.defvjp(_max_pool_forward, _max_pool_backward)
