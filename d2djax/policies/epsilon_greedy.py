"""Epsilon-greedy: the best link so far, and now and then any other."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.policies import experience
from d2djax.policies.experience import Experience, largest


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpsilonGreedy:
    """Each device asks the link of largest mean reward, and with probability `explore` a uniformly random link.

    `p(j) = (1 - epsilon) [j is best] + epsilon / N`; the best links share their part evenly, and an untried link is
    better than all tried ones. Source: Watkins, 1989, "Learning from Delayed Rewards", thesis, University of
    Cambridge; in this form Sutton and Barto, 2018, "Reinforcement Learning: An Introduction", Section 2.2.
    Level of information: own. The rule only compares rewards, so it needs no scale.

    Attributes:
        explore: `epsilon`, probability of a random link, in [0, 1]; 0.1 as in Section 2.3 of Sutton and Barto.
    """

    explore: float = 0.1
    information = "own"

    init, update, best = experience.start, experience.learn, experience.best

    def weights(self, key: Array, memory: Experience, state: Array) -> Array:
        """Probabilities of the links.

        Args:
            key: unused.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32 in [0, 1]; row = receiver, column = transmitter.
        """
        is_best = largest(memory.value[state])
        share = is_best / jnp.sum(is_best, axis=-1, keepdims=True)
        return (1.0 - self.explore) * share + self.explore / is_best.shape[-1]
