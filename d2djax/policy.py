"""The paper's policy (Sections III-A and III-D): experience buffers, link probabilities, updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_in_order, check_links, check_shape, check_values, is_finite, is_not_negative

# Columns per product: wide enough to use a matrix unit well, narrow enough to cost little.
BLOCK = 32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Buffer:
    """Experience of all devices, `psi`; row = receiver (whose policy it is), column = transmitter.

    Attributes:
        reward: `psi[s, j, 0]`, [S, N, N] float32, summed reward of each link in each state.
        tries: `psi[s, j, 1]`, [S, N, N] float32, how often each link was chosen in each state.

    With float32 sums, the mean reward is accurate to about 0.3 % for up to 4e5 tries of a link in a state.
    """

    reward: Array
    tries: Array


def empty_buffer(num_states: int, num_devices: int) -> Buffer:
    """A buffer of zeros, [S, N, N] with S = `num_states` and N = `num_devices`."""
    zeros = jnp.zeros((num_states, num_devices, num_devices), jnp.float32)
    return Buffer(reward=zeros, tries=zeros)


def check_buffer(buffer: Buffer, state: Array | int) -> int:
    """Checks a buffer and a channel state, and returns the number of devices.

    Args:
        buffer: sums and tries.
        state: [] int, channel state.

    Returns:
        N.

    Raises:
        ValueError: shapes do not agree, or outside `jit` a value is out of range.
    """
    shape = np.shape(buffer.tries)
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(f"buffer.tries must be [S, N, N]; got shape {list(shape)}")
    check_shape("buffer.reward", buffer.reward, shape, "[S, N, N]")
    check_in_order("state", state, shape[0], "states")
    check_values("buffer.reward", buffer.reward, "finite", is_finite)
    check_values("buffer.tries", buffer.tries, "0 or more", is_not_negative)
    return shape[1]


def values(buffer: Buffer, state: Array | int, *, initial_value: Array | float = 0.0) -> Array:
    """Mean reward of each link in one state, or `initial_value` of an untried link.

    Args:
        buffer: [S, N, N] sums and tries.
        state: [] int32, channel state.
        initial_value: [] float.

    Returns:
        [N, N] float32; row = receiver, column = transmitter.
    """
    return _mean_reward(buffer, state, initial_value)


def _mean_reward(buffer: Buffer, place: Any, untried: Array | float) -> Array:
    """Summed reward over tries at an index of a buffer, or `untried` where there are no tries."""
    reward, tries = jnp.asarray(buffer.reward)[place], jnp.asarray(buffer.tries)[place]
    # Deviation: eq. 7 divides 0 by 0 for an untried link, which gets `initial_value` here.
    return jnp.where(tries > 0, reward / jnp.maximum(tries, 1.0), untried)


def softmax_weights(value: Array, temperature: Array | float = 1.0) -> Array:
    """Unnormalised softmax weights of links, `exp((value - max value) / temperature)`; the largest is 1.

    Args:
        value: [..., N] float, value of each link.
        temperature: [] float, positive.

    Returns:
        [..., N] float in [0, 1].
    """
    return jnp.exp((value - jnp.max(value, axis=-1, keepdims=True)) / temperature)


def probabilities(
    buffer: Buffer,
    state: Array | int,
    *,
    initial_value: Array | float = 0.0,
    temperature: Array | float = 1.0,
) -> Array:
    """Link probabilities of all devices, eq. 7: softmax over transmitters of `psi_0 / psi_1 / temperature`.

    Args:
        buffer: [S, N, N] sums and tries.
        state: [] int32, channel state (the paper's index t).
        initial_value: [] float, value of an untried link.
        temperature: [] float, positive; 1 is the paper.

    Returns:
        [N, N] float32; row i is the distribution of device i's transmitter, j = i meaning no link.

    Raises:
        ValueError: the buffer is not [S, N, N], or outside `jit` a value is out of range.
    """
    check_buffer(buffer, state)
    check_values("initial_value", initial_value, "finite", is_finite)
    check_values("temperature", temperature, "positive", lambda values: is_finite(values) & (values > 0))
    weight = softmax_weights(values(buffer, state, initial_value=initial_value), temperature)
    return weight / jnp.sum(weight, axis=-1, keepdims=True)


def cumulative(weight: Array) -> Array:
    """Cumulative sum along the last axis by matrix products with a triangle of ones, in blocks of `BLOCK`.

    Much faster on CPU and GPU than a scan, which makes log2(N) passes over memory.

    Args:
        weight: [..., N] float.

    Returns:
        [..., N] of the same type; the last entry is the total.
    """
    *batch, size = weight.shape
    block = min(size, BLOCK)
    num_blocks = -(-size // block)
    padded = jnp.pad(weight, (*((0, 0) for _ in batch), (0, num_blocks * block - size)))
    # A constant of NumPy needs no compiled code.
    ones = np.triu(np.ones((block, block), weight.dtype))
    # Full precision: by default a GPU would round these weights to ten bits.
    within = jnp.matmul(padded.reshape(*batch, num_blocks, block), ones, precision=jax.lax.Precision.HIGHEST)
    if num_blocks == 1:
        return within.reshape(weight.shape)
    before = cumulative(within[..., -1]) - within[..., -1]
    return (within + before[..., None]).reshape(*batch, -1)[..., :size]


def sample(uniform: Array, weight: Array) -> Array:
    """Draws one transmitter per receiver from one uniform number each, by inverse transform sampling.

    Args:
        uniform: [N] float in [0, 1).
        weight: [N, N] float, unnormalised probabilities; row = receiver.

    Returns:
        `links`, [N] int32. An index of weight 0 is never drawn, except through rounding of the cumulative sums in
        networks of more than `BLOCK` devices; a row of zeros draws N.
    """
    total = cumulative(weight)
    # Scaled by the total, so that no draw falls beyond the last device.
    below = total <= uniform[:, None] * total[:, -1:]
    return jnp.sum(below, axis=-1).astype(jnp.int32)


def update(buffer: Buffer, state: Array | int, links: Array, reward: Array) -> Buffer:
    """Adds the rewards of one episode to the chosen links (Section III-D).

    Args:
        buffer: [S, N, N] sums and tries.
        state: [] int32, channel state.
        links: [N] int32, `links[i] = j`: receiver i chose transmitter j.
        reward: `R`, [N] float.

    Returns:
        The new buffer.

    Raises:
        ValueError: shapes do not agree, or outside `jit` a value is out of range.
    """
    num_devices = check_buffer(buffer, state)
    check_links(links, num_devices)
    check_shape("reward", reward, (num_devices,), "[N]")
    check_values("reward", reward, "finite", is_finite)
    links, total = jnp.asarray(links), jnp.asarray(buffer.reward)
    receiver = jnp.arange(links.shape[0])
    return Buffer(
        reward=total.at[state, receiver, links].add(jnp.asarray(reward).astype(total.dtype)),
        tries=jnp.asarray(buffer.tries).at[state, receiver, links].add(1),
    )


def refreshed(value: Array, buffer: Buffer, state: Array | int, links: Array) -> Array:
    """Updates the values of the links that an episode chose; all other values are unchanged.

    Args:
        value: [S, N, N] float32, values before the episode; see `values`.
        buffer: [S, N, N] sums and tries after the episode.
        state: [] int32, state of the episode.
        links: [N] int32, links of the episode.

    Returns:
        [S, N, N] float32.
    """
    place = (state, jnp.arange(links.shape[0]), links)
    # Each chosen link has a try, so `untried` is never used.
    return value.at[place].set(_mean_reward(buffer, place, 0.0))


def greedy(buffer: Buffer) -> Array:
    """The link of largest mean reward among the tried ones, per device and state; ties go to the smallest j.

    Args:
        buffer: [S, N, N] sums and tries.

    Returns:
        `links`, [S, N] int32; a device without tries in a state gets no link (itself).
    """

    def of_state(one: Buffer) -> Array:
        mean = _mean_reward(one, ..., -jnp.inf)
        device = jnp.arange(mean.shape[-1], dtype=jnp.int32)
        # The smallest of the best; `argmax` is the same but takes ten times as many kernels.
        is_best = mean == jnp.max(mean, axis=-1, keepdims=True)
        best = jnp.min(jnp.where(is_best, device, device.size - 1), axis=-1)
        return jnp.where(jnp.any(one.tries > 0, axis=-1), best, device)

    # State by state, which needs the memory of one state only.
    return jax.lax.map(of_state, buffer)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """The memory of the paper's policy.

    Attributes:
        buffer: [S, N, N] sums and tries.
        value: [S, N, N] float32, their quotients, stored so that an episode recomputes only those that change.

    Example:
        Five episodes of two devices in one state, with `initial_value` 9. Each episode recomputes only the value of
        the link that the device has just tried.

            episode   link of 0   reward   sums     tries   values of device 0
                                           0   0    0  0    9    9
            0             1          4     0   4    0  1    9    4
            1             1          2     0   6    0  2    9    3
            2             0          1     1   6    1  2    1    3
            3             1          9     1  15    1  3    1    5
            4             1          1     1  16    1  4    1    4

        >>> memory = Memory(empty_buffer(1, 2), jnp.full((1, 2, 2), 9.0))
        >>> for link, reward in [(1, 4.0), (1, 2.0), (0, 1.0), (1, 9.0), (1, 1.0)]:
        ...     buffer = update(memory.buffer, 0, np.array([link, 0]), np.array([reward, 0.0]))
        ...     memory = Memory(buffer, refreshed(memory.value, buffer, 0, np.array([link, 0])))
        >>> memory.buffer.reward[0, 0].tolist(), memory.buffer.tries[0, 0].tolist(), memory.value[0, 0].tolist()
        ([1.0, 16.0], [1.0, 4.0], [1.0, 4.0])
        >>> (memory.value == values(memory.buffer, 0, initial_value=9.0)).all().item()
        True
    """

    buffer: Buffer
    value: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Boltzmann:
    """The paper's policy, eq. 7: each device draws its link from a softmax over mean rewards.

    Attributes:
        temperature: divides the values; 1 as in the paper.
        initial_value: value of an untried link; above all rewards, it makes the devices try all links.
    """

    temperature: Any = 1.0
    initial_value: Any = 0.0
    information = "own"

    def init(self, key: Array, known: Any, config: Any) -> Memory:
        """An empty buffer.

        Args:
            key: unused.
            known: `num_states` S and `num_devices` N.
            config: unused.

        Returns:
            The memory before the first episode.
        """
        buffer = empty_buffer(known.num_states, known.num_devices)
        return Memory(buffer, jnp.full(buffer.tries.shape, self.initial_value, jnp.float32))

    def weights(self, key: Array, memory: Memory, state: Array) -> Array:
        """Unnormalised softmax weights; the largest of a row is 1.

        Args:
            key: unused.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32 in [0, 1]; row = receiver, column = transmitter.
        """
        return softmax_weights(memory.value[state], self.temperature)

    def update(self, memory: Memory, state: Array, links: Array, feedback: Any) -> Memory:
        """Adds each device's reward to the link that it chose.

        Args:
            memory: the memory before the episode.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: `reward`, [N] float32.

        Returns:
            The memory after the episode.
        """
        buffer = update(memory.buffer, state, links, feedback.reward)
        return Memory(buffer, refreshed(memory.value, buffer, state, links))

    def best(self, memory: Memory) -> Array:
        """The greedy links; see `greedy`.

        Args:
            memory: the memory after the last episode.

        Returns:
            `links`, [S, N] int32: the transmitter of each device in each state.
        """
        return greedy(memory.buffer)
