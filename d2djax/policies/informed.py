"""`informed`: softmax that starts from what a device predicts of each link, and whose temperature falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config
from d2djax.policies.offers import predicted
from d2djax.policy import softmax_weights


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """The memory of `Informed`.

    Attributes:
        value: [S, N, N] float32, value of each link in each state; row = receiver, column = transmitter.
        tries: [S, N, N] float32, how often each link was chosen in each state, plus one for the prediction.
        episodes: [S] float32, episodes in each state so far.
        expected: [] float32, episodes that each state has in the whole training, on average.
    """

    value: Array
    tries: Array
    episodes: Array
    expected: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Informed:
    """Softmax over values that start at predictions and forget, with a temperature that falls geometrically.

    Ours. Each device hears the offers of all others once and starts as if it had tried each link once:

        V(j) = r_j + gamma q (alpha_1 L + alpha_3 B),    n(j) = 1,

    where `r_j` is the local reward that it predicts for the link if nobody else asks (see `offers.predicted`) and
    the bracket bounds the global reward. After k episodes in a state, it draws link j there with probability
    proportional to `exp(V(j) / temperature)`, `temperature = hot (cold / hot)^min(k S / E, 1)` for E episodes in
    S states. The reward R of the chosen link moves its value:

        n(j) <- n(j) + 1,    V(j) <- V(j) + max(1 / n(j), s) (R - V(j)).

    So the mean of the first 1/s tries becomes an exponential average, since what a link is worth changes while the
    other devices learn. The prediction is by the paper's formula, even if the devices learn from another reward.
    The constants suit several settings and are not meant to be tuned for each.

    Attributes:
        hot: temperature of the first episode, in units of the reward; positive.
        cold: temperature of the last episode; positive.
        step: `s`, the least step towards a new reward, in [0, 1]; 0 averages all.
        optimism: `q`, the share of its bound at which the global reward starts; 0 or more.
    """

    hot: Any = 1.0
    cold: Any = 0.1
    step: Any = 0.2
    optimism: Any = 0.25
    information = "heard"

    def init(self, key: Array, known: Any, config: Config) -> Memory:
        """The predictions, as if each link had been tried once.

        Args:
            key: unused.
            known: the offers, and what `offers.predicted` reads besides; the sizes.
            config: the weights of the reward, `min_classes`, `score_fraction`, `cluster_budget` and `num_episodes`.

        Returns:
            The memory before the first episode.
        """
        most = config.alpha_diversity * known.num_classes + config.alpha_budget * config.cluster_budget
        value = predicted(known, config) + config.gamma * self.optimism * most
        return Memory(
            value=value,
            tries=jnp.ones_like(value),
            episodes=jnp.zeros(known.num_states, jnp.float32),
            expected=jnp.float32(config.num_episodes / known.num_states),
        )

    def weights(self, key: Array, memory: Memory, state: Array) -> Array:
        """Unnormalised softmax weights; the largest of a row is 1.

        Args:
            key: unused.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32 in [0, 1]; row = receiver, column = transmitter.
        """
        passed = jnp.minimum(memory.episodes[state] / memory.expected, 1.0)
        return softmax_weights(memory.value[state], self.hot * (self.cold / self.hot) ** passed)

    def update(self, memory: Memory, state: Array, links: Array, feedback: Any) -> Memory:
        """Moves the value of each chosen link towards its reward.

        Args:
            memory: the memory before the episode.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: `reward`, [N] float32.

        Returns:
            The memory after the episode.
        """
        place = (state, jnp.arange(links.shape[0]), links)
        value, tries = memory.value[place], memory.tries[place] + 1.0
        step = jnp.maximum(1.0 / tries, self.step)
        return Memory(
            value=memory.value.at[place].set(value + step * (feedback.reward - value)),
            tries=memory.tries.at[place].set(tries),
            episodes=memory.episodes.at[state].add(1.0),
            expected=memory.expected,
        )
