"""Merges results of several runs or sweeps into one sweep, with a manifest that describes all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.analysis.statistics import WITHIN, axes_of
from d2djax.data import SOURCES
from d2djax.running.axes import NO_AXES
from d2djax.running.identity import BESIDE, differences
from d2djax.storage import layout

if TYPE_CHECKING:
    import xarray


def merge(parts: Sequence[xarray.Dataset], names: Sequence[str] = ()) -> xarray.Dataset:
    """Merges results of several runs or sweeps into those of one sweep.

    They may differ in their seeds and in the values of their axes. A setting that differs between them becomes an
    axis. A run that several of them contain must have bitwise equal numbers.

    Args:
        parts: results of `run`, `sweep` or `merge`, finished or not, or selections of them; all with the same
            variables.
        names: names of the parts for messages, such as their folders; empty: their numbers from 1.

    Returns:
        The results, with the axes first (numbers in ascending order), then the dimensions of `run`. `done` is 1
        where a part contains the run; missing values are NaN, or -1 for whole numbers. The manifest has all seeds
        and values of axes, and under "parts" the seeds, axes, commit, machine and time of each part.

    Raises:
        ValueError: the parts differ in anything else, which the line names.
    """
    if not parts:
        raise ValueError("parts must contain at least one result; got none")
    names = [*names] or [f"part {number + 1}" for number in range(len(parts))]
    for part, name in zip(parts, names, strict=True):
        if "manifest" not in part.attrs or "status" not in part or "run" not in part.dims:
            raise ValueError(f"{name}: not the results of a run or a sweep, or without their manifest")
        bare = [str(dim) for one in part.data_vars.values() for dim in one.dims if dim not in part.coords]
        bare = [dim for dim in bare if dim != "point"]
        if bare:
            raise ValueError(f"{name}: the dimension {bare[0]} has no coordinate")
    about = [_about(part, name) for part, name in zip(parts, names, strict=True)]
    fresh = _fresh_axes(parts, about)
    expanded = [_expanded(part, one, fresh) for part, one in zip(parts, about, strict=True)]
    _check_same(expanded, about, names, fresh)
    dims = [*dict.fromkeys((*fresh, *axes_of(expanded[0]["status"])))]
    wanted = _layout(expanded, [*dims, "run"])
    found = _filled(expanded, wanted, names)
    title = f"d2djax sweep on {about[0].get('data', {}).get('name', 'unknown data')}"
    manifest = _manifest(expanded, about, wanted, dims)
    return found.assign_attrs(title=title, manifest=json.dumps(manifest, sort_keys=True))


def _about(part: xarray.Dataset, label: str) -> dict[str, Any]:
    """Returns the manifest of a part, in which the selected value of an axis counts as a setting.

    Raises:
        ValueError: an axis was dropped, so it is unknown which points the numbers belong to.
    """
    found = json.loads(part.attrs["manifest"])
    axes = found.get("axes", {})
    gone = [name for name, values in axes.items() if name not in part.coords and len(values) > 1]
    if gone:
        raise ValueError(
            f"{label}: axis {gone[0]} was dropped; select points without drop=True, and merge before taking means"
        )
    selected = {name: part[name].item() for name in axes if name in part.coords and part[name].ndim == 0}
    selected |= {name: values[0] for name, values in axes.items() if name not in part.coords}
    return found | {"config": found.get("config", {}) | selected}


def _fresh_axes(parts: Sequence[xarray.Dataset], about: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the settings that become axes: those on an axis of some part, and those that differ between parts."""
    configs = [one.get("config", {}) for one in about]
    found = []
    for name in dict.fromkeys(name for config in configs for name in config):
        values = [config[name] for config in configs if name in config]
        is_plain = all(isinstance(value, (int, float, str)) for value in values)
        on_axis = [name in part.dims for part in parts]
        everywhere = all(name in config or is_on for config, is_on in zip(configs, on_axis, strict=True))
        if is_plain and everywhere and name not in NO_AXES and (any(on_axis) or len({*values}) > 1):
            found.append(str(name))
    return found


def _expanded(part: xarray.Dataset, about: Mapping[str, Any], fresh: Sequence[str]) -> xarray.Dataset:
    """Adds the settings that become axes to a part as dimensions, and adds `done`."""
    import xarray

    if "done" not in part:
        shape = [*axes_of(part["status"]), "run"]
        done = xarray.DataArray(np.ones([part.sizes[dim] for dim in shape], np.int8), dims=shape)
        part = part.assign(done=done.assign_attrs(long_name="1: this run is finished"))
    new = {name: [about["config"][name]] for name in fresh if name not in part.dims}
    # Strings of variable length, as in the coordinates of a sweep.
    values = {name: np.array(one, object if isinstance(one[0], str) else None) for name, one in new.items()}
    outer = [*new, *axes_of(part["status"]), "run"]
    runs = [name for name, one in part.data_vars.items() if "run" in one.dims]
    return part[runs].expand_dims(values).transpose(*outer, ...)


