"""Plans a sweep: its points, the programs that compute them, and the layout of the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from d2djax.config import Config, stack_configs
from d2djax.data import SOURCES, Dataset
from d2djax.parts import as_arrays
from d2djax.recipe import Recipe
from d2djax.running import machine, results
from d2djax.running.axes import Axes, Point, by_program, lay_out, values_of
from d2djax.running.identity import digest, identify
from d2djax.running.runs import TAKES_PART, Setup, check_seeds, compute, fill_in, result_shapes, set_up, stack
from d2djax.storage import layout
from d2djax.supply import all_options


@dataclass(frozen=True)
class SweepPlan:
    """All validated runs of a sweep, and the programs that compute them.

    Attributes:
        axes: the points.
        seeds: [R] int32.
        setups: one for each program.
        program: [P] int, index of each point's setup.
        trains: whether the runs train; otherwise they stop after discovery.
    """

    axes: Axes
    seeds: np.ndarray
    setups: tuple[Setup, ...]
    program: np.ndarray
    trains: bool

    def __len__(self) -> int:
        """Returns the total number of runs."""
        return len(self.axes.configs) * len(self.seeds)

    @cached_property
    def coordinates(self) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
        """Values and attributes of every dimension within a run: the union over all points."""
        found: dict[str, tuple[np.ndarray, dict[str, str]]] = {}
        for setup in self.setups:
            for name, (values, attributes) in results.coordinates(
                setup.config, setup.candidates, setup.dataset
            ).items():
                is_text = values.dtype == object
                before = found.get(name, (values, attributes))[0]
                found[name] = (values if is_text else np.union1d(before, values), attributes)
        return found

    def compute(
        self,
        points: np.ndarray,
        runs: np.ndarray,
        stages: Callable[..., Any],
        width: int | None,
        announce: Callable[[str, Any], None],
    ) -> dict[str, results.Variable]:
        """Computes some runs.

        Args:
            points: [U] int, point of each run.
            runs: [U] int, index of each run's seed.
            stages: returns the stages of a chunk for a setup and its number of runs.
            width: concurrent runs on each device; None: chosen to fit.
            announce: called with the name of a stage and its compiled program, before its first runs.

        Returns:
            (dimensions, values, attributes) of each variable; the first axis of the values has length U. Entries
            that a point does not have, such as rounds between its own, are NaN or -1.
        """
        found: dict[str, results.Variable] = {}
        for number, setup in enumerate(self.setups):
            rows = np.flatnonzero(self.program[points] == number)
            if rows.size == 0:
                continue
            configs = stack_configs([self.axes.configs[point] for point in points[rows]])
            parts = stack([as_arrays(self.axes.parts[point]) for point in points[rows]])
            shown = stages(setup, rows.size)
            graphs, learning = compute(
                setup,
                configs,
                parts,
                self.seeds[runs[rows]],
                shown,
                trains=self.trains,
                width=width,
                announce=announce,
            )
            # `variables` reads only this traced number; the bits of all uploads may exceed 32 bits.
            config = replace(setup.config, num_stragglers=np.asarray(configs.num_stragglers, np.int64))
            more = setup.sizes.num_parameters, setup.own_reward
            part = results.variables(config, setup.candidates, graphs, learning, *more)
            self._put(found, part, rows, points.size, setup)
        return found

    def _put(
        self, found: dict, part: dict[str, results.Variable], rows: np.ndarray, size: int, setup: Setup
    ) -> None:
        """Writes the variables of one program's runs to their rows and coordinates in the chunk."""
        own = results.coordinates(setup.config, setup.candidates, setup.dataset)
        for name, (dims, values, attributes) in part.items():
            if name not in found:
                shape = (size, *(len(self.coordinates[dim][0]) for dim in dims[1:]))
                found[name] = (dims, np.full(shape, layout.fill_value(values.dtype), values.dtype), attributes)
            places = [
                np.arange(len(values_))
                if values_.dtype == object
                else np.searchsorted(self.coordinates[dim][0], values_)
                for dim, values_ in ((dim, own[dim][0]) for dim in dims[1:])
            ]
            found[name][1][np.ix_(rows, *places)] = values


