"""Numbers for people: means over seeds with confidence intervals, and paired differences between policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import xarray

    Curves = TypeVar("Curves", xarray.DataArray, xarray.Dataset)


def interval(samples: np.ndarray, *, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds and the limits of Student's confidence interval.

    Args:
        samples: [R, ...] float, one row per seed; rows with NaN are the caller's to leave out.
        level: share of such intervals that hold the true mean.

    Returns:
        Mean, lower and upper limit, each [...]; with a single seed the limits are NaN.
    """
    from scipy import stats

    samples = np.asarray(samples, np.float64)
    count, mean = samples.shape[0], samples.mean(axis=0)
    if count < 2:
        unknown = np.full_like(mean, np.nan)
        return mean, unknown, unknown
    half = stats.t.ppf(0.5 + level / 2, count - 1) * samples.std(axis=0, ddof=1) / np.sqrt(count)
    return mean, mean - half, mean + half


# Names, after `graph_` or `discovery_`, of what is a share and so never leaves [0, 1].
SHARES = ("accuracy", "class_accuracy", "diverse_share", "outage")


def bounds_of(name: str) -> tuple[float, float]:
    """Least and greatest value that a variable of results can have: [0, 1] for shares, 0 or more for amounts."""
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


def bootstrap(samples: np.ndarray, *, level: float = 0.95) -> tuple[float, float, float]:
    """Mean over seeds and the limits of its bootstrap confidence interval (bias-corrected and accelerated).

    Args:
        samples: [R] float, finite.
        level: share of such intervals that hold the true mean.

    Returns:
        Mean, lower and upper limit; with a single seed the limits are NaN, with equal samples all are the mean.
    """
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


def in_training(values: Curves) -> Curves:
    """Learning curves without round 0, the evaluation before training.

    Args:
        values: an array or a dataset with the dimension `round`.
    """
    return values.sel(round=values["round"] > 0)


def mean_accuracy(results: xarray.Dataset) -> xarray.DataArray:
    """Area under the accuracy curve over its length, (run, policy): how fast and how high a policy learns.

    The mean is over the rounds of training, without round 0, in which no policy has learned anything.
    """
    return in_training(results["accuracy"]).mean("round")


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
    policies = list(values["policy"].values)
    if reference not in policies:
        raise ValueError(f"reference must be among {', '.join(policies)}; got {reference!r}")
    difference = values - values.sel(policy=reference, drop=True)
    return difference.drop_sel(policy=reference)


def setting(results: xarray.Dataset, name: str) -> xarray.DataArray:
    """A setting of results: that of each point where it is an axis of a sweep."""
    import xarray

    if name in results.coords:
        return results.coords[name]
    return xarray.DataArray(json.loads(results.attrs["manifest"])["config"][name])


def data_of(results: xarray.Dataset) -> str:
    """Name of the data set of results."""
    return str(json.loads(results.attrs["manifest"])["data"]["name"])


def aggregations_after(results: xarray.Dataset, steps: float | xarray.DataArray) -> xarray.DataArray:
    """Aggregations in a number of local steps; FedSGD aggregates at every one."""
    import xarray

    is_gradient = setting(results, "scheme") == "fedsgd"
    return steps / xarray.where(is_gradient, 1, setting(results, "aggregation_interval"))


def energy_after(results: xarray.Dataset, steps: float | xarray.DataArray) -> xarray.DataArray:
    """Joules of the exchange and of the uploads in a number of local steps, (run, policy)."""
    return results["exchange_energy"] + aggregations_after(results, steps) * results["upload_energy"]


def cost_to_accuracy(results: xarray.Dataset, target: float | xarray.DataArray) -> xarray.Dataset:
    """What it takes until the global model first reaches an accuracy in training (Section IV-B).

    Args:
        results: of `d2djax.run`.
        target: accuracy in [0, 1]; an array gives its dimensions to the result, one over `run` is a target for
            each run, such as the accuracy that one policy ends with.

    Returns:
        (run, policy) and the other dimensions of the target: `steps` of local training, `aggregations`,
        `uplink` in bits and `energy` in joules: the exchange once, then the uploads. All are infinite if the
        target is never reached; else the energy is NaN for `pooled`, whose exchange has none. The messages that
        agree on the exchange are not in it: see `control_energy`.
    """
    import xarray

    accuracy = in_training(results["accuracy"])
    reached = accuracy >= target
    steps = accuracy["round"].where(reached).min("round").fillna(np.inf)
    aggregations, energy = aggregations_after(results, steps), energy_after(results, steps)
    # A target that is never reached is infinitely far, also for `pooled`, whose exchange has no energy.
    energy = energy.where(np.isfinite(steps), np.inf)
    # Infinitely many times no bits (every device straggles) are no number.
    uplink = (aggregations * results["upload_bits"]).where(np.isfinite(steps), np.inf)
    dimensions = ["run", "policy", *(name for name in steps.dims if name not in ("run", "policy"))]
    values = {
        "steps": (steps, "local step", "local steps"),
        "aggregations": (aggregations, "1", "aggregations"),
        "uplink": (uplink, "bit", "bits sent to the server"),
        "energy": (energy, "J", "energy of the exchange and the uploads"),
    }
    return xarray.Dataset(
        {
            name: value.transpose(*dimensions).assign_attrs(
                units=unit, long_name=f"{meaning} to the target accuracy"
            )
            for name, (value, unit, meaning) in values.items()
        }
    )


def ratio_to(values: xarray.DataArray, reference: str = "none", *, level: float = 0.95) -> dict[str, tuple]:
    """Geometric mean over runs of each policy's value over that of the reference in the same run.

    Args:
        values: (run, policy), positive, such as the energy to a target.
        reference: name of a policy in `values`.
        level: of Student's confidence interval, reckoned on the logarithms.

    Returns:
        For each other policy `(ratio, low, high, runs)`, where `runs` counts those in which both are finite and
        above 0; the others, such as those in which one of the two never reaches its target, are left out.

    Raises:
        ValueError: the reference was not run, or there are other dimensions, which are no samples.
    """
    if set(values.dims) != {"run", "policy"}:
        raise ValueError(f"values must have the dimensions run and policy; got {', '.join(map(str, values.dims))}")
    found = {}
    finite = values.where(np.isfinite(values) & (values > 0))
    logarithms = paired_differences(finite.copy(data=np.log(finite.values)), reference)
    for policy in logarithms["policy"].values:
        one = logarithms.sel(policy=policy).values
        one = one[np.isfinite(one)]
        mean, low, high = interval(one, level=level) if one.size else (np.nan,) * 3
        found[str(policy)] = (float(np.exp(mean)), float(np.exp(low)), float(np.exp(high)), one.size)
    return found
