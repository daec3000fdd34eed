"""What one set of links is worth in one channel state: message passing, then rewards (Sections III-B, III-C)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.checks import check_shape, check_values, in_one_line, is_finite
from d2djax.config import Config, as_numbers, score_fraction
from d2djax.messages import Exchange, Offers, deliver, offers
from d2djax.network import Network, check_network
from d2djax.parts import as_arrays, has_numbers
from d2djax.reward import PAPER, PaperReward, Rewards, check_rewards, num_diverse_classes, requested_from_outside


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What came of one set of links.

    Attributes:
        outage: `P_D(i, links[i])`, [N] float32; 0 without a link.
        num_classes: classes at or above the score threshold afterwards, [N] float32.
        requested_inter: `Q-tilde`, [N] float32, points requested from outside by cluster label; 0 past K.
        rewards: fields [N]; of a reward of one's own, whatever it calls so.
    """

    outage: Array
    num_classes: Array
    requested_inter: Array
    rewards: Rewards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prepared:
    """A network and what follows from it for every episode.

    Attributes:
        network: the network.
        offers: what every pair of devices would offer and request.
        needed: [N, L] float32, points of a class from which it counts in the score f.
    """

    network: Network
    offers: Offers
    needed: Array


def prepare(network: Network, config: Config) -> Prepared:
    """Works out what stays the same in all episodes of a network.

    Args:
        network: the network.
        config: `score_fraction` and `max_outage`.

    Returns:
        The network, the offers, and the points that count.

    Raises:
        ValueError: see `check_network`.
    """
    check_network(network)
    network = jax.tree.map(jnp.asarray, network)
    # See `PaperReward`.
    needed = network.thresholds * score_fraction(config)
    return Prepared(network, offers(network.counts, network.thresholds, network.trust), needed)


def exchange_and_reward(
    prepared: Prepared, state: Array | int, links: Array, config: Config, reward: Any = PAPER
) -> tuple[Exchange, Outcome]:
    """Exchanges data over the links and rewards every device (steps 2 and 3 of an episode).

    Args:
        prepared: the network, from `prepare`.
        state: [] int32, channel state.
        links: [N] int32, transmitter of each receiver.
        config: the weights of the reward, `min_classes` and `score_fraction`.
        reward: `(network, state, links, exchange, config) -> Rewards`.

    Returns:
        The exchange, and what came of it.

    Raises:
        ValueError: the reward returns something else.
    """
    network = prepared.network
    outage = network.outage[state, jnp.arange(links.shape[0]), links]
    moved = deliver(network.counts, prepared.offers, links, outage)
    earned = check_rewards(reward(network, state, links, moved, config), links.shape[0])
    reached = num_diverse_classes(moved.counts, prepared.needed)
    # The paper's reward has summed it already, and XLA does not see that a second sum would be the same.
    is_there = type(reward) is PaperReward
    inter = earned.requested_inter if is_there else requested_from_outside(moved.requested, links, network.cluster)
    return moved, Outcome(outage, reached, inter, earned)


def try_reward(reward: Any, network: Network, config: Config) -> None:
    """Plays an episode with a reward of one's own, with shapes in the place of numbers: nothing is compiled.

    Args:
        reward: see `exchange_and_reward`; its numbers, like those of the config, may differ between runs.
        network: a network, or its shapes.
        config: a validated config.

    Raises:
        ValueError: the reward fails, or returns something else than rewards; or its bound is no number.
    """
    numbers = as_arrays({"reward": reward} if has_numbers(reward) else {})
    devices, num_classes = jnp.shape(network.counts)
    state, links = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((devices,), jnp.int32)

    def episode(network: Network, state: Array, links: Array, config: Config, numbers: dict[str, Any]) -> Any:
        own = numbers.get("reward", reward)
        bound = own.upper_bound(replace(config, num_classes=num_classes)) if hasattr(own, "upper_bound") else 0.0
        check_shape("upper_bound", bound, (), "one number, []")
        check_values("upper_bound", bound, "finite", is_finite)
        return exchange_and_reward(prepare(network, config), state, links, config, own)

    try:
        jax.eval_shape(episode, network, state, links, as_numbers(config), numbers)
    except Exception as error:
        raise ValueError(f"recipe.reward cannot be used: {in_one_line(error)}") from error
