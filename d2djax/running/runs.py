"""Runs one configuration for many seeds: from a config to labelled results."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import NoneType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax

from d2djax import networks
from d2djax.checks import check_count, check_flag, is_whole, listed, shown
from d2djax.config import (
    GRAPH_NUMBERS,
    TRAINING_NUMBERS,
    Config,
    complete,
    numbers_of,
    stack_configs,
)
from d2djax.data import SOURCES, Dataset, Description, describe
from d2djax.episode import try_reward
from d2djax.federated import Learning
from d2djax.models import check_model, num_numbers
from d2djax.network import Network
from d2djax.networks import asked_of, places_of
from d2djax.parts import as_arrays, without_numbers
from d2djax.points import Points, arrange, bits_per_point
from d2djax.policies import Candidate, candidates_of
from d2djax.policies.own import check_graphs
from d2djax.recipe import Recipe, check_optimisers
from d2djax.rng import run_key
from d2djax.running import machine, programs, results
from d2djax.running.identity import identify, name_of
from d2djax.running.many_runs import map_runs
from d2djax.running.memory import check_memory
from d2djax.running.programs import Compiled, Program, program_of
from d2djax.running.progress import Stage, announcer, errors, stage
from d2djax.simulation import Graphs, Move, Sizes, exchange_and_train, find_graphs, moves, with_model
from d2djax.supply import (
    check_fits,
    described,
    held_out_sizes,
    load_dataset,
    owners_counts,
    what_is_read,
    with_data,
)
from d2djax.validation import validate

if TYPE_CHECKING:
    import xarray


MOST_RUNS = 2**24


@dataclass(frozen=True)
class Setup:
    """Everything that the runs of one program share.

    Attributes:
        config: the validated config; numbers that differ between runs are ignored.
        dataset: the data set; only its description for runs without training.
        points: all points; None for runs without training.
        recipe: all code that the runs use; its model may be None for runs without training.
        parameters: parameters of the model as `jax.ShapeDtypeStruct`; None without a model.
    """

    config: Config
    dataset: Dataset | Description
    points: Points | None
    recipe: Recipe
    parameters: Any

    @cached_property
    def candidates(self) -> dict[str, Candidate]:
        """The compared policies, by name."""
        return candidates_of(self.config, self.recipe.policies)

    @cached_property
    def parts(self) -> dict[str, Any]:
        """The user's policies and reward with numbers; numbers that differ between runs are ignored."""
        return as_arrays(self.recipe.numbered)

    @property
    def own_reward(self) -> str | None:
        """Name of the user's reward; None for the paper's."""
        return name_of(self.recipe.reward) if self.recipe.has_reward else None

    @property
    def supply(self) -> np.ndarray | None:
        """Training points of each class, [L] int; None for runs without training."""
        if self.points is None:
            return None
        return np.array(self.points.sizes) - held_out_sizes(np.array(self.points.sizes), self.config)

    @property
    def of_graphs(self) -> tuple[Sizes, tuple, Any]:
        """Static value of the discovery program, see `graphs_of`."""
        return self.sizes, tuple(self.candidates.items()), without_numbers(self.recipe.reward)

    @property
    def of_learning(self) -> tuple[Recipe, int | None]:
        """Static value of the training program, see `learning_of`: model and optimisers of the recipe."""
        return Recipe(self.recipe.model, self.recipe.client, self.recipe.server), self.sizes.places

    @property
    def of_network(self) -> Callable | None:
        """Static value of the network program, see `network_of`: the user's function for networks, if any."""
        return self.recipe.network if networks.is_made(self.recipe.network) else None

    @cached_property
    def asked(self) -> np.ndarray | None:
        """Largest total of each class over all devices, [L] int, if a network gives counts; otherwise None."""
        return asked_of(self.recipe.network)

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the data and the model."""
        shape, counts = self.dataset.shape, self.counts
        num_parameters = None if self.parameters is None else num_numbers(self.parameters)
        places = places_of(self.recipe.network, self.config) if counts is None else int(counts.sum())
        return Sizes(bits_per_point(shape, self.dataset.dtype), num_parameters, places)

    @cached_property
    def counts(self) -> np.ndarray | None:
        """Points of each class on each device, [N, L] int32, if points have owners; otherwise None."""
        return None if self.dataset.owner is None else owners_counts(self.dataset, self.config)


def check_kinds(config: Config, data: Dataset | None, recipe: Recipe | None) -> None:
    """Checks the types of the arguments that most functions share.

    Raises:
        ValueError: an argument has a wrong type.
    """
    if not isinstance(config, Config):
        raise ValueError(f"config must be a Config, such as Config(num_devices=10); got {shown(config)}")
    if not isinstance(data, (Dataset, NoneType)):
        raise ValueError(f"data must be a Dataset(x, y, class_names, name, source); got {shown(data)}")
    if not isinstance(recipe, (Recipe, NoneType)):
        raise ValueError(f"recipe must be a Recipe, such as Recipe(model); got {shown(recipe)}")


def fill_in(
    config: Config | None,
    data: Dataset | None,
    recipe: Recipe | None,
    *,
    trains: bool = True,
    needs_model: bool = False,
    axes: Mapping[str, Sequence[Any]] = {},
) -> Config:
    """Completes a config from the user's data and network, and checks that settings without a default are given.

    The presets of a data set (points per device, model, step size) are those of Section IV-A. The user's data have
    no presets, unless they come from `load`. The user's optimiser has no preset step size, since presets suit SGD.

    Args:
        config: not validated; None: the defaults.
        data: the user's data set; None: the one that the config names.
        recipe: the user's code.
        trains: whether the runs train.
        needs_model: whether the size of the model matters without training.
        axes: values of the settings that differ between points.

    Returns:
        The config, with `dataset="own"` for the user's data.

    Raises:
        ValueError: settings are missing, all of which the line names, or an argument has a wrong type.
    """
    config = Config() if config is None else config
    check_kinds(config, data, recipe)
    network = None if recipe is None else recipe.network
    config = with_data(config, data, asked_of(network), axes)
    needed, own = [], ["data"] * (data is not None)
    if data is not None and data.name not in SOURCES:
        has_model = recipe is not None and recipe.model is not None
        needed += ["points_per_device"] * (data.owner is None and asked_of(network) is None)
        needed += ["model"] * (not has_model and (trains or needs_model))
        needed += ["learning_rate"] * trains
    if trains and recipe is not None:
        optimisers = ["learning_rate"] * (recipe.client is not optax.sgd)
        optimisers += ["server_learning_rate"] * (recipe.server is not None)
        own += ["optimisers"] * bool(optimisers)
        needed += [name for name in optimisers if name not in needed]
    missing = [name for name in needed if any(map(_is_unset, axes.get(name, [getattr(config, name)])))]
    if missing:
        example = ", ".join(f"{name}={EXAMPLES[name]}" for name in missing)
        raise ValueError(
            f"{' and '.join(own)} of your own have no defaults for {listed(missing)}: Config({example})"
        )
    # The first point stands for settings that only the axes give.
    on_axes = {name: axes[name][0] for name in needed if name in axes and _is_unset(getattr(config, name))}
    config = replace(config, **on_axes)
    name = None if data is None else data.name
    if network is not None:
        config = networks.fit(config, network, axes, name, data is not None and data.owner is not None)
    return config if name is None else complete(config, name)


# Values that a message proposes for settings without a default.
EXAMPLES = {
    "points_per_device": "60",
    "model": "'mlp'",
    "learning_rate": "0.01",
    "server_learning_rate": "0.01",
}


def _is_unset(value: Any) -> bool:
    return value is None or (isinstance(value, (int, str)) and value in (0, "auto"))


def set_up(
    config: Config | None,
    data: Dataset | None,
    recipe: Recipe | None,
    like: Sequence[Setup] = (),
    *,
    trains: bool = True,
    needs_model: bool = False,
    axes: Mapping[str, Sequence[Any]] = {},
    runs: int = 1,
) -> Setup:
    """Validates a config and loads its data.

    Runs without training load no points, because a graph depends only on the numbers of points.

    Args:
        config: see `fill_in`.
        data: see `fill_in`.
        recipe: see `fill_in`.
        like: setups whose data are reused if they are the same.
        trains: see `fill_in`.
        needs_model: see `fill_in`.
        axes: see `fill_in`.
        runs: number of runs whose results are in memory together.

    Raises:
        ValueError: a setting is missing or out of range, a class has too few points, the memory is too small, or
            the machine has no device of the kind that `JAX_PLATFORMS` names.
        DataError: the data set cannot be read.
    """
    config = validate(fill_in(config, data, recipe, trains=trains, needs_model=needs_model, axes=axes))
    machine.start()
    recipe = with_model(recipe, config)
    # Refuses a number of devices that a policy cannot take, before anything is read or compiled.
    candidates_of(config, recipe.policies)
    if recipe.network is not None:
        networks.check_sizes(config, recipe.network)
    asked = asked_of(recipe.network)
    shape = (describe(config.dataset) if data is None else data).shape
    check_memory(config, shape, trains=trains, runs=runs, asked=asked)
    dataset, points = data or described(config), None
    if trains:
        dataset, points = _points_for(config, data, like, asked)
    else:
        check_fits(dataset, config, asked, trains=False)
    if dataset.owner is not None and asked is not None:
        networks.check_given(recipe.network, owners_counts(dataset, config))
    parameters = None if recipe.model is None else check_model(recipe.model, dataset.shape, config.num_classes)
    setup = Setup(config, dataset, points, recipe, parameters)
    if recipe.has_reward:
        _check_reward(setup, axes)
    if trains:
        check_optimisers(recipe, parameters)
        num_parameters = setup.sizes.num_parameters or 0
        check_memory(config, shape, trains=True, runs=runs, num_parameters=num_parameters, asked=asked)
    return setup


def _check_reward(setup: Setup, axes: Mapping[str, Sequence[Any]]) -> None:
    """Checks the user's reward, and that it has an upper bound if a policy starts from it.

    Raises:
        ValueError: the reward does not fit, or lacks the bound.
    """
    config, reward = setup.config, setup.recipe.reward
    run = {"seed": np.zeros(1, np.int32), "config": stack_configs([config])}

    def shapes(function: Callable, shared: Any, runs: Any, static: Any) -> Any:
        one = jax.tree.map(lambda leaf: leaf[0], runs)
        return jax.eval_shape(lambda shared, item: function(shared, item, static), shared, one)

    try_reward(reward, _network_shapes(setup, run, shapes), config)
    starts = [name for name, one in setup.candidates.items() if one.starts_at_bound]
    is_given = all(value is not None for value in axes.get("initial_value", [config.initial_value]))
    if starts and not is_given and not hasattr(reward, "upper_bound"):
        raise ValueError(
            f"initial_value must be given: recipe.reward has no upper_bound(config), from which {listed(starts)} "
            "would start; write Config(initial_value=20.0)"
        )


def _points_for(
    config: Config, data: Dataset | None, like: Sequence[Setup], asked: np.ndarray | None
) -> tuple[Dataset, Points]:
    """Returns the data set of a config and its points, taken from a setup in `like` if they are the same."""
    for one in like:
        is_same = data is not None or what_is_read(one.config, one.asked) == what_is_read(config, asked)
        if isinstance(one.dataset, Dataset) and one.points and is_same:
            return one.dataset, arrange(one.dataset, config, asked, one.points)
    dataset = load_dataset(config, asked) if data is None else data
    return dataset, arrange(dataset, config, asked)


def network_of(shared: jax.Array | None, item: dict[str, Any], static: Callable | None) -> Network:
    """Makes the network of one run, for `map_runs`.

    Args:
        shared: points of each class on each device, [N, L] int32, if points have owners.
        item: `seed`, `config` and, if the user gives parts of the network, `given`.
        static: the user's function that makes the network, if any.
    """
    rule = item.get("given", static)
    return networks.network_of_run(rule, run_key(item["seed"]), item["config"], shared)


def graphs_of(shared: None, item: dict[str, Any], static: tuple[Sizes, tuple, Any]) -> tuple[Graphs, Move]:
    """Discovers the graphs of one run, for `map_runs`.

    Args:
        shared: unused.
        item: `seed`, `config`, `network`, and `parts` of the user's code by name.
        static: sizes, policies, and reward without its numbers.

    Returns:
        The graphs without the network, and the points that they move.
    """
    sizes, candidates, reward = static[0], dict(static[1]), static[2]
    network, parts = item["network"], item["parts"]
    graphs = find_graphs(run_key(item["seed"]), network, item["config"], sizes, candidates, parts, reward)
    return replace(graphs, network=None), moves(graphs, candidates)


def learning_of(points: Points, item: dict[str, Any], static: tuple[Recipe, int | None]) -> Learning:
    """Trains one policy of one run, for `map_runs`.

    Args:
        points: all points.
        item: `seed`, `config`, and `move`, the points that the policy moves.
        static: model and optimisers, and the length of the list of points, see `networks.places_of`.

    Returns:
        The learning curves.
    """
    return exchange_and_train(run_key(item["seed"]), item["move"], item["config"], points, *static)


def _given(setup: Setup, seeds: np.ndarray) -> Network | None:
    """Returns the user's complete networks of some runs, fields [U, ...]; None if networks are computed."""
    own = setup.recipe.network
    return networks.of_seeds(own, seeds) if isinstance(own, Network) else None


