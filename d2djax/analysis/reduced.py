"""Reduces the results of a run or a sweep to the content of a page: curves, one number for each run, graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.analysis.statistics import WITHIN, bounds_of, in_training, limits
from d2djax.running.results import counted, last_number, not_finite

if TYPE_CHECKING:
    import xarray

# Limits that keep the page fast in a browser.
MOST_PLACES = 400
MOST_BANDS = 1000
# Variables to show first. Rewards with weights that differ between points cannot be compared.
FIRST = ("accuracy", "graph_reference_reward", "discovery_reference_reward")
PLACES = ("position", "cluster", "links", "counts_before", "counts", "exchange_state")
PLURALS = {"round": "rounds", "episode": "episodes", "state": "states", "class": "classes", "device": "devices"}


def plain(values: Any) -> Any:
    """Converts values for JSON.

    Args:
        values: an array, a sequence, or a single value.

    Returns:
        Nested lists of numbers with five significant digits, and None for NaN and infinities.
    """
    if isinstance(values, np.ndarray):
        return plain(values.tolist())
    if isinstance(values, (list, tuple)):
        return [plain(value) for value in values]
    if isinstance(values, float):
        return float(f"{values:.5g}") if math.isfinite(values) else None
    return values


@dataclass(frozen=True)
class ByPoint:
    """Results with all points of a sweep along one dimension `at`.

    Attributes:
        results: results of `run` or `sweep`, which are read from disk only when needed.
        axes: dimensions of the sweep; empty for a run.
        done: [P, R] bool, whether a run is finished.
        diverged: [P, R, M] bool, whether numbers of a policy are not finite.
    """

    results: xarray.Dataset
    axes: list[str]
    done: np.ndarray
    diverged: np.ndarray

    def samples(self, name: str) -> xarray.DataArray:
        """Returns a variable as (at, run, policy, ...), NaN where it does not count, see `results.counted`."""
        values = _flat(counted(self.results, name), self.axes)
        if "policy" not in values.dims:
            values = values.expand_dims({"policy": 1})
        return values.transpose("at", "run", "policy", ...)


def _flat(values: xarray.DataArray, axes: list[str]) -> xarray.DataArray:
    """Flattens the axes of a variable to one dimension `at`, followed by `run`."""
    import xarray

    one = values.transpose(*axes, "run", ...)
    flat = one.values.reshape(-1, *one.shape[len(axes) :])
    return xarray.DataArray(flat, dims=("at", *one.dims[len(axes) :]))


def by_point(results: xarray.Dataset) -> ByPoint:
    """Collects the points of a sweep, or the single point of a run; reads only `done` and `status`.

    Args:
        results: results of `run` or `sweep`, finished or not.
    """
    axes = [str(dim) for dim in results["status"].dims if dim not in WITHIN]
    status = _flat(results["status"], axes).transpose("at", "run", "policy").values
    done = _flat(results["done"], axes).values > 0 if "done" in results else np.ones(status.shape[:2], bool)
    return ByPoint(results, axes, done, not_finite(status) & done[:, :, None])


def settings(results: xarray.Dataset, axes: list[str]) -> dict[str, list[Any]]:
    """Returns the value of each setting that differs between points, at every point.

    Args:
        results: results of `sweep`.
        axes: dimensions of the sweep, in the order of the points.
    """
    import xarray

    names = [str(name) for name, one in results.coords.items() if set(one.dims) <= set(axes) and one.dims]
    names = [name for name in (*axes, *sorted(set(names) - set(axes))) if name in names and name != "point"]
    columns = xarray.broadcast(*(results[name] for name in names), *(results[dim] for dim in axes))
    found = {name: one.transpose(*axes).values.ravel().tolist() for name, one in zip(names, columns, strict=False)}
    return {name: [_setting(value) for value in values] for name, values in found.items()}


def _setting(value: Any) -> Any:
    """Rounds a value to eight digits, the precision with which it is computed."""
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value


def chosen(points: ByPoint, most: int) -> tuple[list[int], ByPoint]:
    """Chooses at most `most` points, evenly along every axis, so that points of a grid form a grid.

    Args:
        points: all points.
        most: largest number of points to keep.

    Returns:
        The indices of the chosen points among all points, and the chosen points.
    """
    lengths = [points.results.sizes[dim] for dim in points.axes]
    left = list(lengths)
    while math.prod(left) > most:
        left[int(np.argmax(left))] -= 1
    along = [np.linspace(0, length - 1, n).round().astype(int) for length, n in zip(lengths, left, strict=True)]
    numbers = np.arange(len(points.done)).reshape(lengths)[np.ix_(*along)].ravel()
    return numbers.tolist(), by_point(points.results.isel(dict(zip(points.axes, along, strict=True))))


def _label(values: xarray.DataArray, more: str = "") -> str:
    unit = values.attrs.get("units", "1")
    return f"{values.attrs.get('long_name', values.name)}{more}{'' if unit == '1' else f' ({unit})'}"


def _in_order(points: ByPoint) -> list[str]:
    """Returns the names of variables, the most important ones first."""
    names = [str(name) for name, one in points.results.data_vars.items() if "run" in one.dims]
    names = sorted(set(names) - {*PLACES, "done"})
    return sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def _policies(points: ByPoint, name: str, other: str) -> list[str]:
    one = points.results[name]
    return [str(policy) for policy in one["policy"].values] if "policy" in one.dims else [other]


def curves(points: ByPoint) -> dict[str, Any]:
    """Returns every variable over rounds or episodes.

    Args:
        points: the points to show.

    Returns:
        For each variable: label, name of the x axis, x, policies, and values [point][policy][mean, low, high][x].
    """
    found = {}
    for name in _in_order(points):
        one = points.results[name]
        along = [str(dim) for dim in ("round", "episode") if dim in one.dims]
        if not along or "class" in one.dims:
            continue
        length = one.sizes[along[0]]
        places = np.unique(np.linspace(0, length - 1, min(length, MOST_PLACES)).round().astype(int))
        samples, bounds = points.samples(name).isel({along[0]: places}), bounds_of(name)
        # A policy that does not learn has no curve.
        has_curve = samples.notnull().any([dim for dim in samples.dims if dim != "policy"]).values
        kept = np.flatnonzero(has_curve if has_curve.any() else ~has_curve)
        names, drawn = _policies(points, name, ""), samples.isel(policy=kept).transpose("run", "at", ...)
        found[name] = {
            "label": _label(one),
            "along": "local steps" if along[0] == "round" else "episodes",
            "x": plain(one[along[0]].values[places]),
            "policies": [names[place] for place in kept],
            "values": plain(np.moveaxis(np.stack(limits(drawn.values, bounds)), 0, 2)),
        }
    return found


def _reduced(points: ByPoint, name: str) -> dict[str, tuple[str, xarray.DataArray]]:
    """Returns label and samples (at, run, policy) of a variable's mean within each run, and of its last value."""
    one = points.results[name]
    if name == "status":
        import xarray

        share = np.where(points.done[:, :, None], points.diverged, np.nan)
        return {"diverged": ("share of runs that diverged", xarray.DataArray(share, dims=("at", "run", "policy")))}
    samples = points.samples(name)
    inner = samples.dims[3:]
    if not inner:
        return {name: (_label(one), samples)}
    over = ", mean over " + " and ".join(PLURALS.get(str(dim), str(dim)) for dim in inner)
    # Round 0 precedes training.
    meant = in_training(samples.assign_coords(round=one["round"])) if "round" in inner else samples
    found = {name: (_label(one, over), meant.mean(inner))}
    if inner in (("round",), ("episode",)):
        end = samples[..., 0].copy(data=last_number(samples.values))
        found[f"{name}, at the end"] = (_label(one, ", at the end"), end)
    return found


