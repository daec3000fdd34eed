"""What one set of links is worth in one channel state: message passing, then rewards (Sections III-B, III-C)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.config import Config, score_fraction
from d2djax.messages import Exchange, Offers, deliver, offers
from d2djax.network import Network, check_network
from d2djax.reward import Rewards, diversity_score, num_diverse_classes, rewards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What came of one set of links.

    Attributes:
        outage: `P_D(i, links[i])`, [N] float32; 0 without a link.
        num_classes: classes at or above the score threshold afterwards, [N] float32.
        rewards: fields [N].
    """

    outage: Array
    num_classes: Array
    rewards: Rewards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scene:
    """A network and what follows from it for every episode.

    Attributes:
        network: the network.
        offers: what every pair of devices would offer and request.
        needed: [N, L] float32, points of a class from which it counts in the score f.
    """

    network: Network
    offers: Offers
    needed: Array


def set_scene(network: Network, config: Config) -> Scene:
    """Works out what stays the same in all episodes of a network.

    Raises:
        ValueError: see `check_network`.
    """
    check_network(network)
    network = jax.tree.map(jnp.asarray, network)
    # Deviation: the paper's f asks for all of c, which a receiver that lacks a class never gets over a lossy
    # link, since it requests exactly c. So f compares with a share of c; `score_fraction=1` is the paper.
    needed = network.thresholds * score_fraction(config)
    return Scene(network, offers(network.counts, network.thresholds, network.trust), needed)


def play(scene: Scene, state: Array | int, links: Array, config: Config) -> tuple[Exchange, Outcome]:
    """Exchanges data over the links and rewards every device (steps 2 and 3 of an episode).

    Args:
        scene: the network, from `set_scene`.
        state: [] int32, channel state.
        links: [N] int32, transmitter of each receiver.
        config: the weights of the reward, `min_classes` and `score_fraction`.

    Returns:
        The exchange, and what came of it.
    """
    network = scene.network
    outage = network.outage[state, jnp.arange(links.shape[0]), links]
    moved = deliver(network.counts, scene.offers, links, outage)
    earned = rewards(
        diversity_score(moved.counts, scene.needed, config.min_classes),
        outage,
        moved.requested,
        links,
        network.cluster,
        network.budget,
        alpha_diversity=config.alpha_diversity,
        alpha_outage=config.alpha_outage,
        alpha_budget=config.alpha_budget,
        gamma=config.gamma,
    )
    return moved, Outcome(outage, num_diverse_classes(moved.counts, scene.needed), earned)