def _given_parts(setup: Setup, seeds: np.ndarray) -> dict[str, Any]:
    """Returns the user's parts of networks, which the network program takes besides seeds and configs."""
    own = setup.recipe.network
    return {"given": networks.of_seeds(own, seeds)} if isinstance(own, networks.GivenNetwork) else {}


def _network_shapes(setup: Setup, runs: dict[str, Any], shapes: Callable[..., Network]) -> Network:
    """Returns the shapes of the network of one run.

    Args:
        setup: setup of the runs.
        runs: seeds and configs of the runs, fields [U].
        shapes: returns the shapes of a function's result; takes the arguments of `map_runs`.
    """
    found = _given(setup, np.zeros(1, np.int32))
    if found is not None:
        return jax.tree.map(lambda leaf: leaf[0], found)
    return shapes(network_of, setup.counts, runs | _given_parts(setup, runs["seed"]), setup.of_network)


def stack(trees: Sequence[Any]) -> Any:
    """Stacks pytrees along a new leading axis.

    Args:
        trees: U pytrees of arrays with equal structure and shapes, at least one.

    Returns:
        Pytree of NumPy arrays [U, ...].
    """
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


# The entry points of all code that computes results.
TAKES_PART = (arrange, candidates_of, network_of, graphs_of, learning_of, results.variables)