def maps(points: ByPoint) -> dict[str, Any]:
    """Reduces every variable to one number for each run.

    Args:
        points: all points.

    Returns:
        For each number: label, policies, and values [point][policy][mean, low, high], without the limits if there
        are more than `MOST_BANDS` points.
    """
    found = {}
    for name in _in_order(points):
        for title, (label, samples) in _reduced(points, name).items():
            spread = np.stack(limits(samples.transpose("run", "at", "policy").values, bounds_of(name)))
            # With very many points, the limits would take up most of the page.
            shown = spread if len(points.done) <= MOST_BANDS else spread[:1]
            values = plain(np.moveaxis(shown, 0, 2))
            found[title] = {"label": label, "policies": _policies(points, name, ""), "values": values}
    return found


def graphs(points: ByPoint, runs: int) -> dict[str, Any]:
    """Returns the positions, clusters, links and points of the first runs at each point.

    Args:
        points: the points to show.
        runs: number of runs.
    """
    some = points.results.isel(run=slice(runs))
    parts = {
        "position": ("at", "run", "device", "axis"),
        "cluster": ("at", "run", "device"),
        "links": ("at", "run", "policy", "state", "device"),
        "counts_before": ("at", "run", "device", "class"),
        "counts": ("at", "run", "policy", "device", "class"),
        "exchange_state": ("at", "run"),
    }
    found = {name: plain(_flat(some[name], points.axes).transpose(*dims).values) for name, dims in parts.items()}
    names = {"policies": "policy", "classes": "class", "states": "state"}
    found |= {key: [text_of(one) for one in some[dim].values] for key, dim in names.items()}
    return found | {"done": points.done[:, :runs].tolist()}


def text_of(value: Any) -> str:
    """Formats a coordinate."""
    return str(value.item() if isinstance(value, np.generic) else value)
