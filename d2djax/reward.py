"""Rewards of one exchange (Section III-C): diversity score, local, global and total reward; custom rewards."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import (
    check_in_order,
    check_links,
    check_shape,
    check_values,
    is_finite,
    is_not_negative,
    is_share,
    shown,
)
from d2djax.config import Config, score_fraction
from d2djax.messages import Exchange
from d2djax.parts import check_part

if TYPE_CHECKING:
    from d2djax.network import Network

# Relative tolerance: a count that equals its threshold up to float32 rounding must count.
TOLERANCE = 1e-5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rewards:
    """Rewards of one episode.

    Attributes:
        local: `r_L`, [N].
        global_: `r_G` of each device's cluster, [N].
        total: `R`, [N].
        requested_inter: `Q-tilde`, [N], points requested from outside, by cluster label; 0 from entry K on.
    """

    local: Array
    global_: Array
    total: Array
    requested_inter: Array


def num_diverse_classes(counts: Array, thresholds: Array) -> Array:
    """Number of classes with at least the threshold of points, left side of eq. 6, up to a relative 1e-5.

    Args:
        counts: [N, L] float.
        thresholds: [N, L] float; for the score f, already scaled by `score_fraction`.

    Returns:
        [N] float32, 0..L.
    """
    counts, thresholds = jnp.asarray(counts), jnp.asarray(thresholds)
    return jnp.sum(counts >= thresholds * (1.0 - TOLERANCE), axis=-1).astype(jnp.float32)


def diversity_score(counts: Array, thresholds: Array, min_classes: Array | int) -> Array:
    """Diversity score `f = n` if `n >= L-hat` else 0, with n the number of classes at or above their threshold.

    Args:
        counts: `D-hat`, [N, L] float.
        thresholds: [N, L] float, already scaled by `score_fraction`.
        min_classes: `L-hat`, [] int.

    Returns:
        `f`, [N] float32.

    Raises:
        ValueError: the shapes differ, or outside `jit` a value is negative or not finite.
    """
    check_shape("thresholds", thresholds, np.shape(counts), "of the shape of counts")
    check_values("counts", counts, "0 or more", is_not_negative)
    check_values("thresholds", thresholds, "0 or more", is_not_negative)
    return score_of(num_diverse_classes(counts, thresholds), min_classes)


def score_of(number: Array, min_classes: Array | int) -> Array:
    """Diversity score of a number of classes: the number itself, or 0 if it is below `L-hat`.

    Args:
        number: [...] float, number of classes at or above their threshold.
        min_classes: `L-hat`, [] int.

    Returns:
        `f`, [...] float.
    """
    return jnp.where(number >= min_classes, number, 0.0)


def rewards(
    score: Array,
    outage: Array,
    requested: Array,
    links: Array,
    cluster: Array,
    budget: Array,
    *,
    alpha_diversity: Array | float,
    alpha_outage: Array | float,
    alpha_budget: Array | float,
    gamma: Array | float,
) -> Rewards:
    """Rewards of all devices (Section III-C).

    `r_L = alpha_1 f - alpha_2 P_D`; `r_G[k] = mean_i r_L[i] + alpha_3 (B[k] - Q-tilde[k])`, where `Q-tilde[k]` is
    the number of points that cluster k requests from outside; `R = r_L + gamma r_G`.

    Args:
        score: `f`, [N] float.
        outage: `P_D(i, links[i])`, [N] float.
        requested: `Q`, [N, L] float.
        links: [N] int32, transmitter of each device.
        cluster: [N] int32, label of each device's cluster.
        budget: `B`, [N] float, by cluster label.
        alpha_diversity: `alpha_1`.
        alpha_outage: `alpha_2`.
        alpha_budget: `alpha_3`, per point.
        gamma: weight of the global reward.

    Returns:
        The rewards, fields [N] float32.

    Raises:
        ValueError: shapes do not agree, or outside `jit` a value is out of range.
    """
    score, outage, requested = jnp.asarray(score), jnp.asarray(outage), jnp.asarray(requested)
    links, cluster, budget = jnp.asarray(links), jnp.asarray(cluster), jnp.asarray(budget)
    if score.ndim != 1:
        raise ValueError(f"score must be [N]; got shape {list(score.shape)}")
    num_devices = score.shape[0]
    for name, values in (("outage", outage), ("cluster", cluster), ("budget", budget)):
        check_shape(name, values, (num_devices,), "[N]")
    check_shape("requested", requested, (num_devices, *requested.shape[1:2]), "[N, L]")
    check_links(links, num_devices)
    check_in_order("cluster", cluster, num_devices, "clusters")
    check_values("score", score, "0 or more", is_not_negative)
    check_values("outage", outage, "in [0, 1]", is_share)
    check_values("requested", requested, "0 or more", is_not_negative)
    check_values("budget", budget, "finite", is_finite)
    local = alpha_diversity * score - alpha_outage * outage
    requested_inter = requested_from_outside(requested, links, cluster)
    by_cluster = jnp.mean(local) + alpha_budget * (budget - requested_inter)
    global_ = by_cluster[cluster]
    return Rewards(local, global_, local + gamma * global_, requested_inter)


def requested_from_outside(requested: Array, links: Array, cluster: Array) -> Array:
    """`Q-tilde`: points that the devices of each cluster request from other clusters.

    Args:
        requested: `Q`, [N, L] float.
        links: [N] int32, transmitter of each device.
        cluster: [N] int32, label of each device's cluster.

    Returns:
        [N] float32, by cluster label; 0 from entry K on.
    """
    from_outside = jnp.where(cluster[links] != cluster, jnp.sum(requested, axis=-1), 0.0)
    return jnp.zeros(cluster.shape, jnp.float32).at[cluster].add(from_outside)


def mean_rewards(
    score: Array, outage: Array, unspent: Array, weights: Sequence[Array | float]
) -> tuple[Array, Array, Array]:
    """Means over the devices of `r_L`, `r_G` and `R` for given weights, from the means of their linear terms.

    Args:
        score: mean of `f` over the devices, [...] float.
        outage: mean of `P_D` over the devices, 0 for one without a link, [...] float.
        unspent: mean over the devices of `B - Q-tilde` of their cluster, [...] float.
        weights: `alpha_1`, `alpha_2`, `alpha_3` and `gamma`.

    Returns:
        `(local, global, total)`, each [...] float.
    """
    alpha_diversity, alpha_outage, alpha_budget, gamma = weights
    local = alpha_diversity * score - alpha_outage * outage
    global_ = local + alpha_budget * unspent
    return local, global_, local + gamma * global_


# --- the reward as a part of a recipe ---


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PaperReward:
    """The reward of Section III-C, with the weights of the config; see `rewards`.

    A custom reward has the same signature. If it is such a dataclass, its numbers can be axes; a plain function has
    none.
    """

    def __call__(
        self, network: Network, state: Array | int, links: Array, exchange: Exchange, config: Config
    ) -> Rewards:
        """Rewards the devices for one exchange.

        Args:
            network: the network.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            exchange: offers, requests and transfers over these links, and the counts after it.
            config: the weights, `min_classes` and `score_fraction`.

        Returns:
            The rewards, fields [N] float32.
        """
        # Deviation: the paper's f requires all of c, which a receiver without a class never gets over a lossy link,
        # since it requests exactly c. So f requires only a fraction of c; `score_fraction=1` is the paper.
        needed = network.thresholds * score_fraction(config)
        return rewards(
            diversity_score(exchange.counts, needed, config.min_classes),
            network.outage[state, jnp.arange(links.shape[0]), links],
            exchange.requested,
            links,
            network.cluster,
            network.budget,
            alpha_diversity=config.alpha_diversity,
            alpha_outage=config.alpha_outage,
            alpha_budget=config.alpha_budget,
            gamma=config.gamma,
        )

    def upper_bound(self, config: Config) -> Any:
        """Upper bound on the total reward: `alpha_1 L + gamma (alpha_1 L + alpha_3 B)`, [] float.

        Args:
            config: `num_classes` L, `cluster_budget` B, and the weights.
        """
        most = config.alpha_diversity * config.num_classes
        return most + config.gamma * (most + config.alpha_budget * config.cluster_budget)


PAPER = PaperReward()


def check_reward(reward: Any) -> None:
    """Checks that a custom reward is callable and, unless it is a function, a valid part; see `check_part`.

    Raises:
        ValueError: it is not.
    """
    if isinstance(reward, type):
        raise ValueError(f"recipe.reward must be an object, such as {reward.__name__}(); got the class itself")
    if not callable(reward):
        raise ValueError(
            "recipe.reward must be a function (network, state, links, exchange, config), or a frozen dataclass "
            f"that can be called so; got {shown(reward)}"
        )
    # A function has no numbers; any other callable may have some.
    if not inspect.isroutine(reward):
        check_part("recipe.reward", reward)


def check_rewards(found: Any, num_devices: int) -> Rewards:
    """Checks the shapes and types of what a reward returned, traced or not.

    Args:
        found: anything.
        num_devices: N.

    Returns:
        `found`, unchanged.

    Raises:
        ValueError: it is no `Rewards` with fields [N] float.
    """
    if not isinstance(found, Rewards):
        raise ValueError(f"the reward must return d2djax.Rewards; got {shown(found)}")
    for one in fields(Rewards):
        values = getattr(found, one.name)
        kind = getattr(values, "dtype", None)
        if kind is None or not jnp.issubdtype(kind, jnp.floating):
            raise ValueError(f"the reward's {one.name} must be an array of float; got {kind or shown(values)}")
        check_shape(f"the reward's {one.name}", values, (num_devices,), "[N]")
    return found


def initial_value(config: Config, num_classes: int, reward: Any = PAPER) -> Any:
    """Value of an untried link: the setting `initial_value`, or else the upper bound of the reward.

    Args:
        config: `initial_value`, and the settings that the bound depends on.
        num_classes: L.
        reward: the reward; it needs `upper_bound` unless the setting is given.

    Returns:
        [] float.
    """
    if config.initial_value is not None:
        return config.initial_value
    return reward.upper_bound(replace(config, num_classes=num_classes))
