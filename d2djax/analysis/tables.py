"""Formats results as tables for the terminal and the report (Section IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from d2djax.analysis.claims import Claim
from d2djax.analysis.reduced import settings
from d2djax.analysis.statistics import axes_of, over_points, whole
from d2djax.analysis.summary import costs, summary
from d2djax.running.progress import bound_line, plural
from d2djax.running.results import BOUND, not_finite, own_reward

if TYPE_CHECKING:
    import xarray

# If a sweep has more points, a table shows the means over them.
MOST_POINTS = 24


def _frame(title: str, headings: Sequence[str], left: int) -> Table:
    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    return table


def _averages(dataset: xarray.Dataset, most: int) -> bool:
    axes = axes_of(dataset["status"])
    return int(np.prod([dataset.sizes[axis] for axis in axes])) > most


def _rows(numbers: xarray.Dataset) -> tuple[list[str], list[tuple[list[str], dict[str, float]]]]:
    """Returns the names of settings that differ, and for each point and policy their values and its numbers."""
    axes = axes_of(numbers)
    columns = settings(numbers, axes) if axes else {}
    flat = numbers.stack(at=axes, create_index=False) if axes else numbers.expand_dims("at")
    values = {str(name): one.transpose("at", "policy").values for name, one in flat.data_vars.items()}
    policies = [str(policy) for policy in numbers["policy"].values]
    rows = []
    for at in range(flat.sizes["at"]):
        point = [_setting(column[at]) for column in columns.values()]
        for place, policy in enumerate(policies):
            rows.append(([*point, policy], {name: float(one[at, place]) for name, one in values.items()}))
    return list(columns), rows


def _setting(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _seeds(dataset: xarray.Dataset, average: bool) -> str:
    text = plural(dataset.sizes["run"], "seed")
    over = over_points(dataset["status"]) if average else ""
    own = own_reward(dataset)
    learned = f", devices learn with {own}" if own else ""
    return (f"{text}, {over}" if over else text) + learned


TRAINED = {"final accuracy": "final_accuracy", "mean of rounds": "mean_accuracy"}
GRAPHS = {
    "reward, reference weights": ("reference_reward", ".3f"),
    "outage": ("outage", ".4f"),
    "points moved": ("points_moved", ",.0f"),
    "exchange (J)": ("exchange", ",.3g"),
    "messages (J)": ("messages", ",.3g"),
}


def summary_table(dataset: xarray.Dataset, *, most: int = MOST_POINTS) -> Table:
    """Tabulates the performance of each policy: means over the seeds that count, with 95 % intervals.

    With training, the columns are final accuracy, mean accuracy, its difference to `none` in the same run, and the
    classes of a device. Without training, they are reward with the reference weights, outage, moved points, energy.

    Args:
        dataset: results of `run` or `sweep`, finished or not, or a selection of them.
        most: with more points than this, the rows are means over the points, which the title states.

    Returns:
        The table; if some seeds do not count, a column shows how many do.
    """
    dataset = whole(dataset)
    average, count, is_trained = _averages(dataset, most), dataset.sizes["run"], "accuracy" in dataset
    columns, rows = _rows(summary(dataset, average=average))
    first = "final_accuracy" if is_trained else "points_moved"
    compares = any("difference_to_none" in row for _, row in rows)
    headings = list(TRAINED) + ["difference to none", "above in"] * compares if is_trained else list(GRAPHS)
    is_short = any(row[f"{first}_seeds"] < count for _, row in rows)
    headings += ["classes"] + ["seeds that count"] * is_short
    table = _frame(
        f"{_seeds(dataset, average)}: mean and 95 % confidence interval",
        [*columns, "policy", *headings],
        len(columns) + 1,
    )
    for point, row in rows:
        if is_trained:
            cells = [_with_interval(row, name, ".4f") for name in TRAINED.values()]
            if compares:
                is_other = point[-1] != "none"
                above = f"{row['above_none']:.0f}/{row['difference_to_none_seeds']:.0f}" if is_other else ""
                cells += [_with_interval(row, "difference_to_none", "+.4f") if is_other else "", above]
        else:
            cells = [_with_interval(row, name, form) if name in row else "–" for name, form in GRAPHS.values()]
        cells.append(_unless_unknown(row.get("classes", np.nan), ".2f"))
        table.add_row(*point, *cells, *[f"{row[f'{first}_seeds']:.0f}/{count}"] * is_short)
    return table


def cost_table(dataset: xarray.Dataset, *, most: int = MOST_POINTS) -> Table:
    """Tabulates the cost of each policy to reach the final accuracy of `none` in the same run (Section IV-B).

    Args:
        dataset: see `summary_table`; it must have the trained policy `none`.
        most: see `summary_table`.

    Returns:
        The table. A run that never reaches the target counts with its whole training, so means with such runs are
        lower bounds, marked with ≥.

    Raises:
        ValueError: `none` is not among the policies.
    """
    dataset = whole(dataset)
    average = _averages(dataset, most)
    columns, rows = _rows(costs(dataset, average=average))
    over = f"{over_points(dataset['status'])} and seeds" if average else "means over seeds"
    title = (
        f"cost to reach the final accuracy of none: {over}; ≥: some runs never reach it and count with all steps"
    )
    headings = ("reached in", "local steps", "uplink (Mbit)", "exchange (J)", "messages (J)", "uploads (J)")
    headings = (*columns, "policy", *headings, "energy (J)", "energy, none = 1")
    table = _frame(title, headings, len(columns) + 1)
    for point, row in rows:
        sign = "≥ " if row["reached"] < row["runs"] else ""
        least = lambda name, form, per=1.0, row=row, sign=sign: _unless_unknown(row[name] / per, form, sign)  # noqa: E731
        low, high = row["ratio_low"], row["ratio_high"]
        table.add_row(
            *point,
            f"{row['reached']:.0f}/{row['runs']:.0f}",
            least("steps", ".0f"),
            least("uplink", ",.4g", 1e6),
            _unless_unknown(row["exchange"], ",.3g"),
            _unless_unknown(row["messages"], ",.3g"),
            least("uploads", ",.4g"),
            least("energy", ",.4g"),
            least("ratio", ".2f") + ("" if np.isnan(low) else f" ({low:.2f}–{high:.2f})"),
        )
    return table


def _unless_unknown(value: float, form: str, sign: str = "") -> str:
    return "–" if np.isnan(value) else sign + format(value, form)


def _with_interval(row: dict[str, float], name: str, form: str) -> str:
    mean, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    # Student's interval is symmetric, so its half width suffices; a single seed has no interval.
    if np.isnan(mean) or np.isnan(low):
        return _unless_unknown(mean, form)
    return f"{mean:{form}} ± {format((high - low) / 2, form.replace('+', ''))}"


def claims_table(claims: Sequence[Claim]) -> Table:
    """Tabulates claims, measurements and verdicts, one row for each claim.

    Args:
        claims: result of `claims_of`.
    """
    table = Table(title="claims of Section IV-B: mean over seeds with 95 % bootstrap interval")
    for heading in ("claim", "measured", "verdict"):
        table.add_column(heading)
    for claim in claims:
        table.add_row(claim.text, claim.measured, claim.verdict)
    return table


MOST_LINES = 10


def best_trials(trials: xarray.Dataset) -> Table:
    """Tabulates the best trials of a search: means of each objective over the seeds, and the settings.

    Args:
        trials: result of `searches.trials_of`.
    """
    best = trials.isel(trial=np.flatnonzero(trials["is_best"].values))
    objectives = [str(name) for name, one in trials.data_vars.items() if "run" in one.dims]
    names = [str(name) for name in trials.coords if name not in ("trial", "run")]
    title = f"best of {plural(trials.sizes['trial'], 'trial')}, means over {plural(trials.sizes['run'], 'seed')}"
    table = _frame(title, ("trial", *objectives, *names), 0)
    for number in best["trial"].values:
        one = best.sel(trial=number)
        means = [f"{one[name].mean().item():.4g}" for name in objectives]
        values = [one[name].item() for name in names]
        table.add_row(str(number), *means, *(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values))
    return table


def diverged(dataset: xarray.Dataset) -> list[str]:
    """Lists the points of a sweep at which numbers of runs are not finite, the worst first.

    Args:
        dataset: results of `run` or `sweep`, or a selection of them.

    Returns:
        At most ten lines for points, and one that counts the others; empty if all numbers are finite.
    """
    dataset = whole(dataset)
    axes = axes_of(dataset["status"])
    bad = not_finite(dataset["status"]).any("policy").sum("run")
    counts = (bad.stack(at=axes) if axes else bad.expand_dims("at")).transpose("at")
    order = np.argsort(-counts.values, kind="stable")[: int((counts > 0).sum())]
    names = [str(name) for name, one in dataset.coords.items() if set(one.dims) <= set(axes) and name != "point"]
    lines = []
    for number in order[:MOST_LINES]:
        one = counts.isel(at=int(number))
        where = ", ".join(f"{name}={one[name].item()}" for name in names)
        lines.append(
            f"diverged: {int(one)} of {plural(dataset.sizes['run'], 'run')}{f' at {where}' if where else ''}"
        )
    if len(order) > MOST_LINES:
        lines.append(f"diverged: runs at {len(order) - MOST_LINES} more points, see `status`")
    return lines


def above_bound(dataset: xarray.Dataset) -> list[str]:
    """Returns a one-line warning if a mean reward is above its bound in some runs; otherwise an empty list.

    Args:
        dataset: results of `run` or `sweep`, or a selection of them.
    """
    dataset = whole(dataset)
    runs = int((dataset["status"] >= BOUND).any("policy").sum())
    if not runs:
        return []
    reward = own_reward(dataset) or "the paper's reward"
    return [f"{bound_line(plural(runs, 'run'), reward)}; see `status`"]
