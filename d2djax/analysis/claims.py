"""What the paper claims in Section IV-B, next to what was measured."""

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
)
from d2djax.running.results import counted

if TYPE_CHECKING:
    import xarray

# Of fewer samples a bootstrap interval is far too narrow: of two it is all between them.
FEWEST_SEEDS = 5
# A difference that needs more seeds than this is none that anybody would look for.
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Claim:
    """One claim and its measure.

    Attributes:
        text: what is claimed.
        measured: the mean over seeds with its 95 % bootstrap interval, in how many seeds it points that way, of a
            sweep over which points and axes each seed is a mean, which runs do not count, and, where nothing is
            shown, how many seeds would show a difference of this size.
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


def _claim(
    text: str,
    what: str,
    samples: xarray.DataArray,
    show: Callable[[float], str] = "{:+.4f}".format,
    note: str = "",
) -> Claim:
    """The claim that samples (run, axes of a sweep) are above 0 on average; those that are not finite are left out.

    Samples are differences within a run at one point, so that what is left out is so for both that are compared.
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
    """Says how many seeds would decide a claim, if its true mean is the one measured."""
    needed = seeds_to_decide(values)
    if needed > MOST_SEEDS:
        return f"more than {MOST_SEEDS:,} seeds would be needed to decide"
    return f"about {max(needed, values.size + 1):,.0f} seeds would decide (80 % power)"


def _ratio(logarithm: float) -> str:
    return f"{np.exp(-logarithm):.2f}"


def _by_scheme(results: xarray.Dataset) -> Iterator[tuple[str, xarray.Dataset]]:
    """Results of each scheme, with its name."""
    if "scheme" not in results.dims:
        scheme = setting(results, "scheme")
        name = str(scheme.values.flat[0]) if scheme.size == 1 else "several schemes"
        yield name, results
        return
    for scheme in results["scheme"].values:
        yield str(scheme), results.sel(scheme=scheme)


def _others(values: xarray.DataArray | xarray.Dataset, names: tuple[str, ...] = ("none", "uniform")) -> list[str]:
    """Those of the policies that rl is compared with; none where rl is missing."""
    policies = list(values["policy"].values)
    return [name for name in names if name in policies] if "rl" in policies else []


def _of(values: xarray.DataArray, policy: str) -> xarray.DataArray:
    return values.sel(policy=policy, drop=True)


def learning(results: xarray.Dataset) -> list[Claim]:
    """The exchange helps: "improves the FL performance significantly over both".

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison that the results have data for; none if they have none.
    """
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
    final = final_accuracy(results).sortby(axis)
    lost = final.isel({axis: 0}, drop=True) - final.isel({axis: -1}, drop=True)
    first, last = (final[axis].values[place] for place in (0, -1))
    return [
        _claim(f"{what} cost rl less than {other}", f"final accuracy kept from {first} to {last}", kept)
        for other in _others(lost)
        for kept in [_of(lost, other) - _of(lost, "rl")]
    ]


def stragglers(results: xarray.Dataset) -> list[Claim]:
    """Stragglers: "our method is more resilient to stragglers than the baselines".

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison that the results have data for; none if they have none.
    """
    return _resilience(results, "num_stragglers", "stragglers")


def intervals(results: xarray.Dataset) -> list[Claim]:
    """Aggregation interval: "as tau_a becomes larger, our method outperforms the baselines".

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison that the results have data for; none if they have none.
    """
    return _resilience(results, "aggregation_interval", "longer aggregation intervals")


def energy(results: xarray.Dataset) -> list[Claim]:
    """Energy to a benchmark, here the accuracy that `none` ends with, and what of it goes from device to device.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison that the results have data for; none if they have none.
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
            found.append(_claim(text, what, saved, _ratio, _never(costs["reached"].where(saved.notnull()), other)))
    exchange, messages = counted(results, "exchange_energy"), counted(results, "control_energy")
    for other in _others(results, ("uniform",)):
        for values, what, unit, form in (
            (counted(results, "points_moved"), "moves fewer points", "points", "{:+,.0f}"),
            (exchange, "spends less energy on the exchange", "joules", "{:+.3f}"),
            (exchange + messages, "spends less energy on the exchange and its messages", "joules", "{:+.3f}"),
        ):
            more = _of(values, "rl") - _of(values, other)
            found.append(_claim(f"{data}: {other} {what} than rl", f"{unit} more for rl", more, form.format))
    return found


def _never(reached: xarray.DataArray, other: str) -> str:
    """Says in how many runs a policy never reaches the target, so that its energy is the least that it can be."""
    counts = {name: int((_of(reached, name) == 0).sum()) for name in ("rl", other)}
    never = " and ".join(f"by {name} in {count:,}" for name, count in counts.items() if count)
    return f"never reached {never} of the runs, which count with all of their training" if never else ""


def reliability(results: xarray.Dataset) -> list[Claim]:
    """Reliability of the links: success of a transmission, and points asked for from outside the cluster.

    Args:
        results: of `run` or `sweep`, or a selection of them.

    Returns:
        A claim for each comparison that the results have data for; none if they have none.
    """
    if "graph_outage" not in results:
        return []
    worth = lambda name: counted(results, f"graph_{name}").mean("state")  # noqa: E731
    found = []
    for other in _others(results, ("uniform",)):
        outage = worth("outage")
        safer = _of(outage, other) - _of(outage, "rl")
        found.append(
            _claim(f"links of rl are more reliable than those of {other}", "probability of success", safer)
        )
        for name, what in (("requested_inter", "between clusters"), ("over_budget", "over the clusters' budgets")):
            asked = worth(name)
            fewer = _of(asked, other) - _of(asked, "rl")
            text = f"rl asks for fewer points {what} than {other}"
            found.append(_claim(text, "points a cluster fewer", fewer, "{:+,.1f}".format))
    return found


def claims_of(results: xarray.Dataset) -> list[Claim]:
    """Every claim of the paper that results have data for.

    Args:
        results: of `run` or `sweep`; a seed of a sweep is the mean over its points, which the claim says, but
            schemes, numbers of stragglers and aggregation intervals stay apart where a claim is about them.

    Returns:
        The claims; none where rl is not among the policies.
    """
    parts = (learning, stragglers, intervals, energy, reliability)
    return [claim for part in parts for claim in part(results)]
