"""Whole runs per second of the paper's Fashion-MNIST setting, the share of each part, and start-up times."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray

import d2djax
from benchmarks import starts
from benchmarks.__main__ import main
from benchmarks.device import images
from benchmarks.harness import Contestant, Report, Result, race
from d2djax.config import Config, stack_configs
from d2djax.data import Dataset
from d2djax.discovery import discover
from d2djax.federated import Learning, train
from d2djax.network import Network, make_network
from d2djax.points import Points, assign, split
from d2djax.policies import candidates_of
from d2djax.recipe import Recipe
from d2djax.rng import run_key
from d2djax.running.many_runs import map_runs, share
from d2djax.running.runs import Setup, set_up
from d2djax.simulation import Graphs, Sizes, exchange_and_train, find_graphs, moves, sizes_of
from d2djax.transfer import Holding, transfer

NAME = "end_to_end"
WHOLE, DATA = "d2djax.run, the whole", "data: checked, sorted, standardised"
DISCOVERY, GRAPHS = "network and discovery", "network, all graphs, what they move"
DEALT, TRAINING, BARE = "points dealt and moved", "dealt, moved, trained", "the same, hardly evaluated"
COMPILE_SECONDS = 15.0


@dataclass(frozen=True)
class Scale:
    """How much is timed.

    Attributes:
        setting: changes to the paper's setting of Fashion-MNIST, policies none, uniform and rl.
        images: of the generated data set.
        runs: on each JAX device, which on a CPU is a core.
        repeats: rounds of the race.
        start: changes to the default config for the fresh processes: little work, but the same programs.
        starts: rounds of fresh processes.
        slow: one more start with XLA's last optimisation level.
        flags: XLA flags of the other starts.
    """

    setting: dict[str, Any]
    images: int
    runs: int
    repeats: int
    start: dict[str, Any] = field(default_factory=dict)
    starts: int = 5
    slow: bool = True
    flags: str = ""


# At least two iterations of each loop: XLA unrolls a loop of one iteration and would compile a different program.
SHORT = {"num_steps": 20, "aggregation_interval": 10, "num_episodes": 80}
FULL = Scale({"num_steps": 100, "aggregation_interval": 20}, images=70000, runs=1, repeats=5, start=SHORT)
FEW = {
    "model": "mlp",
    "num_devices": 6,
    "num_episodes": 80,
    "points_per_device": 40,
    "threshold": 4.0,
    "batch_size": 4,
}
TOY = Scale(
    FEW | {"num_steps": 4, "aggregation_interval": 2},
    images=1000,
    runs=1,
    repeats=2,
    start=SHORT | FEW | {"policies": ["none"]},
    starts=1,
    slow=False,
    flags=f"{starts.LEVEL}=0",
)

Item = dict[str, Any]


def _discovery(shared: None, item: Item, static: None) -> tuple[Network, Any, Any]:
    key = run_key(item["seed"])
    network = make_network(key, item["config"])
    found = discover(key, network, item["config"])
    return network, found.links, found.history


def _graphs(shared: None, item: Item, sizes: Sizes) -> Graphs:
    key = run_key(item["seed"])
    config = item["config"]
    return find_graphs(key, make_network(key, config), config, sizes, candidates_of(config, {}))


def _dealt(points: Points, item: Item, static: None) -> tuple[jax.Array, Holding]:
    """The held-out points, and the points that each device holds after the exchange."""
    move, config = item["move"], item["config"]
    test, spare = split(run_key(item["seed"]), points.sizes, config)
    dealt = assign(spare, move.counts, points.sizes, config)
    return test, transfer(dealt, move.counts, move.links, move.received)


def _training(points: Points, item: Item, recipe: Recipe) -> Learning:
    return exchange_and_train(run_key(item["seed"]), item["move"], item["config"], points, recipe)


def _bare(points: Points, item: Item, recipe: Recipe) -> Learning:
    """As `_training`, but evaluated once, at the end, on a single point."""
    test, holding = _dealt(points, item, None)
    rounds = item["config"].num_steps // item["config"].aggregation_interval
    config = replace(item["config"], evaluate_every=rounds)
    return train(run_key(item["seed"]), recipe, points, test[:1], holding, config)


@dataclass(frozen=True)
class Problem:
    """What the contestants share.

    Attributes:
        setup: config, data and recipe.
        data: the images as a user passes them.
        points: the images on every JAX device.
        seeds: [R] int32, the runs.
    """

    setup: Setup
    data: Dataset
    points: Points
    seeds: np.ndarray

    def calls(self) -> dict[str, Any]:
        """Each part as a function without arguments, by the name of its contestant."""
        setup, config = self.setup, self.setup.config
        runs = {"seed": self.seeds, "config": stack_configs([config] * len(self.seeds))}
        sizes, candidates = sizes_of(self.points, setup.recipe), setup.candidates
        graphs = map_runs(_graphs, None, runs, sizes)
        # One unit of training is one policy of one run, as in `d2djax.running.runs`.
        move = jax.vmap(partial(moves, candidates=candidates))(graphs)
        move = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), move)
        units = jax.tree.map(lambda leaf: np.repeat(leaf, len(candidates), axis=0), runs) | {"move": move}
        return {
            WHOLE: partial(d2djax.run, config, self.seeds.tolist(), data=self.data, progress=False),
            DATA: lambda: set_up(config, self.data, None).points,
            DISCOVERY: partial(map_runs, _discovery, None, runs),
            GRAPHS: partial(map_runs, _graphs, None, runs, sizes),
            DEALT: partial(map_runs, _dealt, self.points, units),
            TRAINING: partial(map_runs, _training, self.points, units, setup.recipe),
            BARE: partial(map_runs, _bare, self.points, units, setup.recipe),
        }


def make_problem(scale: Scale) -> Problem:
    """The paper's setting with generated images."""
    data = images("fashion_mnist", scale.images)
    setup = set_up(Config(dataset="fashion_mnist", **scale.setting), data, None)
    seeds = np.arange(scale.runs * len(jax.local_devices()), dtype=np.int32)
    return Problem(setup, data, share(setup.points), seeds)


