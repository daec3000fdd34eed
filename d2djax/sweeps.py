"""Many settings and seeds: chunks of runs that share what they can, written to a store as they are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.console import Console

from d2djax import results, store
from d2djax.axes import Point
from d2djax.config import Config
from d2djax.data import Dataset
from d2djax.design import Design, lay_out_store, make_design, manifest_of
from d2djax.federated import Recipe
from d2djax.progress import Stage, Tally, announcer, errors, live
from d2djax.runs import Setup

if TYPE_CHECKING:
    import xarray


def _check_shard(shard: tuple[int, int] | None) -> tuple[int, int]:
    """A shard counted from 0."""
    number, count = shard or (1, 1)
    if not 1 <= number <= count:
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
) -> xarray.Dataset:
    """Computes every point of a sweep for every seed, and keeps the results in `<out>/results.zarr`.

    Numbers of the config are traced: all their values share one compiled program. What does not depend on an axis
    is not computed again. Stopped at any moment, a sweep loses the chunk it was at; the same call goes on from
    there, and the results are those of a sweep that was never stopped, to the last bit.

    Args:
        config: what all points have in common; none: the defaults.
        axes: `{"gamma": [0, 0.5, 1], ...}` is a grid; a list of such points, or `random_points(...)`, is taken as
            it is. Values of static settings are allowed, each combination of which compiles its own program.
        seeds: number of runs of each point (seeds 0, 1, ...) or the seeds themselves.
        out: folder of the results.
        data: a data set of your own; none: the one that the config names.
        recipe: network and optimisers of your own; none: the network that the config names and SGD.
        training: false: the runs end with their graphs.
        shard: `(i, n)`: this process computes the i-th (from 1) of n parts of the chunks; processes that share the
            folder need nothing else of each other.
        progress: shows progress on standard error.
        width: runs at the same time on each device; none: chosen to fit.

    Returns:
        The results as they are on disk, dimensions of the axes first, then as in `run`. `done` is 1 where a run is
        finished; what is missing is NaN, or -1 for whole numbers.

    Raises:
        ValueError: a setting is out of its range, an axis is none, or `out` has other results; one line says which.
        DataError: the data set cannot be read.
        OSError: the results cannot be written; what was written stays.
    """
    part = _check_shard(shard)
    console = errors() if progress else None
    design = make_design(config or Config(), axes, seeds, data, recipe, training)
    path, manifest = Path(out) / "results.zarr", manifest_of(design)
    layout = lay_out_store(design, manifest, part[1])
    size = len(layout.dims)
    decided = _agree(lambda: _open(layout, path, manifest, alone=part[1] == 1), size + len(design))
    layout = replace(layout, chunk=tuple(int(length) for length in decided[:size]))
    _fill(design, layout, path, decided[size:] > 0, part, console if jax.process_index() == 0 else None, width)
    if jax.process_count() > 1:
        # The others wait until the first has written the last chunk.
        multihost_utils.sync_global_devices(str(path))
    return results.read(path)


def _open(layout: store.Layout, path: Path, manifest: dict[str, Any], alone: bool) -> np.ndarray:
    """Lays the store out or checks the one that is there: lengths of a chunk, then for each run 1 if it is done."""
    if not path.exists():
        store.create(layout, path)
    store.check_same(path, manifest)
    if alone:
        store.clean(path)
    # The chunks as they were laid out, also where the number of shards is another one now.
    chunk, done = store.progress_of(path)
    return np.concatenate([chunk, done.ravel()])


def _agree(decide: Callable[[], np.ndarray], size: int) -> np.ndarray:
    """What the first of several processes decides, in all of them; where it fails, none goes on."""
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
        raise ValueError("the first process stopped; its message says why")
    return decided


def stages_of(tally: Tally, setup: Setup, runs: int) -> Callable[[str], Stage]:
    """Stages of a chunk of `runs` runs, for a tally to count and show."""
    config = setup.config
    units = {"training": ("steps", config.num_steps * config.num_devices)}
    if "rl" in config.policies:
        units["discovery"] = ("episodes", config.num_episodes)
    return tally.stages(runs, units)


def _fill(
    design: Design,
    layout: store.Layout,
    path: Path,
    done: np.ndarray,
    part: tuple[int, int],
    console: Console | None,
    width: int | None,
) -> None:
    """Computes and writes the chunks that are left to this shard; of several processes the first one writes."""
    number = np.arange(len(design)).reshape(tuple(layout.dims.values()))
    regions = layout.regions()
    left = [region for region in regions[part[0] :: part[1]] if not done[number[region]].all()]
    total = sum(number[region].size for region in left)
    if console:
        console.print(f"{number.size:,} runs in {len(regions)} chunks; left to do here: {total:,} in {len(left)}")
    announce = announcer(console)
    with live(console) as show:
        tally = Tally(show, total, "training" if design.trains else "discovery")
        for region in left:
            chunk = number[region]
            points, runs = np.divmod(chunk.ravel(), len(design.seeds))
            stages = partial(stages_of, tally)
            found = design.compute(points, runs, stages, width, announce)
            if jax.process_index() == 0:
                values = {
                    name: values.reshape(*chunk.shape, *values.shape[1:]) for name, (_, values, _) in found.items()
                }
                store.write(path, region, values)
            tally.finish(chunk.size, int((found["status"][1] > 0).any(axis=1).sum()))
