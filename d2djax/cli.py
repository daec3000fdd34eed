"""The command line: `d2djax run`, `d2djax download`, `d2djax info`."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from d2djax import machine
from d2djax.config import Config
from d2djax.validation import validate


@dataclass(frozen=True)
class Run:
    """Simulate a setting for several seeds; print a table; save data and figures.

    Attributes:
        config: Every setting of a run.
        seeds: Number of runs; their seeds are first_seed, first_seed + 1, ...
        first_seed: Seed of the first run.
        out: Folder for results.zarr, config.toml, manifest.json and the figures.
        require_gpu: Stop if JAX found no GPU or TPU.
    """

    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    seeds: int = 4
    first_seed: int = 0
    out: Path = Path("results")
    require_gpu: bool = False


@dataclass(frozen=True)
class Download:
    """Fetch the official files of a data set and check their hashes.

    Attributes:
        name: Data set.
        data_dir: Folder for the files, in which runs look for them by default.
    """

    name: tyro.conf.Positional[Literal["fashion_mnist", "cifar10"]]
    data_dir: Path = Path("~/.cache/d2djax")


@dataclass(frozen=True)
class Info:
    """Print versions, devices, cores and memory."""


def config_arguments(path: str) -> list[str]:
    """Turns a config file (TOML, one `name = value` a line) into command-line arguments.

    The parser then checks a file as strictly as the command line, with the same messages.

    Raises:
        ValueError: the file is missing or is not TOML.
    """
    try:
        settings = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ValueError(f"--config {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {path}: not a TOML file: {error}") from error
    arguments = []
    for name, value in settings.items():
        if isinstance(value, (bool, dict)):
            raise ValueError(f"--config {path}: {name} must be a number, a text or a list of texts; got {value!r}")
        values = value if isinstance(value, list) else [value]
        arguments += ["--" + name.replace("_", "-"), *map(str, values)]
    return arguments


def config_text(config: Config) -> str:
    """A config as TOML that `--config` reads back; settings left to the data set are left out."""
    import tomli_w

    settings = {name: value for name, value in dataclasses.asdict(config).items() if value is not None}
    return tomli_w.dumps({k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()})


def with_config_file(arguments: Sequence[str]) -> list[str]:
    """Puts the settings of `--config FILE` before the other arguments, which therefore win."""
    first, rest, from_file = list(arguments[:1]), list(arguments[1:]), []
    for index, argument in enumerate(rest):
        if argument == "--config" or argument.startswith("--config="):
            path = argument.partition("=")[2] or "".join(rest[index + 1 : index + 2])
            if not path or path.startswith("--"):
                raise ValueError("--config: expected a file")
            from_file = config_arguments(path)
            rest = rest[:index] + rest[index + (1 if "=" in argument else 2) :]
            break
    return first + from_file + rest


def machine_line(about: dict[str, Any]) -> str:
    """The machine in one line, for the start of a run, from `machine.describe()`."""
    names = about["devices"]
    kinds = ", ".join(f"{names.count(kind)} x {kind}" for kind in sorted(set(names)))
    return (
        f"d2djax {about['versions'].get('d2djax', '?')}, jax {about['versions']['jax']}, {about['backend']}: "
        f"{kinds}; {about['cores']} cores, {about['memory_gib']} GiB"
    )


def summary_table(dataset: Any) -> Table:
    """Final accuracy, mean accuracy and paired difference to `none`, with 95 % intervals across seeds."""
    from d2djax.statistics import interval, mean_accuracy, paired_differences

    curves = mean_accuracy(dataset)
    final = dataset["accuracy"].isel(round=-1)
    methods = [str(name) for name in dataset["method"].values]
    differences = paired_differences(curves) if "none" in methods else None
    table = Table(title=f"{dataset.sizes['run']} seeds: mean and 95 % confidence interval")
    for heading in (
        "method",
        "final accuracy",
        "mean of rounds",
        "difference to none",
        "above in",
        "classes",
    ):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method in methods:
        difference, above = "", ""
        if differences is not None and method != "none":
            one = differences.sel({"method": method}).values
            difference, above = _with_interval(interval(one), "+.4f"), f"{(one > 0).sum()}/{one.size}"
        held = (dataset["counts"].sel({"method": method}) > 0).sum("class").mean().item()
        table.add_row(
            method,
            _with_interval(interval(final.sel({"method": method}).values), ".4f"),
            _with_interval(interval(curves.sel({"method": method}).values), ".4f"),
            difference,
            above,
            f"{held:.2f}",
        )
    return table


def cost_table(dataset: Any) -> Table:
    """What each method takes to reach the accuracy that `none` ends with, in the same run (Section IV-B)."""
    from d2djax.statistics import cost_to_accuracy, ratio_to

    # A training that diverged reaches nothing, and sets no target.
    accuracy = dataset["accuracy"].where(dataset["status"] == 0)
    target = accuracy.sel({"method": "none"}).isel(round=-1, drop=True)
    costs = cost_to_accuracy(dataset.assign(accuracy=accuracy), target)
    ratios = ratio_to(costs["energy"])
    table = Table(title="to first reach the accuracy that none ends with: means over the seeds that do")
    for heading in ("method", "reached in", "local steps", "uplink (Mbit)", "energy (J)", "energy, none = 1"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method in (str(name) for name in dataset["method"].values):
        one = costs.sel({"method": method})
        reached = np.isfinite(one["steps"])
        mean = {name: float(one[name].where(reached).mean()) for name in ("steps", "uplink", "energy")}
        ratio, low, high, _ = ratios.get(method, (np.nan, np.nan, np.nan, 0))
        table.add_row(
            method,
            f"{int(reached.sum())}/{reached.size}",
            _unless_unknown(mean["steps"], ".0f"),
            _unless_unknown(mean["uplink"] / 1e6, ",.4g"),
            _unless_unknown(mean["energy"], ",.4g"),
            _unless_unknown(ratio, ".2f") + ("" if np.isnan(low) else f" ({low:.2f}–{high:.2f})"),
        )
    return table


def _unless_unknown(value: float, form: str) -> str:
    return "–" if np.isnan(value) else format(value, form)


def _with_interval(limits: Any, form: str) -> str:
    mean, low, high = (float(value) for value in limits)
    # Student's interval is symmetric, so its half width says all; a single seed has none.
    return format(mean, form) if low != low else f"{mean:{form}} ± {(high - low) / 2:.4f}"


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


def run_command(command: Run) -> None:
    """Runs `d2djax run`."""
    from d2djax.results import save
    from d2djax.runs import check_seeds, run

    check_seeds(command.seeds)
    config = validate(command.config)
    _check_folder(command.out)
    machine.use_all_cores()
    machine.use_compilation_cache()
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    about = machine.describe()
    errors.print(machine_line(about))
    fallback = machine.silent_fallback()
    if fallback:
        errors.print(f"warning: {fallback}", style="yellow")
    if command.require_gpu and about["backend"] == "cpu":
        raise ValueError(f"--require-gpu: JAX found no GPU or TPU; {fallback or 'none is attached'}")
    dataset = run(config, range(command.first_seed, command.first_seed + command.seeds))
    save(dataset, command.out / "results.zarr")
    (command.out / "config.toml").write_text(config_text(command.config))
    manifest = json.loads(dataset.attrs["manifest"])
    (command.out / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    out = Console(highlight=False, markup=False, soft_wrap=True)
    out.print(summary_table(dataset))
    if "none" in config.methods and len(config.methods) > 1:
        out.print(cost_table(dataset))
    diverged = int(dataset["status"].sum())
    if diverged:
        errors.print(f"{diverged} of {dataset['status'].size} trainings diverged: see `status`", style="yellow")
    from d2djax.plotting import save_figures

    pictures = save_figures(dataset, command.out)
    out.print(f"{manifest['wall_seconds']} s; saved in {command.out}: results.zarr, config.toml, manifest.json")
    out.print("figures: " + ", ".join(path.name for path in pictures))


def download_command(command: Download) -> None:
    """Runs `d2djax download`."""
    from d2djax.data import download

    folder = download(command.name, command.data_dir, progressbar=True)
    print(f"{command.name}: {folder}")


def info_command(command: Info) -> None:
    """Runs `d2djax info`."""
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


COMMANDS = {"run": (Run, run_command), "download": (Download, download_command), "info": (Info, info_command)}


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
