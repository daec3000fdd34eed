"""Searches over settings: Optuna proposes batches of trials, and one call of the simulator computes each batch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.checks import check_count
from d2djax.config import Config
from d2djax.data import Dataset
from d2djax.federated import steps_between_aggregations
from d2djax.policies import candidates_of
from d2djax.recipe import Recipe
from d2djax.reward import PaperReward
from d2djax.running import machine, repeat, results
from d2djax.running.axes import Choice, LogUniform, Range, check_ranges, corners, is_whole, lay_out
from d2djax.running.axes import values_of as axes_of
from d2djax.running.identity import identify
from d2djax.running.plan import SweepPlan, column, plan_sweep
from d2djax.running.progress import Tally, errors, live
from d2djax.running.runs import TAKES_PART, Setup, check_kinds, check_options, check_seeds, set_up
from d2djax.running.sweeps import stages_of
from d2djax.searching import journal
from d2djax.searching.objectives import OBJECTIVES, check_objectives, check_without_graph, labelled, values_of
from d2djax.storage import files

if TYPE_CHECKING:
    import optuna
    import xarray
    from rich.console import Console


def _distribution(name: str, values: Range, own: Mapping[str, Any]) -> optuna.distributions.BaseDistribution:
    """Converts a range for Optuna; an integer setting gets whole numbers."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(values, Choice):
        return CategoricalDistribution(values.values)
    is_log = isinstance(values, LogUniform)
    if is_whole(name, own):
        return IntDistribution(int(np.ceil(values.low)), int(np.floor(values.high)), log=is_log)
    return FloatDistribution(values.low, values.high, log=is_log)


def _space_of(
    ranges: Mapping[str, Range], own: Mapping[str, Any]
) -> dict[str, optuna.distributions.BaseDistribution]:
    """Checks the ranges and returns the distribution of each searched setting."""
    check_ranges(ranges, own)
    return {name: _distribution(name, values, own) for name, values in ranges.items()}


def _ask(study: optuna.Study, space: Mapping[str, Any], count: int, seed: int, done: int) -> list[Any]:
    """Proposes trials; they depend only on finished ones, so a resumed search proposes the same trials."""
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


