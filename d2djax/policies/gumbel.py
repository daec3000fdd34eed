"""Boltzmann-Gumbel exploration: softmax whose temperature falls for each link by itself."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.policies import experience
from d2djax.policies.experience import Experience, largest
from d2djax.rng import quick_uniform


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BoltzmannGumbel:
    """Each device adds Gumbel noise to the mean reward of each link, less for each try, and asks the largest.

    `index(j) = mean(j) + sqrt(C^2 / n(j)) Z(j)`, where `n(j)` is the number of tries of link j in this channel
    state and `Z(j)` is drawn from the standard Gumbel distribution. With equal noise for all links, this is the
    softmax of the paper. An untried link comes before all tried ones. Source: Cesa-Bianchi, Gentile, Lugosi and
    Neu, 2017, "Boltzmann Exploration Done Right", NIPS, Section 4. Level of information: own.

    # Ours: `C` is `width` times the range of the rewards that the device has received; see `experience.Range`.

    Attributes:
        width: factor of the noise, 0 or more. 0.5, since rewards in a range of 1 are subgaussian with `sigma` 1/2.
    """

    width: float = 0.5
    information = "own"

    init, update, best = experience.start, experience.learn, experience.best

    def weights(self, key: Array, memory: Experience, state: Array) -> Array:
        """Weight 1 for the link of largest index.

        Args:
            key: of the noise.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32, 0 or 1; row = receiver, column = transmitter.
        """
        tries = jnp.maximum(memory.buffer.tries[state], 1.0)
        scale = self.width * memory.seen.width() * jax.lax.rsqrt(tries)
        return largest(memory.value[state] - scale * jnp.log(-jnp.log(quick_uniform(key, tries.shape))))
