"""Compares the claims of Section IV-B with measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from d2djax.analysis.statistics import (
    axes_of,
    bootstrap,
    cost_to_end_of_none,
    data_of,
    final_accuracy,
    logarithm,
    mean_accuracy,
    over_points,
    seeds_to_decide,
    setting,
    whole,
)
from d2djax.running.results import counted

if TYPE_CHECKING:
    import xarray

# With fewer samples, a bootstrap interval is far too narrow: with two, it lies between them.
FEWEST_SEEDS = 5
# A difference that needs more seeds than this is too small to be of interest.
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Claim:
    """One claim and its measurement.

    Attributes:
        text: the claim.
        measured: the mean over seeds with its 95 % bootstrap interval; the number of seeds that agree with the
            claim; for a sweep, the points and axes over which each seed is a mean; the runs that do not count; and,
            for the verdict `not shown`, the number of seeds that would show a difference of this size.
        verdict: `holds` if the whole interval agrees with the claim, `does not hold` if the whole interval
            disagrees, otherwise `not shown`; `too few seeds` below five.
        mean: mean of the quantity that the claim says is above 0.
        low: lower limit of the interval.
        high: upper limit of the interval.
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


def compare(
    text: str,
    what: str,
    samples: xarray.DataArray,
    show: Callable[[float], str] = "{:+.4f}".format,
    note: str = "",
) -> Claim:
    """Makes the claim that samples are above 0 on average, without non-finite samples.

    A sample is a difference within a run at one point, so leaving it out affects both compared policies.

    Args:
        text: the claim.
        what: the quantity, for the text of the measurement.
        samples: (run, axes of a sweep) float.
        show: formats the quantity.
        note: added to the text of the measurement.

    Returns:
        The claim with its verdict.
    """
    samples = samples.where(np.isfinite(samples))
    values = samples.mean(axes_of(samples)).values
    values = values[np.isfinite(values)]
    mean, low, high = bootstrap(values)
    verdict = "holds" if low > 0 else "does not hold" if high < 0 else "not shown"
    verdict = verdict if values.size >= FEWEST_SEEDS else "too few seeds"
    limits = "" if np.isnan(low) else " ({} to {})".format(*sorted((show(low), show(high)), key=_number))
    parts = [
        f"{what} {show(mean)}{limits}",
        f"in {(values > 0).sum()} of {values.size} seeds",
        over_points(samples),
    ]
    lost = int(samples.isnull().sum())
    parts += [note, f"{lost:,} of {samples.size:,} runs do not count" if lost else ""]
    parts += [_seeds_needed(values)] if verdict == "not shown" else []
    return Claim(text, "; ".join(part for part in parts if part), verdict, mean, low, high, values.size)


def _seeds_needed(values: np.ndarray) -> str:
    """Formats how many seeds would decide a claim if the measured mean were the true one."""
    needed = seeds_to_decide(values)
    if needed > MOST_SEEDS:
        return f"more than {MOST_SEEDS:,} seeds would be needed to decide"
    return f"about {max(needed, values.size + 1):,.0f} seeds would decide (80 % power)"


def _ratio(logarithm: float) -> str:
    return f"{np.exp(-logarithm):.2f}"


def _by_scheme(results: xarray.Dataset) -> Iterator[tuple[str, xarray.Dataset]]:
    """Yields the name and the results of each scheme."""
    if "scheme" not in results.dims:
        scheme = setting(results, "scheme")
        name = str(scheme.values.flat[0]) if scheme.size == 1 else "several schemes"
        yield name, results
        return
    for scheme in results["scheme"].values:
        yield str(scheme), results.sel(scheme=scheme)


def _others(values: xarray.DataArray | xarray.Dataset, names: tuple[str, ...] = ("none", "uniform")) -> list[str]:
    """Returns the policies among `names` with which rl can be compared; none if rl is missing."""
    policies = list(values["policy"].values)
    return [name for name in names if name in policies] if "rl" in policies else []


def _of(values: xarray.DataArray, policy: str) -> xarray.DataArray:
    return values.sel(policy=policy, drop=True)


def learning(results: xarray.Dataset) -> list[Claim]:
    """Claims that the exchange helps: "improves the FL performance significantly over both".

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison for which the results have data.
    """
    if "accuracy" not in results:
        return []
    found, data = [], data_of(results)
    for scheme, one in _by_scheme(results):
        area = mean_accuracy(one)
        for other in _others(area):
            text = f"{data}, {scheme}: rl learns better than {other}"
            found.append(compare(text, "mean accuracy of all rounds", _of(area, "rl") - _of(area, other)))
    return found


