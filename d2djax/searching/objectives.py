"""What a search looks for: one number of each run, and the settings that it must not be compared across."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from d2djax.checks import shown
from d2djax.energy import total_energy
from d2djax.running import results

Direction = Literal["maximize", "minimize"]
Values = Callable[[str], np.ndarray]

# What the outage of a link is a function of (eq. 1), and what a joule of a transmission is.
_LINKS = ("rate", "transmit_power", "noise_power", "reference_gain", "path_loss_exponent")
_JOULES = (
    *("power_mode", "bandwidth", "rate", "d2d_power", "d2s_power", "amplifier_efficiency", "circuit_power"),
    *("receive_power", "noise_power", "reference_gain", "path_loss_exponent", "max_outage"),
    "d2s_distance_ratio",
)
_REFERENCE = (*("reference_weights", "cluster_budget", "min_classes", "threshold", "score_fraction", "max_outage"),)


@dataclass(frozen=True)
class Objective:
    """A number of a run that is to be large or small.

    Attributes:
        direction: whether large or small values are good.
        meaning: unit and meaning.
        value: [U] of U runs, from the values that count, by name, and the number of aggregations of each.
        needs_training: it is known only after training.
        contains: settings that stand in its formula: with another value of one of them the same graph and the
            same model have another number, so that a search would set the scale instead of finding a setting.
    """

    direction: Direction
    meaning: str
    value: Callable[[Values, np.ndarray], np.ndarray]
    needs_training: bool = False
    contains: tuple[str, ...] = ()


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis of what a run has: rounds and states that only other trials have are NaN.

    In double precision, in which the order of a sum, which depends on the number of runs, changes no digit that is
    kept.
    """
    number = (~np.isnan(values)).sum(-1)
    return np.where(number > 0, np.nansum(values, -1, dtype=float) / np.maximum(number, 1), np.nan)


def _energy(found: Values, uploads: np.ndarray) -> np.ndarray:
    """Exchange, control messages and uploads of the whole training: a trial has no target that ends it earlier."""
    return total_energy(found("exchange_energy"), found("control_energy"), uploads * found("upload_energy"))


OBJECTIVES: dict[str, Objective] = {
    "accuracy": Objective(
        "maximize",
        "mean accuracy over the rounds of training",
        # Round 0 comes before training.
        lambda found, uploads: _mean(found("accuracy")[..., 1:]),
        needs_training=True,
        contains=("evaluate_every",),
    ),
    "final_accuracy": Objective(
        "maximize",
        "accuracy in the end",
        lambda found, uploads: results.last_number(found("accuracy")),
        needs_training=True,
    ),
    "reward": Objective(
        "maximize",
        "mean reward of the graphs by the reference weights",
        lambda found, uploads: _mean(found("graph_reference_reward")),
        contains=_REFERENCE,
    ),
    "energy": Objective("minimize", "J, exchange, its messages and all uploads", _energy, contains=_JOULES),
    "reliability": Objective(
        "maximize",
        "mean success of the chosen links",
        lambda found, uploads: 1 - _mean(found("graph_outage")),
        contains=_LINKS,
    ),
    "points_sent": Objective("minimize", "points that moved", lambda found, uploads: found("points_moved")),
}


def check_objectives(objectives: Sequence[str], searched: Collection[str] = ()) -> tuple[str, ...]:
    """Checks the names of what is sought.

    Args:
        objectives: the names.
        searched: the settings that are sought.

    Raises:
        ValueError: there is none, one is not known, or one contains a setting that is sought.
    """
    listed = (objectives,) if isinstance(objectives, str) else objectives
    names = tuple(listed) if isinstance(listed, Sequence) else ()
    if not names or any(names.count(name) > 1 or name not in list(OBJECTIVES) for name in names):
        raise ValueError(f"objectives must be different ones of {', '.join(OBJECTIVES)}; got {shown(objectives)}")
    for name in names:
        inside = [setting for setting in searched if setting in OBJECTIVES[name].contains]
        if inside:
            raise ValueError(
                f"objective {name} must not contain what is searched: its formula has {', '.join(inside)}, so the "
                "same graph and model get another value; search over other settings, or for another objective"
            )
    return names


def values_of(
    computed: Mapping[str, results.Variable], policy: str, names: Sequence[str], uploads: np.ndarray
) -> dict[str, np.ndarray]:
    """Each objective for every run, [U]; NaN where it does not count, see `results.counted`.

    Args:
        computed: variables of runs of one policy.
        policy: its name.
        names: the objectives.
        uploads: [U] int, aggregations of each run.
    """
    import xarray

    found = xarray.Dataset(
        {name: (dims, values) for name, (dims, values, _) in computed.items()}, coords={"policy": [policy]}
    )

    def get(name: str) -> np.ndarray:
        values: Any = results.counted(found, name)
        return (values.isel(policy=0) if "policy" in values.dims else values).values

    return {name: np.asarray(OBJECTIVES[name].value(get, uploads), float) for name in names}


def labelled(names: Sequence[str], values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Variables (trial, run) of each objective, with their meaning."""
    return {name: (("trial", "run"), values[name], {"long_name": OBJECTIVES[name].meaning}) for name in names}
