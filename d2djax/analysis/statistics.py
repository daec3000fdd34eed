"""Numbers for people: means over seeds with confidence intervals, and paired differences between policies.

Results may be those of a run, of a sweep or a selection: axes of a sweep stay dimensions. Only numbers that count
enter (see `results.counted`); all else is NaN, and means say of how many seeds they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from d2djax.energy import total_energy
from d2djax.federated import SCHEMES
from d2djax.running.results import counted, last_number

if TYPE_CHECKING:
    import xarray

    Curves = TypeVar("Curves", xarray.DataArray, xarray.Dataset)


# Dimensions of a variable that are no axes of a sweep.
WITHIN = ("run", "policy", "round", "episode", "state", "device", "class", "axis")


def axes_of(results: xarray.Dataset | xarray.DataArray) -> list[str]:
    """Dimensions of a sweep in results; none for those of a run.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        Names of the dimensions, in their order.
    """
    return [str(dim) for dim in results.dims if dim not in WITHIN]


def over_points(values: xarray.DataArray | xarray.Dataset) -> str:
    """Says over how many points of which axes of a sweep a mean is taken; empty where there is only one point.

    Args:
        values: with any dimensions; those of a sweep count.

    Returns:
        Text such as "means over 4 points (gamma)".
    """
    axes = axes_of(values)
    points = int(np.prod([values.sizes[axis] for axis in axes]))
    if points <= 1:
        return ""
    # Points that were drawn at random lie along one dimension, and their settings along it.
    names = [axis for axis in axes if axis != "point" and values.sizes[axis] > 1]
    names += [str(name) for name, one in values.coords.items() if one.dims == ("point",) and name != "point"]
    return f"means over {points:,} points" + (f" ({', '.join(names)})" if names else "")


def interval(samples: np.ndarray, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds and the limits of Student's confidence interval.

    Args:
        samples: [R, ...] float, one row per seed; rows with NaN are the caller's to leave out.
        level: share of such intervals that hold the true mean.

    Returns:
        Mean, lower and upper limit, each [...]; with a single seed the limits are NaN.
    """
    # `scipy.stats` has this quantile too, but its import takes a second.
    from scipy.special import stdtrit

    samples = np.asarray(samples, np.float64)
    count, mean = samples.shape[0], samples.mean(axis=0)
    if count < 2:
        unknown = np.full_like(mean, np.nan)
        return mean, unknown, unknown
    half = stdtrit(count - 1, 0.5 + level / 2) * samples.std(axis=0, ddof=1) / np.sqrt(count)
    return mean, mean - half, mean + half


# Names, after `graph_` or `discovery_`, of what is a share and so never leaves [0, 1].
SHARES = ("accuracy", "class_accuracy", "diverse_share", "outage")


def bounds_of(name: str) -> tuple[float, float]:
    """Least and greatest value that a variable of results can have: [0, 1] for shares, 0 or more for amounts.

    Args:
        name: of a variable, such as `graph_outage`.

    Returns:
        Least and greatest value; infinite where there is no bound.
    """
    short = name.removeprefix("graph_").removeprefix("discovery_").split(",")[0]
    if short in SHARES:
        return 0.0, 1.0
    return (-np.inf, np.inf) if "reward" in short else (0.0, np.inf)