def _resilience(results: xarray.Dataset, axis: str, what: str) -> list[Claim]:
    """Claims that rl loses less accuracy than the others from the smallest to the largest value of an axis."""
    if "accuracy" not in results or axis not in results.dims:
        return []
    final = final_accuracy(results).sortby(axis)
    lost = final.isel({axis: 0}, drop=True) - final.isel({axis: -1}, drop=True)
    first, last = (final[axis].values[place] for place in (0, -1))
    return [
        compare(f"{what} cost rl less than {other}", f"final accuracy kept from {first} to {last}", kept)
        for other in _others(lost)
        for kept in [_of(lost, other) - _of(lost, "rl")]
    ]


def stragglers(results: xarray.Dataset) -> list[Claim]:
    """Claims on stragglers: "our method is more resilient to stragglers than the baselines".

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison for which the results have data.
    """
    return _resilience(results, "num_stragglers", "stragglers")


def intervals(results: xarray.Dataset) -> list[Claim]:
    """Claims on the aggregation interval: "as tau_a becomes larger, our method outperforms the baselines".

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison for which the results have data.
    """
    return _resilience(results, "aggregation_interval", "longer aggregation intervals")


def energy(results: xarray.Dataset) -> list[Claim]:
    """Claims on the energy to a benchmark, here the final accuracy of `none`, and on the energy of the exchange.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison for which the results have data.
    """
    if "accuracy" not in results:
        return []
    found, data = [], data_of(results)
    if "none" in results["policy"].values:
        costs = cost_to_end_of_none(results)
        needed = logarithm(costs["energy"])
        for other in _others(costs):
            saved = _of(needed, other) - _of(needed, "rl")
            text, what = f"{data}: rl needs less energy than {other}", f"energy of rl, {other} = 1:"
            found.append(compare(text, what, saved, _ratio, _never(costs["reached"].where(saved.notnull()), other)))
    exchange, messages = counted(results, "exchange_energy"), counted(results, "control_energy")
    for other in _others(results, ("uniform",)):
        for values, what, unit, form in (
            (counted(results, "points_moved"), "moves fewer points", "points", "{:+,.0f}"),
            (exchange, "spends less energy on the exchange", "joules", "{:+.3f}"),
            (exchange + messages, "spends less energy on the exchange and its messages", "joules", "{:+.3f}"),
        ):
            more = _of(values, "rl") - _of(values, other)
            found.append(compare(f"{data}: {other} {what} than rl", f"{unit} more for rl", more, form.format))
    return found


def _never(reached: xarray.DataArray, other: str) -> str:
    """Formats in how many runs a policy never reaches the target, so that its energy is a lower bound."""
    counts = {name: int((_of(reached, name) == 0).sum()) for name in ("rl", other)}
    never = " and ".join(f"by {name} in {count:,}" for name, count in counts.items() if count)
    return f"never reached {never} of the runs, which count with all of their training" if never else ""


def reliability(results: xarray.Dataset) -> list[Claim]:
    """Claims on the reliability of the links: success of a transmission, and points requested from other clusters.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison for which the results have data.
    """
    if "graph_outage" not in results:
        return []
    worth = lambda name: counted(results, f"graph_{name}").mean("state")  # noqa: E731
    found = []
    for other in _others(results, ("uniform",)):
        outage = worth("outage")
        safer = _of(outage, other) - _of(outage, "rl")
        found.append(
            compare(f"links of rl are more reliable than those of {other}", "probability of success", safer)
        )
        for name, what in (("requested_inter", "between clusters"), ("over_budget", "over the clusters' budgets")):
            asked = worth(name)
            fewer = _of(asked, other) - _of(asked, "rl")
            text = f"rl asks for fewer points {what} than {other}"
            found.append(compare(text, "points a cluster fewer", fewer, "{:+,.1f}".format))
    return found


def claims_of(results: xarray.Dataset) -> list[Claim]:
    """Returns every claim of the paper for which results have data.

    Args:
        results: results of `run` or `sweep`. In a sweep, the number of a seed is its mean over the points, which
            the claim states; a claim about schemes, stragglers or aggregation intervals keeps their values apart.

    Returns:
        The claims; none if rl is not among the policies.
    """
    parts = (learning, stragglers, intervals, energy, reliability)
    results = whole(results)
    return [claim for part in parts for claim in part(results)]