def check(calls: dict[str, Any], policies: tuple[str, ...]) -> str:
    """Reports that the parts reproduce the results of the whole; raises RuntimeError if they do not."""
    whole: xarray.Dataset = calls[WHOLE]()
    graphs, learning, bare = calls[GRAPHS](), calls[TRAINING](), calls[BARE]()
    links = whole["links"].transpose("run", "policy", "state", "device").values
    accuracy = whole["accuracy"].transpose("run", "policy", "round").values
    pairs = {
        "graphs": (graphs.links, links),
        "discovery": (calls[DISCOVERY]()[1], links[:, policies.index("rl")]),
        "training": (learning.accuracy, accuracy.reshape(learning.accuracy.shape)),
        "training without evaluation": (bare.train_loss[:, 1], learning.train_loss[:, 1:].mean(axis=1)),
    }
    for name, (mine, wanted) in pairs.items():
        if not np.allclose(mine, wanted, rtol=1e-5, atol=1e-6):
            raise RuntimeError(f"the {name} timed alone is not that of d2djax.run: {mine}, not {wanted}")
    return f"{NAME}: checked, same links, accuracies and training losses alone as in the whole: {', '.join(pairs)}"


def shares(raced: list[Result]) -> list[dict[str, float]]:
    """Share of each part in the whole, one dictionary per round."""
    found = []
    for seconds in zip(*(one.seconds for one in raced), strict=True):
        by = dict(zip((one.contestant for one in raced), seconds, strict=True))
        parts = {
            "discovery": by[DISCOVERY],
            "exchange": by[GRAPHS] - by[DISCOVERY] + by[DEALT],
            "training": by[BARE] - by[DEALT],
            "evaluation": by[TRAINING] - by[BARE],
            "data": by[DATA],
        }
        parts["the rest"] = by[WHOLE] - sum(parts.values())
        found.append({name: part / by[WHOLE] for name, part in parts.items()})
    return found


def note_of(rounds: list[dict[str, float]]) -> str:
    """The shares in words: median, minimum and maximum of the rounds."""
    words = []
    for name in rounds[0]:
        percents = [100 * one[name] for one in rounds]
        words.append(f"{name} {statistics.median(percents):.1f} % ({min(percents):.1f} to {max(percents):.1f})")
    return f"{NAME}: {', '.join(words)}"


def run(toy: bool = False) -> Report:
    """The end-to-end benchmark: rates and shares, then starts of fresh processes."""
    scale = TOY if toy else FULL
    problem = make_problem(scale)
    config, calls = problem.setup.config, problem.calls()
    note = check(calls, config.policies)
    runs = len(problem.seeds)
    contestants = [Contestant(name, call, runs) for name, call in calls.items()]
    case = {"runs": runs, "N": config.num_devices, "episodes": config.num_episodes, "steps": config.num_steps}
    raced = race(NAME, case, contestants, unit="runs", repeats=scale.repeats)
    report = starts.report(NAME, scale.start, scale.starts, scale.slow, COMPILE_SECONDS, scale.flags)
    report.results[:0] = raced
    report.notes[:0] = [note, note_of(shares(raced))]
    return report


if __name__ == "__main__":
    main(["--only", NAME, *sys.argv[1:]])
