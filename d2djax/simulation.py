"""One run: a pure function of key, config and data, all methods with common random numbers (Section IV)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from d2djax import baselines, partition
from d2djax.config import Config, initial_value
from d2djax.discovery import Discovery, History, discover, summarise
from d2djax.episode import play
from d2djax.federated import Learning, Recipe, train
from d2djax.models import make_model
from d2djax.network import Network, make_network
from d2djax.policy import probabilities, sample
from d2djax.rng import Stream, at, uniform_integer
from d2djax.transfer import Holding, pool, transfer, whole_points

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
    """What a run decides before training: for every method the graph, its worth and who holds what.

    Attributes:
        network: the network of the run.
        state: [] int32, channel state in which the exchange happens.
        links: [M, S, N] int32, graph of each method in each state.
        worth: scalars of each method's graph in each state, name to [M, S] float32 (see `History`).
        counts: [M, N, L] int32, whole points of each class after the exchange.
        points_moved: [M] int32, whole points that changed their device; for `pooled`, none are counted.
        history: learning curves of `rl`; none if it does not run.
    """

    network: Network
    state: Array
    links: Array
    worth: dict[str, Array]
    counts: Array
    points_moved: Array
    history: History | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Result:
    """All that one run yields.

    Attributes:
        graphs: what was decided before training.
        learning: learning curves of each method, fields [M, rounds].
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


def _exchange(key: Array, network: Network, points: Array, links: Array, state: Array, config: Config):
    """The real exchange over one state's links: holding, counts afterwards, points that moved."""
    outcome = play(network, state, links, config)
    received = whole_points(key, outcome.exchange, network.outage[state], links, config)
    holding = transfer(points, network.counts, links, received)
    sent = jnp.zeros_like(received).at[links].add(received)
    return holding, network.counts + received - sent, jnp.sum(received)


def prepare(key: Array, config: Config, sizes: tuple[int, ...]) -> tuple[Graphs, Holding, Array]:
    """Draws the network, finds every method's graph and moves the data: all that comes before training.

    Args:
        key: key of the run.
        config: a validated config.
        sizes: points of each class in the data set.

    Returns:
        The graphs, each method's holding (fields with a leading axis M) and the held-out points [n].
    """
    network = make_network(key, config)
    test, spare = partition.split(key, sizes, config)
    points = partition.assign(spare, network.counts, sizes, config)
    state = uniform_integer(at(key, Stream.DEPLOYMENT), (), config.num_states)
    found = {method: DISCOVERIES[method](key, network, config) for method in config.methods}
    links = {method: _deployed(key, found[method], config) for method in config.methods}

    def worth(links: Array) -> dict[str, Array]:
        one = lambda state, links: summarise(play(network, state, links, config), links, network, config)  # noqa: E731
        return jax.vmap(one)(jnp.arange(config.num_states), links)

    moved = {
        method: _exchange(key, network, points, links[method][state], state, config) for method in config.methods
    }
    if "pooled" in moved:
        dealt = pool(key, points)
        label = jnp.asarray(partition.labels(sizes))[dealt.points].reshape(config.num_devices, -1)
        counts = jnp.sum(jax.nn.one_hot(label, config.num_classes, dtype=jnp.int32), axis=1)
        moved["pooled"] = (dealt, counts, jnp.int32(0))
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)  # noqa: E731
    holding, counts, points_moved = stack([moved[method] for method in config.methods])
    all_links = stack([links[method] for method in config.methods])
    history = found["rl"].history if "rl" in found else None
    graphs = Graphs(network, state, all_links, jax.vmap(worth)(all_links), counts, points_moved, history)
    return graphs, holding, test


def simulate(key: Array, config: Config, points: partition.Points, recipe: Recipe | None = None) -> Result:
    """Runs the whole of one run: network, graphs, exchange and federated training of every method.

    All methods share the network, the split, the first model and the stream of minibatches, so their
    differences are paired. Pure: `jit` it, and `vmap` it over keys and over the numbers of the config.

    Args:
        key: key of the run.
        config: a validated config.
        points: all points of the data set.
        recipe: network and optimisers; none: the network that the config names and SGD.

    Returns:
        The result.
    """
    recipe = Recipe(make_model(config)) if recipe is None else recipe
    graphs, holdings, test = prepare(key, config, points.sizes)
    one_method = lambda holding: train(key, recipe, points, test, holding, config)  # noqa: E731
    return Result(graphs, jax.lax.map(one_method, holdings))
