"""The journal of a search: one study of Optuna on disk, whose trials are kept as soon as they are computed."""

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
# Runs of a trial in which a mean reward is above its own bound; only trials with such runs have it.
ABOVE = "above_bound"
NAMES = (files.JOURNAL, files.STORE, "config.toml", "best.toml")


@contextmanager
def held(out: Path) -> Iterator[None]:
    """Keeps other processes out of the folder of a search; the lock of a process that died is free.

    Raises:
        ValueError: another process works there; it is named.
    """
    with locks.working(out / f"{files.STORE}.lock", errors().print) as found:
        others = found.others()
        if others:
            raise ValueError(f"{out}: {others[0]} works here; wait until it has finished, or choose another folder")
        found.sit()
        yield


def _mend(journal: Path) -> None:
    """Cuts a line that a stopped process left half-written: with it no part of the journal could be read."""
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
        # What is only read is not written to, also if it turns out to be another study.
        return optuna.load_study(study_name="d2djax", storage=storage)
    except KeyError:
        return optuna.create_study(study_name="d2djax", storage=storage, directions=directions)


def open_study(out: Path, directions: Sequence[Direction], about: Mapping[str, Any]) -> optuna.Study:
    """Begins a study in `<out>/journal.log`, or goes on with the one that is there; `held` must be entered.

    Args:
        out: folder.
        directions: of each objective, "maximize" or "minimize".
        about: what the trials have in common, as plain JSON; kept with the study. Of its seeds there may be more
            than before.

    Raises:
        ValueError: the study that is there is another one; what differs is named.
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
            raise ValueError(f"{out}: another search is here ({different}); choose another folder")
    for name, value in about.items():
        if name not in there:
            study.set_user_attr(name, value)
    return study


def begun(study: optuna.Study, batch: int) -> list[optuna.Trial]:
    """The trials that a process was at when it was stopped; only one process at a time is here.

    Where it had told values of a part of a batch, the rest of the batch is to be computed: it was proposed without
    those values. Where it had told none, it may have proposed a part of the batch alone: the trials fail, and the
    same ones are proposed again.

    Args:
        study: of which no process is at a trial.
        batch: trials at the same time.
    """
    import optuna

    left = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    if len(finished(study)) % batch or any(trial.user_attrs for trial in left):
        return [optuna.trial.Trial(study, trial._trial_id) for trial in left]
    for trial in left:
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return []


def note_steps(study: optuna.Study, batch: int, more_seeds: bool, more_trials: bool) -> bool:
    """Keeps with a study whether it grew in steps that one search from the start would not have taken.

    A proposal depends on the trials of the batches before it, and on their means over the seeds that there were.

    Args:
        study: before it grows.
        batch: trials at the same time, from now on.
        more_seeds: its trials are to get more seeds.
        more_trials: more trials are to be made.

    Returns:
        Whether it did so, now or before.
    """
    done, before = len(finished(study)), study.user_attrs.get("batch", batch)
    other_batches = more_trials and ((done % batch > 0 and not begun(study, batch)) or batch != before)
    grown = bool(study.user_attrs.get("grown")) or (done > 0 and (more_seeds or other_batches))
    for name, value in (("batch", batch), ("grown", grown)):
        if study.user_attrs.get(name) != value:
            study.set_user_attr(name, value)
    return grown


@contextmanager
def reading(out: Path) -> Iterator[optuna.Study]:
    """The study of a folder as far as it is, of which nothing is written, also while a search goes on there.

    Raises:
        ValueError: Optuna is missing, or there is no study yet.
    """
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ValueError(f"{out}: reading a search needs Optuna: in the clone, pip install '.[tune]'") from None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, files.JOURNAL)
        copy.write_bytes((out / files.JOURNAL).read_bytes())
        _mend(copy)
        study = _study(copy, ["maximize"])
        if "objectives" not in study.user_attrs:
            raise ValueError(f"{out}: a search is here that has not begun")
        check_version(out)
        yield study


_FIRST_RELEASE = (
    "the search here was started with d2djax 0.1, and later versions can neither resume nor show it; "
    "xarray.open_zarr still opens its results.zarr"
)


def check_version(out: Path) -> None:
    """Refuses a study of d2djax 0.1: its trials lack the notes that are read here, so it would look empty.

    Its text is read as far as its config, for which Optuna need not be there.

    Raises:
        ValueError: the journal in this folder is of d2djax 0.1.
    """
    with (out / files.JOURNAL).open("rb") as lines:
        # A process that was stopped may have left half of the last line.
        marked = (json.loads(line) for line in lines if b'"config"' in line and line.endswith(b"\n"))
        configs = (one["user_attr"]["config"] for one in marked if "config" in one.get("user_attr", {}))
        if "methods" in next(configs, {}):
            raise ValueError(f"{out}: {_FIRST_RELEASE}")


def check_trials(trials: xarray.Dataset, name: str) -> None:
    """Refuses trials that a search of d2djax 0.1 left as labelled arrays, without what they are of.

    Args:
        trials: results of any kind.
        name: where they are from, for the message.

    Raises:
        ValueError: they are such trials.
    """
    if "is_best" in trials and "seeds_left" not in trials and "manifest" not in trials.attrs:
        raise ValueError(f"{name}: {_FIRST_RELEASE}")


def finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials that came to an end, well or not; not those that were stopped, which know no values."""
    trials = study.get_trials(deepcopy=False)
    # A process may have been stopped before the last of the notes.
    return [trial for trial in trials if trial.state.is_finished() and "seeds_left" in trial.user_attrs]


