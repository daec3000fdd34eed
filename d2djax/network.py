"""All that the method is given (Section II): one network, made by one pure function of key and config."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.channel import outage_probability, place, received_power
from d2djax.clustering import reliable_clusters
from d2djax.config import Config, complete
from d2djax.partition import class_counts
from d2djax.trust import draw_trust


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Network:
    """Devices, the channels between them, and what each holds, trusts and wants.

    Attributes:
        position: [N, 2] float32, metres.
        rss: `W`, [S, N, N] float32, W; row = receiver, column = transmitter.
        outage: `P_D`, [S, N, N] float32 in [0, 1]; diagonal exactly 0.
        cluster: [N] int32, label of each device's reliable cluster, 0..K-1.
        budget: `B`, [N] float32, points; entry k belongs to cluster k, entries past K are unused.
        trust: `T`, [N, N, L] bool; `trust[i, j, l]`: device i may send class l to device j.
        counts: `D`, [N, L] int32, points of each class.
        thresholds: `c`, [N, L] float32, points of a class that make it count.
    """

    position: Array
    rss: Array
    outage: Array
    cluster: Array
    budget: Array
    trust: Array
    counts: Array
    thresholds: Array


def make_network(key: Array, config: Config) -> Network:
    """Draws a network: places, channel states, clusters, budgets, trust, data counts and thresholds.

    Args:
        key: key of the run.
        config: settings of Section II.

    Returns:
        The network; equal keys and configs give equal networks.
    """
    config = complete(config)
    position = place(key, config)
    rss = received_power(key, position, config)
    outage = outage_probability(rss, config.rate, config.noise_power)
    counts = class_counts(key, config)
    return Network(
        position=position,
        rss=rss,
        outage=outage,
        cluster=reliable_clusters(outage, config.reliability_threshold),
        budget=jnp.full(config.num_devices, config.cluster_budget, jnp.float32),
        trust=draw_trust(key, config),
        counts=counts,
        thresholds=jnp.full(counts.shape, config.threshold, jnp.float32),
    )
