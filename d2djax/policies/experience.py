"""What the bandit policies remember: sums, tries and mean rewards of the links, and the range of all rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax import policy
from d2djax.policy import Buffer


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Range:
    """The smallest and the largest reward that each device has received, in any state.

    # Ours: the rules of the literature expect rewards in [0, 1]. Rewards here have other units and may be negative,
    # and a custom reward need not have a bound. So each device takes its own range for [0, 1]. No rule then depends
    # on the unit or the zero of the reward, and a device uses only what it has received itself.

    Attributes:
        low: [N] float32; infinity before the first episode.
        high: [N] float32; minus infinity before the first episode.
    """

    low: Array
    high: Array

    def width(self) -> Array:
        """`high - low`, [N, 1] float32; 0 before the second episode."""
        return jnp.maximum(self.high - self.low, 0.0)[:, None]


def empty_range(num_devices: int) -> Range:
    """The range of no rewards, of N = `num_devices` devices."""
    most = jnp.full(num_devices, jnp.inf, jnp.float32)
    return Range(most, -most)


def widened(seen: Range, reward: Array) -> Range:
    """The range after an episode.

    Args:
        seen: the range before it.
        reward: [N] float32, total reward of each device.

    Returns:
        The range.
    """
    return Range(jnp.minimum(seen.low, reward), jnp.maximum(seen.high, reward))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Experience:
    """The memory of a policy that learns from mean rewards.

    Attributes:
        buffer: [S, N, N] sums and tries.
        value: [S, N, N] float32, mean reward of each link; infinity for an untried one, which thus comes first. It
            is stored so that an episode recomputes only the values that change.
        seen: the range of the rewards.
    """

    buffer: Buffer
    value: Array
    seen: Range


def start(self: Any, key: Array, known: Any, config: Any) -> Experience:
    """The method `init` of these policies: nothing is tried yet.

    Args:
        self: the policy; unused.
        key: unused.
        known: `num_states` S and `num_devices` N.
        config: unused.

    Returns:
        The memory before the first episode.
    """
    buffer = policy.empty_buffer(known.num_states, known.num_devices)
    return Experience(buffer, jnp.full_like(buffer.tries, jnp.inf), empty_range(known.num_devices))


def learn(self: Any, memory: Experience, state: Array, links: Array, feedback: Any) -> Experience:
    """The method `update` of these policies: adds each device's reward to the link that it chose.

    Args:
        self: the policy; unused.
        memory: the memory before the episode.
        state: [] int32, channel state.
        links: [N] int32, transmitter of each device.
        feedback: `reward`, [N] float32.

    Returns:
        The memory after the episode.
    """
    buffer = policy.update(memory.buffer, state, links, feedback.reward)
    value = policy.refreshed(memory.value, buffer, state, links)
    return Experience(buffer, value, widened(memory.seen, feedback.reward))


def best(self: Any, memory: Experience) -> Array:
    """The method `best` of these policies: the links of largest mean reward; see `d2djax.policy.greedy`.

    Args:
        self: the policy; unused.
        memory: the memory after the last episode.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    return policy.greedy(memory.buffer)


def largest(index: Array) -> Array:
    """Equal weights for the links of largest index, so that ties are drawn evenly.

    Args:
        index: [N, N] float, no NaN; row = receiver, column = transmitter.

    Returns:
        [N, N] float32: 1 for the largest of each row, 0 for all others.
    """
    return (index == jnp.max(index, axis=-1, keepdims=True)).astype(jnp.float32)
