"""Search over settings: batches of trials, proposed by Optuna, each batch one call of the simulator."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from d2djax import files, results
from d2djax.axes import Choice, LogUniform, Range, check_name, check_range, is_whole
from d2djax.config import Config
from d2djax.data import Dataset
from d2djax.design import Design, make_design
from d2djax.federated import Recipe
from d2djax.identity import differences
from d2djax.progress import Tally, errors, live
from d2djax.runs import Setup, check_seeds, with_classes_of
from d2djax.sweeps import stages_of
from d2djax.validation import validate

if TYPE_CHECKING:
    import optuna
    import xarray

Values = Mapping[str, np.ndarray]
Direction = Literal["maximize", "minimize"]


# Name: (direction, unit and meaning, value of each run from its results and its number of aggregations, needs
# training).
OBJECTIVES: dict[str, tuple[Direction, str, Callable[[Values, np.ndarray], np.ndarray], bool]] = {
    "accuracy": ("maximize", "mean accuracy over the rounds", lambda found, uploads: found["accuracy"], True),
    "final_accuracy": ("maximize", "accuracy in the end", lambda found, uploads: found["final_accuracy"], True),
    "reward": ("maximize", "mean reward of the graphs", lambda found, uploads: found["graph_reward"], False),
    "energy": (
        "minimize",
        "J, exchange, its messages and all uploads",
        lambda found, uploads: (
            found["exchange_energy"] + found["control_energy"] + uploads * found["upload_energy"]
        ),
        False,
    ),
    "reliability": (
        "maximize",
        "mean success of the chosen links",
        lambda found, uploads: 1 - found["graph_outage"],
        False,
    ),
    "points_sent": ("minimize", "points that moved", lambda found, uploads: found["points_moved"], False),
}


def _distribution(name: str, values: Range) -> optuna.distributions.BaseDistribution:
    """A range as Optuna has it; whole numbers for a setting that is whole."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    check_name(name)
    check_range(name, values)
    if isinstance(values, Choice):
        return CategoricalDistribution(values.values)
    is_log = isinstance(values, LogUniform)
    if is_whole(name):
        return IntDistribution(int(np.ceil(values.low)), int(np.floor(values.high)), log=is_log)
    return FloatDistribution(values.low, values.high, log=is_log)


def _mend(journal: Path) -> None:
    """Cuts a line that a stopped process left half-written: with it no part of the journal could be read."""
    if journal.exists():
        text = journal.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            files.write_bytes(journal, whole)


def open_study(out: Path, directions: Sequence[Direction], about: dict[str, Any]) -> optuna.Study:
    """Begins a study in `<out>/journal.log`, or goes on with the one that is there.

    Args:
        out: folder.
        directions: of each objective.
        about: what the trials have in common, as plain JSON; kept with the study.

    Raises:
        ValueError: the study that is there is another one; what differs is named.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    out.mkdir(parents=True, exist_ok=True)
    _mend(out / "journal.log")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(out / "journal.log")))
    study = optuna.create_study(study_name="d2djax", storage=storage, directions=directions, load_if_exists=True)
    if study.user_attrs:
        different = differences(study.user_attrs, about)
        if different:
            raise ValueError(f"{out}: another search is here ({different}); choose another folder")
    for name, value in about.items():
        study.set_user_attr(name, value)
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        # Left by a process that was stopped; only one process drives a study.
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _ask(study: optuna.Study, space: Mapping[str, Any], count: int, seed: int, done: int) -> list[Any]:
    """The next trials; the sampler depends on finished ones alone, so a search that was stopped goes on alike."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.TPESampler(
            seed=int(np.random.SeedSequence((seed, done)).generate_state(1)[0]),
            multivariate=True,
            constant_liar=True,
            n_startup_trials=max(10, count),
        )
        return [study.ask(dict(space)) for _ in range(count)]


