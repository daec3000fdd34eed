"""The journal of a search: an Optuna study on disk, which stores each trial as soon as it is computed."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from d2djax.running.identity import differences
from d2djax.running.progress import bound_line, errors, plural
from d2djax.searching.objectives import OBJECTIVES, Direction
from d2djax.storage import files, locks

if TYPE_CHECKING:
    import optuna
    import xarray

# Values of a trial for each seed, by objective.
Values = Mapping[str, Sequence[float] | np.ndarray]
# Number of runs of a trial in which a mean reward is above its bound; only trials with such runs have this note.
ABOVE = "above_bound"
NAMES = (files.JOURNAL, files.STORE, "config.toml", "best.toml")


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Locks the folder of a search against other processes; a dead process holds no lock.

    Args:
        out: the folder.

    Raises:
        ValueError: another process, which the line names, works in the folder.
    """
    with locks.working(out / f"{files.STORE}.lock", errors().print) as found:
        others = found.others()
        if others:
            raise ValueError(
                f"{out}: {others[0]} works in it; wait until it has finished, or choose another folder"
            )
        found.sit()
        yield


def _mend(journal: Path) -> None:
    """Removes an incomplete last line, which an interrupted process left and which makes the journal unreadable."""
    if journal.exists():
        text = journal.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            files.write_bytes(journal, whole)


def _study(journal: Path, directions: Sequence[Direction]) -> optuna.Study:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    try:
        # Loading does not write to the journal, even if it holds another study.
        return optuna.load_study(study_name="d2djax", storage=storage)
    except KeyError:
        return optuna.create_study(study_name="d2djax", storage=storage, directions=directions)


def open_study(out: Path, directions: Sequence[Direction], about: Mapping[str, Any]) -> optuna.Study:
    """Creates the study in `<out>/journal.log`, or opens it to resume the search; call it within `held`.

    Args:
        out: the folder.
        directions: "maximize" or "minimize" for each objective.
        about: the identity of the search as plain JSON, stored with the study. It may have more seeds than the
            stored one.

    Returns:
        The study.

    Raises:
        ValueError: the folder holds another study; the line names the differences.
    """
    journal = out / files.JOURNAL
    _mend(journal)
    study = _study(journal, directions)
    own = {name for name in study.user_attrs if name.startswith(_MORE)} | set(_STEPS)
    there = {name: one for name, one in study.user_attrs.items() if name not in own}
    check_version(out)
    if there:
        fewer = sorted(set(there.get("seeds", [])) - set(about["seeds"]))
        different = differences(there, about, () if fewer or "seeds" not in there else ("seeds",))
        if different:
            raise ValueError(f"{out}: holds another search ({different}); choose another folder")
    for name, value in about.items():
        if name not in there:
            study.set_user_attr(name, value)
    return study


def begun(study: optuna.Study) -> list[optuna.Trial]:
    """Returns the trials of an interrupted batch that still have to be computed, see `without_incomplete`.

    Args:
        study: a study on which no other process works.
    """
    import optuna

    return [optuna.trial.Trial(study, trial._trial_id) for trial in _running(study)]


def _running(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    import optuna

    return study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))


# Optuna's journal has one operation per line; this one begins a trial. Others name their trial: `trial_id`.
_CREATE_TRIAL = 4


def without_incomplete(out: Path, study: optuna.Study, batch: int) -> optuna.Study:
    """Removes an interrupted batch from the journal if none of its trials has a value.

    Such a batch may be incomplete. The same trials are proposed again, with the same numbers. If some trials have
    values, the others were proposed without these values, and stay.

    Args:
        out: the folder.
        study: the study in it, on which no other process works.
        batch: number of trials that run together.
    """
    left = _running(study)
    if not left or len(finished(study)) % batch or any(trial.user_attrs for trial in left):
        return study
    first, created, kept = left[0].number, 0, []
    for line in (out / files.JOURNAL).read_bytes().splitlines(keepends=True):
        operation = json.loads(line)
        begins = operation["op_code"] == _CREATE_TRIAL
        created += begins
        number = created - 1 if begins else operation.get("trial_id", -1)
        if number < first:
            kept.append(line)
    files.write_bytes(out / files.JOURNAL, b"".join(kept))
    return _study(out / files.JOURNAL, ())