def _distinct(items: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first item of each group of equal items, [K] int, and the group of every item, [U] int."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(items)]
    rows = np.concatenate([np.ascontiguousarray(leaf.reshape(len(leaf), -1)).view(np.uint8) for leaf in leaves], 1)
    kinds: dict[bytes, int] = {}
    kind = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows])
    return np.unique(kind, return_index=True)[1], kind


def _once(function: Callable, shared: Any, items: Any, static: Any, matters: Any, stage: Stage, **options) -> Any:
    """Calls `map_runs` once for each group of runs with equal `matters`, and copies the results to all runs."""
    first, kind = _distinct(matters)
    with stage(len(first)) as advance:
        few = jax.tree.map(lambda leaf: leaf[first], items)
        found = map_runs(function, shared, few, static, advance=advance, **options)
    return jax.tree.map(lambda leaf: leaf[kind], found)


def _numbers(config: Config, names: Collection[str], wanted: bool) -> list[Any]:
    """Returns the numbers of a config whose names are in `names`, or, if not `wanted`, those that are not."""
    return [jax.tree.leaves(getattr(config, name)) for name in numbers_of(config) if (name in names) == wanted]


def result_shapes(
    setup: Setup,
    configs: Config,
    parts: Mapping[str, Any],
    trains: bool = True,
    each: Callable[[Program], None] = lambda program: None,
) -> tuple[Graphs, Learning | None]:
    """Returns the shapes of the results of `compute`, without computing or compiling.

    Args:
        setup: see `compute`.
        configs: see `compute`.
        parts: see `compute`.
        trains: see `compute`.
        each: called with each program that `compute` needs, in order.
    """
    size, num_policies = len(jax.tree.leaves(configs)[0]), len(setup.candidates)
    item: dict[str, Any] = {"seed": np.zeros(size, np.int32), "config": configs}

    def rows(tree: Any, *leading: int) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*leading, *leaf.shape), leaf.dtype), tree)

    def result(function: Callable, shared: Any, items: Any, static: Any) -> Any:
        program = program_of(function, shared, items, static)
        each(program)
        return programs.result_shapes(program)

    network = _network_shapes(setup, item, result)
    before = {"network": rows(network, size), "parts": parts}
    found, moved = result(graphs_of, None, item | before, setup.of_graphs)
    graphs = replace(found, network=network)
    if not trains:
        return rows(graphs, size), None
    # Each policy of a run is a separate item.
    move = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), moved)
    learning = result(learning_of, setup.points, item | {"move": move}, setup.of_learning)
    return rows(graphs, size), rows(learning, size, num_policies)


