"""What one set of links is worth in one channel state: message passing, then rewards (Sections III-B, III-C)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config, score_fraction
from d2djax.messages import Exchange, exchange
from d2djax.network import Network
from d2djax.reward import Rewards, diversity_score, num_diverse_classes, rewards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What came of one set of links.

    Attributes:
        exchange: data moved, fields [N, L].
        outage: `P_D(i, links[i])`, [N] float32; 0 without a link.
        num_classes: classes at or above the score threshold afterwards, [N] float32.
        rewards: fields [N].
    """

    exchange: Exchange
    outage: Array
    num_classes: Array
    rewards: Rewards


def play(network: Network, state: Array | int, links: Array, config: Config) -> Outcome:
    """Exchanges data over the links and rewards every device (steps 2 and 3 of an episode).

    Args:
        network: the network.
        state: [] int32, channel state.
        links: [N] int32, transmitter of each receiver.
        config: the weights of the reward, `min_classes` and `score_fraction`.

    Returns:
        The outcome.
    """
    outage = jnp.asarray(network.outage)[state]
    moved = exchange(network.counts, network.thresholds, network.trust, links, outage)
    # Deviation: the paper's f asks for all of c, which a receiver that lacks a class never gets over a lossy
    # link, since it requests exactly c. So f compares with a share of c; `score_fraction=1` is the paper.
    needed = network.thresholds * score_fraction(config)
    chosen = outage[jnp.arange(links.shape[0]), links]
    earned = rewards(
        diversity_score(moved.counts, needed, config.min_classes),
        chosen,
        moved.requested,
        links,
        network.cluster,
        network.budget,
        alpha_diversity=config.alpha_diversity,
        alpha_outage=config.alpha_outage,
        alpha_budget=config.alpha_budget,
        gamma=config.gamma,
    )
    return Outcome(moved, chosen, num_diverse_classes(moved.counts, needed), earned)
