"""One run: a pure function of key, config and data, all policies with common random numbers (Section IV)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from d2djax import baselines, energy
from d2djax.channel import places
from d2djax.config import Config, initial_value
from d2djax.discovery import Discovery, History, discover, summarise
from d2djax.episode import Scene, play, set_scene
from d2djax.federated import Learning, Recipe, train
from d2djax.models import count_parameters, make_model
from d2djax.network import Network, make_network
from d2djax.partition import count_labels, num_points
from d2djax.points import Points, assign, split
from d2djax.policy import probabilities, sample
from d2djax.rng import Stream, at, uniform_integer
from d2djax.transfer import floor_points, pool, transfer, whole_points

DISCOVERIES: dict[str, Callable[[Array, Network, Config], Discovery]] = {
    "none": baselines.none,
    "uniform": baselines.uniform,
    "rl": discover,
    "nearest": baselines.nearest,
    "best_response": baselines.best_response,
    "pooled": baselines.none,
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Graphs:
    """What a run decides before training: for every policy the graph, its worth and who holds what.

    Attributes:
        network: the network of the run.
        state: [] int32, channel state in which the exchange happens.
        place: [N, 2] float32, metres, where the devices are in that state.
        links: [M, S, N] int32, graph of each policy in each state.
        worth: scalars of each policy's graph in each state, name to [M, S] float32 (see `History`); NaN for
            `pooled`, which has no graph.
        received: [M, N, L] int32, whole points of each class that each device gets in the exchange.
        counts: [M, N, L] int32, whole points of each class after it.
        exchange_energy: [M] float32, J, what the exchange of points takes; NaN for `pooled`, which is none.
        control_energy: [M] float32, J, what the messages take that agree on the exchange, in discovery E times.
        upload_energy: [] float32, J, what the uploads of one aggregation take; none where no model is named.
        points_moved: [M] int32, whole points that changed their device; for `pooled`, none are counted.
        history: learning curves of `rl`; none if it does not run.
    """

    network: Network
    state: Array
    place: Array
    links: Array
    worth: dict[str, Array]
    received: Array
    counts: Array
    points_moved: Array
    exchange_energy: Array
    control_energy: Array
    upload_energy: Array | None
    history: History | None


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


def _deployed(key: Array, found: Discovery, config: Config) -> Array:
    """[S, N] int32: the graph that is used, greedy or sampled from what was learned."""
    buffer = found.buffer
    if buffer is None or config.deployment == "greedy":
        return found.links
    start = initial_value(config, config.num_classes)

    def draw(state):
        likely = probabilities(buffer, state, initial_value=start, temperature=config.temperature)
        return sample(jax.random.uniform(at(key, Stream.DEPLOYMENT, state + 1), likely.shape[:1]), likely)

    return jax.vmap(draw)(jnp.arange(config.num_states))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Moved:
    """The real exchange of one policy, counted; see `Graphs`."""

    received: Array
    counts: Array
    points_moved: Array
    exchange_energy: Array


def _exchange(
    key: Array, scene: Scene, place: Array, links: Array, state: Array, bits: float, config: Config
) -> _Moved:
    """Counts the whole points that move over the links of one state, in which the devices stand at `place`."""
    network, (moved, _) = scene.network, play(scene, state, links, config)
    received = whole_points(key, moved, network.outage[state], links, config)
    given = jnp.zeros_like(received).at[links].add(received)
    sent = jnp.sum(floor_points(moved.transmitted), axis=-1)
    return _Moved(
        received=received,
        counts=network.counts + received - given,
        points_moved=jnp.sum(received),
        exchange_energy=energy.exchange_energy(place, links, sent, bits, config),
    )


def _pool(key: Array, counts: Array, config: Config) -> _Moved:
    """Deals all points anew; nothing is sent, since no exchange of the paper does this."""
    # Their classes alone, device after device, in the order in which the points themselves are dealt.
    classes = jnp.tile(jnp.arange(config.num_classes, dtype=jnp.int32), config.num_devices)
    label = jnp.repeat(classes, counts.reshape(-1), total_repeat_length=num_points(config))
    holding = pool(key, label, config.num_devices)
    dealt = count_labels(holding.points.reshape(config.num_devices, -1), config.num_classes)
    return _Moved(jnp.zeros_like(counts), dealt, jnp.int32(0), jnp.float32(jnp.nan))


def _num_exchanges(policy: str, config: Config) -> int:
    """How often the devices agree on an exchange: in every episode of discovery, and once for the real one."""
    return 0 if policy in ("none", "pooled") else 1 + (config.num_episodes if policy == "rl" else 0)


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is trained on and with; part of the compiled program.

    Attributes:
        bits_per_point: size of a point when it is sent.
        num_parameters: numbers in the model, which each device sends for an aggregation; none: no model is
            named, so the energy of the uploads is not known.
    """

    bits_per_point: float
    num_parameters: int | None


