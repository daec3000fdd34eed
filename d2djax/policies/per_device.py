"""Turns a policy that is written for a single device, as in the paper, into one for all devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax import Array

from d2djax.checks import shown
from d2djax.information import LEVELS


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PerDevice:
    """A policy for all devices, made by `per_device` from one for a single device.

    Attributes:
        policy: the policy for a single device; its numbers can be swept.
    """

    policy: Any

    @property
    def information(self) -> str:
        """The information level of the policy; see `d2djax.information`."""
        return self.policy.information

    @property
    def __wrapped__(self) -> Any:
        """The policy for a single device, whose names its numbers keep."""
        return self.policy

    @property
    def best(self) -> Any:
        """`(memory) -> links`, [S, N] int32, if the policy has `best`; otherwise raises AttributeError."""
        own = self.policy.best
        return lambda memory: jax.vmap(own, out_axes=1)(memory[1])

    def init(self, key: Array, known: Any, config: Any) -> tuple[Array, Any]:
        """The memory before the first episode.

        Args:
            key: PRNG key; each device gets one derived from it.
            known: what the devices know before the first episode; see `d2djax.information.known_of`.
            config: settings of the run.

        Returns:
            Device numbers [N] int32, and the devices' memories, whose leaves have a leading axis [N, ...].
        """
        start = lambda device, known: self.policy.init(jax.random.fold_in(key, device), known, config)  # noqa: E731
        return known.device, jax.vmap(start)(known.device, known)

    def weights(self, key: Array, memory: tuple[Array, Any], state: Array) -> Array:
        """The link weights of all devices.

        Args:
            key: PRNG key; each device gets one derived from it.
            memory: of all devices; see `init`.
            state: [] int32, channel state.

        Returns:
            [N, N] float; row = receiver, column = transmitter.
        """
        row = lambda device, one: self.policy.weights(jax.random.fold_in(key, device), one, state)  # noqa: E731
        return jax.vmap(row)(*memory)

    def update(self, memory: tuple[Array, Any], state: Array, links: Array, feedback: Any) -> tuple[Array, Any]:
        """Updates each device's memory with its link and its feedback.

        Args:
            memory: of all devices; see `init`.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: of the episode, with a leading axis of devices; see `d2djax.information.feedback_of`.

        Returns:
            The memory after the episode.
        """
        step = lambda one, link, told: self.policy.update(one, state, link, told)  # noqa: E731
        return memory[0], jax.vmap(step)(memory[1], links, feedback)


def per_device(policy: Any) -> PerDevice:
    """Makes a policy for all devices from one for a single device.

    Args:
        policy: `init(key, known, config)` returns the memory of one device, `weights(key, memory, state)` its
            weights [N], and `update(memory, state, link, feedback)` takes the device's link [] int32 and its
            feedback. `known` and `feedback` have no axis of devices: `outage` is [S, N], `counts` [L], `reward`
            []. The optional `best(memory)` returns [S] int32.

    Returns:
        The policy.

    Raises:
        ValueError: its information level is "all", which a single device does not have, or it has none.
    """
    if getattr(policy, "information", None) not in LEVELS:
        raise ValueError(f"per_device takes a policy with information 'own' or 'heard'; got {shown(policy)}")
    if policy.information == "all":
        raise ValueError("per_device takes a policy with information 'own' or 'heard'; 'all' is not one device's")
    return PerDevice(policy)
