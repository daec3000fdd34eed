"""Interprets the options of a command (seeds, axes, shards) and writes the file that repeats the command."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2djax.cli import recipe_files
from d2djax.cli.options import Run, Search, Sweep
from d2djax.running import repeat
from d2djax.settings import Config

if TYPE_CHECKING:
    from d2djax.data import Dataset
    from d2djax.recipe import Recipe
    from d2djax.running.axes import Range

# The limit for one axis written as FIRST:LAST:STEP; more values are probably a typing mistake.
MOST_VALUES = 100_000


def file_text(command: Run | Sweep | Search) -> str:
    """Returns the TOML text that repeats a command.

    It holds the options declared before `out` and the settings that are on no axis.

    Args:
        command: the parsed command.

    Returns:
        The content of `config.toml`; paths in it are absolute.
    """
    own = [item.name for item in dataclasses.fields(command)]
    options = {name: getattr(command, name) for name in own[1 : own.index("out")]}
    # Absolute paths work from any folder.
    if command.data:
        options["data"] = str(Path(command.data).expanduser().resolve())
    if command.recipe:
        options["recipe"] = ":".join(map(str, recipe_files.parts_of(command.recipe)))
    if command.network:
        options["network"] = str(Path(command.network).expanduser().resolve())
    on_axis = [repeat.axis_name(text) for text in command.axis] if not isinstance(command, Run) else []
    return repeat.text_of(type(command).__name__.lower(), options, command.config, on_axis)


def seeds_of(command: Run | Sweep) -> Sequence[int]:
    """Returns the seeds of the runs of a command.

    Args:
        command: its `seeds` and `first_seed` are read.

    Raises:
        ValueError: there are no seeds, or `first_seed` is given together with a list of seeds.
    """
    from d2djax.running.runs import check_seeds

    check_seeds(command.seeds)
    if isinstance(command.seeds, int):
        return range(command.first_seed, command.first_seed + command.seeds)
    if command.first_seed:
        raise ValueError("first_seed needs a number of runs, but seeds already lists every seed")
    return command.seeds


def data_of(command: Run | Sweep | Search) -> Dataset | None:
    """Reads the data file that a command names; None if it names no file.

    Args:
        command: its `data` and `config.dataset` are read.

    Raises:
        ValueError: the file cannot be read, or the command names a data set as well.
    """
    if not command.data:
        return None
    if command.config.dataset not in (Config.dataset, "own"):
        raise ValueError(f"--data and --dataset {command.config.dataset} name two data sets; give one of them")
    from d2djax.data import own
    from d2djax.running import machine

    return own.read(command.data, machine.available_memory())


def recipe_of(command: Run | Sweep | Search) -> Recipe | None:
    """Loads the recipe and the network that a command names, and executes the recipe's file.

    Args:
        command: its `recipe`, `number` and `network` are read.

    Returns:
        The recipe, which includes the network; None if the command names neither.

    Raises:
        ValueError: a file cannot be read, or the recipe already has a network.
    """
    if isinstance(command, Run) and command.number and not command.recipe:
        raise ValueError(f"--number {command.number[0]}: --number needs --recipe, whose code has the number")
    if not command.recipe and not command.network:
        return None
    from d2djax.recipe import Recipe
    from d2djax.running import machine
    from d2djax.running.network_files import load_network

    # A recipe that creates an array on import starts JAX, after which the number of devices is fixed.
    machine.use_all_cores()
    recipe = recipe_files.load_recipe(command.recipe) if command.recipe else Recipe()
    if isinstance(command, Run):
        recipe = _with_numbers(recipe, command.number)
    if not command.network:
        return recipe
    if recipe.network is not None:
        raise ValueError(f"--network {command.network}: the recipe already has a network; give only one of them")
    return dataclasses.replace(recipe, network=load_network(command.network))


def _with_numbers(recipe: Recipe, texts: Sequence[str]) -> Recipe:
    """Sets the numbers that options such as `--number my_ucb.width=1.5` give."""
    from d2djax.running.axes import recipe_at

    values: dict[str, Any] = {}
    for text in texts:
        name, is_there, value = text.partition("=")
        if not is_there or name.strip() in values:
            raise ValueError(f"--number {text}: expected NAME=VALUE, such as my_ucb.width=1.5, and each name once")
        values[name.strip()] = _value(value.strip())
    return recipe_at(recipe, values) if values else recipe


def _numbered_in(recipe: Recipe | None) -> dict[str, Any]:
    return {} if recipe is None else recipe.numbered


def _value(text: str) -> Any:
    """Reads a number, `none`, or a string."""
    if text.lower() == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def axis(text: str, recipe: Recipe | None = None) -> tuple[str, list[Any] | Range]:
    """Reads `gamma=0,0.5,1`, `gamma=0:1:0.1`, `gamma=uniform:0:1` or `alpha_outage=log:0.1:10`.

    Args:
        text: the value of one `--axis`.
        recipe: names the numbers of the user's code that may be on an axis.

    Returns:
        The name of the setting, and its values or its range.

    Raises:
        ValueError: the text has none of these forms, or the name is unknown.
    """
    from d2djax.running.axes import LogUniform, Uniform, check_name, check_ranges

    name, is_there, given = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not is_there or not given:
        raise ValueError(
            f"--axis {text}: expected NAME=VALUE,VALUE,..., NAME=FIRST:LAST:STEP, NAME=uniform:LOW:HIGH "
            "or NAME=log:LOW:HIGH"
        )
    own = _numbered_in(recipe)
    check_name(name, own)
    kind, *limits = given.split(":")
    ranges = {"uniform": Uniform, "log": LogUniform}
    if kind not in ranges:
        values = [one.strip() for one in given.split(",")]
        if not all(values):
            raise ValueError(f"--axis {text}: a value is missing before or after a comma")
        return name, [value for one in values for value in _steps(text, one)]
    numbers = [_value(one) for one in limits]
    if len(numbers) != 2 or not all(isinstance(one, (int, float)) for one in numbers):
        raise ValueError(f"--axis {text}: expected two numbers, {kind}:LOW:HIGH")
    found = ranges[kind](float(numbers[0]), float(numbers[1]))
    check_ranges({name: found}, own)
    return name, found


def _steps(text: str, given: str) -> list[Any]:
    """Reads one value, or the values of `FIRST:LAST:STEP` with exact decimal arithmetic."""
    if ":" not in given:
        return [_value(given)]
    try:
        first, last, step = map(Decimal, given.split(":"))
        count = (last - first) / step
        reached = first + int(count) * step
    except (ArithmeticError, ValueError):
        raise ValueError(
            f"--axis {text[:80]}: expected values, or three numbers FIRST:LAST:STEP; got {given[:40]}"
        ) from None
    if count < 0:
        raise ValueError(f"--axis {text}: no steps of {step} lead from {first} to {last}")
    if count > MOST_VALUES:
        raise ValueError(f"--axis {text}: an axis may have at most {MOST_VALUES:,} values; got more")
    if reached != last:
        raise ValueError(f"--axis {text}: steps of {step} from {first} do not reach {last}; they end at {reached}")
    values = [first + number * step for number in range(int(count) + 1)]
    return [int(one) if one == int(one) else float(one) for one in values]


def _named(texts: Sequence[str], recipe: Recipe | None) -> dict[str, list[Any] | Range]:
    given = [axis(text, recipe) for text in texts]
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise ValueError(f"--axis: give each setting once; got {', '.join(names)}")
    return dict(given)


def ranges_of(texts: Sequence[str], recipe: Recipe | None = None) -> dict[str, Range]:
    """Returns the ranges of a search by setting; listed values become a `Choice`.

    Args:
        texts: the values of all `--axis` options.
        recipe: as in `axis`.

    Raises:
        ValueError: an axis cannot be read, or a setting appears twice.
    """
    from d2djax.running.axes import Choice

    return {
        name: Choice(tuple(one)) if isinstance(one, list) else one for name, one in _named(texts, recipe).items()
    }


def axes(
    texts: Sequence[str],
    random: int,
    draw_seed: int,
    points: Sequence[Mapping[str, Any]] = (),
    recipe: Recipe | None = None,
) -> Mapping[str, Sequence[Any]] | list[dict[str, Any]]:
    """Returns the points of a sweep: a grid, random points, or a list.

    Args:
        texts: the values of all `--axis` options.
        random: number of points to draw from the axes; 0 selects the full grid.
        draw_seed: seed of these draws.
        points: the points themselves, which replace the axes.
        recipe: as in `axis`.

    Returns:
        The values of each setting for a grid, otherwise a list of points.

    Raises:
        ValueError: an axis cannot be read, a setting appears twice, a grid has a range, or points are combined
            with axes.
    """
    if points:
        if texts or random:
            raise ValueError("points: listed points cannot be combined with --axis or --random; give one of them")
        return [{name: None if value == "none" else value for name, value in one.items()} for one in points]
    if random:
        if not texts:
            raise ValueError(f"--random {random}: expected at least one --axis")
        from d2djax.running.axes import random_points

        return random_points(ranges_of(texts, recipe), random, draw_seed, _numbered_in(recipe))
    given = _named(texts, recipe)
    for name, one in given.items():
        if not isinstance(one, list):
            raise ValueError(f"--axis {name}: a range needs --random COUNT, the number of points to draw")
    return {name: one for name, one in given.items() if isinstance(one, list)}


def shard(text: str) -> tuple[int, int] | None:
    """Reads a shard.

    Args:
        text: such as `3/16`; empty: the shard that Slurm's array or task variables give, if any.

    Returns:
        The number of the shard, from 1, and the number of shards; None where the process computes everything.

    Raises:
        ValueError: the number is not from 1 to the count, or Slurm's array has gaps.
    """
    number, _, count = text.partition("/")
    if text:
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise ValueError(f"--shard {text}: expected a number from 1 to the count of shards, such as 3/16")
        return int(number), int(count)
    slurm = {name: _from_slurm(name) for name in SLURM}
    if slurm["ARRAY_TASK_COUNT"] > 1:
        step, count = max(1, slurm["ARRAY_TASK_STEP"]), slurm["ARRAY_TASK_COUNT"]
        first, last = slurm["ARRAY_TASK_MIN"], slurm["ARRAY_TASK_MAX"]
        # A list such as 1,3,7 has no regular step, so a task cannot compute its position.
        if last and (last - first) // step + 1 != count:
            raise ValueError(
                f"Slurm's array has gaps: {count} tasks from {first} to {last} without a fixed step; give --shard"
            )
        return (slurm["ARRAY_TASK_ID"] - first) // step + 1, count
    count = slurm["STEP_NUM_TASKS"] or slurm["NTASKS"]
    return (slurm["PROCID"] + 1, count) if count > 1 and _is_started_by_srun() else None


def _is_started_by_srun() -> bool:
    """Tells a task started by srun from a batch script, which has the same variables but runs alone."""
    text = os.environ.get("SLURM_STEP_ID") or os.environ.get("SLURM_STEPID") or ""
    return text.isdecimal() and int(text) < FIRST_STEP_WITHOUT_SRUN


def slurm_note() -> str | None:
    """Returns one line if Slurm allocated several tasks but srun did not start this process; otherwise None."""
    count = _from_slurm("NTASKS")
    if count < 2 or _is_started_by_srun() or _from_slurm("ARRAY_TASK_COUNT") > 1:
        return None
    return f"Slurm gave this job {count} tasks, but srun did not start this process, so it computes every shard"


def _from_slurm(name: str) -> int:
    text = os.environ.get(f"SLURM_{name}", "") or "0"
    if not text.isdecimal():
        raise ValueError(f"SLURM_{name}={text}: expected a whole number; give --shard")
    return int(text)


SLURM = (
    *("ARRAY_TASK_COUNT", "ARRAY_TASK_ID", "ARRAY_TASK_MIN", "ARRAY_TASK_MAX", "ARRAY_TASK_STEP"),
    *("NTASKS", "STEP_NUM_TASKS", "PROCID"),
)
# Slurm reserves the largest step numbers for batch scripts, interactive shells and similar.
FIRST_STEP_WITHOUT_SRUN = 2**32 - 100
