"""Statistics: means over seeds with confidence intervals, paired differences between policies, costs to a target.

Functions take results of a run, of a sweep, or a selection; axes of a sweep stay dimensions. Only numbers that
count are used (see `results.counted`); others are NaN, and each mean comes with its number of seeds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from d2djax.energy import total_energy
from d2djax.federated import SCHEMES
from d2djax.running.results import counted, dimensions_of, last_number

if TYPE_CHECKING:
    import xarray

    Curves = TypeVar("Curves", xarray.DataArray, xarray.Dataset)


# Dimensions of a variable that are not axes of a sweep.
WITHIN = ("run", "policy", "round", "episode", "state", "device", "class", "axis")


def axes_of(results: xarray.Dataset | xarray.DataArray) -> list[str]:
    """Returns the names of a sweep's dimensions, in order; empty for a run.

    Args:
        results: results of `run` or `sweep`, or a selection of them.
    """
    return [str(dim) for dim in results.dims if dim not in WITHIN]


def whole(results: xarray.Dataset) -> xarray.Dataset:
    """Results with all dimensions within a run, also where one place along some of them was selected.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        The same numbers, in which a place that was selected is a dimension with one entry.

    Raises:
        ValueError: they are no results, there is no run or no policy in them, or a dimension is gone, as in means,
            so that nobody knows which place or how many the numbers are of.
    """
    if "status" not in results:
        raise ValueError("results must be those of run or sweep; they lack status")
    expanded = results
    for dim in WITHIN:
        if dim in results.dims:
            continue
        names = [name for name in results.data_vars if dim in dimensions_of(str(name))]
        if names:
            found = {name: along(expanded[name], dim) for name in names}
            expanded = expanded.drop_vars(dim).assign(found)
    for dim in ("run", "policy"):
        if not expanded.sizes[dim]:
            raise ValueError(f"results must have at least one {dim}; these have none")
    # Where xarray fills gaps, numbers of devices and states are no whole numbers any more.
    numbers = [name for name in ("links", "cluster", "exchange_state") if name in expanded]
    real = [name for name in numbers if expanded[name].dtype.kind == "f"]
    expanded = expanded.assign({name: expanded[name].fillna(-1).astype(np.int32) for name in real})
    return (
        expanded if expanded is results else expanded.transpose(*axes_of(expanded), *WITHIN, missing_dims="ignore")
    )


def check_all(results: xarray.Dataset, *dims: str) -> None:
    """Checks that devices or states are all there, as links name devices, and exchanges states, by their number.

    Args:
        results: see `whole`.
        dims: `device` or `state`.

    Raises:
        ValueError: some were selected.
    """
    for dim in dims:
        names, size = results["links" if dim == "device" else "exchange_state"].values, results.sizes[dim]
        if results[dim].values.tolist() != list(range(size)) or (names >= size).any():
            raise ValueError(
                f"results must have every {dim}, in order, as graphs are shown; these have a selection"
            )


def over_points(values: xarray.DataArray | xarray.Dataset) -> str:
    """Describes over how many points of which axes of a sweep a mean is taken.

    Args:
        values: values with any dimensions, of which those of a sweep count.

    Returns:
        Text such as "means over 4 points (gamma)"; empty for a single point.
    """
    axes = axes_of(values)
    points = int(np.prod([values.sizes[axis] for axis in axes]))
    if points <= 1:
        return ""
    # Random points, and their settings, have the single dimension `point`.
    names = [axis for axis in axes if axis != "point" and values.sizes[axis] > 1]
    names += [str(name) for name, one in values.coords.items() if one.dims == ("point",) and name != "point"]
    return f"means over {points:,} points" + (f" ({', '.join(names)})" if names else "")


def interval(samples: np.ndarray, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the mean over seeds and the limits of Student's confidence interval.

    Args:
        samples: [R, ...] float, one row per seed; the caller leaves out rows with NaN.
        level: confidence level, in (0, 1).

    Returns:
        Mean, lower and upper limit, each [...]; with a single seed the limits are NaN.
    """
    samples = np.asarray(samples, np.float64)
    count, mean = samples.shape[0], samples.mean(axis=0)
    half = _half_width(samples.std(axis=0, ddof=int(count > 1)), np.full(mean.shape, count), level)
    return mean, mean - half, mean + half