def verdict(values: Values) -> list[float] | None:
    """Mean of each objective over the seeds; none if a run diverged in one of them: the trial has failed.

    The mean of the others would praise a setting under which only the easy networks come to an end.
    """
    means = [float(np.mean(one)) for one in values.values()]
    return means if np.isfinite(means).all() else None


def notes(values: Values, above: int = 0) -> dict[str, Any]:
    """What is kept with a trial: its values for each seed, and for how many seeds all of them count.

    And in how many runs a mean reward is above its bound, if in any; `finished` wants the last of the notes last.
    """
    left = np.isfinite(np.array(list(values.values()), float)).all(0)
    own = {name: [float(one) for one in given] for name, given in values.items()}
    return own | ({ABOVE: above} if above else {}) | {"seeds_left": int(left.sum())}


def tell(study: optuna.Study, trial: optuna.Trial, values: Values, above: int = 0) -> None:
    """Keeps the values of a trial, one for each seed, and in how many runs a mean reward is above its bound."""
    import optuna

    for name, one in notes(values, above).items():
        trial.set_user_attr(name, one)
    means = verdict(values)
    if means is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, means)


def above_bound(trials: xarray.Dataset) -> list[str]:
    """A line that says in how many runs of trials a reward of one's own is above its bound; none if in none.

    Args:
        trials: see `searches.trials_of`.
    """
    if ABOVE not in trials:
        return []
    counts = trials[ABOVE]
    where = f"{plural(int(counts.sum()), 'run')} of {plural(int((counts > 0).sum()), 'trial')}"
    return [f"{bound_line(where, counts.attrs['reward'])}; see `{ABOVE}`"]


# --- more seeds ---

_MORE = "more of trial "
# How the study was computed, which is no part of what it is of.
_STEPS = ("batch", "grown")


def with_more(study: optuna.Study, seeds: Sequence[int]) -> list[optuna.trial.FrozenTrial]:
    """The trials that lack some of these seeds."""
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
    """Keeps what was computed for more seeds of a trial, until all trials have them; see `grow`."""
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
    """Writes the journal anew, whole or not at all, with the values of all trials over more seeds.

    A trial of Optuna that has ended cannot be changed, so the study is another one with the same trials.

    Args:
        out: folder.
        study: every finished trial of it has all of the seeds.
        objectives: their names.
        seeds: first those that were there, in their order, then the new ones.

    Returns:
        The study that is there now.
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
