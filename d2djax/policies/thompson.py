"""Gaussian Thompson sampling: the link whose mean reward is largest in a draw from the posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
from jax import Array

from d2djax.policies import experience
from d2djax.policies.experience import Experience, largest
from d2djax.rng import quick_uniform


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Thompson:
    """Each device draws a mean reward for each link from its posterior and asks the link of the largest draw.

    `index(j) ~ N(sum(j) / (n(j) + 1), b^2 / (n(j) + 1))`, where `sum(j)` adds the rewards of the `n(j)` tries of
    link j in this channel state, counted from the smallest reward that the device has received. Source: Agrawal and
    Goyal, 2013, "Further Optimal Regret Bounds for Thompson Sampling", AISTATS, Algorithm 2, for rewards in [0, 1]
    and b = 1. Level of information: own.

    # Ours: `b` is `width` times the range of the rewards that the device has received; see `experience.Range`.

    Attributes:
        width: factor of the standard deviation, 0 or more; 1 is the rule of Agrawal and Goyal.
    """

    width: float = 1.0
    information = "own"

    init, update, best = experience.start, experience.learn, experience.best

    def weights(self, key: Array, memory: Experience, state: Array) -> Array:
        """Weight 1 for the link of largest draw.

        Args:
            key: of the draws.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32, 0 or 1; row = receiver, column = transmitter.
        """
        tries = memory.buffer.tries[state] + 1.0
        # One try that earned the smallest reward stands for the prior. Before the first episode, all means are
        # infinite and the links equally good.
        mean = (memory.buffer.reward[state] + memory.seen.low[:, None]) / tries
        deviation = self.width * memory.seen.width() * jax.lax.rsqrt(tries)
        noise = math.sqrt(2.0) * jax.lax.erf_inv(2.0 * quick_uniform(key, tries.shape) - 1.0)
        return largest(mean + deviation * noise)
