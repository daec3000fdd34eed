"""Computes from the settings a lower bound of the memory of a run, to reject absurd sizes before any allocation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from d2djax.config import Config
from d2djax.data import SOURCES
from d2djax.federated import SCHEMES, steps_between_aggregations
from d2djax.policies import BUILT_IN
from d2djax.running.machine import accelerator_memory, available_memory
from d2djax.supply import options_of

# Bytes of a number on a device.
WORD = 4


@dataclass(frozen=True)
class Need:
    """One part of the required memory.

    Attributes:
        what: description for messages.
        settings: names of the settings that it grows with.
        bytes: lower bound, bytes.
    """

    what: str
    settings: tuple[str, ...]
    bytes: float


def _of_graphs(config: Config) -> list[Need]:
    """Lists what graph discovery needs in one run."""
    devices, policies = config.num_devices, config.policies
    pairs, learns = devices**2, any(BUILT_IN[name].learns for name in policies)
    # Power and outage; learning also needs the sums, the counts and the values of the policies.
    per_link = 5 if learns else 2
    found = [
        Need(
            "the channels between all devices",
            ("num_devices", "num_states"),
            WORD * per_link * config.num_states * pairs,
        ),
        # Trust takes one byte; offers and requests take one number each.
        Need(
            "what each device may send to each other",
            ("num_devices", "num_classes"),
            9 * config.num_classes * pairs,
        ),
        Need("the hot spots", ("num_hotspots",), WORD * 2 * config.num_hotspots),
    ]
    if learns:
        records = config.num_episodes // config.record_every
        draws = WORD * config.record_every * devices
        found += [
            Need("the history of the episodes", ("num_episodes", "record_every"), WORD * 10 * records),
            Need("the draws of the episodes", ("record_every", "num_devices"), draws),
        ]
    if "best_response" in policies:
        starts = WORD * config.best_response_restarts * devices
        found.append(Need("the starts of best_response", ("best_response_restarts", "num_devices"), starts))
    return found


def _of_training(config: Config, shape: Sequence[int], num_parameters: int, asked: np.ndarray | None) -> list[Need]:
    """Lists what the training of one policy needs in one run."""
    devices, batch, point = config.num_devices, config.batch_size, WORD * math.prod(shape)
    is_local = not SCHEMES[config.scheme].aggregates_every_step
    rounds, steps = config.num_steps // config.aggregation_interval, steps_between_aggregations(config)
    drawn = ("num_devices", "batch_size") + ("aggregation_interval",) * is_local
    found = [
        Need(
            "the numbers of all points",
            ("num_devices", "points_per_device"),
            WORD * devices * config.points_per_device,
        ),
        Need("the draws of the minibatches", drawn, WORD * devices * batch * steps),
        Need("the curves", ("num_steps", "aggregation_interval"), WORD * rounds),
    ]
    if is_local:
        # Devices may train one after another, with one minibatch in memory at a time.
        found.append(Need("a minibatch", ("batch_size",), point * batch))
        found.append(Need("the models of all devices", ("num_devices", "model"), WORD * devices * num_parameters))
    else:
        found.append(Need("the minibatches of all devices", ("num_devices", "batch_size"), point * batch * devices))
    source = SOURCES.get(config.dataset)
    if source is not None and source.maker is not None and config.data_dir is None:
        made = source.maker.points_per_class(**options_of(config, asked)) * config.num_classes
        found.append(Need(source.maker.what, ("num_devices", "points_per_device"), point * made))
    return found


def _of_results(config: Config, runs: int, trains: bool) -> list[Need]:
    """Lists what the results of all runs need together."""
    devices, classes, policies = config.num_devices, config.num_classes, len(config.policies)
    network = 2 * WORD * config.num_states * devices**2 + classes * devices**2
    graphs = WORD * policies * devices * (config.num_states + classes)
    rounds = config.num_steps // (config.aggregation_interval * config.evaluate_every)
    curves = WORD * policies * rounds * (4 + classes) if trains else 0
    return [Need("the results of all runs", ("seeds",), runs * (network + graphs + curves))]


def check_memory(
    config: Config,
    shape: Sequence[int],
    *,
    trains: bool,
    runs: int = 1,
    num_parameters: int = 0,
    asked: np.ndarray | None = None,
) -> None:
    """Checks that the available memory holds the minimum that runs need; allocates nothing.

    Args:
        config: a validated config.
        shape: shape of a point.
        trains: whether the runs train.
        runs: number of runs whose results are in memory together.
        num_parameters: number of model parameters; 0 if unknown.
        asked: see `supply.check_fits`.

    Raises:
        ValueError: the memory is too small; the line names the settings of the largest part.
    """
    run = _of_graphs(config) + (_of_training(config, shape, num_parameters, asked) if trains else [])
    kept, host, accelerator = _of_results(config, runs, trains), available_memory(), accelerator_memory()
    # One run comes first: if it does not fit by itself, the cause is its settings, not the number of runs.
    for needs, available in [(run, accelerator or host), (kept if accelerator else run + kept, host)]:
        total, largest = sum(need.bytes for need in needs), max(needs, key=lambda need: need.bytes)
        # If the system does not report its memory, nothing can be rejected.
        if available and total > available:
            values = {"seeds": f"{runs:,} runs"}
            names = " and ".join(values.get(name) or f"{name}={getattr(config, name)}" for name in largest.settings)
            verb = "needs" if len(largest.settings) == 1 and largest.settings != ("seeds",) else "need"
            raise ValueError(
                f"{names} {verb} {_size(largest.bytes)} of memory for {largest.what}, of at least {_size(total)} "
                f"in total; {_size(available)} are available"
            )


def _size(number: float) -> str:
    return f"{number / 2**30:,.1f} GiB"