def note_steps(study: optuna.Study, batch: int, more_seeds: bool, more_trials: bool) -> bool:
    """Records in a study whether it grew in steps that a single search would not have taken.

    A proposal depends on the trials of earlier batches, and on their means over the seeds at that time.

    Args:
        study: the study before it grows.
        batch: number of trials that run together from now on.
        more_seeds: whether its trials get more seeds.
        more_trials: whether it gets more trials.

    Returns:
        Whether it has grown in this way, now or before.
    """
    done, before = len(finished(study)), study.user_attrs.get("batch", batch)
    other_batches = more_trials and ((done % batch > 0 and not _running(study)) or batch != before)
    grown = bool(study.user_attrs.get("grown")) or (done > 0 and (more_seeds or other_batches))
    for name, value in (("batch", batch), ("grown", grown)):
        if study.user_attrs.get(name) != value:
            study.set_user_attr(name, value)
    return grown


@contextmanager
def reading(out: Path) -> Iterator[optuna.Study]:
    """Yields a copy of the study in a folder, even while a search writes to it; changes nothing.

    Args:
        out: the folder.

    Raises:
        ValueError: Optuna is missing, the study has not begun, or d2djax 0.1 wrote it.
    """
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ValueError(f"{out}: reading a search needs Optuna: run pip install '.[tune]' in the clone") from None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, files.JOURNAL)
        copy.write_bytes((out / files.JOURNAL).read_bytes())
        _mend(copy)
        study = _study(copy, ["maximize"])
        if "objectives" not in study.user_attrs:
            raise ValueError(f"{out}: the search in this folder has not begun")
        check_version(out)
        yield study


_FIRST_RELEASE = (
    "d2djax 0.1 started this search, and later versions can neither resume nor show it; "
    "xarray.open_zarr still opens its results.zarr"
)


def check_version(out: Path) -> None:
    """Rejects a study of d2djax 0.1, which would look empty because its trials lack the notes of later versions.

    It reads the text of the journal up to its config, without Optuna.

    Args:
        out: the folder of the search.

    Raises:
        ValueError: d2djax 0.1 wrote the journal.
    """
    with (out / files.JOURNAL).open("rb") as lines:
        # An interrupted process may have left an incomplete last line.
        marked = (json.loads(line) for line in lines if b'"config"' in line and line.endswith(b"\n"))
        configs = (one["user_attr"]["config"] for one in marked if "config" in one.get("user_attr", {}))
        if "methods" in next(configs, {}):
            raise ValueError(f"{out}: {_FIRST_RELEASE}")


def check_trials(trials: xarray.Dataset, name: str) -> None:
    """Rejects labelled trials of d2djax 0.1, which lack a manifest.

    Args:
        trials: results of any kind.
        name: where they come from, for the message.

    Raises:
        ValueError: d2djax 0.1 wrote the trials.
    """
    if "is_best" in trials and "seeds_left" not in trials and "manifest" not in trials.attrs:
        raise ValueError(f"{name}: {_FIRST_RELEASE}")


def finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Returns the completed and the failed trials, without interrupted ones, which have no values."""
    trials = study.get_trials(deepcopy=False)
    # An interrupted process may not have written the last note.
    return [trial for trial in trials if trial.state.is_finished() and "seeds_left" in trial.user_attrs]


def verdict(values: Values) -> list[float] | None:
    """Returns the mean of each objective over the seeds; None, for a failed trial, if a run diverged.

    A mean over the other runs would favour settings under which training succeeds only in easy networks.

    Args:
        values: the value of each objective for each seed.
    """
    means = [float(np.mean(one)) for one in values.values()]
    return means if np.isfinite(means).all() else None


def notes(values: Values, above: int = 0) -> dict[str, Any]:
    """Returns the notes of a trial: values for each seed, and the number of seeds whose values all count.

    If `above` is positive, the notes include it. `seeds_left` comes last, which `finished` relies on.

    Args:
        values: the value of each objective for each seed.
        above: number of runs in which a mean reward is above its bound.
    """
    left = np.isfinite(np.array(list(values.values()), float)).all(0)
    own = {name: [float(one) for one in given] for name, given in values.items()}
    return own | ({ABOVE: above} if above else {}) | {"seeds_left": int(left.sum())}


def tell(study: optuna.Study, trial: optuna.Trial, values: Values, above: int = 0) -> None:
    """Stores the values of a trial and ends it, as failed if a run diverged.

    Args:
        study: the study.
        trial: the trial.
        values: the value of each objective for each seed.
        above: number of runs in which a mean reward is above its bound.
    """
    import optuna

    for name, one in notes(values, above).items():
        trial.set_user_attr(name, one)
    means = verdict(values)
    if means is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, means)


def above_bound(trials: xarray.Dataset) -> list[str]:
    """Returns a one-line warning if a mean reward is above its bound in some runs; otherwise an empty list.

    Args:
        trials: result of `searches.trials_of`.
    """
    if ABOVE not in trials:
        return []
    counts = trials[ABOVE]
    where = f"{plural(int(counts.sum()), 'run')} of {plural(int((counts > 0).sum()), 'trial')}"
    return [f"{bound_line(where, counts.attrs['reward'])}; see `{ABOVE}`"]


# --- more seeds ---

_MORE = "more of trial "
# Notes on how the study was computed, which are not part of its identity.
_STEPS = ("batch", "grown")


def with_more(study: optuna.Study, seeds: Sequence[int]) -> list[optuna.trial.FrozenTrial]:
    """Returns the finished trials that lack some seeds.

    Args:
        study: the study.
        seeds: the seeds that each trial needs.
    """
    return [trial for trial in finished(study) if not _has(study, trial, seeds)]


def _has(study: optuna.Study, trial: optuna.trial.FrozenTrial, seeds: Sequence[int]) -> bool:
    kept = study.user_attrs.get(f"{_MORE}{trial.number}", {})
    there = {int(seed) for one in kept.values() for seed in one}
    return set(seeds) <= {*study.user_attrs["seeds"], *there}


def keep_more(
    study: optuna.Study,
    number: int,
    seeds: Sequence[int],
    values: Values,
    is_above: np.ndarray,
) -> None:
    """Stores the values of a trial for additional seeds, until all trials have them; see `grow`.

    Args:
        study: the study.
        number: number of the trial.
        seeds: the additional seeds.
        values: the value of each objective for each of these seeds.
        is_above: bool for each of these seeds, whether a mean reward is above its bound.
    """
    name = f"{_MORE}{number}"
    kept = study.user_attrs.get(name, {})
    for objective, given in values.items():
        new = {str(seed): float(one) for seed, one in zip(seeds, given, strict=True)}
        kept[objective] = kept.get(objective, {}) | new
    above = {str(seed): 1 for seed, one in zip(seeds, is_above, strict=True) if one}
    if above:
        kept[ABOVE] = kept.get(ABOVE, {}) | above
    study.set_user_attr(name, kept)


def grow(out: Path, study: optuna.Study, objectives: Sequence[str], seeds: Sequence[int]) -> optuna.Study:
    """Rewrites the journal atomically, with the values of all trials over more seeds.

    Optuna cannot change a finished trial, so a new study with the same trials replaces the old one.

    Args:
        out: the folder.
        study: a study in which every finished trial has values for all seeds, see `keep_more`.
        objectives: names of the objectives.
        seeds: the earlier seeds in their order, then the additional ones.

    Returns:
        The new study.
    """
    import optuna

    directions: list[Direction] = [OBJECTIVES[name].direction for name in objectives]
    about = {name: one for name, one in study.user_attrs.items() if not name.startswith(_MORE)}
    number_there = len(about["seeds"])
    with files.replacing(out / files.JOURNAL) as new:
        grown = _study(new, directions)
        for name, value in (about | {"seeds": list(seeds)}).items():
            grown.set_user_attr(name, value)
        ended = {trial.number for trial in finished(study)}
        for trial in study.get_trials(deepcopy=False):
            parts: dict[str, Any] = {"state": optuna.trial.TrialState.FAIL}
            if trial.number in ended:
                more = study.user_attrs[f"{_MORE}{trial.number}"]
                values = {
                    name: trial.user_attrs[name] + [more[name][str(seed)] for seed in seeds[number_there:]]
                    for name in objectives
                }
                means = verdict(values)
                if means is not None:
                    parts = {"state": optuna.trial.TrialState.COMPLETE, "values": means}
                new_above = [str(seed) in more.get(ABOVE, {}) for seed in seeds[number_there:]]
                parts["user_attrs"] = notes(values, trial.user_attrs.get(ABOVE, 0) + sum(new_above))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                grown.add_trial(
                    optuna.trial.create_trial(params=trial.params, distributions=trial.distributions, **parts)
                )
    return _study(out / files.JOURNAL, directions)
