"""Results as labelled arrays: names, units and coordinates of everything that runs yield; how they are kept."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax import files
from d2djax.config import Config
from d2djax.data import Dataset
from d2djax.energy import uploads

if TYPE_CHECKING:
    import xarray

# name: (unit, meaning)
_LEARNING = {
    "accuracy": ("1", "share of held-out points that the global model classifies right"),
    "loss": ("nat", "mean cross entropy of the global model on held-out points"),
    "train_loss": ("nat", "mean cross entropy of the minibatches since the last evaluation"),
    "drift": ("1", "mean distance of the local models from their average before an aggregation"),
}
_WORTH = {
    "reward": ("1", "mean total reward of the devices, by the weights that they learn with"),
    "local_reward": ("1", "mean local reward of the devices"),
    "global_reward": ("1", "mean over the devices of the global reward of their cluster"),
    "reference_reward": ("1", "mean total reward of the devices by the reference weights"),
    "diverse_share": ("1", "share of devices with at least min_classes classes"),
    "num_classes": ("1", "mean number of classes at or above the score threshold"),
    "outage": ("1", "mean outage of the chosen links"),
    "requested_inter": ("point", "mean points requested from outside the cluster"),
    "over_budget": ("point", "mean points requested above the cluster's budget"),
}
STATUS = "0: finite, 1: the training diverged (NaN or infinity), 2: the rewards or the policies did"
_ENTROPY = {"entropy": ("nat", "mean entropy of the policies")}


def manifest(
    config: Config, seeds: np.ndarray, dataset: Dataset, machine: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """What is needed to make the results again: setting, seeds, data, machine, versions, wall time."""
    return {
        "config": dataclasses.asdict(config),
        "seeds": [int(seed) for seed in seeds],
        "data": {"name": dataset.name, "points": len(dataset.y), "source": dataset.source},
        "machine": machine,
        "wall_seconds": round(seconds, 1),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


Variable = tuple[tuple[str, ...], np.ndarray, dict[str, str]]


def variables(config: Config, graphs: Any, learning: Any, num_parameters: int) -> dict[str, Variable]:
    """Every variable of a batch of runs.

    Args:
        config: the validated config.
        graphs: `simulation.Graphs` with a leading run axis.
        learning: `federated.Learning`, fields [R, M, rounds]; none for runs that did not train.
        num_parameters: numbers in the model.

    Returns:
        Dimensions, of which `run` is the first, values, and attributes of each variable, by name.
    """
    per_policy = ("run", "policy")
    network, links = graphs.network, "transmitter of each device; itself where it has no link"
    number, bits = uploads(config.num_devices, num_parameters, config)
    upload_bits = np.full(graphs.state.shape, number * bits)
    found = {
        "status": (per_policy, _status(config.policies, graphs, learning), "1", STATUS),
        "position": (("run", "device", "axis"), graphs.place, "m", "place of each device at the exchange"),
        "cluster": (("run", "device"), network.cluster, "1", "label of the reliable cluster"),
        "exchange_state": (("run",), graphs.state, "1", "channel state in which the exchange happens"),
        "links": ((*per_policy, "state", "device"), graphs.links, "1", links),
        "counts_before": (("run", "device", "class"), network.counts, "point", "points before the exchange"),
        "counts": ((*per_policy, "device", "class"), graphs.counts, "point", "points after the exchange"),
        "exchange_energy": (per_policy, graphs.exchange_energy, "J", "energy of the exchange before training"),
        "control_energy": (per_policy, graphs.control_energy, "J", "energy of the messages that agree on it"),
        "upload_energy": (("run",), graphs.upload_energy, "J", "energy of the uploads of one aggregation"),
        "upload_bits": (("run",), upload_bits, "bit", "bits sent to the server for one aggregation"),
        "points_moved": (per_policy, graphs.points_moved, "point", "points that changed their device"),
    }
    if learning is not None:
        by_class = "share of each class's held-out points that the global model classifies right"
        found["class_accuracy"] = ((*per_policy, "round", "class"), learning.class_accuracy, "1", by_class)
        for name, (unit, meaning) in _LEARNING.items():
            found[name] = ((*per_policy, "round"), getattr(learning, name), unit, meaning)
    for name, (unit, meaning) in _WORTH.items():
        found[f"graph_{name}"] = (
            (*per_policy, "state"),
            graphs.worth[name],
            unit,
            f"{meaning}, in each state",
        )
    if graphs.history is not None:
        for name, (unit, meaning) in (_WORTH | _ENTROPY).items():
            values = getattr(graphs.history, name)
            found[f"discovery_{name}"] = (("run", "episode"), values, unit, f"{meaning}, while rl learns")
    return {
        name: (dims, np.asarray(values), {"units": unit, "long_name": meaning})
        for name, (dims, values, unit, meaning) in found.items()
    }


def _status(policies: tuple[str, ...], graphs: Any, learning: Any) -> np.ndarray:
    """[run, policy] int8: where a run left the finite numbers, see `STATUS`."""
    valued = np.isfinite(graphs.worth["reward"]).all(-1)
    trained = True
    if learning is not None:
        trained = np.isfinite(learning.loss).all(-1) & np.isfinite(learning.train_loss).all(-1)
    for number, policy in enumerate(policies):
        if policy == "rl":
            valued[:, number] &= np.isfinite(graphs.history.entropy).all(-1)
        if policy == "pooled":
            valued[:, number] = True
    return np.where(~valued, 2, np.where(trained, 0, 1)).astype(np.int8)


def coordinates(config: Config, dataset: Dataset) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """Values and attributes of every dimension within a run, by name; `episode` only where `rl` runs."""
    # Strings of any length: zarr keeps those of fixed length in a way that may change.
    text = lambda names: np.array(names, dtype=object)  # noqa: E731
    stride = config.aggregation_interval * config.evaluate_every
    found = {
        "policy": (text(config.policies), {}),
        "round": (np.arange(stride, config.num_steps + 1, stride), {"units": "local step"}),
        "state": (np.arange(config.num_states), {"long_name": "channel state"}),
        "device": (np.arange(config.num_devices), {}),
        "class": (text(dataset.class_names), {}),
        "axis": (text(("x", "y")), {}),
    }
    if "rl" in config.policies:
        episodes = np.arange(config.record_every, config.num_episodes + 1, config.record_every)
        found["episode"] = (episodes, {"units": "episode"})
    return found


def label(
    config: Config,
    seeds: np.ndarray,
    dataset: Dataset,
    graphs: Any,
    learning: Any,
    num_parameters: int,
    about: dict[str, Any],
) -> xarray.Dataset:
    """Names every array of a batch of runs.

    Args:
        config: the validated config.
        seeds: [R] int, coordinates of `run`.
        dataset: names the classes.
        graphs: see `variables`, as the next two.
        learning: see there.
        num_parameters: see there.
        about: the manifest, kept as JSON in `attrs["manifest"]`.

    Returns:
        The dataset; `round` counts local steps, `episode` counts episodes, both at the end of their stretch.
    """
    import xarray

    named = {"run": ("run", seeds, {"long_name": "seed"})} | {
        name: (name, values, attributes) for name, (values, attributes) in coordinates(config, dataset).items()
    }
    attributes = {"title": f"d2djax run on {dataset.name}", "manifest": json.dumps(about, sort_keys=True)}
    return xarray.Dataset(variables(config, graphs, learning, num_parameters), coords=named, attrs=attributes)


def last_number(values: np.ndarray) -> np.ndarray:
    """The last finite number along the last axis: points with fewer rounds than others end earlier."""
    last = values.shape[-1] - 1 - np.argmax(np.isfinite(values)[..., ::-1], axis=-1)
    return np.take_along_axis(values, last[..., None], axis=-1)[..., 0]


def save(dataset: xarray.Dataset, path: str | os.PathLike[str]) -> Path:
    """Writes a dataset as a zarr store, whole or not at all.

    Args:
        dataset: results.
        path: folder of the store, such as `results.zarr`; an earlier store of the same kind is replaced.

    Returns:
        The path.

    Raises:
        ValueError: something else is at `path`.
        OSError: it cannot be written; an earlier store stands as before.
    """
    path = files.expand(path, "path")
    kind = "search" if "trial" in dataset.dims else "sweep" if "done" in dataset else "run"
    found = files.kind_of(path)
    if found not in ("nothing", kind):
        raise ValueError(f"{path}: {found} is here, which the results of a {kind} do not replace")
    with files.replacing(path) as new:
        dataset.to_zarr(new, mode="w", zarr_format=3, consolidated=False)
    return path


def read(path: str | os.PathLike[str]) -> xarray.Dataset:
    """Opens a saved dataset; the dimension `method` of results before 0.2 is read as `policy`, with a warning.

    Raises:
        FileNotFoundError: there is no store at `path`.
    """
    import xarray

    path = files.expand(path, "path")
    if not (path / "zarr.json").is_file():
        raise FileNotFoundError(f"{path}: no results here; expected a zarr store that d2djax wrote")
    return _renamed(xarray.open_zarr(path, consolidated=False, chunks=None), path)


def _renamed(found: xarray.Dataset, path: str | os.PathLike[str]) -> xarray.Dataset:
    """Results of before 0.2 under their present names: `policy` was called `method` then."""
    if "method" not in found.dims:
        return found
    warnings.warn(f"{path}: written before d2djax 0.2; its dimension 'method' is read as 'policy'", stacklevel=3)
    about = json.loads(found.attrs.get("manifest", "{}"))
    if "methods" in about.get("config", {}):
        about["config"]["policies"] = about["config"].pop("methods")
    return found.rename(method="policy").assign_attrs(manifest=json.dumps(about, sort_keys=True))
