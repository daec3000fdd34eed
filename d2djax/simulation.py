"""One run: a pure function of key, config and data, all policies with common random numbers (Section IV)."""

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
from d2djax.episode import Prepared, exchange_and_reward, prepare
from d2djax.federated import Learning, train
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
    """What a run decides before training: for every policy the graph, its worth and who holds what.

    Attributes:
        network: the network of the run.
        state: [] int32, channel state in which the exchange happens.
        place: [N, 2] float32, metres, where the devices are in that state.
        links: [M, S, N] int32, graph of each policy in each state.
        values: scalars of each policy's graph in each state, name to [M, S] float32 (see `History`); NaN for
            a policy without a graph.
        received: [M, N, L] int32, whole points of each class that each device gets in the exchange.
        counts: [M, N, L] int32, whole points of each class after it.
        exchange_energy: [M] float32, J, what the exchange of points takes; NaN where points are pooled instead.
        control_energy: [M] float32, J, what the messages take that agree on the exchange, in discovery E times.
        upload_energy: [] float32, J, what the uploads of one aggregation take; none where no model is named.
        points_moved: [M] int32, whole points that changed their device; none are counted where they are pooled.
        history: learning curves of each policy, fields [M, episodes]; NaN for those that do not learn, none if
            no policy does.
        bound: [] float32, what no reward should exceed, where policies start from that.
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
    """All that one run yields.

    Attributes:
        graphs: what was decided before training.
        learning: learning curves of each policy, fields [M, rounds].
    """

    graphs: Graphs
    learning: Learning


def _sampled(key: Array, policy: Any, memory: Any, num_states: int) -> tuple[Array, Array]:
    """[S, N] int32: a graph that is drawn from what was learned; and [] bool, whether there were weights for it."""

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
    """The graph of one policy in each state, [S, N] int32, and the learning curves of one that learns."""
    if not candidate.learns:
        more = (reward,) if candidate.seeks_reward else ()
        return candidate.rule(key, network, config, *more), None
    policy = candidate.rule(config, network.counts.shape[-1], reward) if learner is None else learner
    found = learn(policy, key, network, config, reward)
    if config.deployment == "greedy":
        return found.links, found.history
    links, is_graph = _sampled(key, policy, found.memory, config.num_states)
    # A policy may have a best graph and yet no weights; see `learn`.
    return links, marked(found.history, is_graph)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Moved:
    """The real exchange of one policy, counted; see `Graphs`."""

    received: Array
    counts: Array
    points_moved: Array
    exchange_energy: Array


def _exchange(
    key: Array, prepared: Prepared, place: Array, links: Array, state: Array, bits: float, config: Config
) -> _Moved:
    """Counts the whole points that move over the links of one state, in which the devices stand at `place`."""
    network, (moved, _) = prepared.network, exchange_and_reward(prepared, state, links, config)
    received = whole_points(key, moved, network.outage[state], links, config)
    given = jnp.zeros_like(received).at[links].add(received)
    sent = jnp.sum(floor_points(moved.transmitted), axis=-1)
    return _Moved(
        received=received,
        counts=network.counts + received - given,
        points_moved=jnp.sum(received),
        exchange_energy=energy.exchange_energy(place, links, sent, bits, config),
    )


def _pool(key: Array, counts: Array, config: Config, places: int | None) -> _Moved:
    """Deals all points anew; nothing is sent, since no exchange of the paper does this."""
    # Their classes alone, device after device, in the order in which the points themselves are dealt.
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
    """Learning curves of all policies, fields [M, episodes]; NaN for those that do not learn."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), known[0])
    return _stack([nothing if one is None else one for one in found])


