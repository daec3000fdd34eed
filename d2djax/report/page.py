"""Writes a self-contained HTML page of results: tables, curves, heat maps, graphs, claims, searches."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.analysis import reduced
from d2djax.analysis.claims import claims_of
from d2djax.analysis.looks import CLUSTER_COLOURS, INTER_COLOUR, PALETTE, looks_of, policies_of
from d2djax.analysis.statistics import check_all, whole
from d2djax.analysis.tables import above_bound, cost_table, summary_table
from d2djax.config import Config, complete
from d2djax.report.trials import cells_of, search_data
from d2djax.searching import journal
from d2djax.storage import files

if TYPE_CHECKING:
    import xarray

# Limits that keep the page fast in a browser; the heat maps show all points of a sweep.
MOST_CURVES = 64
MOST_GRAPH_NUMBERS = 1_000_000
MOST_GRAPH_RUNS = 8
DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}


def _dash(style: Any) -> str:
    """Converts a line style of Matplotlib for Plotly, for lines two pixels wide."""
    return DASHES[style] if isinstance(style, str) else ",".join(f"{2 * length}px" for length in style[1])


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(manifest: dict[str, Any]) -> list[list[str]]:
    """Lists the settings that differ from the defaults, seeds, data, versions and machine."""
    config = manifest.get("config", {})
    # In the JSON of a manifest, tuples are lists.
    default = json.loads(json.dumps(asdict(complete(Config(dataset=config.get("dataset", Config.dataset))))))
    changed = [f"{name} = {_shown(value)}" for name, value in config.items() if value != default.get(name, value)]
    axes = [f"{name}: {len(values):,} values" for name, values in manifest.get("axes", {}).items()]
    seeds, merged = manifest.get("seeds", []), manifest.get("parts", [])
    machines = [one.get("machine", {}) for one in merged or [manifest]]
    versions = machines[0].get("versions") or manifest.get("versions", {})
    places = dict.fromkeys(_machine(one, manifest.get("backend", "unknown")) for one in machines)
    commits = dict.fromkeys(str(one["commit"])[:12] for one in merged if one.get("commit"))
    facts = {
        "settings": ", ".join(changed) or "the defaults",
        "axes": ", ".join(axes),
        "seeds": f"{len(seeds)}, from {min(seeds)} to {max(seeds)}" if seeds else "unknown",
        "data": str(manifest.get("data", {}).get("name", "unknown")),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "machine": "; ".join(places),
        "merged": f"{len(merged)} results" + (f" from the commits {', '.join(commits)}" if commits else ""),
    }
    facts["merged"] = facts["merged"] if merged else ""
    return [[name, value] for name, value in facts.items() if value]


def _machine(about: dict[str, Any], backend: str) -> str:
    """Describes a machine in words."""
    devices = about.get("devices", [])
    parts = [str(about.get("backend", backend))]
    parts += [f"{devices.count(kind)} x {kind}" for kind in sorted(set(devices))]
    parts += [
        f"{about[name]} {unit}" for name, unit in (("cores", "cores"), ("memory_gib", "GiB")) if name in about
    ]
    return ", ".join(parts)


def _tables(points: reduced.ByPoint) -> list[list[dict[str, Any]]]:
    """Returns for each point the summary table and, if the runs trained, the cost table."""
    found = []
    names = policies_of(points.results)
    is_compared = "accuracy" in points.results and "none" in names and len(names) > 1
    for at in np.ndindex(*(points.results.sizes[dim] for dim in points.axes)):
        one = points.results.isel(dict(zip(points.axes, at, strict=True)))
        made = [summary_table, cost_table] if is_compared else [summary_table]
        found.append([cells_of(table(one)) for table in made])
    return found


def _notes(points: reduced.ByPoint, curves: int, graphs: int, runs: int) -> list[str]:
    """Returns notes on what the page leaves out."""
    count, num_runs = points.done.shape
    done, diverged = int(points.done.sum()), int(points.diverged.sum())
    notes = []
    if curves < count:
        notes.append(f"Curves show {curves} of {count:,} points; heat maps and lines show all points.")
    if runs < num_runs or graphs < count:
        notes.append(f"Graphs show {runs} of {num_runs:,} runs at {graphs} of {count:,} points.")
    for dim in ("round", "episode"):
        length = points.results.sizes.get(dim, 0)
        if length > reduced.MOST_PLACES:
            notes.append(f"Curves show {reduced.MOST_PLACES} of {length:,} {reduced.PLURALS[dim]}.")
    if done < points.done.size:
        notes.append(f"{done:,} of {points.done.size:,} runs are done; only these count.")
    if diverged:
        notes.append(
            f"{diverged:,} of {done * points.diverged.shape[2]:,} training runs diverged; means exclude them."
        )
    return notes + above_bound(points.results)


def page_data(results: xarray.Dataset) -> dict[str, Any]:
    """Collects the content of the page as plain JSON.

    Args:
        results: results of `run` or `sweep`, finished or not.

    Returns:
        Title, facts, manifest, settings of every point, curves, maps, graphs, claims, and notes on omissions.
    """
    results = whole(results)
    check_all(results, "device", "state")
    points = reduced.by_point(results)
    count, num_runs = points.done.shape
    runs = min(num_runs, MOST_GRAPH_RUNS)
    size = sum(results[name].size for name in reduced.PLACES) // (count * num_runs) * runs
    shown, curves = reduced.chosen(points, MOST_CURVES)
    drawn, graphs = reduced.chosen(points, min(MOST_CURVES, max(1, MOST_GRAPH_NUMBERS // size)))
    manifest = json.loads(results.attrs["manifest"])
    if "machine" in results.attrs:
        manifest["machine"] = json.loads(results.attrs["machine"])
    # No claim uses these variables, which hold most of the numbers.
    claims = claims_of(results.drop_vars(reduced.PLACES))
    looks = looks_of(policies_of(results))
    return {
        "title": results.attrs.get("title", "d2djax"),
        "facts": _facts(manifest),
        "manifest": manifest,
        "notes": _notes(points, len(shown), len(drawn), runs),
        "isGrid": bool(points.axes) and points.axes != ["point"],
        "settings": reduced.settings(results, points.axes),
        "runs": [reduced.text_of(seed) for seed in results["run"].values],
        "curves": {"points": shown, "variables": reduced.curves(curves)},
        "maps": reduced.maps(points),
        "graphs": {"points": drawn, "runs": runs} | reduced.graphs(graphs, runs),
        "tables": _tables(curves),
        "claims": [[one.text, one.measured, one.verdict] for one in claims],
        "colours": {
            "policies": {policy: look["color"] for policy, look in looks.items()},
            "clusters": CLUSTER_COLOURS,
            "palette": PALETTE,
            "inter": INTER_COLOUR,
        },
        "dashes": {policy: _dash(look["linestyle"]) for policy, look in looks.items()},
    }


def _search_page(trials: xarray.Dataset) -> dict[str, Any]:
    """Collects the content of the page of a search."""
    found = search_data(trials)
    if "machine" in trials.attrs:
        found["manifest"]["machine"] = json.loads(trials.attrs["machine"])
    failed = sum(value is None for value in next(iter(found["objectives"].values()))["values"])
    notes = [f"{failed:,} of {trials.sizes['trial']:,} trials failed because a run diverged."] if failed else []
    notes += journal.above_bound(trials)
    return found | {"facts": _facts(found["manifest"]), "notes": notes, "colours": {"palette": PALETTE}}


def check_page(out: str | Path, name: str = "out") -> Path:
    """Checks, before any work, that the page can be written.

    Args:
        out: path of the page.
        name: name of the argument, for the message.

    Returns:
        The absolute path.

    Raises:
        ValueError: the file exists and is not a page of `report`, or it cannot be written.
    """
    place = files.check_file(out, name)
    if place.exists():
        with place.open("rb") as file:
            if b"<title>d2djax report</title>" not in file.read(1000):
                raise ValueError(f"{name} {out}: the file exists and is not a report; choose another name")
    return place


def report(results: xarray.Dataset, out: str | Path = "report.html") -> Path:
    """Writes a self-contained HTML page of results that can be viewed offline.

    Args:
        results: results of `run`, `sweep` or `merge`, finished or not; or the trials of a search, see
            `searches.trials_of`.
        out: path of the page; it replaces an earlier page of `report`.

    Returns:
        The absolute path.

    Raises:
        ValueError: Plotly is missing, the results have another origin or are a search of d2djax 0.1, or `out`
            cannot hold the page.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError("report needs Plotly: run pip install '.[plot]' in the clone") from None
    out = check_page(out)
    journal.check_trials(results, "results")
    is_search = "is_best" in results and "manifest" in results.attrs
    missing = [] if is_search else [name for name in ("status", *reduced.PLACES) if name not in results]
    missing += ["the dimension run"] * (is_search and "run" not in results.dims)
    missing += ["the manifest"] * ("manifest" not in results.attrs)
    if missing:
        raise ValueError(f"results must be those of run or sweep; they lack {', '.join(missing)}")
    here = Path(__file__)
    shown = _search_page(results) if is_search else page_data(results)
    data = json.dumps(shown, allow_nan=False, separators=(",", ":"))
    parts = {
        "plotly": get_plotlyjs(),
        # A tag in a text could end the script element that contains it.
        "data": "const DATA = " + data.replace("<", "\\u003c") + ";",
        "script": here.with_name("page.js").read_text(),
    }
    # One substitution for all marks, because a text of the data may look like a mark.
    template = here.with_name("page.html").read_text()
    page = re.sub(r"/\* (plotly|data|script) \*/", lambda mark: parts[mark[1]], template)
    files.write_text(out, page)
    return out
