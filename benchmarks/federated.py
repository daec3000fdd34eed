"""SGD steps of clients per second in federated averaging: d2djax, NumPy, PyTorch, Flower, matrix products alone."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.__main__ import main
from benchmarks.federated_numpy import (
    Baseline,
    Model,
    Problem,
    Setting,
    draw_minibatches,
    first_model,
    gflop,
    make_problem,
    products,
)
from benchmarks.federated_numpy import train as train_numpy
from benchmarks.federated_package import SEED, as_model, one_run, package_start, share
from benchmarks.harness import Contestant, Report, Result, Target, compiled, missing, race, ratio
from d2djax.federated import Learning
from d2djax.running.machine import num_cores
from d2djax.running.many_runs import map_runs
from d2djax.running.programs import make_mesh

NAME = "federated"
ONE, CORES, MANY = "d2djax, 1 run", "d2djax, a run per core", "d2djax, {} runs"
NUMPY, NUMPY_ONE, NUMPY_CORES = "NumPy", "NumPy, 1 BLAS thread", "NumPy, a run per core"
LOOP, VMAP, FLOWER = "PyTorch, loop over clients", "PyTorch, torch.func.vmap", "Flower, PyTorch clients"
PRODUCTS = "its products alone, NumPy"


@dataclass(frozen=True)
class Sizes:
    """How much is timed; aggregations are chosen so that one call takes about a second on two idle cores.

    Attributes:
        setting: the problem, with an evaluation at each aggregation.
        runs: runs of the contestant with many.
        rounds: aggregations of each run of d2djax in a call.
        others: aggregations of the baselines in a call.
        repeats: rounds of the race.
    """

    setting: Setting
    runs: int
    rounds: int
    others: int
    repeats: int


FULL = Sizes(Setting(), runs=16, rounds=5, others=2, repeats=5)
TOY = Sizes(
    Setting(clients=2, points=20, held_out=40, minibatch=4, interval=2), runs=4, rounds=2, others=1, repeats=2
)


@cache
def blas() -> Any:
    """The control of NumPy's BLAS threads; none if threadpoolctl is missing."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return None
    return importlib.import_module("threadpoolctl").ThreadpoolController().select(user_api="blas")


def on_cores(function: Callable[[int], Any], runs: int) -> list[Any]:
    """`function(0)`, ..., `function(runs - 1)`, each in a thread with single-threaded BLAS."""
    with blas().limit(limits=1), ThreadPoolExecutor(runs) as pool:
        return list(pool.map(function, range(runs)))


def torch_baselines() -> dict[str, Baseline | None]:
    """The PyTorch variants by name; none if PyTorch is missing."""
    if importlib.util.find_spec("torch") is None:
        return {LOOP: None, VMAP: None}
    importlib.import_module("torch").set_num_threads(num_cores())
    module = importlib.import_module("benchmarks.federated_torch")
    return {LOOP: module.train_loop, VMAP: module.train_vmap}


def baselines() -> dict[str, Baseline | None]:
    """The baselines that compute the same model from the same minibatches, by name; none if the tool is missing."""
    return {NUMPY: train_numpy, **torch_baselines()}


def check_baselines(problem: Problem, num_rounds: int, wanted: Learning) -> str:
    """Trains every baseline from the initial model and on the minibatches of d2djax; reports that all agree.

    Args:
        problem: the images, some of them held out.
        num_rounds: aggregations.
        wanted: the results of d2djax for seed `SEED`.

    Raises:
        RuntimeError: one does different work from d2djax.
    """
    start, numbers = package_start(share(problem, num_rounds), np.arange(num_rounds * problem.setting.interval))
    # The others do not evaluate the initial model.
    curves = np.column_stack([wanted.accuracy, wanted.loss, wanted.class_accuracy])[1:]
    checked = {name: function for name, function in baselines().items() if function is not None}
    for name, function in checked.items():
        found = function(problem, as_model(start), np.asarray(numbers, np.int64)).curves
        # Rounding may change the class of an image whose two best classes tie; losses are smooth.
        close = np.allclose(found[:, 1], curves[:, 1], rtol=1e-4)
        if not close or not np.allclose(found, curves, atol=0.02, equal_nan=True):
            raise RuntimeError(f"{name} does not train as d2djax does: loss {found[:, 1]}, not {curves[:, 1]}")
    return f"{NAME}: checked over {num_rounds} aggregations, same losses as d2djax: {'; '.join(checked)}"


def package_contestants(problem: Problem, sizes: Sizes) -> list[Contestant]:
    """d2djax with one run, with one on each JAX device, and with many."""
    shared = share(problem, sizes.rounds)
    work = sizes.rounds * problem.setting.interval * problem.setting.clients
    found = [compiled(ONE, partial(one_run, static=None), (shared, np.int32(SEED)), work)]
    # Placed on the devices once, like the arrays of `d2djax.running.runs`, so that no copy of all images is timed.
    placed = jax.device_put(shared, NamedSharding(make_mesh(), PartitionSpec()))
    devices = len(jax.local_devices())
    for name, runs in ((CORES, devices), (MANY.format(sizes.runs), sizes.runs)):
        run = lambda runs=runs: map_runs(one_run, placed, np.arange(runs, dtype=np.int32))  # noqa: E731
        found.append(Contestant(name, run, runs * work, compiles=runs == devices))
    return found