def _bound(candidates: Mapping[str, Candidate], network: Network, config: Config, reward: Any) -> Array | None:
    """The upper bound of the reward, [] float32; none where no policy starts from one.

    That of the paper's reward holds by its formula, but for networks whose budgets are not those of the config.
    """
    if config.initial_value is not None or not any(one.starts_at_bound for one in candidates.values()):
        return None
    return jnp.asarray(initial_value(config, network.counts.shape[-1], reward), jnp.float32)


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is trained on and with; part of the compiled program.

    Attributes:
        bits_per_point: size of a point when it is sent.
        num_parameters: numbers in the model, which each device sends for an aggregation; none: no model is
            named, so the energy of the uploads is not known.
        places: where counts are given, a number that their sum does not exceed; none: the partition makes `N P`.
    """

    bits_per_point: float
    num_parameters: int | None
    places: int | None = None


def sizes_of(points: Points, recipe: Recipe, config: Config | None = None) -> Sizes:
    """The sizes of a data set and a recipe; where a network of one's own has counts, by the config of the runs.

    Args:
        points: all points of the data set.
        recipe: with a model.
        config: a validated config; needed where a network of one's own has counts.

    Returns:
        The sizes.
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
    """Finds every policy's graph and counts what moves over it: all that comes before training but the points.

    Args:
        key: key of the run.
        network: its network.
        config: a validated config.
        sizes: sizes of the data and the model.
        candidates: the policies that are compared, by name.
        parts: what has numbers of its own, with them, by name: policies of one's own that learn, and `reward`.
        reward: what the devices learn from, unless it is among the parts.

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
        moved = _exchange(key, prepared, place, links[state], state, sizes.bits_per_point, config)

        def graph_values(state: Array, links: Array) -> dict[str, Array]:
            return summarise(exchange_and_reward(prepared, state, links, config, reward)[1], links, network, config)

        return moved, jax.vmap(graph_values)(jnp.arange(config.num_states), links)

    # One policy after another: the code of one compiles in a third of the time of that of three.
    all_links = jnp.stack([links for links, _ in found])
    moved, graph_values = jax.lax.map(of_policy, all_links)
    without = np.flatnonzero([not one.has_graph for one in candidates.values()])
    if without.size:
        put = lambda all, new: all.at[without].set(new)  # noqa: E731
        moved = jax.tree.map(put, moved, _pool(key, network.counts, config, sizes.places))
        # Pooled points come over no graph, so there is none to value.
        graph_values = jax.tree.map(lambda value: put(value, jnp.nan), graph_values)
    exchanges = jnp.array([one.num_exchanges(config) for one in candidates.values()], jnp.float32)
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
        control_energy=energy.control_energy(place, exchanges, config.num_classes, config),
        upload_energy=None if num_parameters is None else energy.upload_energy(place, num_parameters, config),
        history=_histories([history for _, history in found]),
        bound=_bound(candidates, network, config, reward),
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Move:
    """What moves before one training; all that sets one policy's training apart from another's.

    Attributes:
        counts: [..., N, L] int32, points of each class before.
        links: [..., N] int32, the graph in the state of the exchange.
        received: [..., N, L] int32, whole points that each device gets over its link.
        is_pooled: [...] bool, all points are dealt anew instead; none if that is so for no policy.
    """

    counts: Array
    links: Array
    received: Array
    is_pooled: Array | None


def moves(graphs: Graphs, candidates: Mapping[str, Candidate]) -> Move:
    """What moves for each policy of one run, fields [M, ...].

    Args:
        graphs: of one run.
        candidates: its policies, in their order.

    Returns:
        What moves, fields with a leading axis of policies.
    """
    same = jnp.broadcast_to(graphs.network.counts, graphs.received.shape)
    pools = [not one.has_graph for one in candidates.values()]
    is_pooled = jnp.array(pools) if any(pools) else None
    return Move(same, graphs.links[:, graphs.state], graphs.received, is_pooled)


def exchange_and_train(
    key: Array, move: Move, config: Config, points: Points, recipe: Recipe, places: int | None = None
) -> Learning:
    """Deals the points, moves them and trains: what one policy of one run takes after its graph is found.

    Args:
        key: key of the run.
        move: what moves, for this policy.
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
    """A recipe with the model that the config names, unless it has one of its own or the config names none.

    Args:
        recipe: any recipe; none: that of the paper.
        config: `model` and `num_classes`.

    Returns:
        The recipe.
    """
    recipe = Recipe() if recipe is None else recipe
    return (
        recipe if recipe.model is not None or config.model == "auto" else replace(recipe, model=make_model(config))
    )


def simulate(key: Array, config: Config, points: Points, recipe: Recipe | None = None) -> Result:
    """Runs the whole of one run: network, graphs, exchange and federated training of every policy.

    All policies share the network, the split, the first model and the stream of minibatches, so their
    differences are paired. Pure: `jit` it, and `vmap` it over keys and over the numbers of the config.

    Args:
        key: key of the run.
        config: a validated config.
        points: all points of the data set.
        recipe: policies, reward, model and optimisers of one's own; none: those of the paper, and SGD.

    Returns:
        The result.
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