def compute(
    setup: Setup,
    configs: Config,
    parts: Mapping[str, Any],
    seeds: np.ndarray,
    stages: Callable[[str], Stage],
    *,
    trains: bool = True,
    width: int | None = None,
    announce: Callable[[str, Compiled], None] = lambda name, compiled: None,
) -> tuple[Graphs, Learning | None]:
    """Computes runs that share their programs and may differ in seeds and in all numbers of the config.

    Work that is equal in several runs is done once: the network of a seed under all weights of the reward, and the
    training on equal points, such as that of `none` under every `gamma`.

    Args:
        setup: setup of the runs.
        configs: the config of each run, fields [U].
        parts: the user's policies and reward with the numbers of each run, by name, fields [U, ...].
        seeds: [U] int32.
        stages: returns the progress display of a stage by its name.
        trains: whether to train; otherwise the runs stop after discovery.
        width: concurrent runs on each device; None: chosen to fit.
        announce: called with the name of a stage and its compiled program, before its first runs.

    Returns:
        Graphs, fields [U, ...], and learning curves, fields [U, M, ...], None without training.

    Raises:
        ValueError: a policy of the user fails, or its links are not a graph.
    """
    needed: dict[Callable, Program] = {}

    def begin(program: Program) -> None:
        needed[program.function] = program
        programs.start(program, width)

    # All programs compile at once, the later ones while the first one runs.
    result_shapes(setup, configs, parts, trains, each=begin)
    numbers = partial(_numbers, configs)
    runs = {"seed": seeds, "config": configs}

    def once(name: str, function: Callable, shared: Any, items: Any, static: Any, matters: Any) -> Any:
        options = {"program": needed[function], "width": width, "announce": partial(announce, name)}
        return _once(function, shared, items, static, matters, stages(name), **options)

    found = _given(setup, seeds)
    if found is None:
        # The user's function may read any number.
        unread = GRAPH_NUMBERS | TRAINING_NUMBERS if setup.of_network is None else ()
        matters = (seeds, numbers(unread, False))
        found = once(
            "network", network_of, setup.counts, runs | _given_parts(setup, seeds), setup.of_network, matters
        )
        if setup.of_network is not None:
            networks.check_made(found, seeds, setup.config, setup.supply, setup.counts)
    # The user's code may read any number.
    unread = frozenset() if setup.recipe.reads_settings else TRAINING_NUMBERS - GRAPH_NUMBERS
    matters = (seeds, numbers(unread, False), parts)
    before = {"network": found, "parts": parts}
    graphs, move = once("discovery", graphs_of, None, runs | before, setup.of_graphs, matters)
    graphs = replace(graphs, network=found)
    check_graphs(setup.candidates, seeds, graphs.links)
    if not trains:
        return graphs, None
    # A unit of training is one policy of one run, so that all policies of all runs share one program.
    num_policies = len(setup.candidates)
    move = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), move)
    units = jax.tree.map(lambda leaf: np.repeat(leaf, num_policies, axis=0), runs) | {"move": move}
    matters = (units["seed"], move, _numbers(units["config"], TRAINING_NUMBERS, True))
    learning = once("training", learning_of, setup.points, units, setup.of_learning, matters)
    return graphs, jax.tree.map(lambda leaf: leaf.reshape(-1, num_policies, *leaf.shape[1:]), learning)