def _half_width(std: np.ndarray, seeds: np.ndarray, level: float) -> np.ndarray:
    """Returns half the width of Student's interval, [...], from the standard deviation and the number of seeds."""
    if np.max(seeds, initial=0) < 2:
        # One seed has no interval, and SciPy is not imported for it.
        return np.full(np.shape(std), np.nan)
    # `scipy.stats` also has this quantile, but its import takes a second.
    from scipy.special import stdtrit

    half = std * stdtrit(np.maximum(seeds - 1, 1), 0.5 + level / 2) / np.sqrt(np.maximum(seeds, 1))
    return np.where(seeds > 1, half, np.nan)


# Names, without `graph_` or `discovery_`, of shares, which lie in [0, 1].
SHARES = ("accuracy", "class_accuracy", "diverse_share", "outage")


def bounds_of(name: str) -> tuple[float, float]:
    """Returns the smallest and the largest possible value of a variable.

    Args:
        name: name of a variable, such as `graph_outage`.

    Returns:
        (0, 1) for shares, (0, infinity) for amounts, and (-infinity, infinity) for rewards.
    """
    short = name.removeprefix("graph_").removeprefix("discovery_").split(",")[0]
    if short in SHARES:
        return 0.0, 1.0
    return (-np.inf, np.inf) if "reward" in short else (0.0, np.inf)


