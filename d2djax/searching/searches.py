"""Search over settings: batches of trials, proposed by Optuna, each batch one call of the simulator."""

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
from d2djax.recipe import Recipe
from d2djax.reward import PaperReward
from d2djax.running import machine, repeat, results
from d2djax.running.axes import Choice, LogUniform, Range, check_ranges, corners, is_whole, lay_out
from d2djax.running.axes import values_of as axes_of
from d2djax.running.identity import identify
from d2djax.running.plan import SweepPlan, plan_sweep
from d2djax.running.progress import Tally, errors, live
from d2djax.running.runs import TAKES_PART, Setup, check_kinds, check_options, check_seeds, set_up
from d2djax.running.sweeps import stages_of
from d2djax.searching import journal
from d2djax.searching.objectives import OBJECTIVES, check_objectives, labelled, values_of
from d2djax.storage import files

if TYPE_CHECKING:
    import optuna
    import xarray
    from rich.console import Console


def _distribution(name: str, values: Range, own: Mapping[str, Any]) -> optuna.distributions.BaseDistribution:
    """A range as Optuna has it; whole numbers for a setting that is whole."""
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
    """Each setting that is sought."""
    check_ranges(ranges, own)
    return {name: _distribution(name, values, own) for name, values in ranges.items()}


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


