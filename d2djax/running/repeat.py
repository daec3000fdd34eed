"""Reads and writes the TOML file that repeats a run, a sweep or a search: its settings and options.

A file is pure data with one `name = value` per line; nothing in it becomes part of a command line. It names the
command that wrote it. It omits the output folder and options of the machine, such as the shard of a sweep.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2djax.settings import RENAMED, Config
from d2djax.storage import files

if TYPE_CHECKING:
    from d2djax.running.axes import Range

# Values that let the data set choose a setting.
LEFT_TO_DATA = {"num_classes": 0, "points_per_device": 0, "model": "auto", "learning_rate": None}

# The last line of the file of a sweep whose folder holds more results than the sweep requested.
MORE_IS_HERE = "# The folder also holds results of an earlier command, which this file does not repeat.\n"


def _settings(config: Config, without: Sequence[str]) -> dict[str, Any]:
    """Returns the settings as plain data, without those that the data set chooses and those that are None."""
    found = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    left = {name for name, value in LEFT_TO_DATA.items() if found[name] == value} | set(without)
    return {name: value for name, value in found.items() if value is not None and name not in left}


def _plain(value: Any) -> Any:
    """Converts a value for TOML, which has no None."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return "none" if value is None else value


def text_of(
    command: str,
    options: Mapping[str, Any],
    config: Config,
    without: Sequence[str] = (),
    *,
    data: Any = None,
    recipe: Any = None,
    numbers: Sequence[str] = (),
    comment: str = "Options on the command line take precedence; --out selects the output folder.",
) -> str:
    """Returns the text of a file.

    Args:
        command: name of the command that the file repeats.
        options: options of the command; empty ones are left out.
        config: settings of the command.
        without: settings that are on an axis, which are left out.
        data: the user's data set. If it came from a file, it becomes an option; otherwise, the file says that only
            Python can repeat the command.
        recipe: the user's recipe, likewise.
        numbers: names of numbers of its code that were given in Python, likewise.
        comment: one line for the reader.
    """
    import tomli_w

    if recipe is not None:
        options, recipe = _in_files(dict(options), recipe)
    if data is not None and data.file:
        options, data = {**options, "data": data.file}, None
    given = [name for name, one in (("data", data), ("recipe", recipe)) if one is not None] + list(numbers)
    if options.get("data"):
        config = dataclasses.replace(config, dataset="own")
    about = {"command": command, **({"given_in_python": given} if given else {})}
    used = {name: value for name, value in options.items() if value not in ((), [], "")}
    head = f"# Repeat with: d2djax {command} --config FILE. {comment}\n"
    return head + tomli_w.dumps(_plain(about | used | _settings(config, without)))


def _in_files(options: dict[str, Any], recipe: Any) -> tuple[dict[str, Any], Any]:
    """Turns the parts of a recipe that came from files into options; also returns the rest, or None."""
    network = getattr(recipe.network, "file", None)
    if network:
        options, recipe = options | {"network": network}, dataclasses.replace(recipe, network=None)
    if recipe.file:
        return options | {"recipe": recipe.file}, None
    empty, names = type(recipe)(), [one.name for one in dataclasses.fields(recipe)]
    is_empty = all(getattr(recipe, name) == getattr(empty, name) for name in names)
    return options, None if is_empty else recipe


def leave(out: Path, text: str, name: str = "config.toml") -> None:
    """Writes the file of a command atomically, unless the folder already has the same file.

    Args:
        out: the folder.
        text: content of the file.
        name: name of the file.

    Raises:
        OSError: the file cannot be written.
    """
    place = out / name
    if not (place.is_file() and place.read_bytes() == text.encode()):
        files.write_text(place, text)


def seed_options(seeds: Iterable[int], first: bool = True) -> dict[str, Any]:
    """Returns seeds as options: a count and a first seed for consecutive seeds, otherwise the list.

    Args:
        seeds: the seeds, at least one.
        first: whether the command has the option `--first-seed`.
    """
    numbers = [int(seed) for seed in seeds]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))) or not (first or numbers[0] == 0):
        return {"seeds": numbers}
    return {"seeds": len(numbers)} | ({"first_seed": numbers[0]} if first else {})


def axis_text(name: str, values: Sequence[Any] | Range) -> str:
    """Formats an axis for `--axis`, with every digit of its values.

    Args:
        name: name of the setting.
        values: its values or its range.
    """
    from d2djax.running.axes import Choice, LogUniform, Uniform

    if isinstance(values, (Uniform, LogUniform)):
        return f"{name}={'log' if isinstance(values, LogUniform) else 'uniform'}:{values.low!r}:{values.high!r}"
    listed = values.values if isinstance(values, Choice) else values
    return f"{name}={','.join('none' if one is None else str(one) for one in listed)}"


def axis_name(text: str) -> str:
    """Returns the name of the setting in the text of an `--axis`."""
    return text.partition("=")[0].strip().removeprefix("--").replace("-", "_")