def plan_sweep(
    config: Config | None,
    axes: Mapping[str, Sequence[Any]] | Sequence[Point],
    seeds: int | Sequence[int],
    data: Dataset | None = None,
    recipe: Recipe | None = None,
    trains: bool = True,
    like: Sequence[Setup] = (),
) -> SweepPlan:
    """Validates a sweep and loads its data.

    Args:
        config: see `sweep`, as all arguments but the last.
        axes: see `sweep`.
        seeds: see `sweep`.
        data: see `sweep`.
        recipe: see `sweep`.
        trains: whether the runs train.
        like: setups whose data are reused if they are the same.

    Returns:
        The plan; nothing is compiled yet.

    Raises:
        ValueError: see `sweep`.
        DataError: the data set cannot be read.
    """
    run_seeds = check_seeds(seeds)
    config = fill_in(config, data, recipe, trains=trains, axes=values_of(axes))
    laid = lay_out(config, axes, {} if recipe is None else recipe.numbered)
    groups = by_program(laid.configs)
    setups: list[Setup] = []
    for numbers in groups:
        # Programs share equal data, which is large and is read or generated only once.
        at = laid.configs[numbers[0]]
        setup = set_up(at, data, recipe, like=(*like, *setups), trains=trains, axes=values_of(axes))
        setups.append(setup)
    program = np.zeros(len(laid.configs), int)
    for number, numbers in enumerate(groups):
        program[numbers] = number
    return SweepPlan(laid, run_seeds, tuple(setups), program, trains)


def manifest_of(plan: SweepPlan) -> dict[str, Any]:
    """Returns the manifest of a sweep: the identity of its results, with one digest for each data set.

    Args:
        plan: the sweep.

    Returns:
        See `identity.identify`; `data.digest` has one entry for each data set that is read.
    """
    found = identify(
        plan.axes.configs,
        plan.seeds,
        list({id(setup.dataset): setup.dataset for setup in plan.setups}.values()),
        plan.setups[0].recipe,
        plan.setups[0].parameters,
        TAKES_PART,
        trains=plan.trains,
        axes={name: values for name, (_, values) in plan.axes.coordinates.items()},
        dimensions=list(plan.axes.dims),
    )
    if "digest" in found["data"]:
        # One digest for each data set, so that further points can add their data.
        read = {_what_is_read(setup): setup.dataset for setup in plan.setups}
        found["data"]["digest"] = {name: digest([data]) for name, data in read.items()}
    return found


def _what_is_read(setup: Setup) -> str:
    """Names what a point reads or generates of a built-in data set, which tells the points' data apart."""
    source = SOURCES.get(setup.dataset.name)
    return "all" if source is None else source.told(all_options(source, setup.config, setup.asked))


def lay_out_store(plan: SweepPlan, manifest: dict[str, Any], shards: int = 1) -> layout.Layout:
    """Lays out the store of a sweep, without computing anything.

    Args:
        plan: the sweep.
        manifest: result of `manifest_of`, stored with the results.
        shards: number of processes that divide the chunks.
    """
    dims = plan.axes.dims | {"run": len(plan.seeds)}
    found: dict[str, Any] = {}
    for number, setup in enumerate(plan.setups):
        first = plan.axes.configs[int(np.flatnonzero(plan.program == number)[0])]
        parts = stack([setup.parts])
        graphs, learning = result_shapes(setup, stack_configs([first]), parts, plan.trains)
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (graphs, learning))
        more = setup.sizes.num_parameters, setup.own_reward
        found |= results.variables(setup.config, setup.candidates, zeros[0], zeros[1], *more)
    coordinates = {name: (dim, column(values), {}) for name, (dim, values) in plan.axes.coordinates.items()}
    coordinates["run"] = ("run", plan.seeds, {"long_name": "seed"})
    # Runs without training have no rounds.
    used = {dim for dims_, *_ in found.values() for dim in dims_}
    coordinates |= {name: (name, *rest) for name, rest in plan.coordinates.items() if name in used}
    return layout.Layout(
        dims=dims,
        chunk=layout.chunk_lengths(dims, _most_runs(plan, shards)),
        coordinates=coordinates,
        variables={
            name: ((*plan.axes.dims, *dimensions), values.dtype, attributes)
            for name, (dimensions, values, attributes) in found.items()
        },
        attributes={
            "title": f"d2djax sweep on {plan.setups[0].dataset.name}",
            "manifest": json.dumps(manifest, sort_keys=True),
            "machine": json.dumps(machine.describe(), sort_keys=True),
        },
    )


def _most_runs(plan: SweepPlan, shards: int) -> int:
    """Returns the runs of a chunk: few if runs are slow, since an interruption loses a chunk; 4 chunks a shard."""
    is_slow = plan.trains and jax.default_backend() == "cpu"
    return max(1, min(32 if is_slow else 256, len(plan) // (4 * shards)))


def column(values: Sequence[Any]) -> np.ndarray:
    """Converts values of a setting to a coordinate: strings of variable length, and NaN for None.

    Args:
        values: numbers, strings or None.
    """
    is_text = any(isinstance(value, str) for value in values)
    return np.array([np.nan if value is None else value for value in values], object if is_text else None)