def _check_same(
    parts: Sequence[xarray.Dataset],
    about: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    fresh: Sequence[str],
) -> None:
    """Checks that parts differ only in seeds and axes."""
    first, besides = _common(about[0], about, fresh), ["axes", "seeds", "dimensions", "parts"]
    source = SOURCES.get(about[0].get("data", {}).get("name"))
    if fresh and source is not None and source.depends_on_settings:
        # The settings determine which points are read and how many, such as radio windows of which signal-to-noise
        # ratio.
        besides += ["data.digest", "data.points"]
    if "model" in fresh:
        besides += ["recipe.model", "recipe.parameters"]
    for part, one, name in zip(parts[1:], about[1:], names[1:], strict=True):
        found = differences(first, _common(one, about, fresh), besides)
        found = found or differences(_structure(parts[0]), _structure(part))
        if found:
            raise ValueError(f"{name} cannot be merged with {names[0]}: {found}")


def _structure(part: xarray.Dataset) -> dict[str, Any]:
    """Returns what must be equal but is not in the manifest, such as the dimensions of a selection."""
    texts = {str(name): one.values.tolist() for name, one in part.coords.items() if one.dtype.kind not in "biuf"}
    return {
        "dimensions of points": sorted(axes_of(part["status"])),
        "dimensions within a run": {
            str(name): sorted(str(dim) for dim in one.dims if dim in WITHIN) for name, one in part.data_vars.items()
        },
        "entries": {name: values for name, values in texts.items() if name in WITHIN},
        "selected": {name: one.item() for name, one in _selected(part).items()},
    }


def _selected(part: xarray.Dataset) -> dict[str, xarray.DataArray]:
    """Returns the coordinates of dimensions within a run along which one entry was selected."""
    return {str(name): one for name, one in part.coords.items() if one.ndim == 0 and name in WITHIN}


def _common(one: Mapping[str, Any], about: Sequence[Mapping[str, Any]], fresh: Sequence[str]) -> dict[str, Any]:
    """Returns a manifest for comparison, without settings that become axes and data that only some points read."""
    configs = [other.get("config", {}) for other in about]
    config = {name: value for name, value in one.get("config", {}).items() if name not in fresh}
    if fresh:
        config = {name: value for name, value in config.items() if all(name in other for other in configs)}
    found = {**one, "config": config}
    # Data sets are compared one by one; a data set that only some parts read cannot differ.
    shared = set.intersection(*({*_digests(other)} for other in about))
    digest = {name: value for name, value in _digests(one).items() if name in shared}
    return found | {"data": {**one.get("data", {}), "digest": digest}}


def _digests(about: Mapping[str, Any]) -> dict[str, str]:
    """Returns the digest of each data set by what is read of it; a run reads a single one."""
    found = about.get("data", {}).get("digest", {})
    return found if isinstance(found, dict) else {"all": found}


def _layout(parts: Sequence[xarray.Dataset], dims: Sequence[str]) -> layout.Layout:
    """Lays out the merged results, with every label of any part along each dimension."""
    coordinates: dict[str, tuple[str, np.ndarray, dict[str, str]]] = {}
    for name, one in parts[0].coords.items():
        # Settings identify points; the coordinate `point` is only an index.
        if len(one.dims) != 1 or name == "point":
            continue
        (dim,) = map(str, one.dims)
        values = [part[name].values for part in parts]
        if dim in dims:
            joined = np.concatenate([value.astype(object) for value in values])
            coordinates[str(name)] = (dim, joined, dict(one.attrs))
        else:
            is_text = one.dtype.kind not in "biuf"
            every = values[0] if is_text else np.unique(np.concatenate(values))
            coordinates[str(name)] = (dim, every, dict(one.attrs))
    for dim in dims:
        own = {name: entry for name, entry in coordinates.items() if entry[0] == dim}
        first: dict[tuple, int] = {}
        for place, label in enumerate(layout.labels(own, dim)):
            first.setdefault(label, place)
        # Random points have no order; texts keep the order of the first part.
        is_sorted = dim != "point" and len(own) == 1 and all(isinstance(label[0], (int, float)) for label in first)
        chosen = [first[label] for label in (sorted(first) if is_sorted else first)]
        for name, (_, values, attributes) in own.items():
            kinds = {part[name].dtype for part in parts}
            kind = object if any(one.kind not in "biuf" for one in kinds) else np.result_type(*kinds)
            coordinates[name] = (dim, values[chosen].astype(kind), attributes)
    variables = {
        str(name): (tuple(map(str, one.dims)), one.dtype, dict(one.attrs))
        for name, one in parts[0].data_vars.items()
    }
    lengths = {dim: len(layout.labels(coordinates, dim)) for dim in dims}
    return layout.Layout(lengths, (), coordinates, variables, {})


