"""Policies without learning: `(key, network, config) -> links`, [S, N] int32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config, complete
from d2djax.episode import Prepared, exchange_and_reward, prepare
from d2djax.network import Network
from d2djax.reward import PAPER
from d2djax.rng import Stream, at, uniform_integer


def none(key: Array, network: Network, config: Config) -> Array:
    """No exchange: no device has a link (Section IV-B, baseline i).

    Args:
        key: unused.
        network: only its sizes are read.
        config: unused.

    Returns:
        `links`, [S, N] int32: each device is its own transmitter in each state.
    """
    num_states, num_devices, _ = network.outage.shape
    return jnp.broadcast_to(jnp.arange(num_devices, dtype=jnp.int32), (num_states, num_devices))


def _uniform_links(key: Array, num_devices: int) -> Array:
    """[N] int32: a transmitter for each device, uniform over the other devices."""
    other = uniform_integer(key, (num_devices,), num_devices - 1)
    return other + (other >= jnp.arange(num_devices))


def uniform(key: Array, network: Network, config: Config) -> Array:
    """Random links: each device draws its transmitter uniformly from the others (Section IV-B, baseline ii).

    Args:
        key: key of the run.
        network: only its sizes are read.
        config: unused.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    num_states, num_devices, _ = network.outage.shape
    draw = lambda state: _uniform_links(at(key, Stream.BASELINE, state), num_devices)  # noqa: E731
    # State by state: XLA compiles a few draws faster than those of all states at once.
    return jax.lax.map(draw, jnp.arange(num_states))


def nearest(key: Array, network: Network, config: Config) -> Array:
    """Each device takes the transmitter of largest received power `W`; ties go to the smallest index.

    Args:
        key: unused.
        network: `rss` is read.
        config: unused.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    itself = jnp.eye(network.rss.shape[-1], dtype=bool)[None]
    return jnp.argmax(jnp.where(itself, -1.0, network.rss), axis=-1).astype(jnp.int32)


def _ascend(prepared: Prepared, state: Array, start: Array, config: Config, reward: Any) -> tuple[Array, Array]:
    """Improves the link of one device at a time, in passes over all devices; returns links and summed reward."""
    num_devices = start.shape[0]
    total = lambda links: jnp.sum(exchange_and_reward(prepared, state, links, config, reward)[1].rewards.total)  # noqa: E731

    def improve(step: Array, links: Array) -> Array:
        device = step % num_devices
        change = lambda transmitter: total(links.at[device].set(transmitter))  # noqa: E731
        value = jax.vmap(change)(jnp.arange(num_devices, dtype=jnp.int32))
        # A tie keeps the current link: a change without gain could spoil another device's choice. NaN counts as
        # the largest value, so that a NaN reward at any step shows in the result.
        best = jnp.where(jnp.max(value) <= value[links[device]], links[device], jnp.argmax(value))
        return links.at[device].set(best.astype(jnp.int32))

    links = jax.lax.fori_loop(0, config.best_response_sweeps * num_devices, improve, start)
    return links, total(links)


def best_response(key: Array, network: Network, config: Config, reward: Any = PAPER) -> Array:
    """Searches centrally for the graph of largest summed reward: coordinate ascent with restarts.

    In each state, it makes `best_response_sweeps` passes over all devices from each of `best_response_restarts`
    starts (first: no links; others: random links), and keeps the best result. It uses information that no device
    of the paper has. The result is a local optimum, which no single device can improve; more restarts help.

    Args:
        key: key of the run.
        network: the network.
        config: the weights of the reward, `best_response_sweeps` and `best_response_restarts`.
        reward: to maximise: `(network, state, links, exchange, config) -> Rewards`.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    config = complete(config)
    prepared = prepare(network, config)
    num_states, num_devices, _ = network.outage.shape
    alone = jnp.arange(num_devices, dtype=jnp.int32)

    def one_state(state: Array) -> Array:
        def one_start(restart: Array) -> tuple[Array, Array]:
            # Steps after the first S, which `uniform` uses in this stream.
            draw_key = at(key, Stream.BASELINE, num_states * (restart + 1) + state)
            start = jnp.where(restart == 0, alone, _uniform_links(draw_key, num_devices))
            return _ascend(prepared, state, start, config, reward)

        links, value = jax.lax.map(one_start, jnp.arange(config.best_response_restarts))
        return links[jnp.argmax(value)]

    return jax.lax.map(one_state, jnp.arange(num_states))
