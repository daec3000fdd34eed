"""The command line: `d2djax run`, `sweep`, `search`, `figure`, `results`, `report`, `download`, `info`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from d2djax.cli import interrupts, terminal
from d2djax.cli.arguments import axes, data_of, file_text, ranges_of, recipe_of, seeds_of, shard, slurm_note
from d2djax.cli.options import Download, Figure, Info, Report, Results, Run, Search, Sweep
from d2djax.cli.parser import parse
from d2djax.cli.terminal import show
from d2djax.settings import DatasetName
from d2djax.storage import files

# Commands import JAX only when they need it, so that help and rejected options appear at once.


def machine_line(about: dict[str, Any]) -> str:
    """Formats `machine.describe()` as the first line of a run."""
    names = about["devices"]
    kinds = ", ".join(f"{names.count(kind)} x {kind}" for kind in sorted(set(names)))
    return (
        f"d2djax {about['versions'].get('d2djax', '?')}, jax {about['versions']['jax']}, {about['backend']}: "
        f"{kinds}; {about['cores']} cores, {about['memory_gib']} GiB"
    )


def _start(require_gpu: bool) -> Console:
    """Sets up JAX, prints the machine before any work, and returns the console for messages."""
    from d2djax.running import machine
    from d2djax.running.progress import errors

    console = errors()
    machine.use_all_cores()
    machine.use_compilation_cache()
    machine.start()
    about = machine.describe()
    console.print(machine_line(about))
    for warning in terminal.unknown_variables():
        console.print(f"warning: {warning}", style="yellow")
    fallback = machine.silent_fallback()
    if fallback:
        console.print(f"warning: {fallback}", style="yellow")
    if require_gpu and about["backend"] == "cpu":
        raise ValueError(f"--require-gpu: JAX found no GPU or TPU; {fallback or 'none is attached'}")
    interrupts.work_begins()
    return console


# The files that `run` writes besides its figures.
RUN_FILES = (files.STORE, "config.toml", "manifest.json")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Turns operating system errors during resumable work into one line."""
    try:
        yield
    except OSError as error:
        why = files.reason(error)
        raise ValueError(
            f"--out {out}: {why}; finished work is kept, and rerunning the command resumes it"
        ) from error


def run_command(command: Run) -> None:
    """Runs `d2djax run`."""
    from d2djax.analysis.plots import PICTURES
    from d2djax.analysis.tables import above_bound, cost_table, summary_table
    from d2djax.running.results import not_finite
    from d2djax.running.runs import fill_in, run
    from d2djax.validation import validate

    out = files.check_folder(command.out, "--out")
    seeds = seeds_of(command)
    if not (command.data or command.recipe or command.network):
        # The user's data and networks can change settings, which are not known yet.
        validate(fill_in(command.config, None, None))
    if files.check_own(out, "run", (*RUN_FILES, *PICTURES), "--out") and not command.overwrite:
        raise ValueError(f"--out {out}: the folder holds the results of a run; --overwrite replaces them")
    data, recipe = data_of(command), recipe_of(command)
    messages = _start(command.require_gpu)
    dataset = run(command.config, seeds, data=data, recipe=recipe)
    place, pictures, failure = _save_run(dataset, file_text(command), out, PICTURES)
    show(summary_table(dataset))
    if "none" in dataset["policy"].values and dataset.sizes["policy"] > 1:
        show(cost_table(dataset))
    diverged = int(not_finite(dataset["status"]).sum())
    if diverged:
        messages.print(
            f"{diverged} of {dataset['status'].size} training runs diverged; see `status`", style="yellow"
        )
    for line in above_bound(dataset):
        messages.print(line, style="yellow")
    if place:
        seconds = json.loads(dataset.attrs["manifest"])["wall_seconds"]
        show(f"{seconds} s; saved in {place}: {', '.join(RUN_FILES)}", f"figures: {', '.join(pictures) or 'none'}")
    if failure:
        where = f"the results were saved in {place}" if place else "the results could not be saved anywhere"
        terminal.say(f"--out {command.out}: {failure}; {where}")
        raise SystemExit(terminal.FAILED)


def _save_run(dataset: Any, config: str, out: Path, old: Sequence[str]) -> tuple[Path | None, list[str], str]:
    """Saves the results of a run, in a spare folder if `out` has become unwritable.

    Args:
        dataset: the results.
        config: settings as TOML.
        out: the requested folder.
        old: names of figures of an earlier run, which are removed.

    Returns:
        The folder used, or None; the names of the figures; the reason why `out` could not be used, or empty.
    """
    from d2djax.analysis.plots import save_figures
    from d2djax.running.results import save

    manifest = json.dumps(json.loads(dataset.attrs["manifest"]), indent=2, sort_keys=True) + "\n"
    failure = ""
    for place in chain([out], files.spare_folders("d2djax-run-")):
        try:
            with files.filling(place, old) as new:
                save(dataset, new / files.STORE)
                files.write_text(new / "config.toml", config)
                files.write_text(new / "manifest.json", manifest)
        except (OSError, ValueError) as error:
            failure = failure or files.reason(error)
            continue
        try:
            with files.filling(place) as new:
                pictures = [path.name for path in save_figures(dataset, new)]
        except OSError as error:
            return place, [], failure or f"pictures: {files.reason(error)}"
        return place, pictures, failure
    return None, [], failure


