"""EXP3: exponential weights for rewards that an adversary chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.policies.experience import Range, empty_range, widened
from d2djax.policy import Buffer, empty_buffer, softmax_weights


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Estimates:
    """The memory of EXP3.

    Attributes:
        weighted: [S, N, N] sums of reward over probability and of 1 over probability, of the tries of each link.
        seen: the range of the rewards.
    """

    weighted: Buffer
    seen: Range


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EXP3:
    """Each device draws its link with exponential weights of the rewards that it estimates for all links.

    `p(j) = (1 - g) w(j) / sum w + g / N`, `w(j) = exp(g G(j) / N)`, where `G(j)` adds `x / p(j)` over the tries of
    link j in this channel state, `x` is the reward and `p(j)` the probability of the link at that time. Source:
    Auer, Cesa-Bianchi, Freund and Schapire, 2002, "The Nonstochastic Multiarmed Bandit Problem", SIAM Journal on
    Computing 32, Figure 1, for rewards in [0, 1]. Level of information: own.

    # Ours: `x` is 0 for the smallest and 1 for the largest reward that the device has received; see
    `experience.Range`. If the range grows, the rewards received before are rescaled too. The final graph is that of
    the largest probabilities.

    Attributes:
        explore: `g`, share of the probability that is uniform, in [0, 1]. Corollary 3.2 of the source proposes
            `min(1, sqrt(N ln N / ((e - 1) T)))` for T episodes of a channel state.
    """

    explore: float = 0.1
    information = "own"

    def init(self, key: Array, known: Any, config: Any) -> Estimates:
        """Nothing tried.

        Args:
            key: unused.
            known: `num_states` S and `num_devices` N.
            config: unused.

        Returns:
            The memory before the first episode.
        """
        return Estimates(empty_buffer(known.num_states, known.num_devices), empty_range(known.num_devices))

    def weights(self, key: Array, memory: Estimates, state: Array) -> Array:
        """Probabilities of the links.

        Args:
            key: unused.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32 in [0, 1]; row = receiver, column = transmitter.
        """
        return self._probabilities(memory, state)

    def update(self, memory: Estimates, state: Array, links: Array, feedback: Any) -> Estimates:
        """Adds each device's reward over the probability of the link that it chose.

        Args:
            memory: the memory before the episode.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: `reward`, [N] float32.

        Returns:
            The memory after the episode.
        """
        device, weighted = jnp.arange(links.shape[0]), memory.weighted
        # The same expression as in `weights`, so a compiled episode computes it once.
        share, place = self._probabilities(memory, state)[device, links], (state, device, links)
        reward = weighted.reward.at[place].add(feedback.reward / share)
        tries = weighted.tries.at[place].add(1.0 / share)
        return Estimates(Buffer(reward, tries), widened(memory.seen, feedback.reward))

    def _probabilities(self, memory: Estimates, state: Array) -> Array:
        width = memory.seen.width()
        low = jnp.where(width > 0, memory.seen.low[:, None], 0.0)
        above = memory.weighted.reward[state] - low * memory.weighted.tries[state]
        # Before the range is known, all rewards count as the smallest.
        rate = jnp.where(width > 0, self.explore / jnp.where(width > 0, width, 1.0), 0.0) / above.shape[-1]
        weight = softmax_weights(rate * above)
        share = weight / jnp.sum(weight, axis=-1, keepdims=True)
        return (1.0 - self.explore) * share + self.explore / share.shape[-1]
