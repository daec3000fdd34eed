"""Explore, then commit: a round robin without conflicts, then greedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.policies import experience
from d2djax.policies.experience import Experience, largest


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scheduled:
    """The memory of `Commit`.

    Attributes:
        experience: of the links.
        place: [N] int32, each device's place in the round robin.
    """

    experience: Experience
    place: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Commit:
    """The devices try all links in a round robin, `rounds` times in each channel state, and are greedy afterwards.

    In probe `k = 0, 1, ...` of a state, the device at place `p` asks the one at place `(p + k + 1) mod N`: each
    transmitter is asked by exactly one device. The last probe of a round tries no link. Afterwards, each device
    asks the link of largest mean reward, which it keeps up to date. Source: Robbins, 1952, "Some Aspects of the
    Sequential Design of Experiments", Bulletin of the American Mathematical Society 58; Garivier, Kaufmann and
    Lattimore, 2016, "On Explore-Then-Commit Strategies", NIPS. Level of information: own. The rule needs no scale.

    # Ours: the schedule, for which the devices agree once on a random order. Simultaneous probes without a schedule
    would compete for transmitters, and a reward would depend on chance.

    Attributes:
        rounds: probes of each link in each state, a whole number of 0 or more.
    """

    rounds: int = 1
    information = "own"

    def init(self, key: Array, known: Any, config: Any) -> Scheduled:
        """Nothing tried, and a random order of the devices.

        Args:
            key: of the order.
            known: `num_states` S and `num_devices` N.
            config: unused.

        Returns:
            The memory before the first episode.
        """
        place = jax.random.permutation(key, known.num_devices).astype(jnp.int32)
        return Scheduled(experience.start(self, key, known, config), place)

    def weights(self, key: Array, memory: Scheduled, state: Array) -> Array:
        """Weight 1 for the link of the schedule, or later equal weights for the best links.

        Args:
            key: unused.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32, 0 or 1; row = receiver, column = transmitter.
        """
        past, place = memory.experience, memory.place
        probe = jnp.sum(past.buffer.tries[state], axis=-1, keepdims=True).astype(jnp.int32)
        is_next = (place - place[:, None] - probe - 1) % place.shape[0] == 0
        return jnp.where(probe < self.rounds * place.shape[0], is_next, largest(past.value[state]))

    def update(self, memory: Scheduled, state: Array, links: Array, feedback: Any) -> Scheduled:
        """Adds each device's reward to the link that it chose.

        Args:
            memory: the memory before the episode.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: `reward`, [N] float32.

        Returns:
            The memory after the episode.
        """
        return Scheduled(experience.learn(self, memory.experience, state, links, feedback), memory.place)

    def best(self, memory: Scheduled) -> Array:
        """The links of largest mean reward; see `d2djax.policy.greedy`.

        Args:
            memory: the memory after the last episode.

        Returns:
            `links`, [S, N] int32: the transmitter of each device in each state.
        """
        return experience.best(self, memory.experience)
