"""Episodes of graph discovery per second: d2djax, plain loops, vectorised NumPy and C; and by every policy."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchmarks import discovery_c, discovery_loops, discovery_numpy
from benchmarks.discovery_problem import Found, Problem, check, package_draws, problem_of
from benchmarks.harness import Contestant, Report, Result, Target, compiled, missing, race, ratio
from d2djax import Config, discover, make_network, validate
from d2djax.config import as_numbers
from d2djax.discovery import learn
from d2djax.network import Network
from d2djax.policies import BUILT_IN
from d2djax.reward import PAPER
from d2djax.rng import run_key
from d2djax.running.many_runs import map_runs

NAME = "discovery"
LOOPS, NUMPY, C, FAST_C = "NumPy, loop over devices", "NumPy, vectorised", "C, one core", "C, one core, -ffast-math"
PACKAGE = "d2djax"


@dataclass(frozen=True)
class Sizes:
    """How much is timed; episodes are chosen so that one call takes about a second or less.

    Attributes:
        batches: networks at once, and episodes of each.
        many: the smallest batch to which the targets for many networks apply.
        loops: episodes in a call of each baseline, here and in the next two.
        numpy: see `loops`.
        c: see `loops`.
        devices: values of N.
        classes: values of L.
        states: values of S.
        episodes: in the sweeps at N = 25; at other N, as many as keep the work similar.
        repeats: rounds.
        policies: built-in policies that learn, `rl` first; none: all of them.
    """

    batches: dict[int, int]
    many: int
    loops: int
    numpy: int
    c: int
    devices: tuple[int, ...]
    classes: tuple[int, ...]
    states: tuple[int, ...]
    episodes: int
    repeats: int
    policies: tuple[str, ...] = ()


FULL = Sizes(
    batches={1: 4000, 16: 1600, 128: 1600, 1024: 200, 4096: 80},
    many=128,
    loops=80,
    numpy=2000,
    c=20000,
    devices=(10, 25, 50, 100, 200, 400, 1000),
    classes=(10, 40),
    states=(10, 100),
    episodes=4000,
    repeats=5,
)
TOY = Sizes(
    batches={1: 40},
    many=1,
    loops=40,
    numpy=40,
    c=400,
    devices=(10, 25),
    classes=(),
    states=(),
    episodes=40,
    repeats=2,
    policies=("rl", "ucb"),
)


def setting(**changes: Any) -> Config:
    """The paper's setting, N = 25, L = 10, S = 10, with some fields changed."""
    return validate(Config(**{"num_devices": 25, "num_classes": 10, "num_states": 10} | changes))


def one_run(config: Config, item: tuple[jax.Array, Network], static: None) -> Any:
    """One discovery, as `map_runs` calls it."""
    seed, network = item
    return discover(run_key(seed), network, config)


@jax.jit
def _networks(seeds: jax.Array, config: Config) -> Network:
    return jax.vmap(lambda seed: make_network(run_key(seed), config))(seeds)


def draw_networks(config: Config, batch: int) -> tuple[np.ndarray, Network]:
    """Seeds 0 .. batch - 1, and the network of each."""
    # A program depends on the number of episodes; networks do not and need no recompilation when it changes.
    config = dataclasses.replace(config, num_episodes=Config.num_episodes)
    seeds = np.arange(batch)
    return seeds, jax.tree.map(np.asarray, _networks(seeds, config))


def draw_network(config: Config) -> Network:
    """The network of seed 0."""
    return jax.tree.map(lambda leaf: leaf[0], draw_networks(config, 1)[1])


