"""An interactive page of results that needs no network: curves, heat maps, graphs, claims (Section IV-B)."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.claims import WITHIN, claims_of
from d2djax.config import Config, complete
from d2djax.plotting import CLUSTER_COLOURS, COLOURS, INTER_COLOUR
from d2djax.statistics import interval

if TYPE_CHECKING:
    import xarray

# What a browser still opens at once; all points of a sweep are in the heat maps.
MOST_CURVES = 64
MOST_GRAPH_NUMBERS = 1_000_000
MOST_GRAPH_RUNS = 8
MOST_BANDS = 1000
# What is shown first, where it is there.
FIRST = ("accuracy", "graph_reward", "discovery_reward")
PLACES = ("position", "cluster", "links", "counts_before", "counts", "exchange_state", "done")


def _plain(values: Any) -> Any:
    """Arrays as nested lists of JSON: five digits, and null where there is no number."""
    if isinstance(values, np.ndarray):
        return _plain(values.tolist())
    if isinstance(values, (list, tuple)):
        return [_plain(value) for value in values]
    if isinstance(values, float):
        return float(f"{values:.5g}") if math.isfinite(values) else None
    return values


def _by_point(results: xarray.Dataset) -> xarray.Dataset:
    """Results with one dimension `at` in the place of the axes of a sweep; what is not done is NaN."""
    axes = [str(dim) for dim in results["status"].dims if dim not in WITHIN]
    if "done" in results:
        numbers = [name for name, one in results.data_vars.items() if one.dtype.kind == "f"]
        results = results.assign({name: results[name].where(results["done"] > 0) for name in numbers})
    names = [name for name, one in results.coords.items() if set(one.dims) <= set(axes) and one.dims]
    settings = results[names].to_dataframe(dim_order=axes).reset_index() if axes else None
    flat = results.stack(at=axes, create_index=False) if axes else results.expand_dims("at")
    flat.attrs["settings"] = (
        {}
        if settings is None
        else {str(name): settings[name].tolist() for name in settings.columns if name in names and name != "point"}
    )
    return flat.reset_coords([name for name in flat.coords if "at" in flat[name].dims], drop=True)


def _label(values: xarray.DataArray) -> str:
    unit = values.attrs.get("units", "1")
    return f"{values.attrs.get('long_name', values.name)}{'' if unit == '1' else f' ({unit})'}"


def _spread(samples: np.ndarray) -> list[Any]:
    """Mean, lower and upper limit over the runs, [R, ...], that have a number."""
    there = samples[np.isfinite(samples).any(axis=tuple(range(1, samples.ndim)))] if samples.ndim > 1 else samples
    there = there[np.isfinite(there)] if samples.ndim == 1 else there
    if there.shape[0] == 0:
        nothing = np.full(samples.shape[1:], np.nan)
        return _plain([nothing, nothing, nothing])
    return _plain([np.asarray(one, float) for one in interval(there)])


def _in_order(flat: xarray.Dataset) -> list[tuple[str, xarray.DataArray]]:
    """Variables by name, those that matter most first."""
    names = sorted(map(str, flat.data_vars), key=lambda name: (name not in FIRST, name))
    return [(name, flat[name]) for name in names]


def _curves(flat: xarray.Dataset, points: np.ndarray) -> dict[str, Any]:
    """Every variable over rounds or episodes: [point][method] of mean, lower and upper limit."""
    found = {}
    for name, one in _in_order(flat):
        along = [dim for dim in ("round", "episode") if dim in one.dims]
        if not along or "class" in one.dims:
            continue
        values = one if "method" in one.dims else one.expand_dims(method=["rl"])
        samples = values.isel(at=points).transpose("at", "method", "run", along[0]).values
        found[str(name)] = {
            "label": _label(one),
            "along": "local steps" if along[0] == "round" else "episodes",
            "x": _plain(one[along[0]].values),
            "methods": [str(method) for method in values["method"].values],
            "values": [[_spread(by_method) for by_method in by_point] for by_point in samples],
        }
    return found


def _maps(flat: xarray.Dataset) -> dict[str, Any]:
    """Every variable averaged within each run: [point][method] of the mean, for few points with its limits."""
    found = {}
    for name, one in _in_order(flat):
        if name in PLACES or one.dtype.kind not in "fiu" or "run" not in one.dims:
            continue
        values = one.astype(float)
        inner = [dim for dim in values.dims if dim not in ("at", "run", "method")]
        values = values.mean(inner) if inner else values
        values = values if "method" in values.dims else values.expand_dims(method=[""])
        samples = values.transpose("at", "method", "run").values
        if len(samples) <= MOST_BANDS:
            table = [[_spread(by_method) for by_method in by_point] for by_point in samples]
        else:
            means = np.where(np.isfinite(samples), samples, 0).sum(-1) / np.isfinite(samples).sum(-1).clip(1)
            table = [[[value] for value in row] for row in _plain(means)]
        methods = [str(method) for method in values["method"].values]
        found[str(name)] = {"label": _label(one), "methods": methods, "values": table}
    return found


def _graphs(flat: xarray.Dataset, points: np.ndarray, runs: int) -> dict[str, Any]:
    """The map of each point and run, and who sends to whom."""
    some = flat.isel(at=points, run=slice(runs))
    parts = {
        "position": ("at", "run", "device", "axis"),
        "cluster": ("at", "run", "device"),
        "links": ("at", "run", "method", "state", "device"),
        "counts_before": ("at", "run", "device", "class"),
        "counts": ("at", "run", "method", "device", "class"),
    }
    found = {name: _plain(some[name].transpose(*dims).values) for name, dims in parts.items()}
    names = {"methods": "method", "classes": "class", "states": "state"}
    return found | {key: [_text(one) for one in flat[dim].values] for key, dim in names.items()}


def _text(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)


def _facts(manifest: dict[str, Any]) -> list[list[str]]:
    """What sets these results apart: settings that are not the default ones, seeds, data, versions, machine."""
    config = manifest.get("config", {})
    # A manifest is JSON: tuples are lists there.
    default = json.loads(json.dumps(asdict(complete(Config(dataset=config.get("dataset", "radioml"))))))
    changed = [f"{name} = {value}" for name, value in config.items() if value != default.get(name, value)]
    seeds = manifest.get("seeds", [])
    machine = manifest.get("machine", {})
    versions = manifest.get("versions") or machine.get("versions", {})
    facts = {
        "settings": ", ".join(changed) or "the default ones",
        "seeds": f"{len(seeds)}, from {min(seeds)} to {max(seeds)}" if seeds else "unknown",
        "data": str(manifest.get("data", {}).get("name", "unknown")),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "backend": str(manifest.get("backend", machine.get("backend", "unknown"))),
    }
    return [[name, value] for name, value in facts.items()]


def page_data(results: xarray.Dataset) -> dict[str, Any]:
    """All that the page shows, as plain JSON.

    Args:
        results: of `run` or `sweep`, finished or not.

    Returns:
        Title, facts, manifest, settings of every point, curves, maps, graphs, claims, notes of what is left out.
    """
    flat = _by_point(results)
    count, num_runs = flat.sizes["at"], flat.sizes["run"]
    embedded = np.unique(np.linspace(0, count - 1, min(count, MOST_CURVES)).astype(int))
    runs = min(num_runs, MOST_GRAPH_RUNS)
    size = sum(flat[name].size for name in PLACES[:5]) / (count * num_runs) * runs
    graphs = embedded[:: -(-len(embedded) // max(1, int(MOST_GRAPH_NUMBERS // size)))]
    notes = []
    if len(embedded) < count:
        notes.append(f"Curves are shown for {len(embedded)} of {count:,} points, heat maps and lines for all.")
    if runs < num_runs or len(graphs) < count:
        notes.append(f"Graphs are shown for {runs} of {num_runs:,} runs at {len(graphs)} of {count:,} points.")
    if "done" in results and int(results["done"].sum()) < results["done"].size:
        notes.append(f"{int(results['done'].sum()):,} of {results['done'].size:,} runs are done; only they count.")
    manifest = json.loads(results.attrs.get("manifest", "{}"))
    axes = [str(dim) for dim in results["status"].dims if dim not in WITHIN]
    claims = [[one.text, one.measured, one.verdict] for one in claims_of(results)]
    return {
        "title": results.attrs.get("title", "d2djax"),
        "facts": _facts(manifest),
        "manifest": manifest,
        "notes": notes,
        "isGrid": bool(axes) and axes != ["point"],
        "settings": {name: _plain(values) for name, values in flat.attrs["settings"].items()},
        "runs": [_text(seed) for seed in results["run"].values],
        "curves": {"points": embedded.tolist(), "variables": _curves(flat, embedded)},
        "maps": _maps(flat),
        "graphs": {"points": graphs.tolist(), "runs": runs} | _graphs(flat, graphs, runs),
        "claims": claims,
        "colours": {"methods": COLOURS, "clusters": CLUSTER_COLOURS, "inter": INTER_COLOUR},
    }


def report(results: xarray.Dataset, out: str | Path = "report.html") -> Path:
    """Writes a page that shows results in a browser; it asks nothing of the network.

    Args:
        results: of `run` or `sweep`, finished or not.
        out: the page; an earlier one is replaced.

    Returns:
        Its path.

    Raises:
        ValueError: Plotly is missing, or the results are none of `run` or `sweep`.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError("report needs Plotly: pip install 'd2djax[plot]'") from None
    missing = [name for name in ("status", *PLACES[:5]) if name not in results]
    if missing:
        raise ValueError(f"results must be those of run or sweep; they lack {', '.join(missing)}")
    here, out = Path(__file__), Path(out)
    # A closing tag in a text would end the script that holds it.
    data = json.dumps(page_data(results), allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
    page = here.with_name("report.html").read_text()
    for mark, text in (
        ("/* plotly */", get_plotlyjs()),
        ("/* data */", f"const DATA = {data};"),
        ("/* script */", here.with_name("report.js").read_text()),
    ):
        page = page.replace(mark, text, 1)
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=out.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(page)
        os.replace(name, out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return out
