"""What the command line takes besides plain options: config files, axes of a sweep, shards."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2djax.settings import Config

if TYPE_CHECKING:
    from d2djax.axes import Range


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


def _value(text: str) -> Any:
    """A number, a text, or `none`."""
    if text == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def axis(text: str) -> tuple[str, list[Any] | Range]:
    """Reads `gamma=0,0.5,1`, `gamma=uniform:0:1` or `alpha_outage=log:0.1:10`.

    Raises:
        ValueError: it is none of these.
    """
    from d2djax.axes import LogUniform, Uniform, check_name, check_range

    name, is_there, given = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not is_there or not given:
        raise ValueError(
            f"--axis {text}: expected NAME=VALUE,VALUE,... or NAME=uniform:LOW:HIGH or NAME=log:LOW:HIGH"
        )
    check_name(name)
    kind, *limits = given.split(":")
    ranges = {"uniform": Uniform, "log": LogUniform}
    if kind not in ranges:
        values = [one.strip() for one in given.split(",")]
        if not all(values):
            raise ValueError(f"--axis {text}: there is no value between two commas, or before or after one")
        return name, [_value(one) for one in values]
    numbers = [_value(one) for one in limits]
    if len(numbers) != 2 or not all(isinstance(one, (int, float)) for one in numbers):
        raise ValueError(f"--axis {text}: expected two numbers, {kind}:LOW:HIGH")
    found = ranges[kind](float(numbers[0]), float(numbers[1]))
    check_range(name, found)
    return name, found


def _named(texts: Sequence[str]) -> dict[str, list[Any] | Range]:
    given = [axis(text) for text in texts]
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise ValueError(f"--axis: every setting once; got {', '.join(names)}")
    return dict(given)


def ranges_of(texts: Sequence[str]) -> dict[str, Range]:
    """The ranges of a search; listed values are a choice among them.

    Raises:
        ValueError: an axis cannot be read or comes twice.
    """
    from d2djax.axes import Choice

    return {name: Choice(tuple(one)) if isinstance(one, list) else one for name, one in _named(texts).items()}


def axes(texts: Sequence[str], random: int, draw_seed: int) -> Mapping[str, Sequence[Any]] | list[dict[str, Any]]:
    """The axes of a sweep: a grid of all values, or `random` points, drawn from ranges and among values.

    Raises:
        ValueError: an axis cannot be read or comes twice, or a range is given for a grid.
    """
    if random:
        if not texts:
            raise ValueError(f"--random {random}: expected at least one --axis")
        from d2djax.axes import random_points

        return random_points(ranges_of(texts), random, draw_seed)
    given = _named(texts)
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