def _parsed(path: str) -> tuple[dict[str, Any], bool]:
    """Parses a TOML file, or a JSON file, which begins with a brace; also tells whether it is JSON."""
    if len(path) > 300:
        raise ValueError(f"--config {path[:60]}...: the name of the file is too long")
    try:
        # Some editors start a file with a byte order mark, which `utf-8-sig` skips.
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"--config {path}: not a TOML file: not UTF-8, {error.reason}") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"--config {path}: {getattr(error, 'strerror', None) or error}") from error
    is_json = text.lstrip().startswith("{")
    try:
        data = json.loads(text) if is_json else tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"--config {path}: not a file of settings: values are nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"--config {path}: not a {'JSON' if is_json else 'TOML'} file: {error}") from error
    return data, is_json


def read(path: str) -> tuple[dict[str, Any], list[str]]:
    """Reads the file of a command, the user's own TOML file, or the `manifest.json` of a run.

    Args:
        path: path of the file.

    Returns:
        Its unchecked values by name, and notes for the user, one line each.

    Raises:
        ValueError: the file cannot be read, is neither TOML nor a manifest, or only Python can repeat its command.
    """
    data, is_json = _parsed(path)
    found = _of_manifest(path, data) if is_json else data
    given = found.pop("given_in_python", [])
    if given:
        what = " and ".join(map(str, given)) if isinstance(given, list) else given
        raise ValueError(f"{path}: {what} were given in Python; only d2djax.{found.get('command')}(...) repeats it")
    for name, value in found.items():
        if isinstance(value, dict):
            raise ValueError(
                f"{path}: {name[:60]} is a table; write settings as lines NAME = VALUE outside of tables"
            )
    notes = []
    if found.pop("grown", False):
        notes.append(f"{path}: seeds or trials were added to this search; repeating it may give other trials")
    for old, new in RENAMED.items():
        if old in found:
            if new in found:
                raise ValueError(f"{path}: {old} is the old name of {new}; give one of them")
            found = {new if name == old else name: value for name, value in found.items()}
            notes.append(f"{path}: {old} is now called {new}")
    return found, notes


def _is_own(recipe: Mapping[str, Any]) -> bool:
    """Tells whether the recipe in a manifest has a part that no setting selects."""
    made = {name: str(one.get("name")) for name, one in recipe.items() if isinstance(one, dict) and "name" in one}
    is_plain = made.get("client", "optax.sgd").startswith("optax.") and made.get("client", ".sgd").endswith(".sgd")
    others = [name for part, name in made.items() if part != "client" and not name.startswith("d2djax.")]
    return bool(recipe.get("policies") or others or not is_plain or recipe.get("server"))


def _numbers_in(recipe: Mapping[str, Any]) -> list[str]:
    """Formats the numbers of a manifest's policies and reward for `--number`; the recipe's file may differ."""
    parts = dict(recipe.get("policies") or {}) | {"reward": recipe.get("reward")}
    numbers = {name: one.get("numbers") for name, one in parts.items() if isinstance(one, dict)}
    return [
        f"{name}.{number}={value!r}"
        for name, own in numbers.items()
        for number, value in (own or {}).items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]


def _of_manifest(path: str, data: dict[str, Any]) -> dict[str, Any]:
    """Returns the options, seeds and settings in a run's manifest."""
    config, seeds = data.get("config"), data.get("seeds")
    is_list = isinstance(seeds, list) and len(seeds) > 0 and all(isinstance(one, int) for one in seeds)
    if not isinstance(config, dict) or not isinstance(seeds, list) or not is_list or data.get("axes"):
        raise ValueError(f"{path}: not the manifest of a run; expected config and seeds, and no axes")
    used = data.get("data")
    used = used if isinstance(used, dict) else {}
    own, points = used.get("name"), used.get("file")
    if own not in (None, config.get("dataset")) and not isinstance(points, str):
        raise ValueError(f"{path}: the data set {own!r} was given in Python; only d2djax.run(...) repeats it")
    recipe = data.get("recipe")
    recipe = recipe if isinstance(recipe, dict) else {}
    file = recipe.get("file")
    if _is_own(recipe) and not isinstance(file, str):
        raise ValueError(f"{path}: the recipe was given in Python; only d2djax.run(...) repeats it")
    network = recipe.get("network")
    network_file = network.get("file") if isinstance(network, dict) else None
    if network and not isinstance(file, str) and not isinstance(network_file, str):
        raise ValueError(f"{path}: the network was given in Python; only d2djax.run(...) repeats it")
    return (
        {"command": "run"}
        | ({"data": points} if points else {})
        | ({"recipe": file, "number": _numbers_in(recipe)} if file else {})
        | ({"network": network_file} if network_file else {})
        | seed_options(seeds)
        | {k: v for k, v in config.items() if v is not None}
    )