def _evaluate(
    plan: SweepPlan, objectives: Sequence[str], tally: Tally, width: int | None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Computes each objective of the only policy, and where a reward is above its bound.

    Returns:
        [P, R] float by objective, NaN where a run diverged; and [P, R] bool.
    """
    points, runs = np.divmod(np.arange(len(plan)), len(plan.seeds))
    computed = plan.compute(points, runs, partial(stages_of, tally), width, lambda name, compiled: None)
    tally.finish(len(plan), int(results.not_finite(computed["status"][1]).sum()))
    uploads = np.array([one.num_steps // steps_between_aggregations(one) for one in plan.axes.configs])[points]
    (policy,) = plan.setups[0].candidates
    shape = (len(plan.axes.configs), len(plan.seeds))
    found = values_of(computed, policy, objectives, uploads)
    is_above = computed["status"][1] >= results.BOUND
    return {name: values.reshape(shape) for name, values in found.items()}, is_above.reshape(shape)


def trials_of(study: optuna.Study) -> xarray.Dataset:
    """Returns the finished trials of a study as labelled arrays.

    Args:
        study: a study of `search`.

    Returns:
        Each objective (trial, run), NaN where a run diverged; `seeds_left`, the number of seeds whose values count;
        the settings along `trial`; and `is_best`, 1 for the best trial or, with several objectives, for each trial
        of the Pareto set. `above_bound` exists only if some trial has such runs: the number of runs in which a mean
        reward is above its `upper_bound`. The manifest holds the identity of the search.
    """
    import xarray

    trials, about = journal.finished(study), study.user_attrs
    is_any = any(trial.state.name == "COMPLETE" for trial in trials)
    best = {trial.number for trial in study.best_trials} if is_any else set()
    names, shape = about["objectives"], (-1, len(about["seeds"]))
    values = {name: np.array([one.user_attrs[name] for one in trials], float).reshape(shape) for name in names}
    variables = labelled(names, values)
    left = np.array([one.user_attrs["seeds_left"] for one in trials], np.int32)
    variables["seeds_left"] = ("trial", left, {"long_name": "seeds whose values all count"})
    variables["is_best"] = ("trial", np.array([trial.number in best for trial in trials], np.int8))
    above = np.array([one.user_attrs.get(journal.ABOVE, 0) for one in trials], np.int32)
    if above.any():
        meaning = {"long_name": "runs in which a mean reward is above its bound", "reward": _reward_of(about)}
        variables[journal.ABOVE] = ("trial", above, meaning)
    coordinates: dict[str, Any] = {"trial": [trial.number for trial in trials], "run": about["seeds"]}
    coordinates |= {name: ("trial", column([one.params[name] for one in trials])) for name in about["ranges"]}
    attributes = {"title": "d2djax search", "manifest": json.dumps(about, sort_keys=True)}
    attributes["machine"] = json.dumps(machine.describe(), sort_keys=True)
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def _reward_of(about: Mapping[str, Any]) -> str:
    """Returns the name of the reward with which the policies learned."""
    papers = f"{PaperReward.__module__}.{PaperReward.__qualname__}"
    name = about.get("recipe", {}).get("reward", {}).get("name", papers)
    return "the paper's reward" if name == papers else name


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
    """Searches for settings that are good on average over seeds; the simulator computes trials in batches.

    `<out>/journal.log` stores each trial as soon as its batch is done, so the same call resumes an interrupted
    search with the same proposals. A proposal depends on the ranges, `sampler_seed`, `batch` and the earlier
    trials, not on when these were computed. A call with more trials continues the study. A call with more seeds
    computes the existing trials only for the new seeds and takes the mean over all; these trials stay in the study,
    although all seeds together might have led to other proposals. Only one process at a time works on a study.
    `trials_of` returns the trials as labelled arrays.

    Args:
        config: the settings that all trials share; None: the defaults.
        ranges: `Uniform`, `LogUniform` or `Choice` of each searched setting.
        objectives: names from `OBJECTIVES`; several of them give a Pareto set.
        trials: total number of finished trials, earlier calls included. A trial with a diverged run fails, but
            counts. Each trial records how many of its seeds count, and in how many of its runs a mean reward is
            above its `upper_bound`, which also prints a warning.
        seeds: number of runs of each trial (seeds 0, 1, ...) or the seeds themselves.
        out: folder of the study.
        policy: name of the policy to optimise; it must be in `config.policies` or in the recipe.
        batch: number of trials that run together.
        sampler_seed: seed of the proposals.
        data: your data set; None: the one that the config names.
        recipe: your code: model, optimisers, policies, reward, network.
        progress: whether to show progress on standard error.
        width: concurrent runs on each device, which may change the last bits; None: chosen as in `d2djax.run`.

    Returns:
        The study. `d2djax search --config <out>/config.toml` repeats the search, and
        `d2djax run --config <out>/best.toml` the runs of its best trial (see `best_trial`).

    Raises:
        ValueError: a range, an objective or a setting is wrong, an objective contains a searched setting, `out`
            holds another search or something else, or another process works in it.
        OSError: the results cannot be written; finished trials are kept.
    """
    ranges = {} if ranges is None else ranges
    names, run_seeds = check_objectives(objectives), check_seeds(seeds).tolist()
    trials, batch = check_count("trials", trials), check_count("batch", batch)
    sampler_seed, width = check_count("sampler_seed", sampler_seed, 0), check_options(width, progress=progress)
    config = Config() if config is None else config
    check_kinds(config, data, recipe)
    policies = {} if recipe is None else recipe.policies
    compared = (*config.policies, *policies)
    if policy not in compared:
        raise ValueError(f"policy must be one of {', '.join(compared)}; got {policy!r}")
    given = replace(config, policies=tuple(name for name in config.policies if name == policy))
    policies = {name: one for name, one in policies.items() if name == policy}
    used = None if recipe is None else replace(recipe, policies=policies)
    own, trains = {} if used is None else used.numbered, any(OBJECTIVES[name].needs_training for name in names)
    space = _space_of(ranges, own)
    check_objectives(names, space)
    if not candidates_of(given, policies)[policy].has_graph:
        check_without_graph(names, policy)
    folder = files.check_folder(out)
    files.check_own(folder, "search", journal.NAMES)
    needs_model = trains or "energy" in names
    examples, runs = axes_of(corners(ranges, own)), min(batch, trials) * len(run_seeds)
    setup = set_up(given, data, used, trains=trains, needs_model=needs_model, axes=examples, runs=runs)
    # Check the ends of all ranges now, so that no trial has an invalid setting after hours of work.
    lay_out(setup.config, corners(ranges, own), own)
    about = _identity(setup, ranges, names, run_seeds, trains) | {"sampler_seed": sampler_seed}
    console, before = errors() if progress else None, (setup,)
    with journal.held(folder), live(console) as show:
        study = journal.open_study(folder, [OBJECTIVES[name].direction for name in names], about)
        study = journal.without_incomplete(folder, study, batch)
        there = study.user_attrs["seeds"]
        new = [seed for seed in run_seeds if seed not in there]
        lacking = journal.with_more(study, run_seeds)
        done = len(journal.finished(study))
        left = max(0, trials - done) * len(run_seeds) + len(lacking) * len(new)
        if left:
            # Written after the check of `out` and before the work, so that it can repeat an interrupted search.
            grown = journal.note_steps(study, batch, bool(new), trials > done)
            options = _options(ranges, there + new, grown) | {"objective": list(names), "policy": policy}
            options |= {"trials": max(trials, done), "batch": batch, "sampler_seed": sampler_seed}
            repeat.leave(folder, repeat.text_of("search", options, config, list(space), data=data, recipe=recipe))
        whole = max(trials, done) * len(run_seeds)
        tally = Tally(show, left, whole, "training" if trains else "discovery")

        def compute(
            points: list[dict[str, Any]], seeds: list[int]
        ) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
            """Yields for each point the values by objective, and for which seeds a reward is above its bound."""
            nonlocal before
            plan = plan_sweep(setup.config, points, seeds, data, used, trains, like=before)
            before = (setup, *plan.setups)
            found, is_above = _evaluate(plan, names, tally, width)
            return (
                ({name: values[number] for name, values in found.items()}, is_above[number])
                for number in range(len(points))
            )

        for first in range(0, len(lacking), batch):
            part = lacking[first : first + batch]
            for trial, (values, is_above) in zip(part, compute([one.params for one in part], new), strict=True):
                journal.keep_more(study, trial.number, new, values, is_above)
        if new:
            study = journal.grow(folder, study, names, there + new)
        begun = journal.begun(study)
        while done < trials:
            asked = begun or _ask(study, space, min(batch, trials - done), sampler_seed, done)
            begun = []
            computed = compute([trial.params for trial in asked], study.user_attrs["seeds"])
            for trial, (values, is_above) in zip(asked, computed, strict=True):
                journal.tell(study, trial, values, int(is_above.sum()))
            done += len(asked)
        found = trials_of(study)
        results.save(found, folder / files.STORE)
        _leave_best(folder, study, config, data, recipe)
    _say(console, journal.above_bound(found))
    return study


def _say(console: Console | None, lines: Sequence[str]) -> None:
    if console is not None:
        for line in lines:
            console.print(line, style="yellow")


def _options(ranges: Mapping[str, Range], seeds: Sequence[int], grown: bool) -> dict[str, Any]:
    """Returns the axes and seeds as options of the command that repeats a search."""
    axes = [repeat.axis_text(name, values) for name, values in ranges.items()]
    return ({"grown": True} if grown else {}) | {"axis": axes} | repeat.seed_options(seeds, first=False)


def _leave_best(
    folder: Path, study: optuna.Study, config: Config, data: Dataset | None, recipe: Recipe | None
) -> None:
    """Writes the file with which `d2djax run` repeats the best trial for all policies of the config."""
    best = best_trial(study)
    if best is None:
        # With more seeds, the earlier best trial may have failed.
        (folder / "best.toml").unlink(missing_ok=True)
        return
    values = zip(study.user_attrs["objectives"], best.values, strict=True)
    named = ", ".join(f"{name} {value:.6g}" for name, value in values)
    numbers = {name: value for name, value in best.params.items() if "." in name}
    named = "; ".join([named, *(f"{name} = {value!r}" for name, value in numbers.items())])
    comment = f"These are the settings of the best trial of a search, number {best.number}: {named}."
    own = repeat.seed_options(study.user_attrs["seeds"])
    if recipe is not None and recipe.file:
        own |= {"number": [f"{name}={value!r}" for name, value in numbers.items()]}
        numbers = {}
    found = replace(config, **{name: value for name, value in best.params.items() if "." not in name})
    repeat.leave(
        folder,
        repeat.text_of("run", own, found, data=data, recipe=recipe, numbers=list(numbers), comment=comment),
        "best.toml",
    )


def best_trial(study: optuna.Study) -> optuna.trial.FrozenTrial | None:
    """Returns the best trial; with several objectives, the trial of the Pareto set that is best in the first one.

    Args:
        study: a study of `search`.

    Returns:
        The trial, the first of equally good ones; None if every trial failed.
    """
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    sign = 1 if study.directions[0].name == "MINIMIZE" else -1
    best = {trial.number for trial in study.best_trials} if trials else set()
    return min(
        (trial for trial in trials if trial.number in best),
        key=lambda trial: (sign * trial.values[0], trial.number),
        default=None,
    )


def _identity(
    setup: Setup, ranges: Mapping[str, Range], objectives: Sequence[str], seeds: list[int], trains: bool
) -> dict[str, Any]:
    """Returns the identity of a search; a searched setting counts only with its range."""
    choices = [
        replace(setup.config, **{name: value})
        for name, values in ranges.items()
        if isinstance(values, Choice) and "." not in name
        for value in values.values
    ]
    found = identify(
        [setup.config, *choices],
        seeds,
        [setup.dataset],
        setup.recipe,
        setup.parameters,
        TAKES_PART,
        trains=trains,
        axes=dict.fromkeys(ranges, ()),
    )
    settings = {name: value for name, value in found.pop("config").items() if name not in ranges}
    del found["axes"], found["dimensions"]
    own = {"objectives": list(objectives), "ranges": {name: repr(one) for name, one in ranges.items()}}
    return own | {"config": settings} | found
