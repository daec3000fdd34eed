"""Reduces the trials of a search to the content of a page: values, settings, and importance of the settings."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.analysis.reduced import plain
from d2djax.analysis.tables import best_trials
from d2djax.searching.objectives import OBJECTIVES, Direction

if TYPE_CHECKING:
    import xarray

# With fewer successful trials, importances reflect chance more than settings.
FEWEST_TRIALS = 8


def names_of(trials: xarray.Dataset) -> tuple[list[str], list[str]]:
    """Returns the names of the objectives and of the settings of trials.

    Args:
        trials: result of `searches.trials_of`.
    """
    objectives = [str(name) for name, one in trials.data_vars.items() if "run" in one.dims]
    return objectives, [str(name) for name in trials.coords if name not in ("trial", "run")]


def importance(
    values: np.ndarray, settings: dict[str, np.ndarray], direction: Direction
) -> dict[str, float] | None:
    """Computes the importance of each setting (PED-ANOVA, Watanabe, Bansal and Hutter 2023, in Optuna).

    Args:
        values: [T] float, mean of the objective over the seeds; NaN for failed trials.
        settings: [T] values of each setting.
        direction: "maximize" or "minimize".

    Returns:
        The importance by setting; None with too few trials or settings, or without Optuna.
    """
    there = np.isfinite(values)
    settings = {name: one[there] for name, one in settings.items() if len(np.unique(one[there])) > 1}
    if there.sum() < FEWEST_TRIALS or len(settings) < 2:
        return None
    try:
        import optuna
    except ImportError:
        return None
    ranges = {name: _range_of(one) for name, one in settings.items()}
    plain_settings = {name: one.tolist() for name, one in settings.items()}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(storage=optuna.storages.InMemoryStorage(), direction=direction)
        for number, value in enumerate(values[there]):
            params = {name: one[number] for name, one in plain_settings.items()}
            study.add_trial(optuna.trial.create_trial(value=float(value), params=params, distributions=ranges))
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


def _range_of(values: np.ndarray) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if values.dtype.kind not in "fi":
        return CategoricalDistribution(sorted(set(values.tolist())))
    low, high = values.min().item(), values.max().item()
    return FloatDistribution(low, high) if values.dtype.kind == "f" else IntDistribution(low, high)


def search_data(trials: xarray.Dataset) -> dict[str, Any]:
    """Collects the content of the page of a search as plain JSON.

    Args:
        trials: result of `searches.trials_of`.

    Returns:
        For each objective its direction, values of all trials (null for failed ones) and importances; the settings
        of every trial; which trials are best; and a table of the best trials.
    """
    objectives, settings = names_of(trials)
    given = {name: trials[name].values for name in settings}
    found = {}
    for name in objectives:
        # The mean of a failed trial is NaN, because a run diverged.
        values = trials[name].transpose("trial", "run").values.mean(axis=1)
        direction = OBJECTIVES[name].direction
        shares = importance(values, given, direction)
        found[name] = {
            "direction": direction,
            "values": plain(values),
            "importance": shares and plain_shares(shares),
        }
    manifest = json.loads(trials.attrs["manifest"])
    return {
        "title": trials.attrs.get("title", "d2djax search"),
        "manifest": manifest,
        "trials": trials["trial"].values.tolist(),
        "objectives": found,
        "settings": {name: plain(one) for name, one in given.items()},
        "best": trials["is_best"].values.tolist(),
        "tables": [cells_of(best_trials(trials))],
    }


def plain_shares(shares: dict[str, float]) -> list[list[Any]]:
    """Sorts importances by setting in descending order, as JSON pairs."""
    return [[name, plain(float(share))] for name, share in sorted(shares.items(), key=lambda one: -one[1])]


def cells_of(table: Any) -> dict[str, Any]:
    """Converts a table to JSON.

    Args:
        table: a Rich table of `analysis.tables`.

    Returns:
        `title`, `head` (headings) and `rows` of text.
    """
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    return {
        "title": str(table.title),
        "head": [str(column.header) for column in table.columns],
        "rows": [[str(cell) for cell in row] for row in rows],
    }
