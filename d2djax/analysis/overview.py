"""Summarises folders of results: progress, the best points, and all numbers as CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from d2djax.analysis.reduced import settings
from d2djax.analysis.statistics import axes_of, whole
from d2djax.analysis.summary import costs, summary
from d2djax.running.progress import plural
from d2djax.running.results import not_finite, read
from d2djax.searching.journal import check_trials
from d2djax.searching.objectives import OBJECTIVES
from d2djax.storage import files

if TYPE_CHECKING:
    import xarray

# Measures that compare points, each with the objective of a search that uses the same numbers.
BEST = {
    "mean_accuracy": "accuracy",
    "final_accuracy": "final_accuracy",
    "reference_reward": "reward",
    "outage": "reliability",
}
HEADINGS = {
    "mean_accuracy": "mean accuracy of the rounds",
    "final_accuracy": "final accuracy",
    "reference_reward": "reward, reference weights",
    "outage": "outage",
}


@dataclass(frozen=True)
class Found:
    """Results in a folder.

    Attributes:
        name: name of the folder, as the user gave it.
        kind: "run", "sweep" or "search".
        results: results of `run` or `sweep`, or the trials of a search.
    """

    name: str
    kind: str
    results: xarray.Dataset


def open_results(given: str | Path) -> Found:
    """Opens the results of a command; values are read from disk when they are used.

    Args:
        given: folder of a run, a sweep or a search, finished or not, or the store in it.

    Returns:
        The results.

    Raises:
        ValueError: there are no such results, or they are damaged.
    """
    place = files.expand(given, "folder").resolve()
    kind, name = files.kind_of(place), str(given)
    if kind == "figures":
        stores = [str(one.parent.relative_to(place)) for one in sorted(place.glob(f"**/{files.STORE}"))]
        raise ValueError(f"{given}: holds figures; name the folders of their sweeps, such as {stores[0]}")
    if kind not in ("run", "sweep", "search"):
        what = "no results" if kind == "nothing" else "something that d2djax did not write"
        raise ValueError(f"{given}: expected the results of a run, a sweep or a search; found {what}")
    if kind == "search" and (place / files.JOURNAL).exists():
        return Found(name, kind, _trials(place))
    results = read(place / files.STORE if (place / files.STORE).exists() else place)
    check_trials(results, str(place))
    return Found(name, kind, results)


def _trials(place: Path) -> xarray.Dataset:
    """Reads the trials that a search has finished so far."""
    from d2djax.searching.journal import reading
    from d2djax.searching.searches import trials_of

    with reading(place) as study:
        return trials_of(study)


def status_line(found: Found) -> str:
    """Describes results and their progress in one line.

    Args:
        found: result of `open_results`.
    """
    results, about = found.results, json.loads(found.results.attrs.get("manifest", "{}"))
    data = about.get("data", {}).get("name", "unknown data")
    seeds = f"{plural(results.sizes.get('run', 1), 'seed')} ({_seeds(results['run'].values)})"
    if found.kind == "search":
        failed = int((results["seeds_left"] < results.sizes["run"]).sum())
        lost = f", {failed} of which failed" if failed else ""
        sought = " and ".join(about.get("objectives", []))
        return (
            f"{found.name}: search for {sought} on {data}, {seeds}; {plural(results.sizes['trial'], 'trial')}{lost}"
        )
    axes = axes_of(results["status"])
    names = list(settings(results, axes)) if axes else []
    points = plural(int(np.prod([results.sizes[axis] for axis in axes])), "point")
    over = f" over {', '.join(names)}, {points} x" if axes else ","
    done = results["done"].values > 0 if "done" in results else np.ones(1, bool).repeat(results.sizes["run"])
    bad = not_finite(whole(results)["status"]).any("policy").sum().item()
    kind = "run" if found.kind == "run" else "sweep"
    graphs = "" if "accuracy" in results else ", graphs alone"
    counts = f"{int(done.sum()):,} of {plural(done.size, 'run')} done, {bad:,} with numbers that are not finite"
    return f"{found.name}: {kind} on {data}{graphs}{over} {seeds}; {counts}"


def _seeds(seeds: np.ndarray) -> str:
    """Formats seeds; writes consecutive ones as `4 to 99`."""
    every = sorted({int(seed) for seed in np.atleast_1d(seeds)})
    if len(every) > 2 and every == list(range(every[0], every[0] + len(every))):
        return f"{every[0]} to {every[-1]}"
    shown = ", ".join(map(str, every[:6]))
    return shown if len(every) <= 6 else f"{shown} and {len(every) - 6} more"


def best_points(results: xarray.Dataset, policy: str) -> tuple[Table | None, list[str]]:
    """Finds the best point of a sweep for a policy, by each measure that can be compared between its points.

    Only points with the largest number of seeds compete, because a mean over few seeds may be high by chance.

    Args:
        results: results of `sweep` or `merge`, finished or not.
        policy: name of the policy.

    Returns:
        The table, None for a single point; and notes, such as one for each measure that cannot be compared.
    """
    axes = axes_of(results["status"])
    if not axes:
        return None, []
    columns = settings(results, axes)
    numbers = summary(results).sel(policy=policy)
    headings = ["best by", *columns, "mean", "95 % interval", "seeds"]
    table = Table(title=f"best of {plural(len(next(iter(columns.values()))), 'point')} for {policy}")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "best by" else "right")
    notes = []
    for name, objective in BEST.items():
        if name not in numbers:
            continue
        inside = [setting for setting in columns if setting in OBJECTIVES[objective].contains]
        if inside:
            # Changing such a setting changes the number of the same graph and model.
            notes.append(f"no best by {HEADINGS[name]}: its formula has {', '.join(inside)}")
            continue
        values = {part: numbers[part].transpose(*axes).values.ravel() for part in _parts(name)}
        mean, seeds = values[name], values[f"{name}_seeds"]
        if not seeds.any():
            continue
        sign = -1 if name == "outage" else 1
        score = np.where(seeds == seeds.max(), sign * mean, -np.inf)
        best, ties = int(np.argmax(score)), int((score == score.max()).sum()) - 1
        low, high = values[f"{name}_low"][best], values[f"{name}_high"][best]
        limits = "–" if np.isnan(low) else f"{low:.4f} to {high:.4f}"
        point = [_text(column[best]) for column in columns.values()]
        alike = f" (also at {plural(ties, 'other point')})" if ties else ""
        table.add_row(HEADINGS[name], *point, f"{mean[best]:.4f}{alike}", limits, f"{seeds[best]:.0f}")
    if table.row_count:
        notes.append("the best of many points looks better than it is; check it with other seeds")
    return (table if table.row_count else None), notes


def _parts(name: str) -> list[str]:
    return [name, *(f"{name}_{part}" for part in ("low", "high", "seeds"))]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def trials_csv(searches: Sequence[Found]) -> str:
    """Formats all trials of one or several searches as CSV: settings and objectives, also for each seed.

    Args:
        searches: the searches. With several, the first column is the name of the search, and columns that a search
            lacks are empty.

    Returns:
        One row for each trial; `is_best` marks the best ones of each search.
    """
    import pandas
    import xarray

    frames = {}
    for one in searches:
        found = {}
        for name, values in one.results.data_vars.items():
            if "run" in values.dims:
                seeds = values["run"].values
                found |= {f"{name}_seed_{seed}": values.sel(run=seed, drop=True) for seed in seeds}
            found[str(name)] = values.mean("run", skipna=False) if "run" in values.dims else values
        frames[one.name] = xarray.Dataset(found).to_dataframe()
    if len(searches) == 1:
        return frames[searches[0].name].to_csv()
    return pandas.concat(frames, names=["search"]).to_csv()


def csv_text(results: xarray.Dataset) -> str:
    """Formats the numbers of all tables as CSV, one row for each point and policy.

    Args:
        results: results of `run`, `sweep` or `merge`.

    Returns:
        The settings that differ, `policy`, `runs_done` and `runs_not_finite`, then each number with its 95 %
        interval and its number of seeds; missing numbers are empty.
    """
    import xarray

    results = whole(results)
    axes = axes_of(results["status"])
    done = results["done"] > 0 if "done" in results else xarray.ones_like(results["run"], bool)
    numbers = summary(results)
    if "none" in results["policy"].values and "accuracy" in results:
        taken = costs(results)
        numbers = numbers.merge(taken.rename({str(name): f"to_target_{name}" for name in taken.data_vars}))
    counts = {"runs_done": done.sum("run"), "runs_not_finite": not_finite(results["status"]).sum("run")}
    numbers = xarray.Dataset(counts).merge(numbers)
    columns = settings(results, axes) if axes else {}
    frame = numbers.drop_vars(columns, errors="ignore").to_dataframe(dim_order=[*axes, "policy"])
    frame = frame.reset_index()[["policy", *map(str, numbers.data_vars)]]
    for place, (name, values) in enumerate(columns.items()):
        frame.insert(place, name, np.repeat(np.array(values, object), results.sizes["policy"]))
    return frame.to_csv(index=False)