def check_seeds(seeds: int | Sequence[int]) -> np.ndarray:
    """Returns the seeds of the runs.

    Args:
        seeds: a count, for the seeds 0, 1, ..., or the seeds themselves.

    Returns:
        [R] int32.

    Raises:
        ValueError: there are no seeds, a seed repeats, or a seed does not fit in 31 bits.
    """
    if is_whole(seeds):
        return np.arange(check_count("seeds", seeds, 1, MOST_RUNS), dtype=np.int32)
    given: Any = seeds
    # Strings and sets also have a length and items, but are not lists of numbers.
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    if not is_list and not np.shape(given):
        raise ValueError(f"seeds must be a count or a list of whole numbers; got {shown(given)}")
    check_count("count of seeds", len(given), 1, MOST_RUNS)
    if isinstance(given, range):
        numbers = np.arange(given.start, given.stop, given.step)
    else:
        numbers = np.asarray(given) if not is_list or all(map(is_whole, given)) else np.empty(0)
    is_right = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
    # Sorting is fast, whereas `np.unique` takes a minute for millions of seeds.
    if not is_right or np.any(np.diff(np.sort(numbers)) == 0) or numbers.min() < 0 or numbers.max() >= 2**31:
        raise ValueError(f"seeds must be different whole numbers in [0, 2**31); got {shown(given)}")
    return numbers.astype(np.int32)