def numpy_contestants(problem: Problem, sizes: Sizes) -> list[Contestant]:
    """NumPy in three variants of using the cores, and the products alone on all cores."""
    steps = sizes.others * problem.setting.interval
    model, work, cores = first_model(np.random.default_rng(0)), steps * problem.setting.clients, num_cores()

    def train_once(seed: int = SEED) -> Model:
        return train_numpy(problem, model, draw_minibatches(problem, steps, np.random.default_rng(seed))).model

    found = [Contestant(NUMPY, train_once, work)]
    if blas() is None:
        return found + [missing(name, "threadpoolctl") for name in (NUMPY_ONE, NUMPY_CORES, PRODUCTS)]
    multiply = lambda seed: products(problem.setting, sizes.rounds)  # noqa: E731
    products_work = cores * sizes.rounds * problem.setting.interval * problem.setting.clients
    return [
        *found,
        Contestant(NUMPY_ONE, lambda: on_cores(train_once, 1), work),
        Contestant(NUMPY_CORES, lambda: on_cores(train_once, cores), cores * work),
        Contestant(PRODUCTS, lambda: on_cores(multiply, cores), products_work),
    ]


def torch_contestants(problem: Problem, sizes: Sizes) -> list[Contestant]:
    """PyTorch in a loop over the clients, and with all clients at once."""
    steps, found = sizes.others * problem.setting.interval, []
    model, rng = first_model(np.random.default_rng(0)), np.random.default_rng(SEED)
    for name, function in torch_baselines().items():
        if function is None:
            found.append(missing(name, "torch"))
            continue
        run = lambda function=function: function(problem, model, draw_minibatches(problem, steps, rng)).model  # noqa: E731
        found.append(Contestant(name, run, steps * problem.setting.clients))
    return found


def start_flower(problem: Problem) -> Any:
    """A simulation that waits for requests for rounds, or a text that names what is missing."""
    absent = [name for name in ("torch", "flwr", "ray") if importlib.util.find_spec(name) is None]
    if absent:
        return ", ".join(absent)
    module = importlib.import_module("benchmarks.federated_flower")
    simulation = module.Simulation(problem, first_model(np.random.default_rng(0)), num_cores())
    try:
        simulation.train(1, evaluates=False)
    except RuntimeError as error:
        # Ray gives up if a machine is too busy or too small for its servers; the other contestants are still timed.
        return f"its simulation does not start ({str(error).splitlines()[0][:120]})"
    return simulation


def flower_contestant(simulation: Any, problem: Problem, sizes: Sizes) -> Contestant:
    """Flower's simulation, one client process per core."""
    if isinstance(simulation, str):
        return missing(FLOWER, simulation)
    run = lambda: simulation.train(sizes.others, len(problem.test) > 0)  # noqa: E731
    return Contestant(FLOWER, run, sizes.others * problem.setting.interval * problem.setting.clients)


def targets_of(raced: list[Result], sizes: Sizes) -> list[Target]:
    """The target ratios, for d2djax on all cores against each baseline on all cores."""
    by_name, targets = {one.contestant: one for one in raced}, []
    numpy = max(
        (by_name[name] for name in (NUMPY, NUMPY_ONE, NUMPY_CORES)), key=lambda one: (one.rate > 0, one.rate)
    )
    promised = [
        (CORES, LOOP, 4.0),
        (CORES, FLOWER, 8.0),
        (CORES, VMAP, 1.2),
        (CORES, numpy.contestant, 1.2),
        (CORES, PRODUCTS, 0.5),
        (MANY.format(sizes.runs), CORES, 0.9),
    ]
    for name, base, wanted in promised:
        measured, spread = ratio(by_name[name], by_name[base])
        what = f"evaluation {raced[0].case['evaluation']}: ({name}) / ({base})"
        targets.append(Target(NAME, what, wanted, measured, spread=spread))
    return targets


def notes_of(without: list[Result], with_: list[Result], setting: Setting) -> list[str]:
    """The cost of evaluation for each contestant, and the rate of the products."""
    rate = next(one.rate for one in without if one.contestant == PRODUCTS)
    found = [
        f"{NAME}: a step is {gflop(setting):.3g} GFLOP; NumPy multiplies at {rate * gflop(setting):.3g} GFLOP/s"
    ]
    for plain, evaluated in zip(without, with_, strict=True):
        kept, _ = ratio(evaluated, plain)
        if kept is not None:
            found.append(
                f"{NAME}: with evaluation, {plain.contestant} keeps {100 * kept:.0f} % of its steps per second"
            )
    return found


def run(toy: bool = False) -> Report:
    """The federated benchmark, with and without evaluation in one race."""
    sizes = TOY if toy else FULL
    setting = sizes.setting
    problem = make_problem(setting)
    bare = replace(problem, setting=replace(setting, held_out=0), test=problem.test[:0])
    simulation, contestants = start_flower(problem), []
    for one, label in ((bare, "none"), (problem, f"{setting.held_out:,} images")):
        made = [*package_contestants(one, sizes), *numpy_contestants(one, sizes), *torch_contestants(one, sizes)]
        made.append(flower_contestant(simulation, one, sizes))
        contestants += [replace(each, case={"evaluation": label}) for each in made]
    case = {"clients": setting.clients, "minibatch": setting.minibatch, "tau_a": setting.interval}
    try:
        # The last case includes evaluation; its first contestant runs the seed that is checked.
        ours = next(one for one in reversed(contestants) if one.name == ONE)
        note = check_baselines(problem, sizes.rounds, ours.run())
        raced = race(NAME, case, contestants, unit="steps", repeats=sizes.repeats)
    finally:
        if not isinstance(simulation, str):
            simulation.stop()
    half = len(raced) // 2
    targets = targets_of(raced[:half], sizes) + targets_of(raced[half:], sizes)
    return Report(raced, targets, [note, *notes_of(raced[:half], raced[half:], setting)])


if __name__ == "__main__":
    main(["--only", NAME, *sys.argv[1:]])
