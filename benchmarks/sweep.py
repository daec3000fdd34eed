"""The overhead of a sweep: the store, recompiled programs, and memory relative to the estimate."""

from __future__ import annotations

import ctypes
import gc
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

import d2djax
from benchmarks.__main__ import main
from benchmarks.device import images
from benchmarks.discovery import draw_networks, one_run, setting
from benchmarks.harness import Contestant, Report, Target, peak_process_bytes, race, ratio
from d2djax.config import Config, as_numbers, stack_configs
from d2djax.data import Dataset
from d2djax.running import programs, runs
from d2djax.running.many_runs import compile_to_fit, map_runs
from d2djax.running.plan import SweepPlan, plan_sweep
from d2djax.running.programs import program_of
from d2djax.running.progress import Tally
from d2djax.running.sweeps import stages_of

NAME = "sweep"
STORED, UNSTORED, ALONE = "d2djax.sweep, into a store", "its chunks, not stored", "its discoveries alone, map_runs"
GAMMAS, ALPHAS = (0.0, 0.25, 0.5, 1.0), (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Sizes:
    """How much is timed.

    Attributes:
        seeds: of each of the 16 points.
        config: changes to the paper's setting of Fashion-MNIST.
        images: of the generated data set.
        devices: N of the runs whose memory is measured.
        runs: how many of them.
        repeats: rounds.
    """

    seeds: int
    config: dict[str, Any]
    images: int
    devices: int
    runs: int
    repeats: int


FULL = Sizes(32, {"num_episodes": 1000}, images=70000, devices=800, runs=6, repeats=5)
TOY = Sizes(
    2,
    {"num_episodes": 40, "num_devices": 6, "points_per_device": 40},
    images=6000,
    devices=20,
    runs=2,
    repeats=2,
)


def _swept(config: Config, data: Dataset, seeds: int) -> None:
    axes = {"gamma": GAMMAS, "alpha_outage": ALPHAS}
    with tempfile.TemporaryDirectory() as folder:
        d2djax.sweep(config, axes, seeds, folder, data=data, training=False, progress=False)


def _computed(design: SweepPlan) -> Any:
    """All runs in the order of the sweep's chunks, with the points of a seed together."""
    seeds = len(design.seeds)
    points, places = np.divmod(np.arange(len(design)), seeds)
    order = np.argsort(places, kind="stable")
    tally = Tally(lambda tally, share: None, len(design), len(design), "discovery")
    found = []
    for part in np.array_split(order, max(1, len(design) // 256)):
        stages = partial(stages_of, tally)
        found.append(design.compute(points[part], places[part], stages, None, lambda name, plan: None))
    return found


def _alone(design: SweepPlan) -> Contestant:
    """One call with every discovery of the sweep, for given networks."""
    setup, (points, places) = design.setups[0], np.divmod(np.arange(len(design)), len(design.seeds))
    configs = stack_configs([design.axes.configs[point] for point in points])
    items = {"seed": design.seeds[places], "config": configs}
    items["network"] = map_runs(runs.network_of, None, items)
    items["parts"] = {}
    return Contestant(
        ALONE, lambda: map_runs(runs.graphs_of, None, items, setup.of_graphs), len(design), compiles=True
    )


def contestants(sizes: Sizes) -> tuple[list[Contestant], Config, Dataset]:
    """The sweep, its parts, and what it is of."""
    data = images("fashion_mnist", sizes.images)
    config = Config(dataset="fashion_mnist", **sizes.config)
    design = plan_sweep(config, {"gamma": GAMMAS, "alpha_outage": ALPHAS}, sizes.seeds, data, None, False)
    return (
        [
            Contestant(STORED, lambda: _swept(config, data, sizes.seeds), len(design), compiles=True),
            Contestant(UNSTORED, lambda: _computed(design), len(design)),
            _alone(design),
        ],
        config,
        data,
    )


def programs_for_other_numbers(config: Config, data: Dataset) -> int:
    """Programs that a sweep over other numbers, more seeds and another axis compiles after the first sweep."""
    before = programs.num_compiled()
    with tempfile.TemporaryDirectory() as folder:
        axes = {"temperature": [0.5, 2.0], "gamma": [0.3]}
        d2djax.sweep(config, axes, 3, folder, data=data, training=False, progress=False)
    return programs.num_compiled() - before


def memory(sizes: Sizes) -> float | None:
    """Measured memory excluding results, divided by the chunker's estimate."""
    config = setting(num_devices=sizes.devices, num_episodes=40, record_every=40, points_per_device=200)
    items, numbers = draw_networks(config, sizes.runs), as_numbers(config)
    plan = compile_to_fit(program_of(one_run, numbers, items, None), sizes.runs)
    if not _give_memory_back():
        return None
    before = peak_process_bytes(reset=True)
    results = map_runs(one_run, numbers, items)
    peak = peak_process_bytes()
    if before is None or peak is None:
        return None
    own = sum(leaf.nbytes for leaf in jax.tree.leaves(results))
    return (peak - before - own) / (plan.bytes * len(jax.local_devices()))


def _give_memory_back() -> bool:
    """Returns free memory to the system, so that the next peak belongs to the next call; false if it cannot."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return jax.default_backend() == "cpu"


def run(toy: bool = False) -> Report:
    """The sweep benchmark."""
    sizes = TOY if toy else FULL
    raced, config, data = contestants(sizes)
    case = {"seeds": sizes.seeds, "points": len(GAMMAS) * len(ALPHAS)} | sizes.config
    found = race(NAME, case, raced, unit="runs", repeats=sizes.repeats)
    stored, spread = ratio(found[0], found[1])
    anew, used = programs_for_other_numbers(config, data), memory(sizes)
    targets = [
        Target(NAME, f"({STORED}) / ({UNSTORED})", 0.9, stored, spread=spread),
        Target(NAME, "programs compiled for other numbers, axes and seeds", 0, anew, at_most=True),
        Target(NAME, f"memory of a call / the estimate, N {sizes.devices}, at most", 1.2, used, at_most=True),
        Target(NAME, f"memory of a call / the estimate, N {sizes.devices}, at least", 0.8, used),
    ]
    return Report(found, targets)


if __name__ == "__main__":
    main(["--only", NAME, *sys.argv[1:]])