def check_options(width: int | None, **flags: bool) -> int | None:
    """Checks the arguments that control execution.

    Args:
        width: concurrent runs on each device; None: chosen to fit.
        flags: boolean arguments by name.

    Returns:
        The width as a Python number.

    Raises:
        ValueError: an argument has a wrong type, or `width` is under 1.
    """
    for name, value in flags.items():
        check_flag(name, value)
    return None if width is None else check_count("width", width)


def run(
    config: Config | None = None,
    seeds: int | Sequence[int] = 4,
    *,
    data: Dataset | None = None,
    recipe: Recipe | None = None,
    training: bool = True,
    progress: bool = True,
    width: int | None = None,
) -> xarray.Dataset:
    """Simulates a configuration for several seeds: networks, graphs, exchange, federated training of each policy.

    A run depends only on the config, the data, the recipe and its seed. On a CPU, where each run is computed
    separately, the other seeds and the number of devices do not change a bit of it. Each `width` above 1 is another
    program, which XLA may let sum in another order. The last bits of numbers may then differ, and so, rarely, may a
    link or a point that depends on them.

    Args:
        config: the settings; None: the defaults (synthetic RadioML).
        seeds: number of runs (seeds 0, 1, ...) or the seeds themselves.
        data: your data set; None: the one that the config names. Your own data need the settings points_per_device,
            model and learning_rate; data from `d2djax.load` have presets for them.
        recipe: your code: policies, reward, network, model, and optimisers, which need step sizes; None: those of
            the paper, the model that the config names, and SGD.
        training: whether to train; otherwise the runs stop after discovery and load no points.
        progress: whether to show progress on standard error.
        width: concurrent runs on each device, which may change the last bits; None: 1 on a CPU, and as many as fit
            in memory on an accelerator.

    Returns:
        A labelled dataset with dimensions run, policy, round, episode, state, device, class; see
        `d2djax.running.results.label`. `attrs["manifest"]` is JSON: config, versions, devices, wall time.

    Raises:
        ValueError: a setting is missing or out of range, or a class has too few points.
        DataError: the data set cannot be read.
    """
    started = time.perf_counter()
    width = check_options(width, training=training, progress=progress)
    console = errors() if progress else None
    run_seeds = check_seeds(seeds)
    setup = set_up(config, data, recipe, trains=training, runs=len(run_seeds))
    dataset, config = setup.dataset, setup.config
    if console:
        console.print(f"data: {dataset.name}, {dataset.num_points:,} points, {dataset.source}")
    configs = stack_configs([config] * len(run_seeds))
    shown_stages, announce = partial(partial, stage, console), announcer(console)
    parts = stack([setup.parts] * len(run_seeds))
    graphs, learning = compute(
        setup, configs, parts, run_seeds, shown_stages, trains=training, width=width, announce=announce
    )
    about = identify([config], run_seeds, [dataset], setup.recipe, setup.parameters, TAKES_PART, trains=training)
    manifest = results.manifest(about, machine.describe(), time.perf_counter() - started)
    more = setup.sizes.num_parameters, manifest, setup.own_reward
    return results.label(config, setup.candidates, run_seeds, dataset, graphs, learning, *more)