def _filled(parts: Sequence[xarray.Dataset], wanted: layout.Layout, names: Sequence[str]) -> xarray.Dataset:
    """Copies all runs of the parts to their positions in the merged results."""
    import xarray

    outer = list(wanted.dims)
    done = np.zeros(tuple(wanted.dims.values()), np.int8)
    places, fresh, twice = [], [], []
    for part in parts:
        place = _places(part, wanted)
        at = np.ix_(*(place[dim] for dim in outer))
        is_done = part["done"].transpose(*outer).values > 0
        places.append(place)
        fresh.append(is_done & (done[at] == 0))
        twice.append(is_done & (done[at] == 1))
        done[at] |= is_done.astype(np.int8)
    found: dict[str, Any] = {}
    for name, (dims, kind, attributes) in wanted.variables.items():
        if name == "done":
            found[name] = (outer, done, attributes)
            continue
        inner = [dim for dim in dims if dim not in outer]
        shape = [wanted.length(dim) for dim in (*outer, *inner)]
        whole = np.full(shape, layout.fill_value(kind), kind)
        for part, place, new, again, label in zip(parts, places, fresh, twice, names, strict=True):
            at = np.ix_(*(place[dim] for dim in outer))
            block = np.full((*new.shape, *whole.shape[len(outer) :]), layout.fill_value(kind), kind)
            inside = np.ix_(*map(np.arange, new.shape), *(place[dim] for dim in inner))
            block[inside] = part[name].transpose(*outer, *inner).values
            there = whole[at]
            if not np.array_equal(there[again], block[again], equal_nan=kind.kind == "f"):
                raise ValueError(f"{label}: {name} of a run differs from that of the same run in another part")
            there[new] = block[new]
            whole[at] = there
        found[name] = ([*outer, *inner], whole, attributes)
    return xarray.Dataset(found, coords=wanted.coordinates | _selected(parts[0]))


def _places(part: xarray.Dataset, wanted: layout.Layout) -> dict[str, np.ndarray]:
    """Returns the index in the merged results of each entry of a part, for each dimension."""
    every = wanted.coordinates
    own = {name: (dim, part[name].values, {}) for name, (dim, _, _) in every.items()}
    dims = {dim for dim, _, _ in every.values()}
    return {dim: layout.places(layout.labels(own, dim), layout.labels(every, dim)) for dim in dims}


def _manifest(
    parts: Sequence[xarray.Dataset], about: Sequence[Mapping[str, Any]], wanted: layout.Layout, dims: Sequence[str]
) -> dict[str, Any]:
    """Merges the manifests: what all parts share, and the facts about each part."""
    told = [name for name in BESIDE if "." not in name]
    found: dict[str, Any] = {}
    for one in reversed(about):
        found |= {name: value for name, value in one.items() if name not in (*told, "parts")}
    found["config"] = {
        name: value
        for one in reversed(about)
        for name, value in one.get("config", {}).items()
        if name not in wanted.coordinates
    }
    digest: dict[str, str] = {}
    for number, one in enumerate(about, start=1):
        for name, value in _digests(one).items():
            is_other = digest.setdefault(name, value) != value
            digest |= {f"{name}, part {number}": value} if is_other else {}
    if digest:
        found["data"] = found["data"] | {"digest": digest}
    values = {name: _plain(entry[1]) for name, entry in wanted.coordinates.items() if entry[0] in dims}
    found |= {"axes": values, "dimensions": list(dims), "seeds": wanted.coordinates["run"][1].tolist()}
    found["parts"] = []
    for part, one in zip(parts, about, strict=True):
        machine = {"machine": json.loads(part.attrs["machine"])} if "machine" in part.attrs else {}
        own = {"axes": {name: _plain(part[name].values) for name in values}, "seeds": _plain(part["run"].values)}
        facts = own | machine | {name: one[name] for name in told if name in one}
        found["parts"] += one.get("parts") or [facts]
    return found


def _plain(values: np.ndarray) -> list[Any]:
    """Converts values to JSON; NaN in a coordinate stands for a setting that is None."""
    return [None if value != value else value for value in values.tolist()]
