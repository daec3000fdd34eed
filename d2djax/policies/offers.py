"""`offers`: each device takes the link that would be best, by the offers that it hears, if nobody else asked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config, complete, score_fraction
from d2djax.episode import prepare
from d2djax.information import known_of
from d2djax.network import Network
from d2djax.reward import num_diverse_classes, score_of


def predicted(known: Any, config: Config) -> Array:
    """The local reward that each device predicts for each link if no other device asks the same transmitter.

    `alpha_1 f(D_i + (1 - P_D) Q) - alpha_2 P_D`, eq. 9 and 11 with the whole request granted. Others can only
    reduce what arrives, so this is an upper bound of the local reward by the paper's formula, whatever the reward.

    Args:
        known: `offers` V [N, N, L], `outage` [N, S, N], `counts` and `thresholds` [N, L]; see `known_of`.
        config: `alpha_diversity`, `alpha_outage`, `min_classes` and `score_fraction`.

    Returns:
        [S, N, N] float32; row = receiver, column = transmitter, j = i: without a link.
    """
    requested = jnp.maximum(jnp.minimum(known.offers, (known.thresholds - known.counts)[:, None]), 0.0)
    needed = (known.thresholds * score_fraction(config))[:, None]

    def of_state(outage: Array) -> Array:
        held = known.counts[:, None] + (1.0 - outage)[..., None] * requested
        score = score_of(num_diverse_classes(held, needed), config.min_classes)
        return config.alpha_diversity * score - config.alpha_outage * outage

    # State by state, which needs the memory of one state only.
    return jax.lax.map(of_state, jnp.swapaxes(known.outage, 0, 1))


def offers(key: Array, network: Network, config: Config) -> Array:
    """Each device takes the link of largest predicted reward; ties go to the smallest index.

    Ours: the rule without learning against which learning must show that it pays. It reads only what level "heard"
    allows: each device hears the offers of all others once, which the control energy counts.

    Args:
        key: unused.
        network: the network, of which each device sees its own part and the offers to it.
        config: the weights of the reward, `min_classes` and `score_fraction`.

    Returns:
        `links`, [S, N] int32; a device to which no link is worth more than none keeps itself.
    """
    config = complete(config)
    known = known_of(prepare(network, config), "heard")
    return jnp.argmax(predicted(known, config), axis=-1).astype(jnp.int32)
