"""Objectives of a search: one number of each run, and the settings across which it cannot be compared."""

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

# Settings in the formula of a link's outage (eq. 1), and in the energy of a transmission.
_LINKS = ("rate", "transmit_power", "noise_power", "reference_gain", "path_loss_exponent")
_JOULES = (
    *("power_mode", "bandwidth", "rate", "d2d_power", "d2s_power", "amplifier_efficiency", "circuit_power"),
    *("receive_power", "noise_power", "reference_gain", "path_loss_exponent", "max_outage"),
    "d2s_distance_ratio",
)
_REFERENCE = (*("reference_weights", "cluster_budget", "min_classes", "threshold", "score_fraction", "max_outage"),)


@dataclass(frozen=True)
class Objective:
    """A number of a run that a search maximises or minimises.

    Attributes:
        direction: whether large or small values are good.
        meaning: unit and meaning.
        value: returns [U] float for U runs; takes a function that returns the values of a variable, and the number
            of aggregations of each run, [U].
        needs_training: whether it is known only after training.
        contains: settings in its formula. Changing one of them changes the value of the same graph and model, so a
            search would adjust the scale instead of finding a good setting.
    """

    direction: Direction
    meaning: str
    value: Callable[[Values, np.ndarray], np.ndarray]
    needs_training: bool = False
    contains: tuple[str, ...] = ()


def _mean(values: np.ndarray) -> np.ndarray:
    """Returns the mean over the last axis without NaN, which marks rounds and states of other trials.

    In double precision, the order of the sum, which depends on the number of runs, changes no stored digit.
    """
    number = (~np.isnan(values)).sum(-1)
    return np.where(number > 0, np.nansum(values, -1, dtype=float) / np.maximum(number, 1), np.nan)


def _energy(found: Values, uploads: np.ndarray) -> np.ndarray:
    """Returns the energy of the exchange, the control messages and all uploads; training has no early stop."""
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
        "final accuracy",
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
    """Checks the names of objectives.

    Args:
        objectives: a name, or several.
        searched: the settings that the search varies.

    Returns:
        The names.

    Raises:
        ValueError: there is no name, a name is unknown or repeats, or an objective contains a searched setting.
    """
    listed = (objectives,) if isinstance(objectives, str) else objectives
    names = tuple(listed) if isinstance(listed, Sequence) else ()
    if not names or any(names.count(name) > 1 or name not in list(OBJECTIVES) for name in names):
        raise ValueError(f"objectives must be distinct and from {', '.join(OBJECTIVES)}; got {shown(objectives)}")
    for name in names:
        inside = [setting for setting in searched if setting in OBJECTIVES[name].contains]
        if inside:
            raise ValueError(
                f"objective {name} must not contain a searched setting: its formula has {', '.join(inside)}, which "
                "changes the value of the same graph and model; search other settings, or use another objective"
            )
    return names


def check_without_graph(names: Sequence[str], policy: str) -> None:
    """Checks that objectives are defined for a policy without a graph, which has only numbers of its training.

    Args:
        names: names of the objectives.
        policy: name of the policy.

    Raises:
        ValueError: an objective needs a graph, so every trial would fail.
    """
    for name in names:
        if not OBJECTIVES[name].needs_training:
            known = ", ".join(one for one in OBJECTIVES if OBJECTIVES[one].needs_training)
            raise ValueError(f"objective of {policy}, which has no graph, must be one of {known}; got {name!r}")


def values_of(
    computed: Mapping[str, results.Variable], policy: str, names: Sequence[str], uploads: np.ndarray
) -> dict[str, np.ndarray]:
    """Computes each objective for every run.

    Args:
        computed: variables of runs of one policy, see `results.variables`.
        policy: name of the policy.
        names: names of the objectives.
        uploads: [U] int, number of aggregations of each run.

    Returns:
        [U] float by objective; NaN where a value does not count, see `results.counted`.
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
    """Returns xarray variables of the objectives.

    Args:
        names: names of the objectives.
        values: [trial, run] float by objective.
    """
    return {name: (("trial", "run"), values[name], {"long_name": OBJECTIVES[name].meaning}) for name in names}