def _tell(study: optuna.Study, trials: Sequence[Any], values: Mapping[str, np.ndarray]) -> None:
    """Tells what came out: [trials, seeds] of each objective; a trial with a run that diverged has failed."""
    import optuna

    for number, trial in enumerate(trials):
        for name, one in values.items():
            trial.set_user_attr(name, [float(value) for value in one[number]])
        means = [float(np.mean(one[number])) for one in values.values()]
        if np.isfinite(means).all():
            study.tell(trial, means)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _num_aggregations(config: Config) -> int:
    return config.num_steps // (1 if config.scheme == "fedsgd" else config.aggregation_interval)


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis of what a run has: rounds and states that only other trials have are NaN."""
    number = (~np.isnan(values)).sum(-1)
    return np.where(number > 0, np.nansum(values, -1) / np.maximum(number, 1), np.nan)


def _evaluate(design: Design, objectives: Sequence[str], tally: Tally, width: int | None) -> dict[str, np.ndarray]:
    """Each objective for every point and seed, [P, R], of the only policy; NaN where a run diverged."""
    points, runs = np.divmod(np.arange(len(design)), len(design.seeds))
    computed = design.compute(points, runs, partial(stages_of, tally), width, lambda name, plan: None)
    found = {name: values[:, 0] if "policy" in dims else values for name, (dims, values, _) in computed.items()}
    if "accuracy" in found:
        found["final_accuracy"] = results.last_number(found["accuracy"])
    for name in {"accuracy", "graph_reward", "graph_outage"} & set(found):
        found[name] = _mean(found[name])
    is_bad = found["status"] > 0
    tally.finish(len(design), int(is_bad.sum()))
    shape = (len(design.axes.configs), len(design.seeds))
    uploads = np.array([_num_aggregations(config) for config in design.axes.configs])[points]
    return {
        name: np.where(is_bad, np.nan, OBJECTIVES[name][2](found, uploads)).reshape(shape) for name in objectives
    }


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials that came to an end, well or not; not those that were stopped, which know no values."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished() and trial.user_attrs]


def trials_of(study: optuna.Study) -> xarray.Dataset:
    """The finished trials of a study as labelled arrays.

    Returns:
        Each objective (trial, run), NaN where a run diverged; the settings along `trial`; and `is_best`, which is 1
        for the best trial, with several objectives for every one that no other beats in all of them.
    """
    import xarray

    trials, about = _finished(study), study.user_attrs
    is_any = any(trial.state.name == "COMPLETE" for trial in trials)
    best = {trial.number for trial in study.best_trials} if is_any else set()
    variables: dict[str, Any] = {}
    for name in about["objectives"]:
        values = np.array([trial.user_attrs[name] for trial in trials], float)
        variables[name] = (
            ("trial", "run"),
            values.reshape(-1, len(about["seeds"])),
            {"long_name": OBJECTIVES[name][1]},
        )
    variables["is_best"] = ("trial", np.array([trial.number in best for trial in trials], np.int8))
    coordinates: dict[str, Any] = {"trial": [trial.number for trial in trials], "run": about["seeds"]}
    coordinates |= {name: ("trial", np.array([one.params[name] for one in trials])) for name in about["ranges"]}
    return xarray.Dataset(variables, coords=coordinates)


def check_objectives(objectives: Sequence[str]) -> tuple[str, ...]:
    """Checks the names of what is sought.

    Raises:
        ValueError: there is none, or one that is not known.
    """
    names = tuple(objectives)
    unknown = [name for name in names if name not in OBJECTIVES]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(f"objectives must be different ones of {', '.join(OBJECTIVES)}; got {names}")
    return names


def search(
    config: Config | None = None,
    ranges: Mapping[str, Range] | None = None,
    objectives: Sequence[str] = ("accuracy",),
    trials: int = 64,
    seeds: int | Sequence[int] = 4,
    out: str | Path = "search",
    *,
    policy: str = "rl",
    batch: int = 16,
    sampler_seed: int = 0,
    data: Dataset | None = None,
    recipe: Recipe | None = None,
    progress: bool = True,
    width: int | None = None,
) -> optuna.Study:
    """Searches for settings that are good on average over seeds, in batches that the simulator computes together.

    Every trial is kept in `<out>/journal.log` as soon as its batch is done, so the same call goes on where it was
    stopped, and proposes what it would have proposed. `trials_of` gives the trials as labelled arrays.

    Args:
        config: what all trials have in common; none: the defaults.
        ranges: `Uniform`, `LogUniform` or `Choice` of each setting that is sought.
        objectives: names from `OBJECTIVES`; several: the trials that no other beats in all of them are sought.
        trials: finished trials in the end, those of earlier calls included. One with a run that diverged has
            failed, and counts.
        seeds: number of runs of each trial (seeds 0, 1, ...) or the seeds themselves.
        out: folder of the study.
        policy: whose results count; it must be in `config.policies`.
        batch: trials at the same time.
        sampler_seed: seed of the proposals.
        data: a data set of your own; none: the one that the config names.
        recipe: network and optimisers of your own.
        progress: shows progress on standard error.
        width: runs at the same time on each device; none: chosen to fit.

    Returns:
        The study.

    Raises:
        ValueError: a range, an objective or a setting is wrong, or another search is in `out`; one line says which.
    """
    names, run_seeds = check_objectives(objectives), check_seeds(seeds)
    space = {name: _distribution(name, values) for name, values in (ranges or {}).items()}
    if not space:
        raise ValueError("ranges must name at least one setting")
    if batch < 1 or trials < 1:
        raise ValueError(f"trials and batch must be at least 1; got {trials} and {batch}")
    config = config or Config()
    if policy not in config.policies:
        raise ValueError(f"policy must be one of config.policies, {', '.join(config.policies)}; got {policy!r}")
    config, trains = replace(config, policies=(policy,)), any(OBJECTIVES[name][3] for name in names)
    config = validate(with_classes_of(config, data))
    about = {
        "objectives": list(names),
        "ranges": {name: repr(values) for name, values in (ranges or {}).items()},
        "seeds": run_seeds.tolist(),
        "config": {name: value for name, value in asdict(config).items() if name not in space},
        "sampler_seed": sampler_seed,
    }
    study = open_study(Path(out), [OBJECTIVES[name][0] for name in names], json.loads(json.dumps(about)))
    done = len(_finished(study))
    console = errors() if progress else None
    setups: tuple[Setup, ...] = ()
    with live(console) as show:
        tally = Tally(show, (trials - done) * len(run_seeds), "training" if trains else "discovery")
        while done < trials:
            asked = _ask(study, space, min(batch, trials - done), sampler_seed, done)
            points = [trial.params for trial in asked]
            design = make_design(config, points, run_seeds.tolist(), data, recipe, trains, like=setups)
            setups = design.setups
            _tell(study, asked, _evaluate(design, names, tally, width))
            done += len(asked)
    results.save(trials_of(study), Path(out) / "results.zarr")
    return study
