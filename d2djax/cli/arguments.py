"""What the options of a command mean: seeds, axes of a sweep, shards; and the file that repeats the command."""

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

# Of one axis written as FIRST:LAST:STEP: more are a slip of the pen.
MOST_VALUES = 100_000


def file_text(command: Run | Sweep | Search) -> str:
    """The text of the file that repeats a command: its options before `out`, and settings that are on no axis."""
    own = [item.name for item in dataclasses.fields(command)]
    options = {name: getattr(command, name) for name in own[1 : own.index("out")]}
    # From wherever it is repeated.
    if command.data:
        options["data"] = str(Path(command.data).expanduser().resolve())
    if command.recipe:
        options["recipe"] = ":".join(map(str, recipe_files.parts_of(command.recipe)))
    if command.network:
        options["network"] = str(Path(command.network).expanduser().resolve())
    on_axis = [repeat.axis_name(text) for text in command.axis] if not isinstance(command, Run) else []
    return repeat.text_of(type(command).__name__.lower(), options, command.config, on_axis)


def seeds_of(command: Run | Sweep) -> Sequence[int]:
    """The seeds of the runs of a command.

    Raises:
        ValueError: there are none, or a first one is given besides a list of them.
    """
    from d2djax.running.runs import check_seeds

    check_seeds(command.seeds)
    if isinstance(command.seeds, int):
        return range(command.first_seed, command.first_seed + command.seeds)
    if command.first_seed:
        raise ValueError("first_seed goes with a number of runs; seeds lists them all")
    return command.seeds


def data_of(command: Run | Sweep | Search) -> Dataset | None:
    """The points that a command names, if it names a file of them.

    Raises:
        ValueError: they cannot be read, or a data set is named besides.
    """
    if not command.data:
        return None
    if command.config.dataset not in (Config.dataset, "own"):
        raise ValueError(f"--data and --dataset {command.config.dataset} name two data sets; give one of them")
    from d2djax.data import own
    from d2djax.running import machine

    return own.read(command.data, machine.available_memory())


def recipe_of(command: Run | Sweep | Search) -> Recipe | None:
    """The recipe that a command names, whose file is run, with the network that it names; none if it names neither.

    Raises:
        ValueError: one cannot be read, or these are two networks.
    """
    if isinstance(command, Run) and command.number and not command.recipe:
        raise ValueError(f"--number {command.number[0]}: a number of code of your own needs --recipe")
    if not command.recipe and not command.network:
        return None
    from d2djax.recipe import Recipe
    from d2djax.running import machine
    from d2djax.running.network_files import load_network

    # Code that makes an array as it is read starts JAX, whose devices are then fixed.
    machine.use_all_cores()
    recipe = recipe_files.load_recipe(command.recipe) if command.recipe else Recipe()
    if isinstance(command, Run):
        recipe = _with_numbers(recipe, command.number)
    if not command.network:
        return recipe
    if recipe.network is not None:
        raise ValueError(f"--network {command.network}: the recipe has a network of its own; give one of them")
    return dataclasses.replace(recipe, network=load_network(command.network))


def _with_numbers(recipe: Recipe, texts: Sequence[str]) -> Recipe:
    """A recipe with the numbers that `--number ucb.width=1.5` gives."""
    from d2djax.running.axes import recipe_at

    values: dict[str, Any] = {}
    for text in texts:
        name, is_there, value = text.partition("=")
        if not is_there or name.strip() in values:
            raise ValueError(f"--number {text}: expected NAME=VALUE, such as ucb.width=1.5, once for each name")
        values[name.strip()] = _value(value.strip())
    return recipe_at(recipe, values) if values else recipe


def _numbered_in(recipe: Recipe | None) -> dict[str, Any]:
    return {} if recipe is None else recipe.numbered


def _value(text: str) -> Any:
    """A number, a text, or `none`."""
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

    Raises:
        ValueError: it is none of these.
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
            raise ValueError(f"--axis {text}: there is no value between two commas, or before or after one")
        return name, [value for one in values for value in _steps(text, one)]
    numbers = [_value(one) for one in limits]
    if len(numbers) != 2 or not all(isinstance(one, (int, float)) for one in numbers):
        raise ValueError(f"--axis {text}: expected two numbers, {kind}:LOW:HIGH")
    found = ranges[kind](float(numbers[0]), float(numbers[1]))
    check_ranges({name: found}, own)
    return name, found