def limits(
    samples: np.ndarray, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over the seeds that have a number, and the limits of the band that pictures show around it.

    Of three seeds or more the limits are those of Student's 95 % interval, cut off at the bounds. Of two seeds
    Student's interval is nine standard deviations wide on either side, which shows nothing: the limits are the two
    values. Of one seed there are none.

    Args:
        samples: [R, ...] float, one row per seed; what is not finite does not count.
        bounds: see `bounds_of`.

    Returns:
        Mean, lower and upper limit, each [...]; NaN where no seed has a number.
    """
    # NaN goes to the end.
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
    """Mean over the seeds that have a number, and the limits of Student's confidence interval.

    Args:
        values: (run, ...), NaN where a seed does not count.
        level: share of such intervals that hold the true mean.

    Returns:
        `mean`, `low`, `high` and `seeds`, the number of seeds in the mean; NaN limits of a single seed, and a NaN
        mean of none.
    """
    import xarray
    from scipy.special import stdtrit

    seeds, mean = values.notnull().sum("run"), values.mean("run")
    others = np.maximum(seeds.values - 1, 1)
    std = np.sqrt(((values - mean) ** 2).sum("run").values / others)
    half = std * stdtrit(others, 0.5 + level / 2) / np.sqrt(np.maximum(seeds.values, 1))
    half = mean.copy(data=np.where(seeds.values > 1, half, np.nan))
    return xarray.Dataset({"mean": mean, "low": mean - half, "high": mean + half, "seeds": seeds})


def bootstrap(samples: np.ndarray, *, level: float = 0.95) -> tuple[float, float, float]:
    """Mean over seeds and the limits of its bootstrap confidence interval (bias-corrected and accelerated).

    Args:
        samples: [R] float, finite.
        level: share of such intervals that hold the true mean.

    Returns:
        Mean, lower and upper limit; with a single seed the limits are NaN, with equal samples all are the mean.
    """
    # Only the claims of figures need it: its import takes a second.
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
    """Number of seeds after which a mean as large as the one measured would most likely be told from 0.

    `n = (z_((1 + level) / 2) + z_power)^2 variance / mean^2` (Cohen 1988, section 2.4, for large n): of so many
    seeds, a share `power` of intervals of the given level leaves out 0.

    Args:
        samples: [R] float, finite, R at least 2.
        level: share of such intervals that hold the true mean.
        power: share of repetitions that decide.

    Returns:
        A whole number; infinite for a mean of 0.
    """
    from scipy import special

    samples = np.asarray(samples, np.float64)
    # The number is the same in any unit. Scaled by a power of two, which is exact, the largest sample is near 1, so
    # that no square of a tiny one is lost.
    samples = np.ldexp(samples, -np.frexp(np.abs(samples).max())[1])
    mean, deviations = samples.mean(), special.ndtri(0.5 + level / 2) + special.ndtri(power)
    with np.errstate(over="ignore"):
        return float(np.ceil(deviations**2 * samples.var(ddof=1) / mean / mean)) if mean else np.inf


def in_training(values: Curves) -> Curves:
    """Learning curves without round 0, the evaluation before training.

    Args:
        values: an array or a dataset with the dimension `round`.

    Returns:
        The same without that round.
    """
    values = along(values, "round")
    return values.sel(round=values["round"] > 0)


def along(values: Curves, dim: str) -> Curves:
    """Values with a dimension within a run, also where one place along it was selected.

    Args:
        values: an array, or a dataset all of whose arrays have had the dimension.
        dim: name of the dimension.

    Returns:
        The same, with the dimension.

    Raises:
        ValueError: the dimension is gone without a word of which place it was.
    """
    if dim in values.dims:
        return values
    if dim not in values.coords:
        raise ValueError(f"results must say their {dim}: select it without drop=True, and take means afterwards")
    return values.expand_dims(dim)


def mean_accuracy(results: xarray.Dataset) -> xarray.DataArray:
    """Area under the accuracy curve over its length, (run, policy): how fast and how high a policy learns.

    The mean is over the rounds of training, without round 0, in which no policy has learned anything.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        (run, policy) float in [0, 1]; NaN for runs that are not done or diverged.
    """
    return in_training(counted(results, "accuracy")).mean("round")


def final_accuracy(results: xarray.Dataset) -> xarray.DataArray:
    """Accuracy after the last round of each run, (run, policy); some points of a sweep may have fewer rounds.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        (run, policy) float in [0, 1]; NaN for runs that are not done or diverged.
    """
    curves = along(counted(results, "accuracy"), "round").transpose(..., "round")
    return curves.isel(round=-1, drop=True).copy(data=last_number(curves.values))


def classes_held(results: xarray.Dataset) -> xarray.DataArray:
    """Classes of which a device has a point after the exchange, mean over the devices there are, (run, policy).

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        (run, policy) float, 0 to L.
    """
    counts = along(along(counted(results, "counts"), "class"), "device")
    return (counts > 0).sum("class").where(counts.notnull().any("class")).mean("device")


def paired_differences(values: xarray.DataArray, reference: str = "none") -> xarray.DataArray:
    """Differences to the reference policy within each run, which shares network, split, model and minibatches.

    Args:
        values: (run, policy).
        reference: name of a policy in `values`.

    Returns:
        (run, policy) without the reference.

    Raises:
        ValueError: the reference was not run.
    """
    policies = values["policy"].values.reshape(-1).tolist()
    if reference not in policies or "policy" not in values.dims:
        raise ValueError(f"reference must be among {', '.join(policies)}; got {reference!r}")
    difference = values - values.sel(policy=reference, drop=True)
    return difference.drop_sel(policy=reference)


def setting(results: xarray.Dataset, name: str) -> xarray.DataArray:
    """A setting of results: that of each point where it is an axis of a sweep.

    Args:
        results: of `run` or `sweep`, or a selection of them.
        name: of a field of `Config`.

    Returns:
        The value, or one for each point.

    Raises:
        ValueError: the results do not say it any more, as of an axis that was dropped.
    """
    import xarray

    if name in results.coords:
        return results.coords[name]
    found = about(results)
    values = [found["config"][name]] if name in found.get("config", {}) else found.get("axes", {}).get(name, [])
    if len({*values}) != 1:
        raise ValueError(
            f"results must say their {name}: select points without drop=True, and take means over them afterwards"
        )
    return xarray.DataArray(values[0])


def about(results: xarray.Dataset) -> dict[str, Any]:
    """The manifest of results.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        What is in it, by name.

    Raises:
        ValueError: it is gone, as are attributes in what xarray computes from results.
    """
    if "manifest" not in results.attrs:
        raise ValueError("results must have their manifest: where xarray drops attributes, give keep_attrs=True")
    return json.loads(results.attrs["manifest"])


def data_of(results: xarray.Dataset) -> str:
    """Name of the data set of results.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        The name, such as `fashion_mnist`.
    """
    return str(about(results)["data"]["name"])


def aggregations_after(results: xarray.Dataset, steps: float | xarray.DataArray) -> xarray.DataArray:
    """Aggregations in a number of local steps; as many as steps in schemes that aggregate at every one.

    Args:
        results: of `run` or `sweep`, or a selection of them.
        steps: local steps.

    Returns:
        Number of aggregations, with the dimensions of `steps`; fractions are kept.
    """
    every_step = [name for name, scheme in SCHEMES.items() if scheme.aggregates_every_step]
    interval = setting(results, "aggregation_interval")
    return steps / interval.where(~setting(results, "scheme").isin(every_step), 1)


def costs_after(results: xarray.Dataset, steps: float | xarray.DataArray) -> xarray.Dataset:
    """What a run takes up to a number of local steps.

    Args:
        results: of `run` or `sweep`.
        steps: local steps; infinitely many take infinitely much, NaN gives NaN.

    Returns:
        (run, policy) and the dimensions of `steps`: `steps`, `aggregations`, `uplink` in bits, and in joules
        `exchange`, `messages` (of the discovery and of the agreement on the exchange), `uploads`, and their sum
        `energy`, which is NaN for `pooled`, whose exchange has none.
    """
    import xarray

    def upload(name: str) -> xarray.DataArray:
        # Infinitely many times none (every device straggles) are no number.
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
    """Local steps until the global model first reaches an accuracy in training; infinite if it never does.

    Args:
        results: of `run` or `sweep`.
        target: accuracy in [0, 1]; an array gives its dimensions to the result, one over `run` is a target for
            each run, such as the accuracy that one policy ends with.

    Returns:
        (run, policy) and the other dimensions of the target; NaN where the run or the target does not count.
    """
    import xarray

    accuracy, target = in_training(counted(results, "accuracy")), xarray.DataArray(target)
    steps = accuracy["round"].where(accuracy >= target).min("round").fillna(np.inf)
    return steps.where(accuracy.notnull().any("round") & target.notnull())


def cost_to_accuracy(results: xarray.Dataset, target: float | xarray.DataArray) -> xarray.Dataset:
    """What it takes until the global model first reaches an accuracy in training (Section IV-B).

    Args:
        results: of `run` or `sweep`.
        target: see `steps_to_accuracy`.

    Returns:
        See `costs_after`; `steps`, `aggregations`, `uplink`, `uploads` and `energy` are infinite if the target is
        never reached. Means are of `least_cost` instead.
    """
    costs = costs_after(results, steps_to_accuracy(results, target))
    # A target that is never reached is infinitely far, also for `pooled`, whose exchange has no energy.
    return costs.assign(energy=costs["energy"].where(costs["steps"] != np.inf, np.inf))


def least_cost(results: xarray.Dataset, target: float | xarray.DataArray) -> xarray.Dataset:
    """What it takes at least until an accuracy is first reached: the costs that tables, pictures and claims are of.

    A run that never gets there counts with all of its training, the least that it can be. Left out, a policy that
    gets there in easy runs alone would look cheap.

    Args:
        results: of `run` or `sweep`.
        target: see `steps_to_accuracy`.

    Returns:
        See `costs_after`, and `reached`: 1 where the target is reached, 0 where it is not; all of them NaN where
        the training or the target does not count.
    """
    steps = steps_to_accuracy(results, target)
    never = steps == np.inf
    costs = costs_after(results, steps.where(~never, setting(results, "num_steps")))
    counts = costs["steps"].notnull()
    reached = (~never).astype(float).where(steps.notnull()).transpose(*costs["steps"].dims)
    about = {"units": "1", "long_name": "1: the target is reached, 0: it is not, and costs are the least possible"}
    return costs.where(counts).assign(reached=reached.assign_attrs(about))


def cost_to_end_of_none(results: xarray.Dataset, share: float = 1.0) -> xarray.Dataset:
    """`least_cost` to a share of the accuracy that `none` ends with in the same run.

    Args:
        results: of `run` or `sweep`, with the policy `none`.
        share: of that accuracy, such as 0.9.

    Returns:
        As of `least_cost`.

    Raises:
        ValueError: `none` was not run.
    """
    policies = [str(name) for name in results["policy"].values]
    if "none" not in policies:
        raise ValueError(f"the target is that of none, which must be among {', '.join(policies)}")
    return least_cost(results, share * final_accuracy(results).sel(policy="none", drop=True))


def logarithm(values: xarray.DataArray) -> xarray.DataArray:
    """Natural logarithm of what is finite and above 0; NaN of all else.

    Args:
        values: float, of any dimensions.

    Returns:
        Float, of the same dimensions.
    """
    numbers = np.asarray(values.values, float)
    return values.copy(data=np.log(np.where(np.isfinite(numbers) & (numbers > 0), numbers, np.nan)))


def exponential(values: xarray.DataArray) -> xarray.DataArray:
    """The inverse of `logarithm`.

    Args:
        values: float, of any dimensions.

    Returns:
        Float, of the same dimensions.
    """
    return values.copy(data=np.exp(values.values))


def ratio_to(values: xarray.DataArray, reference: str = "none", *, level: float = 0.95) -> xarray.Dataset:
    """Geometric mean over runs of each policy's value over that of the reference in the same run.

    Args:
        values: (run, policy, ...), positive, such as the energy to a target.
        reference: name of a policy in `values`.
        level: of Student's confidence interval, reckoned on the logarithms.

    Returns:
        (policy, ...) without the reference: `mean`, `low`, `high` and `seeds`, which counts the runs in which both
        are finite and above 0; the others are left out.

    Raises:
        ValueError: the reference was not run.
    """
    import xarray

    found = over_seeds(paired_differences(logarithm(values), reference), level=level)
    return xarray.Dataset({name: one if name == "seeds" else exponential(one) for name, one in found.items()})