def _evaluate(
    plan: SweepPlan, objectives: Sequence[str], tally: Tally, width: int | None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Each objective for every point and seed, [P, R], of the only policy; NaN where a run diverged.

    And where a reward of one's own is above its bound, [P, R] bool.
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
    """The finished trials of a study as labelled arrays.

    Returns:
        Each objective (trial, run), NaN where a run diverged; `seeds_left`, the seeds in which none did; the
        settings along `trial`; and `is_best`, which is 1 for the best trial, with several objectives for every one
        that no other beats in all of them. `above_bound`, only where it is above 0 in some trial: the runs of each
        in which a mean reward is above its `upper_bound`. The manifest says what the trials are of.
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
    coordinates |= {name: ("trial", np.array([one.params[name] for one in trials])) for name in about["ranges"]}
    attributes = {"title": "d2djax search", "manifest": json.dumps(about, sort_keys=True)}
    attributes["machine"] = json.dumps(machine.describe(), sort_keys=True)
    return xarray.Dataset(variables, coords=coordinates, attrs=attributes)


def _reward_of(about: Mapping[str, Any]) -> str:
    """Name of the reward that the trials learned with."""
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
    """Searches for settings that are good on average over seeds, in batches that the simulator computes together.

    Every trial is kept in `<out>/journal.log` as soon as its batch is done, so the same call goes on where it was
    stopped, and proposes what it would have proposed: a proposal depends on the ranges, `sampler_seed` and `batch`,
    and on the trials before it, not on when they were computed. More trials go on from those that are there. With
    more seeds, the trials that are there are computed for the new ones alone, and get the mean over all; they stay
    in the study although another proposal might have been made with all seeds. One process at a time works on a
    study. `trials_of` gives the trials as labelled arrays.

    Args:
        config: what all trials have in common; none: the defaults.
        ranges: `Uniform`, `LogUniform` or `Choice` of each setting that is sought.
        objectives: names from `OBJECTIVES`; several: the trials that no other beats in all of them are sought.
        trials: finished trials in the end, those of earlier calls included. One with a run that diverged has
            failed, and counts; how many of its seeds are left is kept with it, as is in how many of its runs a mean
            reward is above its own `upper_bound`, of which a line tells in the end.
        seeds: number of runs of each trial (seeds 0, 1, ...) or the seeds themselves.
        out: folder of the study.
        policy: whose results count; it must be in `config.policies`.
        batch: trials at the same time.
        sampler_seed: seed of the proposals.
        data: a data set of your own; none: the one that the config names.
        recipe: code of your own: model, optimisers, policies, reward, network.
        progress: shows progress on standard error.
        width: runs at the same time on each device, which may change last bits; none: chosen as in `d2djax.run`.

    Returns:
        The study. `<out>/config.toml` repeats the search, `<out>/best.toml` the runs of its best trial (see
        `best_trial`): `d2djax search --config`, `d2djax run --config`.

    Raises:
        ValueError: a range, an objective or a setting is wrong, an objective contains what is sought, another
            search or something else is in `out`, or another process works there; one line says which.
        OSError: the results cannot be written; what was written stays.
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
    folder = files.check_folder(out)
    files.check_own(folder, "search", journal.NAMES)
    needs_model = trains or "energy" in names
    examples, runs = axes_of(corners(ranges, own)), min(batch, trials) * len(run_seeds)
    setup = set_up(given, data, used, trains=trains, needs_model=needs_model, axes=examples, runs=runs)
    # No trial of a range that leads out of what a setting may be, after hours.
    lay_out(setup.config, corners(ranges, own), own)
    about = _identity(setup, ranges, names, run_seeds, trains) | {"sampler_seed": sampler_seed}
    console, before = errors() if progress else None, (setup,)
    with journal.held(folder), live(console) as show:
        study = journal.open_study(folder, [OBJECTIVES[name].direction for name in names], about)
        there = study.user_attrs["seeds"]
        new = [seed for seed in run_seeds if seed not in there]
        lacking = journal.with_more(study, run_seeds)
        done = len(journal.finished(study))
        left = max(0, trials - done) * len(run_seeds) + len(lacking) * len(new)
        if left:
            # After the check that `out` is its own, and before the work: one that was stopped is repeated, too.
            grown = journal.note_steps(study, batch, bool(new), trials > done)
            options = _options(ranges, there + new, grown) | {"objective": list(names), "policy": policy}
            options |= {"trials": max(trials, done), "batch": batch, "sampler_seed": sampler_seed}
            repeat.leave(folder, repeat.text_of("search", options, config, list(space), data=data, recipe=recipe))
        whole = max(trials, done) * len(run_seeds)
        tally = Tally(show, left, whole, "training" if trains else "discovery")

        def compute(
            points: list[dict[str, Any]], seeds: list[int]
        ) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
            """Values of each point for each seed, by objective, and where a reward is above its bound."""
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
        begun = journal.begun(study, batch)
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
    """Options of the command that repeats a search, as far as its axes and seeds go."""
    axes = [repeat.axis_text(name, values) for name, values in ranges.items()]
    return ({"grown": True} if grown else {}) | {"axis": axes} | repeat.seed_options(seeds, first=False)


def _leave_best(
    folder: Path, study: optuna.Study, config: Config, data: Dataset | None, recipe: Recipe | None
) -> None:
    """Writes the file with which `d2djax run` repeats the best trial, for all policies of the config."""
    best = best_trial(study)
    if best is None:
        # With more seeds, a trial that was the best may have failed.
        (folder / "best.toml").unlink(missing_ok=True)
        return
    values = zip(study.user_attrs["objectives"], best.values, strict=True)
    named = ", ".join(f"{name} {value:.6g}" for name, value in values)
    numbers = {name: value for name, value in best.params.items() if "." in name}
    named = "; ".join([named, *(f"{name} = {value!r}" for name, value in numbers.items())])
    comment = f"It is trial {best.number} of a search, the best one: {named}."
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
    """The best trial; of several that no other beats in all objectives, the best in the first objective.

    Returns:
        The trial, of equal ones the first; none if every trial has failed.
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
    """What the trials of a search have in common; of what is sought, its range alone."""
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
        TAKES_PART,
        trains=trains,
        axes=dict.fromkeys(ranges, ()),
    )
    settings = {name: value for name, value in found.pop("config").items() if name not in ranges}
    del found["axes"], found["dimensions"]
    own = {"objectives": list(objectives), "ranges": {name: repr(one) for name, one in ranges.items()}}
    return own | {"config": settings} | found