def sweep_command(command: Sweep) -> None:
    """Runs `d2djax sweep`."""
    from d2djax.analysis.tables import above_bound, diverged
    from d2djax.running import machine
    from d2djax.running.sweeps import sweep

    out = files.check_folder(command.out, "--out")
    files.check_own(out, "sweep", (files.STORE, "config.toml"), "--out")
    seeds = seeds_of(command)
    data, recipe = data_of(command), recipe_of(command)
    points = axes(command.axis, command.random, command.draw_seed, command.points, recipe)
    part = None if command.distributed else shard(command.shard)
    if command.distributed:
        machine.join_processes(command.coordinator, command.processes, command.process)
    messages = _start(command.require_gpu)
    if part:
        messages.print(f"shard {part[0]}/{part[1]}")
    elif not command.distributed and (note := slurm_note()):
        messages.print(f"note: {note}")
    options = {"training": command.training, "shard": part, "file_text": file_text(command)}
    with _resumable(command.out):
        found = sweep(command.config, points, seeds, out, data=data, recipe=recipe, **options)
    done = found["done"]
    show(f"{int(done.sum()):,} of {done.size:,} runs are done; saved in {out / files.STORE}", *diverged(found))
    show(*above_bound(found))


def search_command(command: Search) -> None:
    """Runs `d2djax search`."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ValueError("search needs Optuna: run pip install '.[tune]' in the clone") from None
    from d2djax.analysis.tables import best_trials
    from d2djax.searching.searches import search, trials_of

    out = files.check_folder(command.out, "--out")
    files.check_own(out, "search", (files.JOURNAL, files.STORE, "config.toml", "best.toml"), "--out")
    data, recipe = data_of(command), recipe_of(command)
    ranges = ranges_of(command.axis, recipe)
    _start(command.require_gpu)
    with _resumable(command.out):
        study = search(
            command.config,
            ranges,
            command.objective,
            command.trials,
            command.seeds,
            out,
            policy=command.policy,
            batch=command.batch,
            sampler_seed=command.sampler_seed,
            data=data,
            recipe=recipe,
        )
    show(best_trials(trials_of(study)))
    left = [name for name in ("results.zarr", "config.toml", "best.toml") if (out / name).exists()]
    show(f"saved in {out}: journal.log (optuna-dashboard opens it), {', '.join(left)}")


def figure_command(command: Figure) -> None:
    """Runs `d2djax figure`."""
    from d2djax.analysis import figures
    from d2djax.analysis.tables import claims_table

    if not command.names:
        show(*(f"{name:12} {one.title}" for name, one in figures.FIGURES.items()), "all          all of them")
        return
    names = figures.check_names(command.names)
    if command.seeds < 0:
        raise ValueError(f"--seeds must be 0 or more; got {command.seeds}")
    out = files.check_folder(command.out, "--out")
    written = [f"{command.size}/{name}{suffix}" for name in names for suffix in figures.SUFFIXES]
    files.check_own(out, "figures", written, "--out")
    folders = {name: getattr(command, name, "") or None for name in get_args(DatasetName)}
    messages = _start(command.require_gpu)
    lines, found = [], []
    with _resumable(command.out):
        for picture, claims in figures.draw(names, command.size, out, seeds=command.seeds or None, folders=folders):
            lines.append(
                ", ".join([str(picture), *(picture.with_suffix(one).name for one in figures.SUFFIXES[1:])])
            )
            messages.print(f"drawn: {picture}")
            found += claims
    show(*lines)
    if found:
        show(claims_table(found))
    if command.size == "toy":
        show("size toy: numbers mean nothing; images are patterns drawn in process")


def results_command(command: Results) -> None:
    """Runs `d2djax results`."""
    from d2djax.analysis.merging import merge
    from d2djax.analysis.overview import best_points, csv_text, open_results, status_line, trials_csv
    from d2djax.analysis.statistics import whole
    from d2djax.analysis.tables import above_bound, best_trials, cost_table, summary_table
    from d2djax.running.results import save
    from d2djax.searching import journal

    table, out = _check_results(command)
    interrupts.work_begins()
    found = [open_results(folder) for folder in command.folders]
    searches = [one for one in found if one.kind == "search"]
    # A search proposes trials from its earlier trials, so merged trials would not form a search.
    if searches and (out or len(searches) < len(found)):
        all_are = len(searches) == len(found)
        what = "with each other; --csv writes the trials of all searches" if all_are else "with runs or sweeps"
        raise ValueError(f"{searches[0].name}: searches cannot be merged {what}")
    show(*map(status_line, found))
    for one in searches:
        show(best_trials(one.results), *journal.above_bound(one.results))
    results = found[0].results
    if not searches:
        results = merge([one.results for one in found], command.folders) if len(found) > 1 else whole(results)
        show(summary_table(results, most=MOST_ROWS), *above_bound(results))
        policies = [str(policy) for policy in results["policy"].values]
        if "accuracy" in results and "none" in policies and len(policies) > 1:
            show(cost_table(results, most=MOST_ROWS))
        best, notes = None, [f"no best points of {command.policy}: the policies are {', '.join(policies)}"]
        if command.policy in policies:
            best, notes = best_points(results, command.policy)
        show(*([best] if best else []), *notes)
    if table:
        files.write_text(table, trials_csv(searches) if searches else csv_text(results))
        show(f"numbers: {table}")
    if out:
        with files.filling(out) as new:
            save(results, new / files.STORE)
        show(f"merged results: {out / files.STORE}")


# If a sweep has more points, the tables of `results` show means over them.
MOST_ROWS = 100


def _check_results(command: Results) -> tuple[Path | None, Path | None]:
    """Checks, before anything is read, where the CSV file and the merged results go, if requested."""
    table = files.check_file(command.csv, "--csv") if command.csv else None
    out = files.check_folder(command.out, "--out") if command.out else None
    if table and table.exists() and not command.overwrite:
        raise ValueError(f"--csv {table}: the file exists; --overwrite replaces it")
    if out:
        if out in [files.expand(one, "folder").resolve() for one in command.folders]:
            raise ValueError(
                f"--out {out}: merged results cannot replace one of their sources; choose another folder"
            )
        if files.check_own(out, "sweep", (files.STORE,), "--out") and not command.overwrite:
            raise ValueError(f"--out {out}: the folder holds the results of a sweep; --overwrite replaces them")
    return table, out


def report_command(command: Report) -> None:
    """Runs `d2djax report`."""
    from d2djax.report.page import check_page, report
    from d2djax.running.results import read
    from d2djax.searching.journal import check_version

    page = check_page(command.out, "--out")
    store = files.expand(command.store, "store")
    if (store / files.JOURNAL).exists() and files.kind_of(store) == "search":
        check_version(store.resolve())
    store = store / files.STORE if (store / files.STORE).is_dir() else store
    interrupts.work_begins()
    try:
        found = read(store)
    except OSError as error:
        raise ValueError(files.reason(error)) from error
    try:
        report(found, page)
    except OSError as error:
        raise ValueError(f"--out {command.out}: {files.reason(error)}") from error
    show(f"{page}: {page.stat().st_size / 1e6:.1f} MB")


def download_command(command: Download) -> None:
    """Runs `d2djax download`."""
    from d2djax.data import download

    interrupts.work_begins()
    folder = download(command.name, command.data_dir, progressbar=True)
    show(f"{command.name}: {folder}")


def info_command(command: Info) -> None:
    """Runs `d2djax info`."""
    from d2djax.running import machine

    machine.use_all_cores()
    machine.start()
    table = Table(show_header=False)
    for name, value in machine.describe().items():
        text = "\n".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        table.add_row(name, ", ".join(text) if isinstance(text, list) else str(text))
    show(table)
    fallback = machine.silent_fallback()
    if fallback:
        show(f"warning: {fallback}")


COMMANDS = {
    "run": (Run, run_command),
    "sweep": (Sweep, sweep_command),
    "search": (Search, search_command),
    "figure": (Figure, figure_command),
    "results": (Results, results_command),
    "report": (Report, report_command),
    "download": (Download, download_command),
    "info": (Info, info_command),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command line; `terminal.ends` gives the exit codes.

    Args:
        arguments: the words after `d2djax`; None: those of the process.

    Raises:
        SystemExit: the command failed, was rejected or was interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with_traceback = "--traceback" in given or os.environ.get("D2DJAX_TRACEBACK") == "1"
    with terminal.ends(with_traceback):
        try:
            command, notes = parse(given, {name: kind for name, (kind, _) in COMMANDS.items()})
            for note in notes:
                terminal.say(note)
            for kind, function in COMMANDS.values():
                if isinstance(command, kind):
                    function(command)
        except KeyboardInterrupt:
            if "d2djax.running.programs" in sys.modules:
                sys.modules["d2djax.running.programs"].cancel()
            terminal.say("interrupted; rerunning the command resumes a sweep, a search or a figure")
            raise
