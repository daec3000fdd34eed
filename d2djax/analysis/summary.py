"""Summarises results: performance and cost of each policy at each point of a sweep, over the seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from d2djax.analysis.statistics import (
    along,
    axes_of,
    classes_held,
    cost_to_end_of_none,
    exponential,
    final_accuracy,
    logarithm,
    mean_accuracy,
    over_seeds,
    paired_differences,
    ratio_to,
    whole,
)
from d2djax.running.results import counted

if TYPE_CHECKING:
    import xarray


def _of_graphs(name: str) -> Callable[[xarray.Dataset], xarray.DataArray]:
    return lambda results: along(counted(results, f"graph_{name}"), "state").mean("state")


def _as_stored(name: str) -> Callable[[xarray.Dataset], xarray.DataArray]:
    return lambda results: counted(results, name)


# Each measure with its variable and the function that computes it, (run, policy).
MEASURES: dict[str, tuple[str, Callable[[xarray.Dataset], xarray.DataArray]]] = {
    "final_accuracy": ("accuracy", final_accuracy),
    "mean_accuracy": ("accuracy", mean_accuracy),
    "classes": ("counts", classes_held),
    "reference_reward": ("graph_reference_reward", _of_graphs("reference_reward")),
    "outage": ("graph_outage", _of_graphs("outage")),
    "points_moved": ("points_moved", _as_stored("points_moved")),
    "exchange": ("exchange_energy", _as_stored("exchange_energy")),
    "messages": ("control_energy", _as_stored("control_energy")),
}


def _limits(name: str, values: xarray.DataArray) -> dict[str, xarray.DataArray]:
    found = over_seeds(values)
    return {name: found["mean"], **{f"{name}_{part}": found[part] for part in ("low", "high", "seeds")}}


def summary(results: xarray.Dataset, *, average: bool = False) -> xarray.Dataset:
    """Summarises the performance of each policy: means over the seeds that count, with 95 % intervals.

    Args:
        results: results of `run` or `sweep`, finished or not, or a selection of them.
        average: whether to take the mean over the points of a sweep within each seed first.

    Returns:
        (axes of the sweep, policy): for each measure in `MEASURES` for which the results have data, `<name>`,
        `<name>_low`, `<name>_high`, and `<name>_seeds`, the number of seeds that count. If `none` was trained, also
        `difference_to_none`, the difference in mean accuracy in the same run, and `above_none`, the number of seeds
        in which it is positive. NaN where no seed counts. `to_dataframe()` converts it to a table.
    """
    import xarray

    results = whole(results)
    axes = axes_of(results["status"]) if average else []
    within = {name: take(results) for name, (source, take) in MEASURES.items() if source in results}
    found = {}
    for name, values in within.items():
        found |= _limits(name, values.mean(axes))
    if "mean_accuracy" in within and "none" in results["policy"].values:
        difference = paired_differences(within["mean_accuracy"]).mean(axes)
        found |= _limits("difference_to_none", difference)
        found["above_none"] = (difference > 0).sum("run")
    return xarray.Dataset(found).sel(policy=results["policy"])


def costs(results: xarray.Dataset, *, average: bool = False) -> xarray.Dataset:
    """Summarises the cost of each policy to reach the final accuracy of `none` in the same run (Section IV-B).

    Args:
        results: see `summary`; they must have the trained policy `none`.
        average: see `summary`.

    Returns:
        (axes of the sweep, policy): means over the runs that count of `steps`, `aggregations`, `uplink` (bits), and
        of the energies `exchange`, `messages`, `uploads` and their sum `energy` (J), where a run that never reaches
        the target counts with its whole training; `runs`, the number of runs that count, and `reached`, how many of
        them reach the target; and `ratio`, the geometric mean of the energy relative to `none`, with `ratio_low`,
        `ratio_high` and `ratio_seeds`.

    Raises:
        ValueError: `none` is not among the policies.
    """
    results = whole(results)
    axes = axes_of(results["status"]) if average else []
    least = cost_to_end_of_none(results)
    reached = least["reached"]
    found = least.drop_vars("reached").mean([*axes, "run"], keep_attrs=True)
    energy = least["energy"]
    if axes:
        # Within each seed, the mean over the points uses logarithms, like the mean over the seeds.
        energy = exponential(logarithm(energy).mean(axes))
    ratio = ratio_to(energy).rename(mean="ratio", low="ratio_low", high="ratio_high", seeds="ratio_seeds")
    found = found.assign(runs=reached.notnull().sum([*axes, "run"]), reached=reached.sum([*axes, "run"]))
    return found.merge(ratio, join="left", compat="no_conflicts")
