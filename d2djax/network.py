"""All that the method is given (Section II): one network, made by one pure function of key and config."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.channel import outage_probability, place, received_power
from d2djax.checks import check_in_order, check_shape, check_values, is_not_negative, is_share
from d2djax.clustering import reliable_clusters
from d2djax.config import Config, complete
from d2djax.partition import class_counts
from d2djax.trust import draw_trust
from d2djax.validation import check_settings


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


def check_network(network: Network) -> None:
    """Checks that the parts of a network agree in their shapes, and outside `jit` in the kinds of their values.

    Raises:
        ValueError: one line with the field, the rule and what was found.
    """
    if len(jnp.shape(network.outage)) != 3 or len(jnp.shape(network.counts)) != 2:
        found = f"{list(jnp.shape(network.outage))} and {list(jnp.shape(network.counts))}"
        raise ValueError(f"network.outage must be [S, N, N] and network.counts [N, L]; got shapes {found}")
    states, (devices, classes) = jnp.shape(network.outage)[0], jnp.shape(network.counts)
    shapes = {
        "position": ("[N, 2]", (devices, 2)),
        "rss": ("[S, N, N]", (states, devices, devices)),
        "outage": ("[S, N, N]", (states, devices, devices)),
        "cluster": ("[N]", (devices,)),
        "budget": ("[N]", (devices,)),
        "trust": ("[N, N, L]", (devices, devices, classes)),
        "counts": ("[N, L]", (devices, classes)),
        "thresholds": ("[N, L]", (devices, classes)),
    }
    for name, (symbols, shape) in shapes.items():
        check_shape(f"network.{name}", getattr(network, name), shape, symbols)
    for name in ("rss", "budget", "counts", "thresholds"):
        check_values(f"network.{name}", getattr(network, name), "0 or more", is_not_negative)
    check_values("network.outage", network.outage, "in [0, 1]", is_share)
    check_values("network.trust", network.trust, "truth values", lambda values: (values == 0) | (values == 1))
    check_in_order("network.cluster", network.cluster, devices, "clusters")


def make_network(key: Array, config: Config, *, counts: Array | None = None) -> Network:
    """Draws a network: places, channel states, clusters, budgets, trust, data counts and thresholds.

    Args:
        key: key of the run.
        config: settings of Section II.
        counts: [N, L] int, points of each class that each device has; none: they are drawn.

    Returns:
        The network; equal keys and configs give equal networks.

    Raises:
        ValueError: a setting is out of its range.
    """
    check_settings(config)
    config = complete(config)
    position = place(key, config)
    rss = received_power(key, position, config)
    outage = outage_probability(rss, config.rate, config.noise_power)
    counts = class_counts(key, config) if counts is None else jnp.asarray(counts, jnp.int32)
    return Network(
        position=position,
        rss=rss,
        outage=outage,
        cluster=reliable_clusters(outage, config.max_outage),
        budget=jnp.full(config.num_devices, config.cluster_budget, jnp.float32),
        trust=draw_trust(key, config),
        counts=counts,
        thresholds=jnp.full(counts.shape, config.threshold, jnp.float32),
    )
