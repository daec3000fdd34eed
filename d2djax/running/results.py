"""Results as labelled arrays: names, units and coordinates of all variables; saving and reading."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from d2djax.config import Config
from d2djax.data import Dataset, Description
from d2djax.energy import uploads
from d2djax.settings import RENAMED
from d2djax.storage import checksums, files, store

if TYPE_CHECKING:
    import xarray

    from d2djax.policies import Candidate

# name: (unit, meaning)
_LEARNING = {
    "accuracy": ("1", "share of held-out points that the global model classifies correctly"),
    "loss": ("nat", "mean cross entropy of the global model on held-out points"),
    "train_loss": ("nat", "mean cross entropy of the minibatches since the last evaluation"),
    "drift": ("1", "mean distance of the local models from their average before an aggregation"),
}
_WORTH = {
    "reward": ("1", "mean total reward of the devices, by the reward that they learn with"),
    "local_reward": ("1", "mean local reward of the devices, by the paper's formula"),
    "global_reward": ("1", "mean over the devices of the global reward of their cluster, by the paper's formula"),
    "reference_reward": (
        "1",
        "mean total reward of the devices, by the paper's formula and the reference weights",
    ),
    "diverse_share": ("1", "share of devices with at least min_classes classes"),
    "num_classes": ("1", "mean number of classes at or above the score threshold"),
    "outage": ("1", "mean outage of the chosen links"),
    "requested_inter": ("point", "mean points requested from outside the cluster"),
    "over_budget": ("point", "mean points requested above the cluster's budget"),
}
# Kinds of stored numbers, each with a bit of `status`; the last bit says that the bound of a reward does not hold.
TRAINING, GRAPH, ENERGY, BOUND = 1, 2, 4, 8
STATUS = (
    "0: all numbers are finite; else the sum of 1: the training diverged (NaN or infinity), "
    "2: the network, the rewards or the policies did, 4: an energy did, "
    "8: a reward is above the upper_bound of the reward, from which this policy starts"
)
# Where a number is missing on purpose; `status` reports numbers that are not finite anywhere else.
MISSING = {
    "exchange_energy": "NaN for pooled, which has no exchange",
    **{name: "NaN in round 0, before the first minibatch" for name in ("train_loss", "drift")},
    **{f"graph_{name}": "NaN for pooled, which has no graph" for name in _WORTH},
    **{f"discovery_{name}": "NaN for policies that do not learn" for name in (*_WORTH, "entropy")},
}
ROUND = "local steps so far; 0: the initial model, before training"
_ENTROPY = {"entropy": ("nat", "mean entropy of the policies")}


def manifest(identity: dict[str, Any], machine: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Returns the manifest that is stored with the results of a run.

    Args:
        identity: result of `identity.identify`.
        machine: result of `machine.describe`.
        seconds: wall time of the run, s.
    """
    return identity | {
        "machine": machine,
        "wall_seconds": round(seconds, 1),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


Candidates = Mapping[str, "Candidate"]
Variable = tuple[tuple[str, ...], np.ndarray, dict[str, str]]


def variables(
    config: Config,
    candidates: Candidates,
    graphs: Any,
    learning: Any,
    num_parameters: int | None,
    reward: str | None = None,
) -> dict[str, Variable]:
    """Builds every variable of a batch of runs.

    Args:
        config: the validated config.
        candidates: the policies, in order.
        graphs: `simulation.Graphs` with a leading run axis.
        learning: `federated.Learning`, fields [R, M, rounds]; None for runs without training.
        num_parameters: number of model parameters; None: no model is known, and uploads are left out.
        reward: name of the user's reward, which the attributes of its values record; None: the paper's.

    Returns:
        Dimensions (`run` first), values, and attributes of each variable, by name.
    """
    per_policy = ("run", "policy")
    network, links = graphs.network, "transmitter of each device; the device itself where it has no link"
    found = {
        "position": (("run", "device", "axis"), graphs.place, "m", "position of each device during the exchange"),
        "cluster": (("run", "device"), network.cluster, "1", "label of the reliable cluster"),
        "exchange_state": (("run",), graphs.state, "1", "channel state in which the exchange happens"),
        "links": ((*per_policy, "state", "device"), graphs.links, "1", links),
        "counts_before": (("run", "device", "class"), network.counts, "point", "points before the exchange"),
        "counts": ((*per_policy, "device", "class"), graphs.counts, "point", "points after the exchange"),
        "exchange_energy": (per_policy, graphs.exchange_energy, "J", "energy of the exchange before training"),
        "control_energy": (
            per_policy,
            graphs.control_energy,
            "J",
            "energy of all control messages, those of discovery included",
        ),
        "points_moved": (per_policy, graphs.points_moved, "point", "points that moved to another device"),
    }
    if num_parameters is not None:
        number, bits = uploads(config.num_devices, num_parameters, config)
        upload_bits = np.full(graphs.state.shape, number * bits)
        aggregation = "of the uploads of one aggregation"
        found["upload_energy"] = (("run",), graphs.upload_energy, "J", f"energy {aggregation}")
        found["upload_bits"] = (("run",), upload_bits, "bit", "bits sent to the server for one aggregation")
    if learning is not None:
        by_class = "share of each class's held-out points that the global model classifies correctly"
        found["class_accuracy"] = ((*per_policy, "round", "class"), learning.class_accuracy, "1", by_class)
        for name, (unit, meaning) in _LEARNING.items():
            found[name] = ((*per_policy, "round"), getattr(learning, name), unit, meaning)
    for name, (unit, meaning) in _WORTH.items():
        found[f"graph_{name}"] = (
            (*per_policy, "state"),
            graphs.values[name],
            unit,
            f"{meaning}, in each state",
        )
    if graphs.history is not None:
        for name, (unit, meaning) in (_WORTH | _ENTROPY).items():
            values = getattr(graphs.history, name)
            found[f"discovery_{name}"] = ((*per_policy, "episode"), values, unit, f"{meaning}, during discovery")
    numbers: dict[str, Variable] = {
        name: (dims, np.asarray(values), {"units": unit, "long_name": meaning} | _missing(name))
        for name, (dims, values, unit, meaning) in found.items()
    }
    if reward is not None:
        for name in {"graph_reward", "discovery_reward"} & set(numbers):
            attributes = numbers[name][2]
            attributes |= {"long_name": f"{attributes['long_name']}, {reward}", "reward": reward}
    status = _status(candidates, numbers, len(graphs.state))
    if graphs.bound is not None:
        status |= BOUND * _is_above(candidates, numbers, np.asarray(graphs.bound)).astype(np.int8)
    about = {"units": "1", "long_name": STATUS}
    return {"status": (per_policy, status, about)} | _of_graphs(candidates, numbers, len(graphs.state))


# Dimensions within a run.
_DIMENSIONS: dict[str, tuple[str, ...]] = {
    "position": ("device", "axis"),
    "cluster": ("device",),
    "links": ("policy", "state", "device"),
    "counts_before": ("device", "class"),
    "counts": ("policy", "device", "class"),
    "class_accuracy": ("policy", "round", "class"),
    **dict.fromkeys(_LEARNING, ("policy", "round")),
    **{f"graph_{name}": ("policy", "state") for name in _WORTH},
    **{f"discovery_{name}": ("policy", "episode") for name in (*_WORTH, *_ENTROPY)},
    **dict.fromkeys(("status", "exchange_energy", "control_energy", "points_moved"), ("policy",)),
}
# Whole numbers, which are -1 where there is none.
_WHOLE = {"cluster", "exchange_state", "links", "counts_before", "counts", "points_moved", "upload_bits"}


def dimensions_of(name: str) -> tuple[str, ...]:
    """Dimensions of a variable by its name, without those of a sweep.

    Args:
        name: of a variable of results.

    Returns:
        The dimensions, of which `run` is the first.
    """
    return ("run", *_DIMENSIONS.get(name, ()))


def _missing(name: str) -> dict[str, str]:
    return {"missing": MISSING[name]} if name in MISSING else {}


def kind_of(name: str) -> int:
    """Returns the kind of a variable's numbers by its name: `TRAINING`, `GRAPH` or `ENERGY`."""
    if name in _LEARNING or name == "class_accuracy":
        return TRAINING
    return ENERGY if name.endswith("_energy") else GRAPH


def _is_missing(name: str, values: np.ndarray, candidates: Candidates) -> np.ndarray:
    """Returns where a number is missing on purpose, see `MISSING`; bool in the shape of the values."""
    if name not in MISSING:
        return np.zeros(values.shape, bool)
    if name in _LEARNING:
        return np.isnan(values) & (np.arange(values.shape[-1]) == 0)
    is_curve = name.startswith("discovery_")
    lacks = np.array([not (one.learns if is_curve else one.has_graph) for one in candidates.values()])
    return np.isnan(values) & lacks.reshape(-1, *(1,) * (values.ndim - 2))


def _status(candidates: Candidates, numbers: dict[str, Variable], runs: int) -> np.ndarray:
    """Returns which kinds of numbers are not finite, see `STATUS`; [run, policy] int8."""
    status = np.zeros((runs, len(candidates)), np.int8)
    for name, (dims, values, _) in numbers.items():
        if values.dtype.kind != "f":
            continue
        bad = ~np.isfinite(values) & ~_is_missing(name, values, candidates)
        within = tuple(place for place, dim in enumerate(dims) if dim not in ("run", "policy"))
        bad = np.asarray(bad.any(within))
        # All policies share a variable without a policy axis.
        status |= kind_of(name) * (bad if "policy" in dims else bad[:, None]).astype(np.int8)
    return status


# Variables that depend on a policy's graph. Without a graph, whole numbers are -1, as elsewhere in a sweep.
_OF_GRAPHS = ("links", "counts", "points_moved", "exchange_energy")


def _of_graphs(candidates: Candidates, numbers: dict[str, Variable], runs: int) -> dict[str, Variable]:
    """Sets variables to NaN or -1 where a policy had no valid weights, which its curves show, and so no graph.

    The most likely transmitter under such weights is arbitrary. Values of its graph, of the exchange and of the
    training on it are not results, even if they are finite.
    """
    is_lost = np.zeros((runs, len(candidates)), bool)
    for name in {"discovery_entropy", "discovery_outage"} & set(numbers):
        is_lost |= ~np.isfinite(numbers[name][1]).all(-1)
    is_lost &= np.array([one.learns for one in candidates.values()])
    if not is_lost.any():
        return numbers
    found = dict(numbers)
    for name, (dims, values, about) in numbers.items():
        if name in _OF_GRAPHS or name.startswith("graph_") or kind_of(name) == TRAINING:
            lost = is_lost.reshape(*is_lost.shape, *(1,) * (values.ndim - 2))
            nothing = np.array(np.nan if values.dtype.kind == "f" else -1, values.dtype)
            found[name] = (dims, np.where(lost, nothing, values), about)
    return found


def _is_above(candidates: Candidates, numbers: dict[str, Variable], bound: np.ndarray) -> np.ndarray:
    """Returns the policies that start at a bound, [run], that a mean reward of the run exceeds; [run, policy] bool.

    The reward may be that of any policy: a policy that starts too low explores too little to find it.
    """
    found = [numbers[name][1] for name in ("graph_reward", "discovery_reward") if name in numbers]
    most = [np.where(np.isfinite(one), one, -np.inf).reshape(len(bound), -1).max(-1) for one in found]
    # The tolerance covers the rounding error of float32.
    is_above = np.max(most, axis=0) > bound + 1e-5 * np.maximum(np.abs(bound), 1.0)
    return is_above[:, None] & np.array([one.starts_at_bound for one in candidates.values()])


T = TypeVar("T", np.ndarray, "xarray.DataArray")


def not_finite(status: T) -> T:
    """Returns where a status says that numbers are not finite; an exceeded bound alone does not count.

    Args:
        status: int array of `status` values, of any shape.

    Returns:
        Bool in the same shape.
    """
    # A negative status marks a run that is not done.
    return (status > 0) & (status % BOUND > 0)


def counted(dataset: xarray.Dataset, name: str) -> xarray.DataArray:
    """Returns a variable with NaN wherever it does not count in means, intervals, claims, figures and objectives.

    Values do not count in unfinished runs; in all rounds of a run whose `status` reports non-finite numbers of this
    kind, or of a kind that it depends on; and where a point of a sweep lacks the device, round or episode.

    Args:
        dataset: results of `run` or `sweep`, finished or not, or a selection of them.
        name: a variable with the dimension `run`.

    Returns:
        Float array with the dimensions of the variable; NaN or finite.

    Raises:
        ValueError: there is no such variable, or the results are means, so that it is unknown which runs count.
    """
    if name not in dataset:
        raise ValueError(f"results must have {name}, which these lack")
    for mark in {"status", "done"} & set(dataset):
        if dataset[mark].dtype.kind == "f" and (np.mod(dataset[mark].values, 1) > 0).any():
            raise ValueError(f"results must be of single runs, but {mark} is a mean: take means afterwards")
    values, kind = dataset[name], kind_of(name)
    # By the name: xarray makes whole numbers real ones where it fills gaps.
    is_number = np.isfinite(values) & ((values != -1) if name in _WHOLE else True)
    if "done" in dataset:
        is_number = is_number & (dataset["done"] > 0)
    if "status" in dataset:
        # Without a valid graph, neither the energy of the exchange nor the training counts.
        is_bad = (dataset["status"].fillna(0).astype(int) & (kind | GRAPH)) > 0
        if "policy" in is_bad.dims and "policy" not in values.dims:
            is_bad = is_bad.all("policy")
        is_number = is_number & ~is_bad
    return values.astype(float).where(is_number).transpose(*values.dims)


def coordinates(
    config: Config, candidates: Candidates, dataset: Dataset | Description
) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """Returns values and attributes of every dimension within a run, by name.

    Args:
        config: the validated config.
        candidates: the policies, in order; `episode` exists only if one of them learns.
        dataset: names the classes.
    """
    # Strings of variable length: the format of fixed-length strings in zarr may change.
    text = lambda names: np.array(names, dtype=object)  # noqa: E731
    stride = config.aggregation_interval * config.evaluate_every
    found = {
        "policy": (text(list(candidates)), {}),
        "round": (np.arange(0, config.num_steps + 1, stride), {"units": "local step", "long_name": ROUND}),
        "state": (np.arange(config.num_states), {"long_name": "channel state"}),
        "device": (np.arange(config.num_devices), {}),
        "class": (text(dataset.class_names), {}),
        "axis": (text(("x", "y")), {}),
    }
    if any(one.learns for one in candidates.values()):
        episodes = np.arange(config.record_every, config.num_episodes + 1, config.record_every)
        found["episode"] = (episodes, {"units": "episode"})
    return found


def label(
    config: Config,
    candidates: Candidates,
    seeds: np.ndarray,
    dataset: Dataset | Description,
    graphs: Any,
    learning: Any,
    num_parameters: int | None,
    about: dict[str, Any],
    reward: str | None = None,
) -> xarray.Dataset:
    """Labels every array of a batch of runs.

    Args:
        config: the validated config.
        candidates: the policies, in order.
        seeds: [R] int, coordinates of `run`.
        dataset: names the classes.
        graphs: see `variables`.
        learning: see `variables`.
        num_parameters: see `variables`.
        about: the manifest, stored as JSON in `attrs["manifest"]`.
        reward: see `variables`.

    Returns:
        The dataset. `round` counts local steps and `episode` episodes, each at the end of its interval.
    """
    import xarray

    named = {"run": ("run", seeds, {"long_name": "seed"})} | {
        name: (name, values, attributes)
        for name, (values, attributes) in coordinates(config, candidates, dataset).items()
    }
    attributes = {"title": f"d2djax run on {dataset.name}", "manifest": json.dumps(about, sort_keys=True)}
    return xarray.Dataset(
        variables(config, candidates, graphs, learning, num_parameters, reward), coords=named, attrs=attributes
    )


def own_reward(results: xarray.Dataset) -> str | None:
    """Returns the name of the user's reward with which the policies learned; None for the paper's reward.

    Args:
        results: results of `run` or `sweep`, or a selection of them.
    """
    return results["graph_reward"].attrs.get("reward") if "graph_reward" in results else None


def last_number(values: np.ndarray) -> np.ndarray:
    """Returns the last finite number along the last axis; points with fewer rounds than others end earlier.

    Args:
        values: [..., K] float.

    Returns:
        [...] float; the last entry if no number is finite.
    """
    last = values.shape[-1] - 1 - np.argmax(np.isfinite(values)[..., ::-1], axis=-1)
    return np.take_along_axis(values, last[..., None], axis=-1)[..., 0]


def save(dataset: xarray.Dataset, path: str | os.PathLike[str]) -> Path:
    """Writes results as a zarr store, atomically.

    Args:
        dataset: results.
        path: folder of the store, such as `results.zarr`; it replaces an earlier store of the same kind.

    Returns:
        The path.

    Raises:
        ValueError: `dataset` is no dataset, or something else exists at `path`.
        OSError: the store cannot be written; an earlier store stays unchanged.
    """
    import xarray
    import zarr

    if not isinstance(dataset, xarray.Dataset):
        kind = type(dataset).__name__
        raise ValueError(f"dataset must be an xarray.Dataset, such as the results of run; got {kind}")
    path = files.expand(path, "path")
    kind = "search" if "trial" in dataset.dims else "sweep" if "done" in dataset else "run"
    found = files.kind_of(path)
    if found not in ("nothing", kind):
        raise ValueError(f"{path}: the results of a {kind} cannot replace {found}; choose another path")
    with files.replacing(path) as new:
        with store.SETTINGS, zarr.config.set({"array.write_empty_chunks": True}):
            encoding = {name: checksums.codecs() for name in dataset.variables}
            dataset.to_zarr(new, mode="w", zarr_format=3, consolidated=False, encoding=encoding)
        checksums.seal(new)
    return path


def read(path: str | os.PathLike[str]) -> xarray.Dataset:
    """Opens saved results after checking all files against their checksums.

    Results from before 0.2 are read with a warning: their dimension `method` becomes `policy`.

    Args:
        path: folder of the store, such as `results.zarr`.

    Returns:
        The dataset; it reads values from disk when they are used.

    Raises:
        FileNotFoundError: there is no store at `path`.
        ValueError: a file of the store is missing or damaged; the line names it.
    """
    import xarray

    path = files.expand(path, "path")
    if not any(path.glob("zarr.json")) and not any(path.glob("*/zarr.json")):
        raise FileNotFoundError(f"{path}: no results here; expected a zarr store that d2djax wrote")
    found = xarray.open_zarr(path, consolidated=store.check(path), chunks=None)
    order = {dim: np.array(places) for dim, places in json.loads(found.attrs.pop("order", "{}")).items()}
    for name in store.OF_THE_SEAL:
        found.attrs.pop(name, None)
    return _renamed(found.isel(order) if order else found, path)


def _renamed(found: xarray.Dataset, path: str | os.PathLike[str]) -> xarray.Dataset:
    """Converts results from before 0.2: renames dimensions, and gives the curves of rl a policy axis."""
    about = json.loads(found.attrs.get("manifest", "{}"))
    names = {"method": "policy"} | RENAMED
    names = {old: new for old, new in names.items() if old in found.dims or old in about.get("config", {})}
    if not names:
        return found
    told = ", ".join(f"{old!r} is read as {new!r}" for old, new in names.items())
    warnings.warn(f"{path}: written before d2djax 0.2; {told}", stacklevel=3)
    for part in ("config", "axes"):
        if part in about:
            about[part] = {names.get(name, name): value for name, value in about[part].items()}
    dims = {old: new for old, new in names.items() if old in found.dims}
    found = found.rename(dims).assign_attrs(manifest=json.dumps(about, sort_keys=True))
    if "method" not in dims:
        return found
    learns = found["policy"] == "rl"
    curves = {
        name: values.where(learns).transpose(..., "policy", "episode").assign_attrs(values.attrs)
        for name, values in found.items()
        if str(name).startswith("discovery_")
    }
    return found.assign(curves)
