"""Graph discovery (Section III): the episode loop that trains the policies and yields a graph per state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax import policy
from d2djax.channel import draw_state
from d2djax.config import Config, complete
from d2djax.episode import Outcome, exchange_and_reward, prepare
from d2djax.information import feedback_of, known_of
from d2djax.network import Network
from d2djax.reward import PAPER, initial_value, mean_rewards, score_of
from d2djax.rng import Stream, at
from d2djax.validation import check_settings


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class History:
    """Learning curves, all [records] float32; each point is the mean over `record_every` episodes.

    Attributes:
        reward: mean total reward of the devices, by the reward that they learn from, the paper's or a custom one.
        local_reward: mean local reward `r_L`, by the paper's formula and the weights of the config.
        global_reward: mean over the devices of the global reward `r_G` of their cluster, likewise.
        reference_reward: mean total reward by the paper's formula and the reference weights; makes graphs learned
            with different weights and rewards comparable.
        diverse_share: share of devices with at least `L-hat` classes.
        num_classes: mean number of classes at or above the score threshold.
        outage: mean outage of the chosen links over the devices with a link (0 if there is none).
        requested_inter: mean points requested from outside, per cluster.
        over_budget: mean points requested above the budget, per cluster.
        entropy: mean entropy of the policies in the state of the last of these episodes, nats; NaN if a policy has
            no graph.
    """

    reward: Array
    local_reward: Array
    global_reward: Array
    reference_reward: Array
    diverse_share: Array
    num_classes: Array
    outage: Array
    requested_inter: Array
    over_budget: Array
    entropy: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Discovery:
    """A graph per channel state, with the buffers and curves of a learned one.

    Attributes:
        links: [S, N] int32; `links[s, i] = j`: device i receives from device j in state s; `j = i`: no link.
        buffer: experience of the devices; None for policies that do not learn.
        history: learning curves; None for policies that do not learn.
    """

    links: Array
    buffer: policy.Buffer | None = None
    history: History | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learned:
    """The result of training a policy.

    Attributes:
        links: [S, N] int32, its best graph in each state.
        memory: its memory after the last episode; any pytree.
        history: learning curves.
    """

    links: Array
    memory: Any
    history: History


def summarise(outcome: Outcome, links: Array, network: Network, config: Config) -> dict[str, Array]:
    """The scalars of one episode that the history averages.

    Args:
        outcome: outcome of the episode.
        links: [N] int32, transmitter of each device.
        network: the network.
        config: the weights, the reference weights and `min_classes`.

    Returns:
        [] float32 each, by the names of the fields of `History`.
    """
    is_linked = links != jnp.arange(links.shape[0])
    num_clusters = jnp.max(network.cluster) + 1
    over = jnp.maximum(outcome.requested_inter - network.budget, 0.0)
    # These four sums are of whole numbers, exact in any order: one array of them compiles faster than four sums.
    score, enough = score_of(outcome.num_classes, config.min_classes), outcome.num_classes >= config.min_classes
    counted = [value.astype(jnp.float32) for value in (score, enough, outcome.num_classes, is_linked)]
    score, enough, num_classes, num_linked = jnp.sum(jnp.stack(counted), axis=-1)
    # From three means; computing every device's rewards again would change the rounding of `reward`.
    unspent = jnp.mean((network.budget - outcome.requested_inter)[network.cluster])
    means = score / links.shape[0], jnp.mean(outcome.outage), unspent
    own = config.alpha_diversity, config.alpha_outage, config.alpha_budget, config.gamma
    local, global_, _ = mean_rewards(*means, own)
    _, _, reference = mean_rewards(*means, config.reference_weights)
    return {
        "reward": jnp.mean(outcome.rewards.total),
        "local_reward": local,
        "global_reward": global_,
        "reference_reward": reference,
        "diverse_share": enough / links.shape[0],
        "num_classes": num_classes / links.shape[0],
        "outage": jnp.sum(outcome.outage) / jnp.maximum(num_linked, 1),
        "requested_inter": jnp.sum(outcome.requested_inter) / num_clusters,
        "over_budget": jnp.sum(over) / num_clusters,
    }


def best_links(rule: Any, key: Array, memory: Any, num_states: int) -> tuple[Array, Array | bool]:
    """A policy's best graph in each state: its `best` if it has that method, otherwise the links of largest weight.

    Args:
        rule: a policy.
        key: key of the random numbers that the policy draws itself.
        memory: its memory after the last episode.
        num_states: S.

    Returns:
        `links`, [S, N] int32, ties to the smallest index; and [] bool, whether each row of weights has a positive
        one (always true with `best`).
    """
    if hasattr(rule, "best"):
        return rule.best(memory), True

    def mode(state: Array) -> tuple[Array, Array]:
        weight = rule.weights(key, memory, state)
        return jnp.argmax(weight, axis=-1).astype(jnp.int32), jnp.all(jnp.sum(weight, axis=-1) > 0)

    links, is_graph = jax.lax.map(mode, jnp.arange(num_states))
    return links, jnp.all(is_graph)


def marked(history: History, is_graph: Array | bool) -> History:
    """Sets the entropy to NaN if a policy has no graph in some state, even one that no episode visited.

    Args:
        history: of one policy.
        is_graph: [] bool, whether the policy has a graph in every state.

    Returns:
        The history; `results` stores no graph of a policy whose entropy is NaN.
    """
    if is_graph is True:
        return history
    return replace(history, entropy=jnp.where(is_graph, history.entropy, jnp.nan))


def learn(rule: Any, key: Array, network: Network, config: Config, reward: Any = PAPER) -> Learned:
    """Trains any policy on one network for E episodes (Section III).

    In each episode, the channel moves to its next state, each device draws its transmitter from its policy, the
    devices exchange data (Algorithm 1), and each device receives the feedback of its policy's information level.

    Args:
        rule: a policy: `information`, `init`, `weights`, `update` and, optionally, `best`.
        key: key of the run.
        network: the network.
        config: `num_episodes` E, `record_every` and the weights of the reward.
        reward: the reward that the devices learn from: `(network, state, links, exchange, config) -> Rewards`.

    Returns:
        The best links, the final memory and the history.

    Raises:
        ValueError: a setting is out of range, or differs from the network's number of states.

    Example:
        Six episodes with `record_every` 3 are two blocks. A block draws all its random numbers, then runs its
        episodes in order, then records one point of each curve. `tests/oracle.py` implements the same in plain
        loops.

            block   draws                      episodes                 kept
            0       uniform [3, N] of 0..2     0, 1, 2, each with the   means of 0, 1, 2; entropy after 2
            1       uniform [3, N] of 3..5     3, 4, 5  memory before   means of 3, 4, 5; entropy after 5

        The address of a draw is its episode, not its position in a block: `record_every` 1 draws the same links,
        and the mean of its first three points is the first point here.
    """
    check_settings(config, ties=False)
    config = complete(config)
    prepared = prepare(network, config)
    network = prepared.network
    if config.num_episodes % config.record_every:
        raise ValueError(
            f"record_every must be a divisor of num_episodes, {config.num_episodes}; got {config.record_every}"
        )
    num_states, num_devices, _ = network.outage.shape
    if num_states != config.num_states:
        raise ValueError(f"num_states must be {num_states}, the states of the network; got {config.num_states}")

    def episode(carry, draw):
        memory, state = carry
        drawn, uniform, rule_key = draw
        state = jnp.where(drawn < 0, state, drawn)
        links = policy.sample(uniform, rule.weights(rule_key, memory, state))
        moved, outcome = exchange_and_reward(prepared, state, links, config, reward)
        memory = rule.update(memory, state, links, feedback_of(moved, outcome, rule.information))
        return (memory, state), (outcome, links)

    def block(carry, first):
        # All draws of a block at once: one call per episode would take a large part of the episode's time.
        numbers = first + jnp.arange(config.record_every)
        uniform = jax.vmap(lambda e: jax.random.uniform(at(key, Stream.POLICY, e), (num_devices,)))(numbers)
        drawn = jax.vmap(lambda e: draw_state(key, e, config))(numbers)
        rule_keys = jax.vmap(lambda e: at(key, Stream.RULE, e + 1))(numbers)
        carry, outcomes = jax.lax.scan(episode, carry, (drawn, uniform, rule_keys))
        # For the same reason, the sums over devices are computed for all episodes of the block together.
        curves = jax.vmap(lambda outcome, links: summarise(outcome, links, network, config))(*outcomes)
        # A device with all weights 0 draws N, which is no device (see `policy.sample`): all curves show NaN then.
        is_drawn = jnp.all(outcomes[1] < num_devices)
        curves = jax.tree.map(lambda values: jnp.where(is_drawn, jnp.mean(values), jnp.nan), curves)
        weight = rule.weights(rule_keys[-1], *carry)
        probability = weight / jnp.sum(weight, axis=-1, keepdims=True)
        entropy = jnp.mean(jnp.sum(jax.scipy.special.entr(probability), axis=-1))
        return carry, History(**curves, entropy=entropy)

    memory = rule.init(at(key, Stream.RULE), known_of(prepared, rule.information), config)
    firsts = jnp.arange(0, config.num_episodes, config.record_every)
    (memory, _), history = jax.lax.scan(block, (memory, jnp.int32(0)), firsts)
    links, is_graph = best_links(rule, at(key, Stream.RULE), memory, num_states)
    return Learned(links, memory, marked(history, is_graph))


def boltzmann(config: Config, num_classes: int, reward: Any = PAPER) -> policy.Boltzmann:
    """The paper's policy with the settings of a config and optimistic initial values.

    Args:
        config: `temperature` and `initial_value`.
        num_classes: L.
        reward: the reward, whose upper bound is the value of an untried link unless `initial_value` is set.

    Returns:
        The policy.
    """
    return policy.Boltzmann(config.temperature, initial_value(config, num_classes, reward))


def discover(key: Array, network: Network, config: Config, reward: Any = PAPER) -> Discovery:
    """Trains the paper's policy for E episodes and returns the greedy graph of each state (Section III).

    Args:
        key: key of the run.
        network: the network.
        config: `num_episodes` E, `record_every`, `temperature`, `initial_value` and the weights of the reward.
        reward: see `learn`; it needs `upper_bound(config)` unless `initial_value` is set.

    Returns:
        The greedy links [S, N] int32, the buffers and the history.

    Raises:
        ValueError: a setting is out of range, or differs from the network's number of states.
    """
    found = learn(boltzmann(config, network.counts.shape[-1], reward), key, network, config, reward)
    return Discovery(found.links, found.memory.buffer, found.history)
