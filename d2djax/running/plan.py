"""What a sweep consists of: its points, the programs that compute them, and where their results go."""

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
    """All runs of a sweep, checked, and the programs that compute them.

    Attributes:
        axes: its points.
        seeds: [R] int32.
        setups: one for each program.
        program: [P] int, the program of each point.
        trains: the runs train; otherwise they end with their graphs.
    """

    axes: Axes
    seeds: np.ndarray
    setups: tuple[Setup, ...]
    program: np.ndarray
    trains: bool

    def __len__(self) -> int:
        """Runs in all."""
        return len(self.axes.configs) * len(self.seeds)

    @cached_property
    def coordinates(self) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
        """Values and attributes of every dimension within a run: all that occur at any point."""
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
        """Variables of some runs: (dimensions, values, attributes) by name, the first dimension over the runs.

        What a point does not have, such as rounds between its own, is NaN or -1.

        Args:
            points: [U] int, point of each run.
            runs: [U] int, place of each run's seed.
            stages: gives the stages of a chunk, from the setup and the number of its runs.
            width: runs at the same time on each device; none: chosen to fit.
            announce: called with the name of a stage and its plan, before its first runs.
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
            # The one traced number that is read here; the bits of all uploads may pass what 32 bits hold.
            config = replace(setup.config, num_stragglers=np.asarray(configs.num_stragglers, np.int64))
            more = setup.sizes.num_parameters, setup.own_reward
            part = results.variables(config, setup.candidates, graphs, learning, *more)
            self._put(found, part, rows, points.size, setup)
        return found

    def _put(
        self, found: dict, part: dict[str, results.Variable], rows: np.ndarray, size: int, setup: Setup
    ) -> None:
        """Puts variables of one program's runs where they belong among all of a chunk."""
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
    """Checks all of a sweep and gets its data, if no setup in `like` has it; all else as of `sweep`."""
    run_seeds = check_seeds(seeds)
    config = fill_in(config, data, recipe, trains=trains, axes=values_of(axes))
    laid = lay_out(config, axes, {} if recipe is None else recipe.numbered)
    groups = by_program(laid.configs)
    setups: list[Setup] = []
    for numbers in groups:
        # Programs share the data wherever they read the same: it is large, and made or read only once.
        at = laid.configs[numbers[0]]
        setup = set_up(at, data, recipe, like=(*like, *setups), trains=trains, axes=values_of(axes))
        setups.append(setup)
    program = np.zeros(len(laid.configs), int)
    for number, numbers in enumerate(groups):
        program[numbers] = number
    return SweepPlan(laid, run_seeds, tuple(setups), program, trains)


def manifest_of(plan: SweepPlan) -> dict[str, Any]:
    """What the results are of, see `identity`; two sweeps with equal manifests have equal results."""
    found = identify(
        plan.axes.configs,
        plan.seeds,
        list({id(setup.dataset): setup.dataset for setup in plan.setups}.values()),
        plan.setups[0].recipe,
        TAKES_PART,
        trains=plan.trains,
        axes={name: values for name, (_, values) in plan.axes.coordinates.items()},
        dimensions=list(plan.axes.dims),
    )
    if "digest" in found["data"]:
        # Each data set for itself, so that the data of further points can join them.
        read = {_what_is_read(setup): setup.dataset for setup in plan.setups}
        found["data"]["digest"] = {name: digest([data]) for name, data in read.items()}
    return found


def _what_is_read(setup: Setup) -> str:
    """What tells the data sets of the points of a sweep apart: what is read or made of a built-in one."""
    source = SOURCES.get(setup.dataset.name)
    return "all" if source is None else source.told(all_options(source, setup.config, setup.asked))


def lay_out_store(plan: SweepPlan, manifest: dict[str, Any], shards: int = 1) -> layout.Layout:
    """Where the results of a sweep go; nothing is computed for it.

    Args:
        plan: the sweep.
        manifest: see `manifest_of`; it is kept with the results.
        shards: processes that divide the chunks among them.
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
    coordinates = {name: (dim, _values(values), {}) for name, (dim, values) in plan.axes.coordinates.items()}
    coordinates["run"] = ("run", plan.seeds, {"long_name": "seed"})
    # Runs that do not train have no rounds.
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
    """Runs of a chunk: what a stop may lose, so few where each takes long; and enough chunks for all shards."""
    is_slow = plan.trains and jax.default_backend() == "cpu"
    return max(1, min(32 if is_slow else 256, len(plan) // (4 * shards)))


def _values(values: list[Any]) -> np.ndarray:
    is_text = any(isinstance(value, str) for value in values)
    return np.array([np.nan if value is None else value for value in values], object if is_text else None)
