"""Rates of one accelerator: discovery, training and whole runs, with its memory bandwidth and matrix rate."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import d2djax
from benchmarks.__main__ import main
from benchmarks.harness import Contestant, Report, Result, compiled, race
from d2djax.config import Config, as_numbers
from d2djax.data import Dataset
from d2djax.discovery import discover
from d2djax.federated import train
from d2djax.models import count_parameters, make_model
from d2djax.network import make_network
from d2djax.points import arrange
from d2djax.recipe import Recipe
from d2djax.rng import run_key
from d2djax.running.many_runs import compile_to_fit, map_runs
from d2djax.running.programs import program_of
from d2djax.transfer import Holding
from d2djax.validation import validate

NAME = "device"


@dataclass(frozen=True)
class Sizes:
    """How much is timed.

    Attributes:
        discovery_runs: networks on which discovery runs at the same time.
        episodes: of each of them.
        mlp_runs: runs that train the fully connected network at the same time.
        cnn_runs: runs that train the image network.
        devices: of each run that trains.
        steps: local steps of each of them.
        images: images of the generated data set.
        whole_runs: runs from the network to the last accuracy.
        whole_steps: local steps of each of them.
        whole_episodes: episodes of each of them.
        vector: numbers that are copied to measure the bandwidth.
        matrix: side of the matrices that are multiplied to measure the matrix rate.
        repeats: rounds.
    """

    discovery_runs: tuple[int, ...]
    episodes: int
    mlp_runs: tuple[int, ...]
    cnn_runs: tuple[int, ...]
    devices: int
    steps: int
    images: int
    whole_runs: int
    whole_steps: int
    whole_episodes: int
    vector: int
    matrix: int
    repeats: int


FULL = Sizes(
    discovery_runs=(1, 64, 1024, 16384, 65536),
    episodes=200,
    mlp_runs=(1, 16, 64, 256),
    cnn_runs=(1, 16, 64),
    devices=25,
    steps=20,
    images=60000,
    whole_runs=1000,
    whole_steps=100,
    whole_episodes=4000,
    vector=2**28,
    matrix=8192,
    repeats=5,
)
TOY = Sizes(
    discovery_runs=(1, 4),
    episodes=40,
    mlp_runs=(1, 2),
    cnn_runs=(1,),
    devices=2,
    steps=2,
    images=6000,
    whole_runs=2,
    whole_steps=10,
    whole_episodes=80,
    vector=2**16,
    matrix=64,
    repeats=2,
)


def limits(sizes: Sizes) -> list[Result]:
    """Memory bandwidth (GB/s, one read and one write of each number) and matrix rate (GFLOP/s)."""
    vector = jnp.zeros(sizes.vector, jnp.float32)
    matrix = jnp.ones((sizes.matrix, sizes.matrix), jnp.float32)
    contestants = [
        compiled("copy, GB", lambda x: x + 1.0, (vector,), 8e-9 * sizes.vector),
        # Multiply as training does: at the default precision, which on recent GPUs is below float32.
        compiled("matrix product, GFLOP", lambda x: x @ x, (matrix,), 2e-9 * sizes.matrix**3),
    ]
    return race(NAME, {"what": "limits"}, contestants, unit="", repeats=sizes.repeats)


def _discovery(seed: jax.Array, config: Config) -> Any:
    key = run_key(seed)
    found = discover(key, make_network(key, config), config)
    return found.links, found.history


def discoveries(sizes: Sizes) -> list[Result]:
    """Episodes per second for several numbers of networks at the same time."""
    base = Config(dataset="fashion_mnist", num_episodes=sizes.episodes, record_every=sizes.episodes // 2)
    config, found = validate(base), []
    for runs in sizes.discovery_runs:
        many = jax.jit(jax.vmap(_discovery, (0, None)))
        one = compiled("discover", many, (np.arange(runs), as_numbers(config)), runs * sizes.episodes)
        found += race(NAME, {"runs": runs}, [one], unit="episodes", repeats=sizes.repeats)
    return found


def images(name: str, number: int) -> Dataset:
    """Random images with the shape of a data set's."""
    shape = (28, 28, 1) if name == "fashion_mnist" else (32, 32, 3)
    rng = np.random.default_rng(0)
    y = np.arange(number, dtype=np.int32) % 10
    x = rng.integers(0, 256, (number, *shape), np.uint8)
    return Dataset(x, y, tuple("0123456789"), name, "random images")