def limits(
    samples: np.ndarray, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the mean over the seeds with finite values, and the limits of the band that figures show.

    With three or more seeds, the limits are those of Student's 95 % interval, clipped to the bounds. With two
    seeds, Student's interval extends nine standard deviations to either side, so the limits are the two values
    instead. A single seed has no limits.

    Args:
        samples: [R, ...] float, one row per seed; values that are not finite do not count.
        bounds: see `bounds_of`.

    Returns:
        Mean, lower and upper limit, each [...]; NaN where no seed has a finite value.
    """
    # Sorting puts NaN last.
    ordered = np.sort(np.where(np.isfinite(samples), samples, np.nan), axis=0)
    counts = np.isfinite(ordered).sum(axis=0)
    found = np.full((3, *counts.shape), np.nan)
    for count in np.unique(counts[counts > 0]):
        at, values = counts == count, ordered[:count]
        mean, low, high = interval(values[:, at])
        if count == 2:
            low, high = values[:, at]
        found[:, at] = mean, np.clip(low, *bounds), np.clip(high, *bounds)
    return found[0], found[1], found[2]


def over_seeds(values: xarray.DataArray, *, level: float = 0.95) -> xarray.Dataset:
    """Returns the mean over the seeds that count, and the limits of Student's confidence interval.

    Args:
        values: (run, ...) float, NaN where a seed does not count.
        level: confidence level, in (0, 1).

    Returns:
        `mean`, `low`, `high` and `seeds`, the number of seeds in the mean. The limits are NaN for a single seed,
        and the mean is NaN if no seed counts.
    """
    import xarray

    seeds, mean = values.notnull().sum("run"), values.mean("run")
    std = np.sqrt(((values - mean) ** 2).sum("run").values / np.maximum(seeds.values - 1, 1))
    half = mean.copy(data=_half_width(std, seeds.values, level))
    return xarray.Dataset({"mean": mean, "low": mean - half, "high": mean + half, "seeds": seeds})


def bootstrap(samples: np.ndarray, *, level: float = 0.95) -> tuple[float, float, float]:
    """Returns the mean over seeds and its bootstrap confidence interval (bias-corrected and accelerated).

    Args:
        samples: [R] float, finite.
        level: confidence level, in (0, 1).

    Returns:
        Mean, lower and upper limit. The limits are NaN for a single seed, and equal the mean for equal samples.
    """
    # Imported here because only claims need it, and the import takes a second.
    from scipy import stats

    samples = np.asarray(samples, np.float64)
    mean = float(samples.mean()) if samples.size else np.nan
    if samples.size < 2:
        return mean, np.nan, np.nan
    if np.ptp(samples) == 0:
        return mean, mean, mean
    found = stats.bootstrap(
        (samples,), np.mean, confidence_level=level, n_resamples=9999, rng=np.random.default_rng(0)
    )
    return mean, float(found.confidence_interval.low), float(found.confidence_interval.high)


def seeds_to_decide(samples: np.ndarray, *, level: float = 0.95, power: float = 0.8) -> float:
    """Returns the number of seeds needed to distinguish a mean of the measured size from 0.

    `n = (z_((1 + level) / 2) + z_power)^2 variance / mean^2` (Cohen 1988, section 2.4, for large n): with n seeds,
    a share `power` of the intervals of the given level excludes 0.

    Args:
        samples: [R] float, finite, R at least 2.
        level: confidence level, in (0, 1).
        power: statistical power, in (0, 1).

    Returns:
        A whole number; infinite for a mean of 0.
    """
    from scipy import special

    samples = np.asarray(samples, np.float64)
    # The result does not depend on the unit. Scaling by a power of two is exact and brings the largest sample near
    # 1, so that squares of tiny samples do not underflow.
    samples = np.ldexp(samples, -np.frexp(np.abs(samples).max())[1])
    mean, deviations = samples.mean(), special.ndtri(0.5 + level / 2) + special.ndtri(power)
    with np.errstate(over="ignore"):
        return float(np.ceil(deviations**2 * samples.var(ddof=1) / mean / mean)) if mean else np.inf


def in_training(values: Curves) -> Curves:
    """Removes round 0, the evaluation before training, from learning curves.

    Args:
        values: an array or a dataset with the dimension `round`, or with one selected round.

    Raises:
        ValueError: it is unknown which rounds the values belong to.
    """
    values = along(values, "round")
    found = values.sel(round=values["round"] > 0)
    if not found.sizes["round"]:
        raise ValueError("results must have a round of training; these have round 0 alone")
    return found


def along(values: Curves, dim: str) -> Curves:
    """Restores a dimension within a run along which one entry was selected.

    Args:
        values: an array, or a dataset all of whose arrays had the dimension.
        dim: name of the dimension.

    Returns:
        The same values with the dimension.

    Raises:
        ValueError: the coordinate of the dimension was dropped.
    """
    if dim in values.dims:
        return values
    if dim not in values.coords:
        raise ValueError(f"results must keep their {dim}: select it without drop=True, and take means afterwards")
    return values.expand_dims(dim)


def mean_accuracy(results: xarray.Dataset) -> xarray.DataArray:
    """Returns the mean accuracy over the rounds of training, which measures how fast and how well a policy learns.

    Round 0, which precedes training, does not count.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        (run, policy) float in [0, 1]; NaN for unfinished and diverged runs.
    """
    return in_training(counted(results, "accuracy")).mean("round")


def final_accuracy(results: xarray.Dataset) -> xarray.DataArray:
    """Returns the accuracy after the last round of each run; points of a sweep may differ in their last round.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        (run, policy) float in [0, 1]; NaN for unfinished and diverged runs.
    """
    curves = along(counted(results, "accuracy"), "round").transpose(..., "round")
    return curves.isel(round=-1, drop=True).copy(data=last_number(curves.values))


def classes_held(results: xarray.Dataset) -> xarray.DataArray:
    """Returns the mean over devices of the number of classes of which a device has points after the exchange.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        (run, policy) float in [0, L].
    """
    counts = along(along(counted(results, "counts"), "class"), "device")
    return (counts > 0).sum("class").where(counts.notnull().any("class")).mean("device")


def paired_differences(values: xarray.DataArray, reference: str = "none") -> xarray.DataArray:
    """Returns differences to a reference policy within each run; policies share network, split, model, minibatches.

    Args:
        values: (run, policy, ...) float.
        reference: name of a policy in `values`.

    Returns:
        (run, policy, ...) float, without the reference.

    Raises:
        ValueError: the reference is not among the policies.
    """
    policies = values["policy"].values.reshape(-1).tolist()
    if reference not in policies or "policy" not in values.dims:
        raise ValueError(f"reference must be among {', '.join(policies)}; got {reference!r}")
    difference = values - values.sel(policy=reference, drop=True)
    return difference.drop_sel(policy=reference)


def setting(results: xarray.Dataset, name: str) -> xarray.DataArray:
    """Returns a setting of results.

    Args:
        results: results of `run` or `sweep`, or a selection of them.
        name: name of a field of `Config`.

    Returns:
        The value, or one value for each point if the setting is an axis of the sweep.

    Raises:
        ValueError: the value is unknown, for example because an axis was dropped.
    """
    import xarray

    if name in results.coords:
        return results.coords[name]
    found = about(results)
    values = [found["config"][name]] if name in found.get("config", {}) else found.get("axes", {}).get(name, [])
    if len({*values}) != 1:
        raise ValueError(
            f"results must keep their {name}: select points without drop=True, and take means over them afterwards"
        )
    return xarray.DataArray(values[0])


def about(results: xarray.Dataset) -> dict[str, Any]:
    """Returns the manifest of results.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        The entries by name.

    Raises:
        ValueError: the manifest was lost, for example because xarray dropped the attributes in a computation.
    """
    if "manifest" not in results.attrs:
        raise ValueError("results must have their manifest: use keep_attrs=True where xarray drops attributes")
    return json.loads(results.attrs["manifest"])


def data_of(results: xarray.Dataset) -> str:
    """Returns the name of the data set of results, such as `fashion_mnist`.

    Args:
        results: results of `run` or `sweep`, or a selection of them.
    """
    return str(about(results)["data"]["name"])


def aggregations_after(results: xarray.Dataset, steps: float | xarray.DataArray) -> xarray.DataArray:
    """Returns the number of aggregations in a number of local steps; some schemes aggregate at every step.

    Args:
        results: results of `run` or `sweep`, or a selection of them.
        steps: number of local steps.

    Returns:
        Number of aggregations, possibly fractional, with the dimensions of `steps`.
    """
    every_step = [name for name, scheme in SCHEMES.items() if scheme.aggregates_every_step]
    interval = setting(results, "aggregation_interval")
    return steps / interval.where(~setting(results, "scheme").isin(every_step), 1)


def costs_after(results: xarray.Dataset, steps: float | xarray.DataArray) -> xarray.Dataset:
    """Returns the costs of a run up to a number of local steps.

    Args:
        results: results of `run` or `sweep`.
        steps: number of local steps; infinity gives infinite costs, NaN gives NaN.

    Returns:
        (run, policy) and the dimensions of `steps`: `steps`, `aggregations`, `uplink` in bits, and in joules
        `exchange`, `messages` (of discovery and of the agreement on the exchange), `uploads`, and their sum
        `energy`, which is NaN for `pooled`, whose exchange has no energy.
    """
    import xarray

    def upload(name: str) -> xarray.DataArray:
        # Infinity times zero, if every device is a straggler, would be NaN.
        amount = aggregations * counted(results, name)
        return amount.where(aggregations != np.inf, np.inf)

    aggregations = aggregations_after(results, steps)
    exchange, messages = counted(results, "exchange_energy"), counted(results, "control_energy")
    uploads = upload("upload_energy")
    values = {
        "steps": (steps, "local step", "local steps"),
        "aggregations": (aggregations, "1", "aggregations"),
        "uplink": (upload("upload_bits"), "bit", "bits sent to the server"),
        "exchange": (exchange, "J", "energy of the exchange of points"),
        "messages": (messages, "J", "energy of the messages of the discovery and the exchange"),
        "uploads": (uploads, "J", "energy of the uploads"),
        "energy": (total_energy(exchange, messages, uploads), "J", "energy of exchange, messages and uploads"),
    }
    names = list(values)
    of_all = xarray.broadcast(*(xarray.DataArray(value) for value, _, _ in values.values()))
    dimensions = ["run", "policy", *(dim for dim in of_all[0].dims if dim not in ("run", "policy"))]
    return xarray.Dataset(
        {
            name: value.transpose(*dimensions).assign_attrs(units=values[name][1], long_name=values[name][2])
            for name, value in zip(names, of_all, strict=True)
        }
    )


def steps_to_accuracy(results: xarray.Dataset, target: float | xarray.DataArray) -> xarray.DataArray:
    """Returns the local steps until the global model first reaches an accuracy in training.

    Args:
        results: results of `run` or `sweep`.
        target: accuracy in [0, 1]; an array adds its dimensions to the result. An array over `run` is one target
            for each run, such as the final accuracy of a policy.

    Returns:
        (run, policy) and the other dimensions of the target; infinite if the target is never reached, NaN where the
        run or the target does not count.
    """
    import xarray

    accuracy, target = in_training(counted(results, "accuracy")), xarray.DataArray(target)
    steps = accuracy["round"].where(accuracy >= target).min("round").fillna(np.inf)
    return steps.where(accuracy.notnull().any("round") & target.notnull())


def cost_to_accuracy(results: xarray.Dataset, target: float | xarray.DataArray) -> xarray.Dataset:
    """Returns the costs until the global model first reaches an accuracy in training (Section IV-B).

    Args:
        results: results of `run` or `sweep`.
        target: see `steps_to_accuracy`.

    Returns:
        See `costs_after`; `steps`, `aggregations`, `uplink`, `uploads` and `energy` are infinite if the target is
        never reached. For means, use `least_cost`.
    """
    costs = costs_after(results, steps_to_accuracy(results, target))
    # The cost of a target that is never reached is infinite, also for `pooled`, whose exchange has no energy.
    return costs.assign(energy=costs["energy"].where(costs["steps"] != np.inf, np.inf))


def least_cost(results: xarray.Dataset, target: float | xarray.DataArray) -> xarray.Dataset:
    """Returns lower bounds of the costs to reach an accuracy, which tables, figures and claims use.

    A run that never reaches the target counts with its whole training, a lower bound of its cost. Without such
    runs, a policy that reaches the target only in easy runs would look cheap.

    Args:
        results: results of `run` or `sweep`.
        target: see `steps_to_accuracy`.

    Returns:
        See `costs_after`, and `reached`, which is 1 where the target is reached and 0 elsewhere; NaN where the
        training or the target does not count.
    """
    steps = steps_to_accuracy(results, target)
    never = steps == np.inf
    costs = costs_after(results, steps.where(~never, setting(results, "num_steps")))
    counts = costs["steps"].notnull()
    reached = (~never).astype(float).where(steps.notnull()).transpose(*costs["steps"].dims)
    about = {"units": "1", "long_name": "1: the target is reached, 0: it is not, and costs are the least possible"}
    return costs.where(counts).assign(reached=reached.assign_attrs(about))


def cost_to_end_of_none(results: xarray.Dataset, share: float = 1.0) -> xarray.Dataset:
    """Returns `least_cost` to a share of the final accuracy of `none` in the same run.

    Args:
        results: results of `run` or `sweep`, with the policy `none`.
        share: share of that accuracy, such as 0.9.

    Returns:
        See `least_cost`.

    Raises:
        ValueError: `none` is not among the policies.
    """
    results = whole(results)
    policies = [str(name) for name in results["policy"].values]
    if "none" not in policies:
        raise ValueError(f"the target needs the policy none, which must be among {', '.join(policies)}")
    return least_cost(results, share * final_accuracy(results).sel(policy="none", drop=True))


def logarithm(values: xarray.DataArray) -> xarray.DataArray:
    """Returns the natural logarithm of finite positive values, and NaN for all others.

    Args:
        values: float array of any dimensions.
    """
    numbers = np.asarray(values.values, float)
    return values.copy(data=np.log(np.where(np.isfinite(numbers) & (numbers > 0), numbers, np.nan)))


def exponential(values: xarray.DataArray) -> xarray.DataArray:
    """Inverts `logarithm`.

    Args:
        values: float array of any dimensions.
    """
    return values.copy(data=np.exp(values.values))


def ratio_to(values: xarray.DataArray, reference: str = "none", *, level: float = 0.95) -> xarray.Dataset:
    """Returns the geometric mean over runs of the ratio of each policy's value to the reference's in the same run.

    Args:
        values: (run, policy, ...) positive float, such as the energy to a target.
        reference: name of a policy in `values`.
        level: confidence level of Student's interval of the logarithms, in (0, 1).

    Returns:
        (policy, ...) without the reference: `mean`, `low`, `high`, and `seeds`, the number of runs in which both
        values are finite and positive; other runs are left out.

    Raises:
        ValueError: the reference is not among the policies.
    """
    import xarray

    found = over_seeds(paired_differences(logarithm(values), reference), level=level)
    return xarray.Dataset({name: one if name == "seeds" else exponential(one) for name, one in found.items()})
