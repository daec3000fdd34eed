"""What the paper claims in Section IV-B, next to what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.statistics import bootstrap, cost_to_accuracy, data_of, energy_after, mean_accuracy, setting

if TYPE_CHECKING:
    import xarray

# Of fewer samples a bootstrap interval is far too narrow: of two it is all between them.
FEWEST_SEEDS = 5
# Dimensions of a variable that are no axes of a sweep.
WITHIN = ("run", "policy", "round", "episode", "state", "device", "class", "axis")


@dataclass(frozen=True)
class Claim:
    """One claim and its measure.

    Attributes:
        text: what is claimed.
        measured: the mean over seeds with its 95 % bootstrap interval, and in how many seeds it points that way.
        verdict: `holds` where all of the interval is on the side of the claim, `does not hold` where all of it is
            on the other side, else `not shown`; `too few seeds` of less than five.
        mean: of what is claimed to be above 0.
        low: lower limit.
        high: upper limit.
        seeds: number of samples.
    """

    text: str
    measured: str
    verdict: str
    mean: float
    low: float
    high: float
    seeds: int


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _claim(text: str, what: str, samples: Any, show: Callable[[float], str] = "{:+.4f}".format) -> Claim:
    """The claim that samples, one for each seed, are above 0 on average; those that are not finite are left out."""
    values = np.asarray(samples, np.float64).ravel()
    values = values[np.isfinite(values)]
    mean, low, high = bootstrap(values)
    verdict = "holds" if low > 0 else "does not hold" if high < 0 else "not shown"
    verdict = verdict if values.size >= FEWEST_SEEDS else "too few seeds"
    limits = "" if np.isnan(low) else " ({} to {})".format(*sorted((show(low), show(high)), key=_number))
    seeds = f"in {(values > 0).sum()} of {values.size} seeds"
    return Claim(text, f"{what} {show(mean)}{limits}; {seeds}", verdict, mean, low, high, values.size)


def _ratio(logarithm: float) -> str:
    return f"{np.exp(-logarithm):.2f}"


def _averaged(results: xarray.Dataset, keep: str = "") -> xarray.Dataset:
    """Runs that are done, averaged over the axes of a sweep but one."""
    done = results["done"] > 0 if "done" in results else None
    numbers = results[[name for name, one in results.data_vars.items() if one.dtype.kind in "fiu"]]
    numbers = numbers if done is None else numbers.where(done)
    axes = [str(dim) for dim in results["status"].dims if dim not in (*WITHIN, keep)]
    return numbers.mean(axes, keep_attrs=True).assign_attrs(results.attrs) if axes else numbers


def _by_scheme(results: xarray.Dataset) -> Iterator[tuple[str, xarray.Dataset]]:
    """Results of each scheme, with its name."""
    averaged = _averaged(results, "scheme")
    if "scheme" not in results.dims:
        yield str(setting(results, "scheme").item()), averaged
        return
    for scheme in results["scheme"].values:
        yield str(scheme), averaged.sel(scheme=scheme)


def _others(values: xarray.DataArray | xarray.Dataset, names: tuple[str, ...] = ("none", "uniform")) -> list[str]:
    """Those of the policies that rl is compared with; none where rl is missing."""
    policies = list(values["policy"].values)
    return [name for name in names if name in policies] if "rl" in policies else []


def _of(values: xarray.DataArray, policy: str) -> xarray.DataArray:
    return values.sel(policy=policy, drop=True)


def learning(results: xarray.Dataset) -> list[Claim]:
    """The exchange helps: "improves the FL performance significantly over both"."""
    if "accuracy" not in results:
        return []
    found, data = [], data_of(results)
    for scheme, one in _by_scheme(results):
        area = mean_accuracy(one)
        for other in _others(area):
            text = f"{data}, {scheme}: rl learns better than {other}"
            found.append(_claim(text, "mean accuracy of all rounds", _of(area, "rl") - _of(area, other)))
    return found


def _resilience(results: xarray.Dataset, axis: str, what: str) -> list[Claim]:
    """From the smallest to the largest value of an axis, rl loses less accuracy than the others."""
    if "accuracy" not in results or axis not in results.dims:
        return []
    final = _averaged(results, axis)["accuracy"].isel(round=-1).sortby(axis)
    lost = final.isel({axis: 0}) - final.isel({axis: -1})
    first, last = (final[axis].values[place] for place in (0, -1))
    return [
        _claim(f"{what} cost rl less than {other}", f"final accuracy kept from {first} to {last}", kept)
        for other in _others(lost)
        for kept in [_of(lost, other) - _of(lost, "rl")]
    ]


def stragglers(results: xarray.Dataset) -> list[Claim]:
    """Stragglers: "our method is more resilient to stragglers than the baselines"."""
    return _resilience(results, "num_stragglers", "stragglers")


def intervals(results: xarray.Dataset) -> list[Claim]:
    """Aggregation interval: "as tau_a becomes larger, our method outperforms the baselines"."""
    return _resilience(results, "aggregation_interval", "longer aggregation intervals")


def energy(results: xarray.Dataset) -> list[Claim]:
    """Energy to a benchmark, here the accuracy that `none` ends with, and the part of the exchange in it."""
    if "accuracy" not in results or set(results["status"].dims) != {"run", "policy"}:
        return []
    found, data, results = [], data_of(results), _averaged(results)
    if "none" in results["policy"].values:
        needed = energy_to_end_of_none(results)
        for other in _others(needed):
            saved = -np.log(_of(needed, "rl") / _of(needed, other))
            text, what = f"{data}: rl needs less energy than {other}", f"energy of rl, {other} = 1:"
            found.append(_claim(text, what, saved, _ratio))
    for other in _others(results, ("uniform",)):
        for name, what, unit, form in (
            ("points_moved", "moves fewer points", "points", "{:+,.0f}"),
            ("exchange_energy", "spends less energy on the exchange", "joules", "{:+.3f}"),
        ):
            more = _of(results[name], "rl") - _of(results[name], other)
            found.append(_claim(f"{data}: {other} {what} than rl", f"{unit} more for rl", more, form.format))
    return found


def energy_to_end_of_none(results: xarray.Dataset, share: float = 1.0) -> xarray.DataArray:
    """Joules until a policy first reaches a share of the accuracy that `none` ends with, (run, policy).

    A run that never gets there counts with the energy of all its training, which is the least that it can be.
    """
    target = share * _of(results["accuracy"].isel(round=-1, drop=True), "none")
    costs = cost_to_accuracy(results, target)
    return costs["energy"].where(np.isfinite(costs["steps"]), energy_after(results, int(results["round"].max())))


def reliability(results: xarray.Dataset) -> list[Claim]:
    """Reliability of the links: success of a transmission, and points asked for from outside the cluster."""
    if "graph_outage" not in results:
        return []
    found, worth = [], _averaged(results).mean("state")
    for other in _others(worth, ("uniform",)):
        safer = _of(worth["graph_outage"], other) - _of(worth["graph_outage"], "rl")
        found.append(
            _claim(f"links of rl are more reliable than those of {other}", "probability of success", safer)
        )
        for name, what in (("requested_inter", "between clusters"), ("over_budget", "over the clusters' budgets")):
            fewer = _of(worth[f"graph_{name}"], other) - _of(worth[f"graph_{name}"], "rl")
            text = f"rl asks for fewer points {what} than {other}"
            found.append(_claim(text, "points a cluster fewer", fewer, "{:+,.1f}".format))
    return found


def claims_of(results: xarray.Dataset) -> list[Claim]:
    """Every claim of the paper that results have data for.

    Args:
        results: of `run` or `sweep`; over the axes of a sweep means are taken, but over schemes, numbers of
            stragglers and aggregation intervals where a claim is about them.

    Returns:
        The claims; none where rl is not among the policies.
    """
    parts = (learning, stragglers, intervals, energy, reliability)
    return [claim for part in parts for claim in part(results)]
