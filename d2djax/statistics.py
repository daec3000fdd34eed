"""Numbers for people: means over seeds with confidence intervals, and paired differences between methods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xarray


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


def mean_accuracy(results: xarray.Dataset) -> xarray.DataArray:
    """Accuracy averaged over all rounds, (run, method): how fast and how high a method learns, in one number."""
    return results["accuracy"].mean("round")


def paired_differences(values: xarray.DataArray, reference: str = "none") -> xarray.DataArray:
    """Differences to the reference method within each run, which shares network, split, model and minibatches.

    Args:
        values: (run, method).
        reference: name of a method in `values`.

    Returns:
        (run, method) without the reference.

    Raises:
        ValueError: the reference was not run.
    """
    methods = list(values["method"].values)
    if reference not in methods:
        raise ValueError(f"reference must be among {', '.join(methods)}; got {reference!r}")
    difference = values - values.sel({"method": reference}, drop=True)
    return difference.drop_sel(method=reference)


def steps_to_accuracy(results: xarray.Dataset, target: float) -> xarray.DataArray:
    """Local steps until the global model first reaches an accuracy, (run, method); infinite if it never does."""
    reached = results["accuracy"] >= target
    return results["round"].where(reached).min("round").fillna(np.inf)


def energy_to_accuracy(results: xarray.Dataset, target: float) -> xarray.DataArray:
    """Energy until the global model first reaches an accuracy: the exchange once, then uploads (Section IV-B).

    Args:
        results: of `d2djax.run`.
        target: accuracy in [0, 1].

    Returns:
        (run, method) in joules; infinite if the target is never reached, else NaN for `pooled`, whose exchange
        has no energy. The messages that agree on the exchange are not in it: see `control_energy`.
    """
    config = json.loads(results.attrs["manifest"])["config"]
    interval = 1 if config["scheme"] == "fedsgd" else config["aggregation_interval"]
    num_aggregations = steps_to_accuracy(results, target) / interval
    energy = results["exchange_energy"] + num_aggregations * results["upload_energy"]
    # A target that is never reached is infinitely far, also for `pooled`, whose exchange has no energy.
    energy = energy.where(np.isfinite(num_aggregations), np.inf)
    return energy.assign_attrs(units="J", long_name=f"energy to accuracy {target}")