def _steps(text: str, given: str) -> list[Any]:
    """The values of a piece of an axis: one, or `FIRST:LAST:STEP`, in which decimal fractions are exact."""
    if ":" not in given:
        return [_value(given)]
    try:
        first, last, step = map(Decimal, given.split(":"))
        count = (last - first) / step
        reached = first + int(count) * step
    except (ArithmeticError, ValueError):
        raise ValueError(
            f"--axis {text[:80]}: expected values, or FIRST:LAST:STEP, three numbers; got {given[:40]}"
        ) from None
    if count < 0:
        raise ValueError(f"--axis {text}: no steps of {step} lead from {first} to {last}")
    if count > MOST_VALUES:
        raise ValueError(f"--axis {text}: these are more than {MOST_VALUES:,} values")
    if reached != last:
        raise ValueError(f"--axis {text}: steps of {step} from {first} do not lead to {last}, but to {reached}")
    values = [first + number * step for number in range(int(count) + 1)]
    return [int(one) if one == int(one) else float(one) for one in values]


def _named(texts: Sequence[str], recipe: Recipe | None) -> dict[str, list[Any] | Range]:
    given = [axis(text, recipe) for text in texts]
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise ValueError(f"--axis: every setting once; got {', '.join(names)}")
    return dict(given)


def ranges_of(texts: Sequence[str], recipe: Recipe | None = None) -> dict[str, Range]:
    """The ranges of a search; listed values are a choice among them.

    Raises:
        ValueError: an axis cannot be read or comes twice.
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
    """The points of a sweep: a grid of all values, `random` points, drawn from ranges and among values, or a list.

    Raises:
        ValueError: an axis cannot be read or comes twice, a range is given for a grid, or there are two of these.
    """
    if points:
        if texts or random:
            raise ValueError("points: they stand in the place of axes and of random points; give one of them")
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
    """Reads `3/16`; empty: what Slurm gives its array jobs or its tasks, else none.

    Raises:
        ValueError: it is not a number from 1 to a count.
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
        # A list such as 1,3,7 has no step: no task can tell its place.
        if last and (last - first) // step + 1 != count:
            raise ValueError(
                f"the {count} tasks of Slurm's array are not every one from {first} to {last}; give --shard"
            )
        return (slurm["ARRAY_TASK_ID"] - first) // step + 1, count
    count = slurm["STEP_NUM_TASKS"] or slurm["NTASKS"]
    return (slurm["PROCID"] + 1, count) if count > 1 and _is_started_by_srun() else None


def _is_started_by_srun() -> bool:
    """Only srun starts tasks: a batch script knows their number, too, and is task 0, but runs alone."""
    text = os.environ.get("SLURM_STEP_ID") or os.environ.get("SLURM_STEPID") or ""
    return text.isdecimal() and int(text) < FIRST_STEP_WITHOUT_SRUN


def slurm_note() -> str | None:
    """One line where Slurm gave several tasks, and this process is not one of them, else none."""
    count = _from_slurm("NTASKS")
    if count < 2 or _is_started_by_srun() or _from_slurm("ARRAY_TASK_COUNT") > 1:
        return None
    return (
        f"Slurm gave this job {count} tasks, but srun did not start this process: it computes all parts by itself"
    )


def _from_slurm(name: str) -> int:
    text = os.environ.get(f"SLURM_{name}", "") or "0"
    if not text.isdecimal():
        raise ValueError(f"SLURM_{name}={text}: expected a whole number; give --shard")
    return int(text)


SLURM = (
    *("ARRAY_TASK_COUNT", "ARRAY_TASK_ID", "ARRAY_TASK_MIN", "ARRAY_TASK_MAX", "ARRAY_TASK_STEP"),
    *("NTASKS", "STEP_NUM_TASKS", "PROCID"),
)
# The largest numbers stand for batch scripts, interactive shells and the like.
FIRST_STEP_WITHOUT_SRUN = 2**32 - 100
