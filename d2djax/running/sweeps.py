"""Runs many settings and seeds in chunks that share work, and writes each finished chunk to a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console

from d2djax.checks import is_whole, shown
from d2djax.config import Config
from d2djax.data import Dataset
from d2djax.recipe import Recipe
from d2djax.running import repeat, results
from d2djax.running.axes import Point
from d2djax.running.chunks import Chunks, prepare
from d2djax.running.plan import SweepPlan, lay_out_store, manifest_of, plan_sweep
from d2djax.running.progress import Stage, Tally, announcer, errors, live, plural
from d2djax.running.runs import Setup, check_options
from d2djax.storage import files, layout, locks

if TYPE_CHECKING:
    import xarray


def _check_shard(shard: tuple[int, int] | None) -> tuple[int, int]:
    """Checks a shard; returns its number, from 0, and the number of shards."""
    if shard is None:
        return 0, 1
    if not isinstance(shard, Sequence) or len(shard) != 2 or not all(map(is_whole, shard)):
        raise ValueError(f"shard must be two whole numbers, such as (1, 4); got {shown(shard)}")
    number, count = map(int, shard)
    if not 1 <= number <= count < 2**31:
        raise ValueError(f"shard must be a number from 1 to the count of shards; got {number}/{count}")
    return number - 1, count


def sweep(
    config: Config | None = None,
    axes: Mapping[str, Sequence[Any]] | Sequence[Point] = {},
    seeds: int | Sequence[int] = 4,
    out: str | Path = "sweep",
    *,
    data: Dataset | None = None,
    recipe: Recipe | None = None,
    training: bool = True,
    shard: tuple[int, int] | None = None,
    progress: bool = True,
    width: int | None = None,
    file_text: str | None = None,
) -> xarray.Dataset:
    """Computes every point of a sweep for every seed, and stores the results in `<out>/results.zarr`.

    Numbers of the config are traced: all their values share one compiled program. Stages that an axis does not
    affect run once and are reused. An interrupted sweep loses only its current chunk; the same call resumes it. The
    results are bitwise those of an uninterrupted sweep (on an accelerator, for equal `width`; see `d2djax.run`).

    Args:
        config: the settings that all points share; None: the defaults.
        axes: `{"gamma": [0, 0.5, 1], ...}` is a grid; a list of points, such as `random_points(...)`, is used as it
            is. Static settings are allowed; each combination of their values compiles its own program.
        seeds: number of runs of each point (seeds 0, 1, ...) or the seeds themselves.
        out: folder of the results.
        data: your data set; None: the one that the config names.
        recipe: your code: model, optimisers, policies, reward, network; None: the model that the config names,
            and SGD.
        training: whether to train; otherwise the runs stop after discovery.
        shard: `(i, n)`: this process computes the i-th (from 1) of n parts of the chunks. The processes need to
            share only the folder.
        progress: whether to show progress on standard error.
        width: concurrent runs on each device, which may change the last bits; None: chosen as in `d2djax.run`.
        file_text: content of `<out>/config.toml`, with which `d2djax sweep` repeats this call; None: written from
            the arguments.

    Returns:
        The stored results, with the dimensions of the axes first, then those of `run`. `done` is 1 where a run is
        finished; missing values are NaN, or -1 for whole numbers.

    Raises:
        ValueError: a setting is out of range, an axis is wrong, or `out` holds other results.
        DataError: the data set cannot be read.
        OSError: the results cannot be written; finished chunks are kept.
    """
    part, width = _check_shard(shard), check_options(width, training=training, progress=progress)
    folder = files.check_folder(out)
    console = errors() if progress else None
    plan = plan_sweep(config, axes, seeds, data, recipe, training)
    wanted = lay_out_store(plan, manifest_of(plan), part[1])
    path = folder / files.STORE
    fill = partial(_fill, plan, width, console if jax.process_index() == 0 else None)
    text = file_text or _file_text(plan, config or Config(), data, recipe)
    if jax.process_index() == 0:
        with locks.working(path.with_name(f"{path.name}.lock"), errors().print) as held:
            fill(partial(_begin, path, wanted, part, held, text))
    else:
        fill(None)
    if jax.process_count() > 1:
        # The other processes wait until the first one has written the last chunk.
        multihost_utils.sync_global_devices(str(path))
    return _asked(results.read(path), wanted)


def _begin(path: Path, wanted: layout.Layout, part: tuple[int, int], held: locks.Locks, text: str) -> Chunks:
    """Prepares the store and writes the file that repeats the sweep, before work that may be interrupted."""
    chunks = prepare(path, wanted, part, held)
    # A request for finished results changes nothing.
    if chunks.left:
        repeat.leave(path.parent, text if chunks.is_all else f"{text}{repeat.MORE_IS_HERE}")
    return chunks


def _file_text(plan: SweepPlan, config: Config, data: Dataset | None, recipe: Recipe | None) -> str:
    """Returns the file of a sweep called from Python: axes or points, seeds, and the other settings."""
    axes = {name: values for name, (_, values) in plan.axes.coordinates.items()}
    options: dict[str, Any] = {"axis": [repeat.axis_text(name, values) for name, values in axes.items()]}
    if "point" in plan.axes.dims:
        options = {"points": [dict(zip(axes, point, strict=True)) for point in zip(*axes.values(), strict=True)]}
    options |= repeat.seed_options(plan.seeds) | {"training": plan.trains}
    return repeat.text_of("sweep", options, config, list(axes), data=data, recipe=recipe)


def _agree(decide: Callable[[], np.ndarray], size: int) -> np.ndarray:
    """Broadcasts what the first process decides; if it fails, all processes stop."""
    if jax.process_count() == 1:
        return decide()
    decided, error = np.full(size, -1, np.int32), None
    if jax.process_index() == 0:
        try:
            decided = decide().astype(np.int32)
        except (ValueError, OSError) as caught:
            error = caught
    decided = np.asarray(multihost_utils.broadcast_one_to_all(decided))
    if error is not None:
        raise error
    if (decided < 0).any():
        raise ValueError("the first process stopped; its message gives the reason")
    return decided


def stages_of(tally: Tally, setup: Setup, runs: int) -> Callable[[str], Stage]:
    """Returns a function that makes the stages of a chunk, which the tally counts and shows.

    Args:
        tally: counts the work.
        setup: setup of the runs.
        runs: number of runs of the chunk with this setup.
    """
    config = setup.config
    units = {"training": ("steps", config.num_steps * config.num_devices)}
    if any(one.learns for one in setup.candidates.values()):
        units["discovery"] = ("episodes", config.num_episodes)
    return tally.stages(runs, units)


def _fill(
    plan: SweepPlan, width: int | None, console: Console | None, prepare: Callable[[], Chunks] | None
) -> None:
    """Computes and writes the missing runs; of several processes, only the first one holds the chunks."""
    chunks: Chunks | None = None

    def opened() -> np.ndarray:
        nonlocal chunks
        chunks = prepare() if prepare else None
        return chunks.sizes() if chunks else np.empty(0)

    def taken() -> np.ndarray:
        return chunks.take() if chunks else np.empty(0)

    asked, num_chunks, total, num_left, most = _agree(opened, 5)
    if console:
        chunked = f"{plural(int(asked), 'run')} in {plural(int(num_chunks), 'chunk')}"
        console.print(f"{chunked}; left to do here: {total:,} in {num_left:,}")
    announce = announcer(console)
    with live(console) as show:
        tally = Tally(show, int(total), int(asked), "training" if plan.trains else "discovery")
        # Numbers start from 1; 0 is padding.
        while (row := _agree(taken, int(most))).any():
            points, runs = np.divmod(row[row > 0] - 1, len(plan.seeds))
            if chunks:
                tally.total = tally.done + len(runs) + sum(chunks.left.values())
            found = plan.compute(points, runs, partial(stages_of, tally), width, announce)
            if chunks:
                own = {dim: values for dim, (values, _) in plan.coordinates.items()}
                chunks.write({name: values for name, (_, values, _) in found.items()}, own)
            tally.finish(len(runs), int(results.not_finite(found["status"][1]).any(axis=1).sum()))


def _asked(found: xarray.Dataset, wanted: layout.Layout) -> xarray.Dataset:
    """Selects the requested part of a store, in the requested order."""
    there = {str(name): (str(one.dims[0]), one.values, {}) for name, one in found.coords.items()}
    place = {
        dim: layout.places(layout.labels(wanted.coordinates, dim), layout.labels(there, dim))
        for dim in [*wanted.dims, *wanted.within()]
    }
    place = {dim: one for dim, one in place.items() if not np.array_equal(one, np.arange(found.sizes[dim]))}
    found = found.isel(place) if place else found
    values = {
        name: (dim, one, attributes)
        for name, (dim, one, attributes) in wanted.coordinates.items()
        if dim in wanted.dims
    }
    found = found.assign_coords(values).transpose(*wanted.dims, ...)
    return found.assign_attrs(manifest=layout.selected_manifest(found.attrs["manifest"], wanted))