def package_contestants(config: Config, batch: int) -> list[Contestant]:
    """d2djax for `batch` networks: vmapped in one program, and distributed over all devices like runs."""
    items, numbers, work = draw_networks(config, batch), as_numbers(config), batch * config.num_episodes
    together = jax.vmap(lambda item, config: one_run(config, item, None), (0, None))
    found = [compiled(f"{PACKAGE}, vmap", together, (items, numbers), work)]
    widths = {"map_runs": None}
    # The default computes one run at a time on each CPU; this is the best of the other widths.
    if batch > len(jax.local_devices()):
        widths["map_runs, 8 at a time"] = min(8, -(-batch // len(jax.local_devices())))
    for name, width in widths.items():
        run = lambda width=width: map_runs(one_run, numbers, items, width=width)  # noqa: E731
        found.append(Contestant(f"{PACKAGE}, {name}", run, work, compiles=True))
    return found


Baseline = Callable[[Problem, np.ndarray], Found]


def baselines() -> dict[str, Baseline | None]:
    """The baselines by name; none if the tool is missing."""
    has_compiler = not discovery_c.missing()
    fast = lambda problem, uniform: discovery_c.discover(problem, uniform, discovery_c.FAST_FLAGS)  # noqa: E731
    return {
        LOOPS: discovery_loops.discover,
        NUMPY: discovery_numpy.discover,
        C: discovery_c.discover if has_compiler else None,
        FAST_C: fast if has_compiler else None,
    }


def baseline(name: str, network: Network, config: Config, num_episodes: int) -> Contestant:
    """A baseline for one network; its timing includes the random draws with NumPy."""
    function = baselines()[name]
    if function is None:
        return missing(name, discovery_c.missing())
    problem, rng = problem_of(network, config), np.random.default_rng(0)
    shape = (num_episodes, 2 + config.num_devices)
    return Contestant(name, lambda: function(problem, rng.random(shape, np.float32)), num_episodes)


def check_baselines(config: Config, num_episodes: int) -> str:
    """Runs every baseline with the random numbers of d2djax; reports that all agree.

    Raises:
        RuntimeError: one does different work from d2djax.
    """
    network = draw_network(config)
    uniform = np.asarray(package_draws(run_key(0), num_episodes, config.num_devices))
    checked = {name: function for name, function in baselines().items() if function is not None}
    for name, function in checked.items():
        check(name, function, network, config, uniform)
    return f"{NAME}: checked over {num_episodes} episodes, same links and rewards as d2djax: {'; '.join(checked)}"


def by_batch(sizes: Sizes) -> tuple[list[Result], list[Target]]:
    """All contestants against each other, for each number of networks."""
    results, targets = [], []
    for batch, num_episodes in sizes.batches.items():
        config = setting(num_episodes=num_episodes)
        network = draw_network(config)
        others = {LOOPS: sizes.loops, NUMPY: sizes.numpy, C: sizes.c, FAST_C: sizes.c}
        contestants = package_contestants(config, batch)
        contestants += [baseline(name, network, config, episodes) for name, episodes in others.items()]
        case = {"networks": batch, "N": 25, "L": 10, "S": 10}
        raced = race(NAME, case, contestants, unit="episodes", repeats=sizes.repeats)
        results += raced
        targets += targets_of(batch, raced, sizes.many)
    return results, targets


def targets_of(batch: int, raced: list[Result], many: int) -> list[Target]:
    """The target ratios of one batch, for the fastest d2djax variant."""
    package = max((one for one in raced if one.contestant.startswith(PACKAGE)), key=lambda one: one.rate)
    promised = []
    if batch == 1:
        promised += [(LOOPS, 80.0, 1.0)]
    if batch >= many:
        promised += [(LOOPS, 300.0, 1.0), (NUMPY, 16.0, 1.0), (FAST_C, 0.25, 2.0)]
    by_name = {one.contestant: one for one in raced}
    targets = []
    for name, wanted, cores in promised:
        measured, spread = ratio(package, by_name[name])
        if measured is not None and spread is not None:
            measured, spread = measured / cores, (spread[0] / cores, spread[1] / cores)
        what = f"{batch} networks: ({package.contestant}) / ({'2 x ' if cores > 1 else ''}{name})"
        targets.append(Target(NAME, what, wanted, measured, spread=spread))
    return targets


def by_policy(sizes: Sizes) -> tuple[list[Result], list[Target]]:
    """The policies that learn, for one network, and the rate of each as a share of that of `rl`."""
    config = setting(num_episodes=sizes.episodes)
    arguments = (run_key(0), draw_network(config), as_numbers(config))
    names = sizes.policies or tuple(name for name, one in BUILT_IN.items() if one.learns)

    def contestant(name: str) -> Contestant:
        rule = BUILT_IN[name].rule
        train = lambda key, network, config: learn(rule(config, 10, PAPER), key, network, config)  # noqa: E731
        return compiled(name, train, arguments, config.num_episodes)

    case = {"networks": 1, "N": 25, "policies": len(names)}
    raced = race(NAME, case, [contestant(name) for name in names], unit="episodes", repeats=sizes.repeats)
    targets = []
    for one in raced[1:]:
        measured, spread = ratio(one, raced[0])
        targets.append(Target(NAME, f"1 network: {one.contestant} / {names[0]}", 0.6, measured, spread=spread))
    return raced, targets


def by_size(sizes: Sizes, symbol: str, name: str, values: tuple[int, ...]) -> list[Result]:
    """d2djax and C for one network at several sizes, all alternating, so that growth is measured in one run."""
    contestants = []
    for value in values:
        devices = value if symbol == "N" else 25
        num_episodes = 40 * max(1, round(sizes.episodes * (25 / devices) ** 2 / 40))
        config = setting(**{name: value, "num_episodes": num_episodes})
        network = draw_network(config)
        arguments = (run_key(0), network, as_numbers(config))
        pair = [
            compiled(PACKAGE, discover, arguments, num_episodes),
            baseline(FAST_C, network, config, num_episodes),
        ]
        contestants += [dataclasses.replace(one, case={symbol: value}) for one in pair]
    case = {"networks": 1, "N": 25, "L": 10, "S": 10}
    return race(NAME, case, contestants, unit="episodes", repeats=sizes.repeats)


def growth(results: list[Result], symbol: str) -> tuple[float, tuple[float, float], float]:
    """Exponents with which time and memory grow between the two largest sizes: (time, spread, memory)."""
    small, large = (
        one for one in results if one.contestant == PACKAGE and one.case[symbol] in _largest(results, symbol)
    )
    steps = math.log(large.case[symbol] / small.case[symbol])
    exponents = [math.log(fast / slow) / steps for fast, slow in zip(small.rates, large.rates, strict=True)]
    memory = math.log((large.program_bytes or 1) / (small.program_bytes or 1)) / steps
    # Alignment and the like move the exponent of memory in its third decimal.
    return statistics.median(exponents), (min(exponents), max(exponents)), round(memory, 2)


def _largest(results: list[Result], symbol: str) -> list[int]:
    """The two largest sizes with a target for growth: up to 400, beyond which states leave the cache."""
    return sorted({one.case[symbol] for one in results if one.case[symbol] <= 400})[-2:]


def run(toy: bool = False) -> Report:
    """All cases of the discovery benchmark."""
    sizes = TOY if toy else FULL
    report = Report(notes=[check_baselines(setting(), 40 if toy else 200)])
    report.results, report.targets = by_batch(sizes)
    results, targets = by_policy(sizes)
    report.results, report.targets = report.results + results, report.targets + targets
    swept = {
        "N": ("num_devices", sizes.devices),
        "L": ("num_classes", sizes.classes),
        "S": ("num_states", sizes.states),
    }
    for symbol, (name, values) in swept.items():
        if not values:
            continue
        results = by_size(sizes, symbol, name, values)
        report.results += results
        time, spread, memory = growth(results, symbol)
        between = " to ".join(map(str, _largest(results, symbol)))
        if symbol == "N":
            what = f"time of an episode grows as N^x, N {between}"
            report.targets.append(Target(NAME, what, 2.0, time, at_most=True, spread=spread))
        if symbol in "NS":
            what = f"memory of the program grows as {symbol}^x, {symbol} {between}"
            report.targets.append(Target(NAME, what, 2.0 if symbol == "N" else 1.0, memory, at_most=True))
    return report
