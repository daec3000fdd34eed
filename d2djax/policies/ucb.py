"""UCB1: the link of largest upper confidence bound."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.policies import experience
from d2djax.policies.experience import Experience, largest


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class UCB1:
    """Each device asks the link of largest upper confidence bound on its mean reward.

    `index(j) = mean(j) + b sqrt(2 ln t / n(j))`, where the device has tried link j `n(j)` times in this channel
    state, and any link `t` times. Each link is tried once before any is tried twice. Source: Auer, Cesa-Bianchi and
    Fischer, 2002, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning 47, Figure 1, for
    rewards in [0, 1]. Level of information: own.

    # Ours: `b` is `width` times the range of the rewards that the device has received; see `experience.Range`.

    Attributes:
        width: factor of the confidence interval, 0 or more; 1 is UCB1, 0 is greedy.
    """

    width: float = 1.0
    information = "own"

    init, update, best = experience.start, experience.learn, experience.best

    def weights(self, key: Array, memory: Experience, state: Array) -> Array:
        """Equal weights for the links of largest index.

        Args:
            key: unused.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32, 0 or 1; row = receiver, column = transmitter.
        """
        tries = memory.buffer.tries[state]
        scale = self.width * memory.seen.width()
        # An untried link has the value infinity; its number of tries does not matter.
        times = jnp.maximum(jnp.sum(tries, axis=-1, keepdims=True), 1.0)
        bound = scale * jnp.sqrt(2.0 * jnp.log(times) / jnp.maximum(tries, 1.0))
        return largest(memory.value[state] + bound)
