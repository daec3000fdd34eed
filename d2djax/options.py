"""What each command takes: the fields are its options, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from d2djax.settings import Config, PolicyName


@dataclass(frozen=True)
class Run:
    """Simulate a setting for several seeds; print a table; save data and figures.

    Attributes:
        config: Every setting of a run.
        seeds: Number of runs; their seeds are first_seed, first_seed + 1, ...
        first_seed: Seed of the first run.
        out: Folder for results.zarr, config.toml, manifest.json and the figures.
        overwrite: Replace the results of an earlier run that are there.
        require_gpu: Stop if JAX found no GPU or TPU.
    """

    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    seeds: int = 4
    first_seed: int = 0
    out: Path = Path("results")
    overwrite: bool = False
    require_gpu: bool = False


@dataclass(frozen=True)
class Sweep:
    """Simulate every point of a grid, or points drawn at random, for many seeds; goes on where it was stopped.

    Attributes:
        config: Every setting of a run; those on an axis are left to it.
        axis: NAME=VALUE,VALUE,... for a grid; or NAME=uniform:LOW:HIGH, NAME=log:LOW:HIGH. Once for each axis.
        random: Draw this many points instead of taking all of the grid.
        draw_seed: Seed of these draws.
        seeds: Number of runs of each point; their seeds are first_seed, first_seed + 1, ...
        first_seed: Seed of the first run.
        out: Folder for results.zarr.
        training: Train after the graphs are found; --no-training ends with them.
        shard: 3/16: compute the third of 16 parts; by default what Slurm says, else all.
        distributed: Work on one program together with the other processes of this job.
        coordinator: HOST:PORT of the first of these processes; empty: found by JAX.
        processes: How many they are; 0: found by JAX.
        process: Number of this one, from 0; -1: found by JAX.
        require_gpu: Stop if JAX found no GPU or TPU.
    """

    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    axis: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    random: int = 0
    draw_seed: int = 0
    seeds: int = 4
    first_seed: int = 0
    out: Path = Path("sweep")
    training: bool = True
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
        axis: NAME=uniform:LOW:HIGH, NAME=log:LOW:HIGH or NAME=VALUE,VALUE,... Once for each setting that is sought.
        objective: accuracy, final_accuracy, reward, energy, reliability or points_sent; several give a Pareto set.
        policy: Policy whose results count.
        trials: Finished trials in the end.
        batch: Trials at the same time.
        seeds: Number of runs of each trial.
        sampler_seed: Seed of the proposals.
        out: Folder for journal.log, which optuna-dashboard opens, and results.zarr.
        require_gpu: Stop if JAX found no GPU or TPU.
    """

    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    axis: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    objective: tuple[str, ...] = ("accuracy",)
    policy: PolicyName = "rl"
    trials: int = 64
    batch: int = 16
    seeds: int = 4
    sampler_seed: int = 0
    out: Path = Path("search")
    require_gpu: bool = False


@dataclass(frozen=True)
class Figure:
    """Compute and draw figures of the paper; goes on where it was stopped.

    Attributes:
        names: 2a to 2h; regret, degrees, weights, exploration, devices; or all.
        size: toy (seconds, shows that all works), small (8 seeds, minutes to an hour) or paper (100 seeds, a GPU).
        seeds: Number of runs of each point; 0: as the size says.
        out: Folder; results, pictures and numbers go to a folder in it that is named as the size.
        radioml: RML2016.10a_dict.pkl; by default the windows are made in process.
        cifar10: Folder of CIFAR-10; by default the usual places.
        fashion_mnist: Folder of Fashion-MNIST; by default the usual places.
        require_gpu: Stop if JAX found no GPU or TPU.
    """

    names: tyro.conf.Positional[tuple[str, ...]]
    size: Literal["toy", "small", "paper"] = "toy"
    seeds: int = 0
    out: Path = Path("figures")
    radioml: str = ""
    cifar10: str = ""
    fashion_mnist: str = ""
    require_gpu: bool = False


@dataclass(frozen=True)
class Report:
    """Write an interactive page of results, which opens in a browser without a network.

    Attributes:
        store: results.zarr of a run or a sweep, or the folder that it is in.
        out: The page.
    """

    store: tyro.conf.Positional[Path]
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")


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
