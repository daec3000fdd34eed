"""The command line: `d2djax run`, `sweep`, `search`, `figure`, `report`, `download`, `info`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from d2djax.arguments import axes, config_text, ranges_of, shard, with_config_file
from d2djax.options import Download, Figure, Info, Report, Run, Search, Sweep

# What imports JAX is imported by the commands that need it: help and a refused option do not wait for it.


def machine_line(about: dict[str, Any]) -> str:
    """The machine in one line, for the start of a run, from `machine.describe()`."""
    names = about["devices"]
    kinds = ", ".join(f"{names.count(kind)} x {kind}" for kind in sorted(set(names)))
    return (
        f"d2djax {about['versions'].get('d2djax', '?')}, jax {about['versions']['jax']}, {about['backend']}: "
        f"{kinds}; {about['cores']} cores, {about['memory_gib']} GiB"
    )


def _check_folder(folder: Path) -> None:
    """Makes the folder for the results and writes to it, before any work is done for it."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out {folder}: expected a folder, found a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"--out {folder}: {error.strerror or error}") from error


def _start(require_gpu: bool) -> Console:
    """Sets the machine up and says what it is, before any work; returns where messages go."""
    from d2djax import machine
    from d2djax.progress import errors

    console = errors()
    machine.use_all_cores()
    machine.use_compilation_cache()
    about = machine.describe()
    console.print(machine_line(about))
    fallback = machine.silent_fallback()
    if fallback:
        console.print(f"warning: {fallback}", style="yellow")
    if require_gpu and about["backend"] == "cpu":
        raise ValueError(f"--require-gpu: JAX found no GPU or TPU; {fallback or 'none is attached'}")
    return console


def run_command(command: Run) -> None:
    """Runs `d2djax run`."""
    from d2djax.plotting import save_figures
    from d2djax.results import save
    from d2djax.runs import check_seeds, run
    from d2djax.tables import cost_table, summary_table
    from d2djax.validation import validate

    check_seeds(command.seeds)
    config = validate(command.config)
    _check_folder(command.out)
    messages = _start(command.require_gpu)
    dataset = run(config, range(command.first_seed, command.first_seed + command.seeds))
    save(dataset, command.out / "results.zarr")
    (command.out / "config.toml").write_text(config_text(command.config))
    manifest = json.loads(dataset.attrs["manifest"])
    (command.out / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    out = Console(highlight=False, markup=False, soft_wrap=True)
    out.print(summary_table(dataset))
    if "none" in config.policies and len(config.policies) > 1:
        out.print(cost_table(dataset))
    diverged = int((dataset["status"] > 0).sum())
    if diverged:
        messages.print(f"{diverged} of {dataset['status'].size} trainings diverged: see `status`", style="yellow")
    pictures = save_figures(dataset, command.out)
    out.print(f"{manifest['wall_seconds']} s; saved in {command.out}: results.zarr, config.toml, manifest.json")
    out.print("figures: " + ", ".join(path.name for path in pictures))


def sweep_command(command: Sweep) -> None:
    """Runs `d2djax sweep`."""
    from d2djax import machine
    from d2djax.runs import check_seeds
    from d2djax.sweeps import sweep
    from d2djax.tables import diverged

    check_seeds(command.seeds)
    points = axes(command.axis, command.random, command.draw_seed)
    part = None if command.distributed else shard(command.shard)
    if command.distributed:
        machine.join_processes(command.coordinator, command.processes, command.process)
    messages = _start(command.require_gpu)
    if part:
        messages.print(f"shard {part[0]}/{part[1]}")
    seeds = range(command.first_seed, command.first_seed + command.seeds)
    try:
        found = sweep(command.config, points, seeds, command.out, training=command.training, shard=part)
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"--out {command.out}: {why}; what is done stays, the same command goes on") from error
    done = found["done"]
    print(f"{int(done.sum()):,} of {done.size:,} runs are done; saved in {command.out / 'results.zarr'}")
    for line in diverged(found):
        print(line)


