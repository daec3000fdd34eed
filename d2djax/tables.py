"""Tables of results for people (Section IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from d2djax.claims import Claim
from d2djax.progress import plural
from d2djax.statistics import cost_to_accuracy, interval, mean_accuracy, paired_differences, ratio_to

if TYPE_CHECKING:
    import xarray


def summary_table(dataset: xarray.Dataset) -> Table:
    """Final accuracy, mean accuracy and paired difference to `none`, with 95 % intervals across seeds."""
    curves = mean_accuracy(dataset)
    final = dataset["accuracy"].isel(round=-1)
    policies = [str(name) for name in dataset["policy"].values]
    differences = paired_differences(curves) if "none" in policies else None
    table = Table(title=f"{plural(dataset.sizes['run'], 'seed')}: mean and 95 % confidence interval")
    for heading in (
        "policy",
        "final accuracy",
        "mean of rounds",
        "difference to none",
        "above in",
        "classes",
    ):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy in policies:
        difference, above = "", ""
        if differences is not None and policy != "none":
            one = differences.sel(policy=policy).values
            difference, above = _with_interval(interval(one), "+.4f"), f"{(one > 0).sum()}/{one.size}"
        held = (dataset["counts"].sel(policy=policy) > 0).sum("class").mean().item()
        table.add_row(
            policy,
            _with_interval(interval(final.sel(policy=policy).values), ".4f"),
            _with_interval(interval(curves.sel(policy=policy).values), ".4f"),
            difference,
            above,
            f"{held:.2f}",
        )
    return table


def cost_table(dataset: xarray.Dataset) -> Table:
    """What each policy takes to reach the accuracy that `none` ends with, in the same run (Section IV-B)."""
    # A training that diverged reaches nothing, and sets no target.
    accuracy = dataset["accuracy"].where(dataset["status"] == 0)
    target = accuracy.sel(policy="none").isel(round=-1, drop=True)
    costs = cost_to_accuracy(dataset.assign(accuracy=accuracy), target)
    ratios = ratio_to(costs["energy"])
    table = Table(title="to first reach the accuracy that none ends with: means over the seeds that do")
    for heading in ("policy", "reached in", "local steps", "uplink (Mbit)", "energy (J)", "energy, none = 1"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy in (str(name) for name in dataset["policy"].values):
        one = costs.sel(policy=policy)
        reached = np.isfinite(one["steps"])
        mean = {name: float(one[name].where(reached).mean()) for name in ("steps", "uplink", "energy")}
        ratio, low, high, _ = ratios.get(policy, (np.nan, np.nan, np.nan, 0))
        table.add_row(
            policy,
            f"{int(reached.sum())}/{reached.size}",
            _unless_unknown(mean["steps"], ".0f"),
            _unless_unknown(mean["uplink"] / 1e6, ",.4g"),
            _unless_unknown(mean["energy"], ",.4g"),
            _unless_unknown(ratio, ".2f") + ("" if np.isnan(low) else f" ({low:.2f}–{high:.2f})"),
        )
    return table


def _unless_unknown(value: float, form: str) -> str:
    return "–" if np.isnan(value) else format(value, form)


def _with_interval(limits: Any, form: str) -> str:
    mean, low, high = (float(value) for value in limits)
    # Student's interval is symmetric, so its half width says all; a single seed has none.
    return format(mean, form) if low != low else f"{mean:{form}} ± {(high - low) / 2:.4f}"


def claims_table(claims: Sequence[Claim]) -> Table:
    """What the paper claims, what was measured, and whether it holds."""
    table = Table(title="claims of Section IV-B: mean over seeds with 95 % bootstrap interval")
    for heading in ("claim", "measured", "verdict"):
        table.add_column(heading)
    for claim in claims:
        table.add_row(claim.text, claim.measured, claim.verdict)
    return table


MOST_LINES = 10


def best_trials(trials: xarray.Dataset) -> Table:
    """The best trials of a search: means of each objective over the seeds, and the settings."""
    best = trials.isel(trial=np.flatnonzero(trials["is_best"].values))
    objectives = [str(name) for name, one in trials.data_vars.items() if "run" in one.dims]
    settings = [str(name) for name in trials.coords if name not in ("trial", "run")]
    table = Table(
        title=f"best of {plural(trials.sizes['trial'], 'trial')}, means over {plural(trials.sizes['run'], 'seed')}"
    )
    for heading in ("trial", *objectives, *settings):
        table.add_column(heading, justify="right")
    for number in best["trial"].values:
        one = best.sel(trial=number)
        means = [f"{one[name].mean().item():.4g}" for name in objectives]
        values = [one[name].item() for name in settings]
        table.add_row(str(number), *means, *(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values))
    return table


def diverged(dataset: xarray.Dataset) -> list[str]:
    """Lines that say at which points of a sweep runs left the finite numbers, the worst first; none if none did."""
    axes = [str(dim) for dim in dataset["status"].dims if dim not in ("run", "policy")]
    bad = (dataset["status"] > 0).any("policy").sum("run")
    counts = (bad.stack(at=axes) if axes else bad.expand_dims("at")).transpose("at")
    order = np.argsort(-counts.values, kind="stable")[: int((counts > 0).sum())]
    settings = [str(name) for name, one in dataset.coords.items() if set(one.dims) <= set(axes) and name != "point"]
    lines = []
    for number in order[:MOST_LINES]:
        one = counts.isel(at=int(number))
        where = ", ".join(f"{name}={one[name].item()}" for name in settings)
        lines.append(
            f"diverged: {int(one)} of {plural(dataset.sizes['run'], 'run')}{f' at {where}' if where else ''}"
        )
    if len(order) > MOST_LINES:
        lines.append(f"diverged: runs at {len(order) - MOST_LINES} more points, see `status`")
    return lines
