"""`exact`: the best of all graphs, for few devices; what a search can be compared with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.config import Config, complete
from d2djax.episode import exchange_and_reward, prepare
from d2djax.network import Network
from d2djax.reward import PAPER

# 7^7 graphs are 0.8 million; 8^8 are 17 million.
MOST_DEVICES = 7
# Devices whose links vary within a block, so that a block has at most 7^4 = 2,401 graphs.
WITHIN = 4


def exact(key: Array, network: Network, config: Config, reward: Any = PAPER) -> Array:
    """The graph of largest summed reward, `argmax sum_i R_i(links)` over all N^N graphs, in each state.

    Ours: the bound that `best_response`, a local search, is measured against. Graph g has the links that are the N
    digits of g in base N, those of device 0 first. Blocks of graphs are compared in order, so that only one is in
    memory.

    Args:
        key: unused.
        network: the network, of at most `MOST_DEVICES` devices.
        config: the weights of the reward.
        reward: to maximise: `(network, state, links, exchange, config) -> Rewards`.

    Returns:
        `links`, [S, N] int32; the first in the order of the graphs if several are best.

    Raises:
        ValueError: there are too many devices.
    """
    num_states, num_devices, _ = jnp.shape(network.outage)
    if num_devices > MOST_DEVICES:
        raise ValueError(f"num_devices must be at most {MOST_DEVICES} to compare all graphs; got {num_devices}")
    config = complete(config)
    prepared = prepare(network, config)
    within = num_devices ** min(WITHIN, num_devices)
    digit = num_devices ** np.arange(num_devices - 1, -1, -1, dtype=np.int32)
    links_of = lambda graph: graph // digit % num_devices  # noqa: E731

    def one_state(state: Array) -> Array:
        def value_of(graph: Array) -> Array:
            return jnp.sum(exchange_and_reward(prepared, state, links_of(graph), config, reward)[1].rewards.total)

        def block(best: tuple[Array, Array], first: Array) -> tuple[tuple[Array, Array], None]:
            value = jax.vmap(value_of)(first + jnp.arange(within, dtype=jnp.int32))
            graph = jnp.argmax(value).astype(jnp.int32)
            new = value[graph], first + graph
            # NaN counts as the largest value, so that a NaN reward shows in the result.
            is_better = (new[0] > best[0]) | (jnp.isnan(new[0]) & ~jnp.isnan(best[0]))
            return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), new, best), None

        firsts = jnp.arange(0, num_devices**num_devices, within, dtype=jnp.int32)
        (_, graph), _ = jax.lax.scan(block, (jnp.float32(-jnp.inf), jnp.int32(0)), firsts)
        return links_of(graph)

    return jax.lax.map(one_state, jnp.arange(num_states))
