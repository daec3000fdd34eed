"""Evaluates one set of links in one channel state: exchange, then rewards (Sections III-B, III-C)."""

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
    """The outcome of one set of links.

    Attributes:
        outage: `P_D(i, links[i])`, [N] float32; 0 without a link.
        num_classes: [N] float32, classes at or above the score threshold after the exchange.
        requested_inter: `Q-tilde`, [N] float32, points requested from outside, by cluster label; 0 from entry K on.
        rewards: fields [N] float; as the reward, the paper's or a custom one, returned them.
    """

    outage: Array
    num_classes: Array
    requested_inter: Array
    rewards: Rewards


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prepared:
    """A network with the quantities that are the same in all its episodes.

    Attributes:
        network: the network.
        offers: the offers and requests of all pairs of devices.
        needed: [N, L] float32, points of a class from which on it counts in the score f.
    """

    network: Network
    offers: Offers
    needed: Array


def prepare(network: Network, config: Config) -> Prepared:
    """Checks a network and precomputes what is the same in all its episodes.

    Args:
        network: the network.
        config: `score_fraction` and `max_outage`.

    Returns:
        The network with arrays of JAX, the offers, and the points needed.

    Raises:
        ValueError: the network is inconsistent; see `check_network`.
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
        The exchange and its outcome.

    Raises:
        ValueError: the reward does not return `Rewards` of the right shapes and types.
    """
    network = prepared.network
    outage = network.outage[state, jnp.arange(links.shape[0]), links]
    moved = deliver(network.counts, prepared.offers, links, outage)
    earned = check_rewards(reward(network, state, links, moved, config), links.shape[0])
    reached = num_diverse_classes(moved.counts, prepared.needed)
    # The paper's reward already has this sum, and XLA would not recognise a second one as equal.
    is_there = type(reward) is PaperReward
    inter = earned.requested_inter if is_there else requested_from_outside(moved.requested, links, network.cluster)
    return moved, Outcome(outage, reached, inter, earned)


def try_reward(reward: Any, network: Network, config: Config) -> None:
    """Checks a custom reward by tracing one episode with it; compiles nothing.

    Args:
        reward: see `exchange_and_reward`; its numbers and those of the config are traced.
        network: a network, or its shapes.
        config: a validated config.

    Raises:
        ValueError: the reward fails or does not return `Rewards`, or its `upper_bound` is not one finite number.
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