def search_command(command: Search) -> None:
    """Runs `d2djax search`."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ValueError("search needs Optuna: pip install 'd2djax[tune]'") from None
    from d2djax.search import search, trials_of
    from d2djax.tables import best_trials

    ranges = ranges_of(command.axis)
    _start(command.require_gpu)
    try:
        study = search(
            command.config,
            ranges,
            command.objective,
            command.trials,
            command.seeds,
            command.out,
            policy=command.policy,
            batch=command.batch,
            sampler_seed=command.sampler_seed,
        )
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"--out {command.out}: {why}; what is done stays, the same command goes on") from error
    out = Console(highlight=False, markup=False, soft_wrap=True)
    out.print(best_trials(trials_of(study)))
    out.print(f"saved in {command.out}: journal.log (optuna-dashboard opens it), results.zarr")


def figure_command(command: Figure) -> None:
    """Runs `d2djax figure`."""
    from d2djax.figures import check_names, draw
    from d2djax.tables import claims_table

    names = check_names(command.names)
    if command.seeds < 0:
        raise ValueError(f"--seeds must be 0 or more; got {command.seeds}")
    _check_folder(command.out)
    folders = {name: getattr(command, name) or None for name in ("radioml", "cifar10", "fashion_mnist")}
    _start(command.require_gpu)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    found = []
    for picture, claims in draw(names, command.size, command.out, seeds=command.seeds or None, folders=folders):
        out.print(f"{picture}, {picture.with_suffix('.pdf').name}, {picture.with_suffix('.json').name}")
        found += claims
    if found:
        out.print(claims_table(found))
    if command.size == "toy":
        out.print("size toy: numbers mean nothing; images are patterns drawn in process")


def report_command(command: Report) -> None:
    """Runs `d2djax report`."""
    from d2djax.report import report
    from d2djax.results import read

    inner = command.store / "results.zarr"
    try:
        found = read(inner if inner.is_dir() else command.store)
    except OSError as error:
        raise ValueError(str(error)) from error
    try:
        page = report(found, command.out)
    except OSError as error:
        raise ValueError(f"--out {command.out}: {error.strerror or error}") from error
    print(f"{page}: {page.stat().st_size / 1e6:.1f} MB")


def download_command(command: Download) -> None:
    """Runs `d2djax download`."""
    from d2djax.data import download

    folder = download(command.name, command.data_dir, progressbar=True)
    print(f"{command.name}: {folder}")


def info_command(command: Info) -> None:
    """Runs `d2djax info`."""
    from d2djax import machine

    machine.use_all_cores()
    table = Table(show_header=False)
    for name, value in machine.describe().items():
        text = "\n".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        table.add_row(name, ", ".join(text) if isinstance(text, list) else str(text))
    console = Console(highlight=False, markup=False)
    console.print(table)
    fallback = machine.silent_fallback()
    if fallback:
        console.print(f"warning: {fallback}", style="yellow")


COMMANDS = {
    "run": (Run, run_command),
    "sweep": (Sweep, sweep_command),
    "search": (Search, search_command),
    "figure": (Figure, figure_command),
    "report": (Report, report_command),
    "download": (Download, download_command),
    "info": (Info, info_command),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command line; bad input ends with one line and exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            {name: kind for name, (kind, _) in COMMANDS.items()},
            prog="d2djax",
            description="Reinforcement-learned device-to-device graphs for federated learning.",
            args=with_config_file(given),
            config=(tyro.conf.OmitArgPrefixes,),
        )
        for kind, function in COMMANDS.values():
            if isinstance(command, kind):
                function(command)
    except ValueError as error:
        print(f"d2djax: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        if "d2djax.program" in sys.modules:
            sys.modules["d2djax.program"].cancel()
        print("d2djax: stopped; a sweep or a search goes on with the same command", file=sys.stderr)
        raise SystemExit(130) from None
