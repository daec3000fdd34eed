"""Policies that are written for one device, which is how the paper thinks of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PerDevice:
    """A policy of all devices, made by `per_device` from one that is written for a single device.

    Attributes:
        policy: the policy of one device; its numbers can be swept.
    """

    policy: Any

    @property
    def information(self) -> str:
        """What each device is told."""
        return self.policy.information

    @property
    def __wrapped__(self) -> Any:
        """Its numbers are called as those of the policy of one device are."""
        return self.policy

    @property
    def best(self) -> Any:
        """[S, N] int32 of a memory: the best links of every device, if the policy of one device says its own."""
        own = self.policy.best
        return lambda memory: jax.vmap(own, out_axes=1)(memory[1])

    def init(self, key: Array, known: Any, config: Any) -> tuple[Array, Any]:
        """Numbers of the devices [N], and their memories with a leading axis of devices.

        Args:
            key: of what the policies draw; each device has one of its own.
            known: what the devices know before the first episode.
            config: the config.

        Returns:
            The memory before the first episode.
        """
        start = lambda device, known: self.policy.init(jax.random.fold_in(key, device), known, config)  # noqa: E731
        return known.device, jax.vmap(start)(known.device, known)

    def weights(self, key: Array, memory: tuple[Array, Any], state: Array) -> Array:
        """[N, N]: the weights of every device, row by row; each draws with a key of its own.

        Args:
            key: of what the policies draw; each device has one of its own.
            memory: of all devices.
            state: [] int32, channel state.

        Returns:
            [N, N] float; row = receiver, column = transmitter.
        """
        row = lambda device, one: self.policy.weights(jax.random.fold_in(key, device), one, state)  # noqa: E731
        return jax.vmap(row)(*memory)

    def update(self, memory: tuple[Array, Any], state: Array, links: Array, feedback: Any) -> tuple[Array, Any]:
        """Lets every device learn from its own link and what it is told.

        Args:
            memory: of all devices.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: what the devices are told of the episode.

        Returns:
            The memory after the episode.
        """
        step = lambda one, link, told: self.policy.update(one, state, link, told)  # noqa: E731
        return memory[0], jax.vmap(step)(memory[1], links, feedback)


def per_device(policy: Any) -> PerDevice:
    """Makes a policy for all devices from one that is written for a single device.

    Args:
        policy: its `init(key, known, config)` returns the memory of one device, `weights(key, memory, state)` its
            weights [N], and `update(memory, state, link, feedback)` gets its own link [] int32 and its own
            feedback; `known` and `feedback` have no axis of devices: `outage` is [S, N], `counts` [L], `reward`
            []. Its optional `best(memory)` returns [S] int32.

    Returns:
        The policy.

    Raises:
        ValueError: it wants all information, which is not one device's.
    """
    if policy.information == "all":
        raise ValueError("per_device takes a policy with information 'own' or 'heard'; 'all' is not one device's")
    return PerDevice(policy)
