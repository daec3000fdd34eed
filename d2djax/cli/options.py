"""Declares the options of each command as dataclass fields, their help texts, and the groups of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from d2djax.settings import Config, DownloadName

# Each field here starts a group of the help, which extends to the next field here.
SETTING_GROUPS = {
    "dataset": "data",
    "policies": "policy",
    "num_devices": "network",
    "channel_model": "channel",
    "cluster_budget": "reward",
    "trust_probability": "trust",
    "partition": "data",
    "threshold": "reward",
    "num_episodes": "policy",
    "alpha_diversity": "reward",
    "deployment": "policy",
    "power_mode": "energy",
    "model": "training",
}
# The groups in the order of the help; the first and the last hold the options of the commands.
GROUPS = (
    *("command", "data", "network", "channel", "trust", "reward", "policy", "energy", "training"),
    "output and machine",
)


# A number of runs, or one seed for each run.
Seeds = int | tuple[int, ...]


def positional(**options: Any) -> Any:
    """Declares a positional argument; `options` go to `dataclasses.field`."""
    return field(metadata={"positional": True}, **options)


def short(default: Any, letter: str) -> Any:
    """Declares an option that also has a one-letter name."""
    return field(default=default, metadata={"short": f"-{letter}"})


def from_file(default: Any) -> Any:
    """Declares a field that only a configuration file can set, because no option could express it."""
    return field(default=default, metadata={"from_file": True})


@dataclass(frozen=True)
class Run:
    """Simulate one configuration for several seeds; print a table; save data and figures.

    Attributes:
        config: Every setting of a run.
        seeds: Number of runs, or one seed for each run: 4, or 3,7,11.
        first_seed: Seed of the first run if seeds is a number of runs; the other seeds follow it.
        data: FILE.npz with your data: arrays x and y, and optionally class_names and owner.
        recipe: FILE.py or FILE.py:NAME with your code: a d2djax.Recipe of policies, reward, model and optimisers.
        number: my_ucb.width=1.5 sets a number of the recipe's policies or reward. Repeat it for each number.
        network: FILE.npz with your network: any of the arrays gain, position, trust and counts.
        out: Folder for results.zarr, config.toml, manifest.json and the figures.
        overwrite: Replace the results of an earlier run in the folder.
        require_gpu: Stop if JAX finds no GPU or TPU.
    """

    config: Config = field(default_factory=Config)
    seeds: Seeds = 4
    first_seed: int = 0
    data: str = ""
    recipe: str = ""
    number: tuple[str, ...] = field(default=(), metadata={"repeats": True})
    network: str = ""
    out: Path = Path("results")
    overwrite: bool = False
    require_gpu: bool = False


@dataclass(frozen=True)
class Sweep:
    """Simulate every point of a grid, or random points, for many seeds; rerun the command to resume it.

    Attributes:
        config: Every setting of a run that is on no axis.
        axis: gamma=0,0.5,1 lists values; gamma=0:1:0.1 goes from 0 to 1, both included, in steps of 0.1;
            gamma=uniform:0:1 and gamma=log:0.01:1 are ranges for --random. Repeat it for each axis. Most numbers
            share one compiled program; a setting that fixes a size or selects code compiles one per value.
        points: The points themselves instead of axes: a list of tables with the same settings.
        random: Draw this many random points from the axes; 0 computes the full grid.
        draw_seed: Seed of these draws.
        seeds: Number of runs of each point, or one seed for each run: 4, or 3,7,11.
        first_seed: Seed of the first run if seeds is a number of runs; the other seeds follow it.
        training: Train after graph discovery; --no-training stops after discovery.
        data: FILE.npz with your data: arrays x and y, and optionally class_names and owner.
        recipe: FILE.py or FILE.py:NAME with your code: a d2djax.Recipe of policies, reward, model and optimisers.
            Numbers of its policies and its reward can be axes: my_ucb.width=0.5,1,2 or reward.fairness=0,1.
        network: FILE.npz with your network: any of the arrays gain, position, trust and counts.
        out: Folder for results.zarr and config.toml.
        shard: 3/16 computes the third of 16 shards; by default the shard that Slurm assigns, or everything.
        distributed: Run one program together with the other processes of this job.
        coordinator: HOST:PORT of the first of these processes; JAX detects it if empty.
        processes: Number of these processes; JAX detects it if 0.
        process: Index of this process, from 0; JAX detects it if -1.
        require_gpu: Stop if JAX finds no GPU or TPU.
    """

    config: Config = field(default_factory=Config)
    axis: tuple[str, ...] = field(default=(), metadata={"repeats": True})
    points: tuple[Mapping[str, Any], ...] = from_file(())
    random: int = 0
    draw_seed: int = 0
    seeds: Seeds = 4
    first_seed: int = 0
    training: bool = True
    data: str = ""
    recipe: str = ""
    network: str = ""
    out: Path = Path("sweep")
    shard: str = ""
    distributed: bool = False
    coordinator: str = ""
    processes: int = 0
    process: int = -1
    require_gpu: bool = False


@dataclass(frozen=True)
class Search:
    """Search for good settings with Optuna in batches of trials; rerun the command to resume it.

    Attributes:
        config: Every setting of a run that is not searched.
        axis: gamma=uniform:0:2 and gamma=log:0.01:1 are ranges; gamma=0,0.5,1 and gamma=0:1:0.1 list values. Repeat
            it for each setting to search.
        objective: accuracy, final_accuracy, reward, energy, reliability or points_sent; several give a Pareto set.
        policy: Policy whose results are optimised: one of policies, or of the recipe.
        trials: Total number of finished trials, earlier ones included.
        batch: Number of trials that run together.
        seeds: Number of runs of each trial, or one seed for each run: 4, or 3,7,11.
        sampler_seed: Seed of the sampler that proposes trials.
        data: FILE.npz with your data: arrays x and y, and optionally class_names and owner.
        recipe: FILE.py or FILE.py:NAME with your code: a d2djax.Recipe of policies, reward, model and optimisers.
        network: FILE.npz with your network: any of the arrays gain, position, trust and counts.
        out: Folder for journal.log, which optuna-dashboard opens, results.zarr, config.toml and best.toml.
        require_gpu: Stop if JAX finds no GPU or TPU.
    """

    config: Config = field(default_factory=Config)
    axis: tuple[str, ...] = field(default=(), metadata={"repeats": True})
    objective: tuple[str, ...] = ("accuracy",)
    policy: str = "rl"
    trials: int = 64
    batch: int = 16
    seeds: Seeds = 4
    sampler_seed: int = 0
    data: str = ""
    recipe: str = ""
    network: str = ""
    out: Path = Path("search")
    require_gpu: bool = False


@dataclass(frozen=True)
class Figure:
    """Compute and draw figures of the paper; rerun the command to resume it.

    Attributes:
        names: Figures 2a to 2h of the paper, other figures, or all; without a name, the command lists the figures.
        size: toy (a test in seconds), small (8 seeds, minutes to an hour) or paper (100 seeds, a GPU).
        seeds: Number of runs of each point; 0 uses the number of the size.
        radioml: File RML2016.10a_dict.pkl; by default, synthetic windows are generated.
        cifar10: Folder of CIFAR-10; by default, the standard folders are searched.
        fashion_mnist: Folder of Fashion-MNIST; by default, the standard folders are searched.
        out: Folder for results, figures and numbers, in a subfolder named after the size.
        require_gpu: Stop if JAX finds no GPU or TPU.
    """

    names: tuple[str, ...] = positional(default=())
    size: Literal["toy", "small", "paper"] = "toy"
    seeds: int = 0
    radioml: str = ""
    cifar10: str = ""
    fashion_mnist: str = ""
    out: Path = Path("figures")
    require_gpu: bool = False


@dataclass(frozen=True)
class Results:
    """Show the results in folders: progress, a table of points and policies, and the best points.

    Attributes:
        folders: Folders of runs and sweeps, which are merged into one result, or of searches, shown one by one.
        policy: Policy whose best points are shown.
        csv: File for the numbers of the tables with their intervals, one row per point and policy, or per trial.
        out: Folder for the merged results and their common manifest; if empty, the results are only shown.
        overwrite: Replace an existing CSV file and existing merged results.
    """

    folders: tuple[str, ...] = positional()
    policy: str = "rl"
    csv: str = ""
    out: str = ""
    overwrite: bool = False


@dataclass(frozen=True)
class Report:
    """Write a self-contained, interactive HTML page of results that can be viewed offline.

    Attributes:
        store: results.zarr of a run or a sweep, or the folder that contains it.
        out: HTML file to write.
    """

    store: Path = positional()
    out: Path = short(Path("report.html"), "o")


@dataclass(frozen=True)
class Download:
    """Download the official files of a data set and check their hashes.

    Attributes:
        name: Data set.
        data_dir: Folder for the files; runs search the default folder.
    """

    name: DownloadName = positional()
    data_dir: Path = Path("~/.cache/d2djax")


@dataclass(frozen=True)
class Info:
    """Print versions, devices, cores and memory."""
