"""One run as a pure function of key, config and data; policies share random numbers (Section IV)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax import energy
from d2djax.channel import places
from d2djax.config import Config
from d2djax.discovery import History, learn, marked, summarise
from d2djax.episode import exchange_and_reward, prepare
from d2djax.federated import Learning, train
from d2djax.messages import Exchange
from d2djax.models import count_parameters, make_model
from d2djax.network import Network
from d2djax.networks import fit, network_of_run, only, places_of
from d2djax.partition import num_points
from d2djax.parts import as_arrays
from d2djax.points import Points, deal
from d2djax.policies import Candidate, candidates_of
from d2djax.policies.own import OwnPolicy
from d2djax.policy import sample
from d2djax.recipe import Recipe
from d2djax.reward import PAPER, initial_value
from d2djax.rng import Stream, at, uniform_integer
from d2djax.transfer import floor_points, pool, transfer, whole_points


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Graphs:
    """The results of a run before training: each policy's graph, its values, and the points after the exchange.

    Attributes:
        network: the network of the run.
        state: [] int32, channel state of the exchange.
        place: [N, 2] float32, metres, positions of the devices in that state.
        links: [M, S, N] int32, graph of each policy in each state.
        values: scalars of each policy's graph in each state, by name, [M, S] float32 (see `History`); NaN for a
            policy without a graph.
        received: [M, N, L] int32, whole points of each class that each device receives in the exchange.
        counts: [M, N, L] int32, whole points of each class of each device after the exchange.
        points_moved: [M] int32, whole points that changed their device; 0 if points are pooled.
        exchange_energy: [M] float32, J, of the exchange of points; NaN if points are pooled.
        control_energy: [M] float32, J, of all control messages, those of discovery included.
        upload_energy: [] float32, J, of the uploads of one aggregation; None if no model is named.
        history: learning curves of each policy, fields [M, records]; NaN for policies that do not learn, None if no
            policy does.
        bound: [] float32, upper bound of the reward at which policies start; None if none does.
    """

    network: Network
    state: Array
    place: Array
    links: Array
    values: dict[str, Array]
    received: Array
    counts: Array
    points_moved: Array
    exchange_energy: Array
    control_energy: Array
    upload_energy: Array | None
    history: History | None
    bound: Array | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Result:
    """The results of one run.

    Attributes:
        graphs: the results before training.
        learning: learning curves of each policy, fields [M, rounds].
    """

    graphs: Graphs
    learning: Learning


def _sampled(key: Array, policy: Any, memory: Any, num_states: int) -> tuple[Array, Array]:
    """[S, N] int32, a graph drawn from the learned policy; and [] bool, whether all rows have positive weights."""

    def draw(state):
        weight = policy.weights(at(key, Stream.RULE), memory, state)
        total = jnp.sum(weight, axis=-1, keepdims=True)
        uniform = jax.random.uniform(at(key, Stream.DEPLOYMENT, state + 1), weight.shape[:1])
        return sample(uniform, weight / total), jnp.all(total > 0)

    links, is_graph = jax.vmap(draw)(jnp.arange(num_states))
    return links, jnp.all(is_graph)


def _graph_of(
    key: Array, network: Network, candidate: Candidate, learner: OwnPolicy | None, config: Config, reward: Any
) -> tuple[Array, History | None]:
    """The graph of one policy in each state, [S, N] int32, and its learning curves, None if it does not learn."""
    if not candidate.learns:
        more = (reward,) if candidate.seeks_reward else ()
        return candidate.rule(key, network, config, *more), None
    policy = candidate.rule(config, network.counts.shape[-1], reward) if learner is None else learner
    found = learn(policy, key, network, config, reward)
    if config.deployment == "greedy":
        return found.links, found.history
    links, is_graph = _sampled(key, policy, found.memory, config.num_states)
    # A policy can have a `best` graph but no weights; see `best_links`.
    return links, marked(found.history, is_graph)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Moved:
    """The exchange of one policy in whole points; see `Graphs` for the fields."""

    received: Array
    counts: Array
    points_moved: Array
    exchange_energy: Array


def _exchange(
    key: Array,
    counts: Array,
    place: Array,
    outage: Array,
    links: Array,
    moved: Exchange,
    bits: float,
    config: Config,
) -> _Moved:
    """Counts the whole points that move over the links of one state, with its positions and outages."""
    received = whole_points(key, moved, outage, links, config)
    given = jnp.zeros_like(received).at[links].add(received)
    sent = jnp.sum(floor_points(moved.transmitted), axis=-1)
    return _Moved(
        received=received,
        counts=counts + received - given,
        points_moved=jnp.sum(received),
        exchange_energy=energy.exchange_energy(place, links, sent, bits, config),
    )


def _pool(key: Array, counts: Array, config: Config, places: int | None) -> _Moved:
    """Redistributes all points; without energy, since no exchange of the paper does this."""
    # Only the classes of the points, in the order in which the points are assigned: by device, then class.
    classes = jnp.tile(jnp.arange(config.num_classes, dtype=jnp.int32), config.num_devices)
    total = num_points(config) if places is None else places
    label = jnp.repeat(classes, counts.reshape(-1), total_repeat_length=total)
    if places is not None:
        label = jnp.where(jnp.arange(places) < jnp.sum(counts), label, -1)
    holding = pool(key, label, config.num_devices, is_full=places is None)
    device = jnp.repeat(jnp.arange(config.num_devices), holding.size, total_repeat_length=total)
    dealt = jnp.zeros_like(counts).at[device, holding.points].add(holding.points >= 0)
    return _Moved(jnp.zeros_like(counts), dealt, jnp.int32(0), jnp.float32(jnp.nan))


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _histories(found: Sequence[History | None]) -> History | None:
    """Learning curves of all policies, fields [M, records]; NaN for those that do not learn."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), known[0])
    return _stack([nothing if one is None else one for one in found])