def sizes_of(points: Points, recipe: Recipe) -> Sizes:
    """The sizes of a data set and a recipe."""
    return Sizes(points.bits_per_point, count_parameters(recipe.model, points.x.shape[1:]))


def find_graphs(key: Array, network: Network, config: Config, sizes: Sizes) -> Graphs:
    """Finds every policy's graph and counts what moves over it: all that comes before training but the points.

    Args:
        key: key of the run.
        network: its network.
        config: a validated config.
        sizes: sizes of the data and the model.

    Returns:
        The graphs.
    """
    scene, num_parameters = set_scene(network, config), sizes.num_parameters
    state = uniform_integer(at(key, Stream.DEPLOYMENT), (), config.num_states)
    place = places(key, network.position, config)[state]
    found = {policy: DISCOVERIES[policy](key, network, config) for policy in config.policies}
    links = {policy: _deployed(key, found[policy], config) for policy in config.policies}

    def of_policy(links: Array) -> tuple[_Moved, dict[str, Array]]:
        moved = _exchange(key, scene, place, links[state], state, sizes.bits_per_point, config)
        worth = lambda state, links: summarise(play(scene, state, links, config)[1], links, network, config)  # noqa: E731
        return moved, jax.vmap(worth)(jnp.arange(config.num_states), links)

    # One policy after another: the code of one compiles in a third of the time of that of three.
    all_links = _stack([links[policy] for policy in config.policies])
    moved, worth = jax.lax.map(of_policy, all_links)
    if "pooled" in config.policies:
        number = config.policies.index("pooled")
        put = lambda all, new: all.at[number].set(new)  # noqa: E731
        moved = jax.tree.map(put, moved, _pool(key, network.counts, config))
        # Pooled points come over no graph, so there is none to value.
        worth = jax.tree.map(lambda value: put(value, jnp.nan), worth)
    exchanges = jnp.array([_num_exchanges(policy, config) for policy in config.policies], jnp.float32)
    return Graphs(
        network=network,
        state=state,
        place=place,
        links=all_links,
        worth=worth,
        received=moved.received,
        counts=moved.counts,
        points_moved=moved.points_moved,
        exchange_energy=moved.exchange_energy,
        control_energy=energy.control_energy(place, exchanges, config.num_classes, config),
        upload_energy=None if num_parameters is None else energy.upload_energy(place, num_parameters, config),
        history=found["rl"].history if "rl" in found else None,
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Move:
    """What moves before one training; all that sets one policy's training apart from another's.

    Attributes:
        counts: [..., N, L] int32, points of each class before.
        links: [..., N] int32, the graph in the state of the exchange.
        received: [..., N, L] int32, whole points that each device gets over its link.
        is_pooled: [...] bool, all points are dealt anew instead.
    """

    counts: Array
    links: Array
    received: Array
    is_pooled: Array


def moves(graphs: Graphs, policies: tuple[str, ...]) -> Move:
    """What moves for each policy of one run, fields [M, ...]."""
    same = jnp.broadcast_to(graphs.network.counts, graphs.received.shape)
    is_pooled = jnp.array([policy == "pooled" for policy in policies])
    return Move(same, graphs.links[:, graphs.state], graphs.received, is_pooled)


def exchange_and_train(key: Array, move: Move, config: Config, points: Points, recipe: Recipe) -> Learning:
    """Deals the points, moves them and trains: what one policy of one run takes after its graph is found.

    Args:
        key: key of the run.
        move: what moves, for this policy.
        config: a validated config.
        points: all points of the data set.
        recipe: network and optimisers.

    Returns:
        The learning curves.
    """
    test, spare = split(key, points.sizes, config)
    dealt = assign(spare, move.counts, points.sizes, config)
    holding = transfer(dealt, move.counts, move.links, move.received)
    if "pooled" in config.policies:
        anew = pool(key, dealt, config.num_devices)
        holding = jax.tree.map(lambda new, old: jnp.where(move.is_pooled, new, old), anew, holding)
    return train(key, recipe, points, test, holding, config)


def with_model(recipe: Recipe | None, config: Config) -> Recipe:
    """A recipe with the network that the config names, unless it has one of its own or the config names none."""
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
        recipe: network and optimisers; none: the network that the config names and SGD.

    Returns:
        The result.
    """
    recipe = with_model(recipe, config)
    graphs = find_graphs(key, make_network(key, config), config, sizes_of(points, recipe))
    one_policy = lambda move: exchange_and_train(key, move, config, points, recipe)  # noqa: E731
    return Result(graphs, jax.lax.map(one_policy, moves(graphs, config.policies)))
