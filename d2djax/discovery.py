"""Graph discovery (Section III): the episode loop that trains all policies and yields a graph per state."""

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
    """Learning curves, one point per `record_every` episodes, each the mean over them; all [records] float32.

    Attributes:
        reward: mean total reward of the devices, by the reward that they learn with, which may be one's own.
        local_reward: mean local reward `r_L`, by the paper's formula and the weights of the config.
        global_reward: mean over the devices of the global reward `r_G` of their cluster, likewise.
        reference_reward: mean total reward by the paper's formula and the reference weights, which compares graphs
            of different weights and rewards.
        diverse_share: share of devices with at least `L-hat` classes.
        num_classes: mean number of classes at or above the score threshold.
        outage: mean outage of the chosen links, devices without a link left out (0 if none has one).
        requested_inter: mean points requested from outside, per cluster.
        over_budget: mean points requested above the budget, per cluster.
        entropy: mean entropy of the policies in the state of the last of these episodes, nats.
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
    """A graph per channel state and, where it was learned, how.

    Attributes:
        links: [S, N] int32; `links[s, i] = j`: in state s device i takes data from j; `j = i`: no link.
        buffer: what the devices remember; none for policies that do not learn.
        history: learning curves; none for policies that do not learn.
    """

    links: Array
    buffer: policy.Buffer | None = None
    history: History | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learned:
    """What a policy ends with.

    Attributes:
        links: [S, N] int32, its best graph in each state.
        memory: what its devices remember; any pytree.
        history: learning curves.
    """

    links: Array
    memory: Any
    history: History


def summarise(outcome: Outcome, links: Array, network: Network, config: Config) -> dict[str, Array]:
    """The scalars of one episode that the history averages, by name.

    Args:
        outcome: of one episode.
        links: [N] int32, transmitter of each device.
        network: the network.
        config: the weights, the reference weights and `min_classes`.

    Returns:
        [] float32 each, by the names of the fields of `History`.
    """
    is_linked = links != jnp.arange(links.shape[0])
    num_clusters = jnp.max(network.cluster) + 1
    over = jnp.maximum(outcome.requested_inter - network.budget, 0.0)
    # From three means instead of every device's rewards once more, which would round `reward` otherwise.
    score = jnp.mean(score_of(outcome.num_classes, config.min_classes))
    unspent = jnp.mean((network.budget - outcome.requested_inter)[network.cluster])
    means = score, jnp.mean(outcome.outage), unspent
    own = config.alpha_diversity, config.alpha_outage, config.alpha_budget, config.gamma
    local, global_, _ = mean_rewards(*means, own)
    _, _, reference = mean_rewards(*means, config.reference_weights)
    return {
        "reward": jnp.mean(outcome.rewards.total),
        "local_reward": local,
        "global_reward": global_,
        "reference_reward": reference,
        "diverse_share": jnp.mean(outcome.num_classes >= config.min_classes),
        "num_classes": jnp.mean(outcome.num_classes),
        "outage": jnp.sum(outcome.outage) / jnp.maximum(jnp.sum(is_linked), 1),
        "requested_inter": jnp.sum(outcome.requested_inter) / num_clusters,
        "over_budget": jnp.sum(over) / num_clusters,
    }


def best_links(rule: Any, key: Array, memory: Any, num_states: int) -> tuple[Array, Array | bool]:
    """[S, N] int32: the graph that a policy ends with in each state; and [] bool, whether all of them have one.

    Its `best`, if it has one; else the mode of its weights, ties to the smallest index.

    Args:
        rule: a policy.
        key: for policies that draw numbers of their own.
        memory: what the devices remember after the last episode.
        num_states: S.

    Returns:
        `links`, [S, N] int32, and whether every row of the weights has a positive one, [] bool.
    """
    if hasattr(rule, "best"):
        return rule.best(memory), True

    def mode(state: Array) -> tuple[Array, Array]:
        weight = rule.weights(key, memory, state)
        return jnp.argmax(weight, axis=-1).astype(jnp.int32), jnp.all(jnp.sum(weight, axis=-1) > 0)

    links, is_graph = jax.lax.map(mode, jnp.arange(num_states))
    return links, jnp.all(is_graph)


def marked(history: History, is_graph: Array | bool) -> History:
    """A history whose entropy is NaN if a policy has no graph, also in a state that no episode was in.

    Args:
        history: of one policy.
        is_graph: [] bool, whether the policy has a graph in every state.

    Returns:
        The history; `results` stores nothing of a graph where its entropy is NaN.
    """
    if is_graph is True:
        return history
    return replace(history, entropy=jnp.where(is_graph, history.entropy, jnp.nan))


def learn(rule: Any, key: Array, network: Network, config: Config, reward: Any = PAPER) -> Learned:
    """Lets the devices of one network learn for E episodes with any policy (Section III).

    An episode: the channel moves to its next state, every device draws its transmitter from its policy, data is
    exchanged (Algorithm 1), and each device is told what its policy may know.

    Args:
        rule: a policy: `information`, `init`, `weights`, `update` and, optionally, `best`.
        key: key of the run.
        network: the network.
        config: `num_episodes` E, `record_every` and the reward's weights.
        reward: what the devices learn from: `(network, state, links, exchange, config) -> Rewards`.

    Returns:
        The links that it ends with, its memory and the history.

    Raises:
        ValueError: a setting is out of its range, or the network has other states.

    Example:
        Six episodes with `record_every` 3 are two blocks. A block draws all its random numbers, then plays its
        episodes one after the other, then keeps one point of each curve. `tests/oracle.py` has the same in plain
        loops.

            block   draws                      episodes                 kept
            0       uniform [3, N] of 0..2     0, 1, 2, each with the   means of 0, 1, 2; entropy after 2
            1       uniform [3, N] of 3..5     3, 4, 5  memory before   means of 3, 4, 5; entropy after 5

        A draw has the number of its episode as its address, not its place in a block: with `record_every` 1 the
        same links are drawn, and the mean over three points is the point that is kept here.
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
        # All draws of a block at once: the generator is a large part of an episode when called per episode.
        numbers = first + jnp.arange(config.record_every)
        uniform = jax.vmap(lambda e: jax.random.uniform(at(key, Stream.POLICY, e), (num_devices,)))(numbers)
        drawn = jax.vmap(lambda e: draw_state(key, e, config))(numbers)
        rule_keys = jax.vmap(lambda e: at(key, Stream.RULE, e + 1))(numbers)
        carry, outcomes = jax.lax.scan(episode, carry, (drawn, uniform, rule_keys))
        # For the same reason: the sums over the devices of all these episodes together.
        curves = jax.vmap(lambda outcome, links: summarise(outcome, links, network, config))(*outcomes)
        # A device whose weights are all 0 draws number N, which is none, see `policy.sample`: no curve hides that.
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
    """The paper's policy with the settings of a config and an optimistic start for a reward.

    Args:
        config: `temperature` and `initial_value`.
        num_classes: L.
        reward: the reward, whose bound an untried link is worth.

    Returns:
        The policy.
    """
    return policy.Boltzmann(config.temperature, initial_value(config, num_classes, reward))


def discover(key: Array, network: Network, config: Config, reward: Any = PAPER) -> Discovery:
    """Trains the paper's policies for E episodes and returns the greedy graph of each state (Section III).

    Args:
        key: key of the run.
        network: the network.
        config: `num_episodes` E, `record_every`, `temperature`, `initial_value` and the reward's weights.
        reward: see `learn`; with `upper_bound(config)` unless `initial_value` is given.

    Returns:
        The greedy links [S, N], the buffers and the history.

    Raises:
        ValueError: a setting is out of its range, or the network has other states.
    """
    found = learn(boltzmann(config, network.counts.shape[-1], reward), key, network, config, reward)
    return Discovery(found.links, found.memory.buffer, found.history)
