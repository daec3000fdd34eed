"""Graph rules: ways to choose the graph without learning, `(key, network, config) -> links`, [S, N] int32."""

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
    """No exchange: every device keeps to itself (Section IV-B, baseline i).

    Args:
        key: key of the run; nothing is drawn with it.
        network: the network.
        config: the config; no setting of it is read.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state, which is the device itself.
    """
    num_states, num_devices, _ = network.outage.shape
    return jnp.broadcast_to(jnp.arange(num_devices, dtype=jnp.int32), (num_states, num_devices))


def _uniform_links(key: Array, num_devices: int) -> Array:
    """[N] int32: a transmitter for each device, uniform among the others."""
    other = uniform_integer(key, (num_devices,), num_devices - 1)
    return other + (other >= jnp.arange(num_devices))


def uniform(key: Array, network: Network, config: Config) -> Array:
    """Every device draws its transmitter uniformly among the others (Section IV-B, baseline ii).

    Args:
        key: key of the run.
        network: the network, whose sizes are read.
        config: the config; no setting of it is read.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    num_states, num_devices, _ = network.outage.shape
    draw = lambda state: _uniform_links(at(key, Stream.BASELINE, state), num_devices)  # noqa: E731
    # One state after the other: XLA compiles a few draws sooner than those of all states at once.
    return jax.lax.map(draw, jnp.arange(num_states))


def nearest(key: Array, network: Network, config: Config) -> Array:
    """Every device takes the transmitter that it hears best: largest `W`, ties to the smallest index.

    Args:
        key: key of the run; nothing is drawn with it.
        network: the network.
        config: the config; no setting of it is read.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    itself = jnp.eye(network.rss.shape[-1], dtype=bool)[None]
    return jnp.argmax(jnp.where(itself, -1.0, network.rss), axis=-1).astype(jnp.int32)


def _ascend(prepared: Prepared, state: Array, start: Array, config: Config, reward: Any) -> tuple[Array, Array]:
    """Best links one device at a time, the others fixed, in passes over all devices; and their reward."""
    num_devices = start.shape[0]
    total = lambda links: jnp.sum(exchange_and_reward(prepared, state, links, config, reward)[1].rewards.total)  # noqa: E731

    def improve(step: Array, links: Array) -> Array:
        device = step % num_devices
        change = lambda transmitter: total(links.at[device].set(transmitter))  # noqa: E731
        value = jax.vmap(change)(jnp.arange(num_devices, dtype=jnp.int32))
        # A tie keeps the present link: moving for nothing could undo what another device built on. NaN counts as
        # the largest, so that a reward that is no number anywhere on the way ends in a graph that says so.
        best = jnp.where(jnp.max(value) <= value[links[device]], links[device], jnp.argmax(value))
        return links.at[device].set(best.astype(jnp.int32))

    links = jax.lax.fori_loop(0, config.best_response_sweeps * num_devices, improve, start)
    return links, total(links)


def best_response(key: Array, network: Network, config: Config, reward: Any = PAPER) -> Array:
    """A centralised search for the graph of largest summed reward: coordinate ascent with restarts.

    In each state, `best_response_sweeps` passes over all devices from each of `best_response_restarts`
    starts (the first: no links; the others: uniform); the best end counts. It sees what no device of the
    paper may see. An end that no device can improve alone is a local optimum only; more restarts find better ones.

    Args:
        key: key of the run.
        network: the network.
        config: the reward's weights and the two sizes of the search.
        reward: whose sum is sought: `(network, state, links, exchange, config) -> Rewards`.

    Returns:
        Links [S, N].
    """
    config = complete(config)
    prepared = prepare(network, config)
    num_states, num_devices, _ = network.outage.shape
    alone = jnp.arange(num_devices, dtype=jnp.int32)

    def one_state(state: Array) -> Array:
        def one_start(restart: Array) -> tuple[Array, Array]:
            # Steps past the states: `uniform` uses the first ones of this stream.
            draw_key = at(key, Stream.BASELINE, num_states * (restart + 1) + state)
            start = jnp.where(restart == 0, alone, _uniform_links(draw_key, num_devices))
            return _ascend(prepared, state, start, config, reward)

        links, value = jax.lax.map(one_start, jnp.arange(config.best_response_restarts))
        return links[jnp.argmax(value)]

    return jax.lax.map(one_state, jnp.arange(num_states))