def _bound(candidates: Mapping[str, Candidate], network: Network, config: Config, reward: Any) -> Array | None:
    """The upper bound of the reward, [] float32; None if no policy starts from it.

    The bound of the paper's reward holds unless a network has larger budgets than the config.
    """
    if config.initial_value is not None or not any(one.starts_at_bound for one in candidates.values()):
        return None
    return jnp.asarray(initial_value(config, network.counts.shape[-1], reward), jnp.float32)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the data and the model; static in the compiled program.

    Attributes:
        bits_per_point: bits of a transmitted point.
        num_parameters: parameters of the model, which each device uploads at an aggregation; None if no model is
            named, so that the energy of uploads is unknown.
        places: length of the list of points if counts are given, at least their sum; None: `N P`.
    """

    bits_per_point: float
    num_parameters: int | None
    places: int | None = None


def sizes_of(points: Points, recipe: Recipe, config: Config | None = None) -> Sizes:
    """The sizes of a data set and a recipe.

    Args:
        points: all points of the data set.
        recipe: a recipe with a model.
        config: a validated config; needed if a custom network has counts.
    """
    places = None if config is None else places_of(recipe.network, config)
    places = places if points.owned is None else points.owned.train.shape[0]
    return Sizes(points.bits_per_point, count_parameters(recipe.model, points.x.shape[1:]), places)


def find_graphs(
    key: Array,
    network: Network,
    config: Config,
    sizes: Sizes,
    candidates: Mapping[str, Candidate],
    parts: Mapping[str, Any] = {},
    reward: Any = PAPER,
) -> Graphs:
    """Finds each policy's graph and counts the points that move over it: everything before training but the points.

    Args:
        key: key of the run.
        network: the network of the run.
        config: a validated config.
        sizes: sizes of the data and the model.
        candidates: the M policies to compare, by name.
        parts: custom parts with numbers, by name: policies that learn, and `reward`; see `Recipe.numbered`.
        reward: the reward, unless it is in `parts`.

    Returns:
        The graphs.
    """
    reward = parts.get("reward", reward)
    prepared, num_parameters = prepare(network, config), sizes.num_parameters
    state = uniform_integer(at(key, Stream.DEPLOYMENT), (), config.num_states)
    place = places(key, network.position, config)[state]
    sizes_of_graphs = (config.num_states, config.num_devices)
    own = {name: OwnPolicy(name, one, sizes_of_graphs) for name, one in parts.items() if name != "reward"}
    found = [_graph_of(key, network, one, own.get(name), config, reward) for name, one in candidates.items()]

    def of_policy(links: Array) -> tuple[_Moved, dict[str, Array]]:
        def in_state(state: Array, links: Array) -> tuple[Exchange, dict[str, Array]]:
            moved, outcome = exchange_and_reward(prepared, state, links, config, reward)
            return moved, summarise(outcome, links, network, config)

        all_moved, graph_values = jax.vmap(in_state)(jnp.arange(config.num_states), links)
        moved = jax.tree.map(lambda leaf: leaf[state], all_moved)
        counts, outage, bits = prepared.network.counts, prepared.network.outage[state], sizes.bits_per_point
        return _exchange(key, counts, place, outage, links[state], moved, bits, config), graph_values

    # Policy by policy: the program of one compiles in a third of the time of three.
    all_links = jnp.stack([links for links, _ in found])
    moved, graph_values = jax.lax.map(of_policy, all_links)
    without = np.flatnonzero([not one.has_graph for one in candidates.values()])
    if without.size:
        put = lambda all, new: all.at[without].set(new)  # noqa: E731
        moved = jax.tree.map(put, moved, _pool(key, network.counts, config, sizes.places))
        # Pooled points use no graph, so there are no values.
        graph_values = jax.tree.map(lambda value: put(value, jnp.nan), graph_values)
    exchanges = jnp.array([one.num_exchanges(config) for one in candidates.values()], jnp.float32)
    heard = jnp.array([one.num_offers(config) for one in candidates.values()], jnp.float32)
    return Graphs(
        network=network,
        state=state,
        place=place,
        links=all_links,
        values=graph_values,
        received=moved.received,
        counts=moved.counts,
        points_moved=moved.points_moved,
        exchange_energy=moved.exchange_energy,
        control_energy=energy.control_energy(place, exchanges, config.num_classes, config, heard),
        upload_energy=None if num_parameters is None else energy.upload_energy(place, num_parameters, config),
        history=_histories([history for _, history in found]),
        bound=_bound(candidates, network, config, reward),
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Move:
    """The exchange before one training; the only input in which the trainings of a run's policies differ.

    Attributes:
        counts: [..., N, L] int32, points of each class before the exchange.
        links: [..., N] int32, the graph in the state of the exchange.
        received: [..., N, L] int32, whole points that each device receives over its link.
        is_pooled: [...] bool, whether all points are redistributed instead; None if no policy does so.
    """

    counts: Array
    links: Array
    received: Array
    is_pooled: Array | None


def moves(graphs: Graphs, candidates: Mapping[str, Candidate]) -> Move:
    """The exchanges of all policies of one run.

    Args:
        graphs: of one run.
        candidates: its M policies, by name, in the order of the results.

    Returns:
        The exchanges, fields [M, ...].
    """
    same = jnp.broadcast_to(graphs.network.counts, graphs.received.shape)
    pools = [not one.has_graph for one in candidates.values()]
    is_pooled = jnp.array(pools) if any(pools) else None
    return Move(same, graphs.links[:, graphs.state], graphs.received, is_pooled)


def exchange_and_train(
    key: Array, move: Move, config: Config, points: Points, recipe: Recipe, places: int | None = None
) -> Learning:
    """Assigns the points, moves them and trains: everything after discovery, for one policy of one run.

    Args:
        key: key of the run.
        move: the exchange of this policy, without leading axis.
        config: a validated config.
        points: all points of the data set.
        recipe: model and optimisers.
        places: see `points.assign`.

    Returns:
        The learning curves.
    """
    test, dealt = deal(key, points, move.counts, config, places)
    holding = transfer(dealt, move.counts, move.links, move.received)
    if (is_pooled := move.is_pooled) is not None:
        is_given = places is not None or points.owned is not None
        anew = pool(key, dealt, config.num_devices, is_full=not is_given)
        holding = jax.tree.map(lambda new, old: jnp.where(is_pooled, new, old), anew, holding)
    return train(key, recipe, points, test, holding, config)


def with_model(recipe: Recipe | None, config: Config) -> Recipe:
    """The recipe with the model that the config names; unchanged if it has a model or `model="auto"`.

    Args:
        recipe: any recipe; None: that of the paper.
        config: `model` and `num_classes`.
    """
    recipe = Recipe() if recipe is None else recipe
    return (
        recipe if recipe.model is not None or config.model == "auto" else replace(recipe, model=make_model(config))
    )


def simulate(key: Array, config: Config, points: Points, recipe: Recipe | None = None) -> Result:
    """Simulates one run: network, graphs, exchange and federated training of each policy.

    All policies share the network, the split, the initial model and the minibatch draws, so comparisons are paired.
    The function is pure: use `jit`, and `vmap` over keys and over the numbers of the config.

    Args:
        key: key of the run.
        config: a validated config.
        points: all points of the data set.
        recipe: custom policies, reward, network, model and optimisers; None: those of the paper, and SGD.

    Returns:
        The graphs and the learning curves.

    Raises:
        ValueError: config, data and recipe do not fit together.
    """
    recipe = with_model(recipe, config)
    counts = None if points.owned is None else points.owned.counts
    if recipe.network is not None:
        config = fit(config, recipe.network, is_owned=counts is not None)
    candidates = candidates_of(config, recipe.policies)
    network = network_of_run(only(recipe.network), key, config, counts)
    sizes, parts = sizes_of(points, recipe, config), as_arrays(recipe.numbered)
    graphs = find_graphs(key, network, config, sizes, candidates, parts, recipe.reward)
    one_policy = lambda move: exchange_and_train(key, move, config, points, recipe, sizes.places)  # noqa: E731
    return Result(graphs, jax.lax.map(one_policy, moves(graphs, candidates)))
