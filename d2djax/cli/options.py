"""What each command takes: the fields are its options, their descriptions its help; where settings stand in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from d2djax.settings import Config, DownloadName

# The settings from one of these fields up to the next form a group of the help.
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
# The groups in the order of the help, those of the commands themselves first and last.
GROUPS = (
    *("command", "data", "network", "channel", "trust", "reward", "policy", "energy", "training"),
    "output and machine",
)


# A number of runs, or the seed of each.
Seeds = int | tuple[int, ...]


def positional(**options: Any) -> Any:
    """Declares a field that is given without a name."""
    return field(metadata={"positional": True}, **options)


def short(default: Any, letter: str) -> Any:
    """Declares an option that has a short name, too."""
    return field(default=default, metadata={"short": f"-{letter}"})


def from_file(default: Any) -> Any:
    """Declares a field that only the file of a command sets, as no option could hold it."""
    return field(default=default, metadata={"from_file": True})


@dataclass(frozen=True)
class Run:
    """Simulate a setting for several seeds; print a table; save data and figures.

    Attributes:
        config: Every setting of a run.
        seeds: Number of runs, or the seed of each: 4, or 3,7,11.
        first_seed: Seed of the first run, where seeds is a number of runs; the others follow it.
        data: FILE.npz, points of your own: arrays x and y and, if they like, class_names and owner.
        recipe: FILE.py or FILE.py:NAME, code of your own: a d2djax.Recipe with policies, reward, model, optimisers.
        number: ucb.width=1.5: a number of the recipe's policies or reward; give it once for each.
        network: FILE.npz, a network of your own: arrays gain, position, trust and counts, those that there are.
        out: Folder for results.zarr, config.toml, manifest.json and the figures.
        overwrite: Replace the results of an earlier run that are there.
        require_gpu: Stop if JAX found no GPU or TPU.
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
    """Simulate every point of a grid, or points drawn at random, for many seeds; goes on where it was stopped.

    Attributes:
        config: Every setting of a run; those on an axis are left to it.
        axis: gamma=0,0.5,1 lists values; gamma=0:1:0.1 goes from 0 to 1, both included, in steps of 0.1;
            gamma=uniform:0:1 and gamma=log:0.01:1 are ranges for --random. Give it once for each axis. Most numbers
            share one compiled program; settings that fix a size or choose code compile one for each value.
        points: The points themselves, in the place of axes: a list of tables with the same settings.
        random: Draw this many points instead of taking all of the grid; 0: the grid.
        draw_seed: Seed of these draws.
        seeds: Number of runs of each point, or the seed of each run: 4, or 3,7,11.
        first_seed: Seed of the first run, where seeds is a number of runs; the others follow it.
        training: Train after the graphs are found; --no-training ends with them.
        data: FILE.npz, points of your own: arrays x and y and, if they like, class_names and owner.
        recipe: FILE.py or FILE.py:NAME, code of your own: a d2djax.Recipe with policies, reward, model, optimisers.
            The numbers of its policies and its reward are axes, too: ucb.width=0.5,1,2 or reward.fairness=0,1.
        network: FILE.npz, a network of your own: arrays gain, position, trust and counts, those that there are.
        out: Folder for results.zarr and config.toml.
        shard: 3/16: compute the third of 16 parts; by default what Slurm says, else all.
        distributed: Work on one program together with the other processes of this job.
        coordinator: HOST:PORT of the first of these processes; empty: found by JAX.
        processes: How many they are; 0: found by JAX.
        process: Number of this one, from 0; -1: found by JAX.
        require_gpu: Stop if JAX found no GPU or TPU.
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
    """Search for good settings with Optuna, in batches of trials; goes on where it was stopped.

    Attributes:
        config: Every setting of a run; those that are sought are left to the search.
        axis: gamma=uniform:0:2 and gamma=log:0.01:1 are ranges; gamma=0,0.5,1 and gamma=0:1:0.1 list values. Give
            it once for each setting that is sought.
        objective: accuracy, final_accuracy, reward, energy, reliability or points_sent; several give a Pareto set.
        policy: Policy whose results count: one of policies, or of the recipe.
        trials: Finished trials in the end.
        batch: Trials at the same time.
        seeds: Number of runs of each trial, or the seed of each: 4, or 3,7,11.
        sampler_seed: Seed of the proposals.
        data: FILE.npz, points of your own: arrays x and y and, if they like, class_names and owner.
        recipe: FILE.py or FILE.py:NAME, code of your own: a d2djax.Recipe with policies, reward, model, optimisers.
        network: FILE.npz, a network of your own: arrays gain, position, trust and counts, those that there are.
        out: Folder for journal.log, which optuna-dashboard opens, results.zarr, config.toml and best.toml.
        require_gpu: Stop if JAX found no GPU or TPU.
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
    """Compute and draw figures of the paper; goes on where it was stopped.

    Attributes:
        names: 2a to 2h, the paper's, or others, or all; without a name, the command lists what there is.
        size: toy (seconds, shows that all works), small (8 seeds, minutes to an hour) or paper (100 seeds, a GPU).
        seeds: Number of runs of each point; 0: as the size says.
        radioml: RML2016.10a_dict.pkl; by default the windows are made in process.
        cifar10: Folder of CIFAR-10; by default the usual places.
        fashion_mnist: Folder of Fashion-MNIST; by default the usual places.
        out: Folder; results, pictures and numbers go to a folder in it that is named as the size.
        require_gpu: Stop if JAX found no GPU or TPU.
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
    """Show what folders of results hold: what is done, a table over points and policies, the best points.

    Attributes:
        folders: Folders of runs and sweeps, which are merged to one result, or of searches, shown in turn.
        policy: Policy whose best points are shown.
        csv: File for all numbers of the tables and their intervals, a row for each point and policy, or each trial.
        out: Folder for the merged results, whose manifest is true of all of them; empty: they are only shown.
        overwrite: Replace the CSV file and the merged results that are there.
    """

    folders: tuple[str, ...] = positional()
    policy: str = "rl"
    csv: str = ""
    out: str = ""
    overwrite: bool = False


@dataclass(frozen=True)
class Report:
    """Write an interactive page of results, which opens in a browser without a network.

    Attributes:
        store: results.zarr of a run or a sweep, or the folder that it is in.
        out: The page.
    """

    store: Path = positional()
    out: Path = short(Path("report.html"), "o")


@dataclass(frozen=True)
class Download:
    """Fetch the official files of a data set and check their hashes.

    Attributes:
        name: Data set.
        data_dir: Folder for the files, in which runs look for them by default.
    """

    name: DownloadName = positional()
    data_dir: Path = Path("~/.cache/d2djax")


@dataclass(frozen=True)
class Info:
    """Print versions, devices, cores and memory."""