def _training(shared: Any, seed: jax.Array, recipe: Recipe) -> Any:
    points, test, holding, config = shared
    return train(run_key(seed), recipe, points, test, holding, config)


def trainings(dataset: str, all_runs: Sequence[int], sizes: Sizes) -> tuple[list[Result], float]:
    """Client steps per second for several numbers of runs at the same time, and the GFLOP of a client step."""
    steps = {"num_steps": sizes.steps, "aggregation_interval": sizes.steps // 2, "evaluate_every": 2}
    config = validate(Config(dataset=dataset, num_devices=sizes.devices, **steps))
    config = replace(config, points_per_device=min(config.points_per_device, sizes.images // 50))
    points, recipe = arrange(images(dataset, sizes.images), config), Recipe(make_model(config))
    per_device = np.full(config.num_devices, config.points_per_device, np.int32)
    held = np.random.default_rng(0).permutation(sizes.images)[: per_device.sum()].astype(np.int32)
    holding = Holding(held, np.cumsum(per_device) - per_device, per_device)
    shared = (points, np.arange(64, dtype=np.int32), holding, as_numbers(config))
    found = []
    for runs in all_runs:
        seeds = np.arange(runs)
        width = compile_to_fit(program_of(_training, shared, seeds, recipe), runs).width
        call = partial(map_runs, _training, shared, seeds, recipe, width=width)
        steps = runs * config.num_devices * config.num_steps
        one = Contestant(f"train {config.model}", call, steps, compiles=True, case={"at once": width})
        found += race(NAME, {"runs": runs}, [one], unit="client steps", repeats=sizes.repeats)
    return found, 1e-9 * flops(config.model, count_parameters(recipe.model, points.x.shape[1:])) * config.batch_size


def flops(model: str, num_parameters: int) -> float:
    """Operations to train on one point: three products per weight, two in the first layer, whose input is fixed."""
    if model == "mlp":
        return 6 * num_parameters - 2 * 784 * 200
    # A weight of a convolution is used at every position: 32 x 32 in the first layer, 16 x 16 in the second.
    first, second = 27 * 32, 288 * 64
    return 4 * 1024 * first + 6 * (256 * second + num_parameters - first - second)


def whole_runs(sizes: Sizes) -> list[Result]:
    """Runs per second from the network to the last accuracy: three policies each, including compilation."""
    config = Config(
        dataset="fashion_mnist",
        num_steps=sizes.whole_steps,
        aggregation_interval=10,
        evaluate_every=sizes.whole_steps // 10,
        num_episodes=sizes.whole_episodes,
        points_per_device=min(1200, sizes.images // 50),
    )
    data = images("fashion_mnist", sizes.images)
    start = time.perf_counter()
    d2djax.run(config, sizes.whole_runs, data=data, progress=False)
    seconds = time.perf_counter() - start
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    case = {"runs": sizes.whole_runs, "episodes": config.num_episodes, "steps": config.num_steps}
    return [Result(NAME, case, "d2djax.run", "runs", sizes.whole_runs, [seconds], peak_device_bytes=peak)]


def run(toy: bool = False) -> Report:
    """The accelerator benchmark; on a machine without an accelerator it measures the CPU."""
    sizes = TOY if toy else FULL
    limit, discovery = limits(sizes), discoveries(sizes)
    mlp, mlp_gflop = trainings("fashion_mnist", sizes.mlp_runs, sizes)
    cnn, cnn_gflop = trainings("cifar10", sizes.cnn_runs, sizes)
    bandwidth, rate = (one.rate for one in limit)
    # The least memory that an episode accesses, N = 25, L = 10: the values of a state, requests, shares, buffers.
    least = 4e-9 * (25 * 25 + 4 * 25 * 10 + 6 * 25)
    notes = [f"{NAME}: {', '.join(str(kind) for kind in jax.devices())}, {jax.default_backend()}"]
    best = max(discovery, key=lambda one: one.rate)
    notes.append(f"{NAME}: discovery moves at least {best.rate * least / bandwidth:.1%} of what a copy does")
    for name, found, gflop in (("MLP", mlp, mlp_gflop), ("CNN", cnn, cnn_gflop)):
        best = max(found, key=lambda one: one.rate)
        notes.append(f"{NAME}: training the {name} multiplies at {best.rate * gflop / rate:.1%} of the matrix rate")
    return Report([*limit, *discovery, *mlp, *cnn, *whole_runs(sizes)], [], notes)


if __name__ == "__main__":
    main(["--gpu", *sys.argv[1:]])
