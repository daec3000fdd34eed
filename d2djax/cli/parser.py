"""Parses the command line with argparse; the fields of a command are its options.

The same function checks values from the command line and from a file. The command line takes precedence.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import d2djax
from d2djax.cli.options import GROUPS, SETTING_GROUPS
from d2djax.regimes import REGIMES, RegimeName
from d2djax.running import repeat
from d2djax.settings import Config

CONFIG_HELP = (
    "File of settings and options: config.toml of a run, sweep or search, best.toml of a search, manifest.json of "
    "a run, or your own TOML file with one NAME = VALUE per line. Options on the command line take precedence."
)
PRESET_HELP = (
    "Settings of a regime in which policies differ. They take precedence over the file of --config, and other "
    "options over them."
)


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Attributes:
        name: name of the field.
        hint: type of the field.
        default: default of the field; `MISSING` if the option is required.
        help: description from the docstring.
        group: title of the help group that lists it.
        is_setting: whether it is a field of `Config`.
        metadata: metadata of the field.
    """

    name: str
    hint: Any
    default: Any
    help: str
    group: str
    is_setting: bool
    metadata: Mapping[str, Any]


def _descriptions(kind: type) -> dict[str, str]:
    """Reads the description of each field from the docstring."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)
    return {name: " ".join(lines.split()).removesuffix(" Static.") for name, lines in found}


def _fields(kind: type) -> Iterator[Option]:
    hints, descriptions = get_type_hints(kind), _descriptions(kind)
    group = "command"
    for item in dataclasses.fields(kind):
        if kind is Config:
            group = SETTING_GROUPS.get(item.name, group)
        elif item.name == "out":
            group = "output and machine"
        default = item.default if item.default_factory is MISSING else item.default_factory()
        text = descriptions.get(item.name, "")
        yield Option(item.name, hints[item.name], default, text, group, kind is Config, item.metadata)


@cache
def options_of(kind: type) -> dict[str, Option]:
    """Returns the options of a command class by name; a command with a config also takes every setting."""
    own = {one.name: one for one in _fields(kind)}
    return own | {one.name: one for one in _fields(Config)} if own.pop("config", None) else own


def _parts(hint: Any) -> tuple[Any, ...]:
    """Splits a union into its types."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _choices(hint: Any) -> tuple[Any, ...]:
    inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
    return get_args(inner) if get_origin(inner) is Literal else ()


def _metavar(option: Option) -> str:
    """Returns the placeholder that the help shows for a value."""
    parts, choices = _parts(option.hint), _choices(option.hint)
    if option.metadata.get("repeats"):
        return "NAME=VALUES"
    if get_origin(option.hint) is tuple:
        return "NUMBER" if float in get_args(option.hint) else "NAME"
    if int in parts and len(parts) > 1:
        return "COUNT|SEED,SEED,..."
    kind = next(part for part in parts if part is not NoneType)
    words = {int: "INT", float: "NUMBER", Path: "PATH"}
    return ("|".join(choices) or words.get(kind, "TEXT")) + ("|none" if NoneType in parts else "")


def _help(option: Option) -> str:
    """Formats the description and the default of an option; argparse needs percent signs doubled."""
    text, default = option.help, option.default
    if get_origin(option.hint) is tuple and _choices(option.hint):
        text += f" Any of {', '.join(_choices(option.hint))}."
    if default is not MISSING and default not in ("", ()) and not isinstance(default, bool):
        values = default if isinstance(default, tuple) else (default,)
        shown = ("none" if one is None else f"{one:.12g}" if isinstance(one, float) else str(one) for one in values)
        text += f" (default: {' '.join(shown)})"
    return text.replace("%", "%%")


def _add(group: Any, option: Option) -> None:
    """Adds an option to a group of the parser; its values are strings here, which `checked` converts."""
    words: dict[str, Any] = {"help": _help(option)}
    if option.hint is not bool:
        words["metavar"] = _metavar(option)
    if option.metadata.get("positional"):
        if get_origin(option.hint) is tuple:
            words["nargs"] = "+" if option.default is MISSING else "*"
        group.add_argument(option.name, **words)
        return
    words["default"] = argparse.SUPPRESS
    if option.hint is bool:
        words["action"] = argparse.BooleanOptionalAction
    elif option.metadata.get("repeats"):
        words["action"] = "append"
    elif get_origin(option.hint) is tuple:
        kinds = get_args(option.hint)
        words["nargs"] = "+" if kinds[-1] is Ellipsis else len(kinds)
    names = [option.metadata["short"]] if "short" in option.metadata else []
    group.add_argument(*names, "--" + option.name.replace("_", "-"), dest=option.name, **words)


class _Parser(argparse.ArgumentParser):
    """Reports errors in one line, like all bad input, instead of printing argparse's usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message.removeprefix("argument "))


def make_parser(commands: Mapping[str, type]) -> argparse.ArgumentParser:
    """Builds the argument parser of all commands from their dataclasses by name."""

    def layout(prog: str) -> argparse.HelpFormatter:
        return argparse.HelpFormatter(prog, max_help_position=34)

    options: dict[str, Any] = {"allow_abbrev": False, "formatter_class": layout}
    description = "Reinforcement-learned device-to-device graphs for federated learning."
    parser = _Parser(prog="d2djax", description=description, usage="d2djax COMMAND [OPTIONS]", **options)
    version = getattr(d2djax, "__version__", "(not installed)")
    parser.add_argument("--version", action="version", version=f"d2djax {version}")
    several = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name, kind in commands.items():
        doc = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
        found = options_of(kind)
        given = [one.name for one in found.values() if one.metadata.get("positional")]
        usage = " ".join([f"d2djax {name}", *(f"{one.upper()}" for one in given), "[OPTIONS]"])
        one = several.add_parser(name, help=doc, description=doc, usage=usage, **options)
        has_config = any(option.is_setting for option in found.values())
        for title in GROUPS:
            members = [option for option in found.values() if option.group == title]
            members = [option for option in members if not option.metadata.get("from_file")]
            group = one.add_argument_group(name if title == "command" else title) if members else None
            if has_config and title == "command" and group:
                words: dict[str, Any] = {"metavar": "FILE", "default": argparse.SUPPRESS, "help": CONFIG_HELP}
                group.add_argument("--config", dest="file", **words)
                words |= {"metavar": "|".join(REGIMES), "help": PRESET_HELP}
                group.add_argument("--preset", **words)
            for option in members:
                _add(group, option)
        text = "Show the full traceback of an error; an unexpected one is a bug to report."
        one.add_argument("--traceback", action="store_true", default=argparse.SUPPRESS, help=text)
    return parser


def _tidied(words: Sequence[str]) -> list[str]:
    """Rewrites words for argparse: `--a_b` becomes `--a-b`, and a number such as -1e-5 is not read as an option."""
    found: list[str] = []
    for word in words:
        is_number = re.fullmatch(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|-inf|-nan", word, re.IGNORECASE)
        if is_number and found and re.fullmatch("--[^=]+", found[-1]):
            found[-1] += f"={word}"
        else:
            found.append(re.sub("^--[^=]*", lambda name: name[0].replace("_", "-"), word))
    return found


def shortened(value: Any) -> str:
    """Formats a value for a message in at most 60 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # Python refuses to print deeply nested lists and integers of thousands of digits.
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def near(name: str, names: Sequence[str]) -> str:
    """Returns `; did you mean ...?` if `name` is close to one of `names`, otherwise an empty string."""
    close = difflib.get_close_matches(name[:100], names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def checked(name: str, hint: Any, value: Any) -> Any:
    """Checks a value against the type of its field and converts it.

    Args:
        name: name of the field in the message.
        hint: type of the field.
        value: a value from a file, or from `from_text`.

    Returns:
        The value with the type of the field; lists become tuples.

    Raises:
        ValueError: the value does not fit; the line names the field and its rule.
    """
    parts = _parts(hint)
    if NoneType in parts and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    several = next((part for part in parts if get_origin(part) is tuple), None)
    if several is not None and (isinstance(value, (list, tuple)) or len(parts) == 1):
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, (list, tuple)):
            raise ValueError(f"{name} must be a list; got {shortened(value)}")
        kinds = get_args(several)
        if kinds[-1] is not Ellipsis and len(values) != len(kinds):
            raise ValueError(f"{name} must be a list of {len(kinds)}; got {shortened(value)}")
        return tuple(checked(name, kinds[0], one) for one in values)
    kind = next(part for part in parts if part is not NoneType and get_origin(part) is not tuple)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            close = near(str(value), get_args(kind)) if isinstance(value, str) else ""
            raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}; got {shortened(value)}{close}")
        return value
    right, rule = _as(kind, value)
    if right is None:
        none = " or none" if NoneType in parts else ", or a list of them" if several is not None else ""
        raise ValueError(f"{name} must be {rule}{none}; got {shortened(value)}")
    return right


def _as(kind: Any, value: Any) -> tuple[Any, str]:
    """Returns the converted value, or None if it does not fit, and the name of the type for a message."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is bool:
        return (value if isinstance(value, bool) else None), "true or false"
    if kind is int:
        return (int(value) if is_number and value == value // 1 else None), "a whole number"
    if kind is float:
        try:
            return (float(value) if is_number else None), "a number"
        except OverflowError:
            return None, "a number that fits into 64 bits"
    if kind is Path:
        return (Path(value) if isinstance(value, str) else None), "a path"
    if kind is str:
        return (value if isinstance(value, str) else None), "a text"
    return (value if isinstance(value, dict) else None), "a table of settings"


def from_text(hint: Any, text: str) -> Any:
    """Converts a word of the command line.

    Args:
        hint: type of the field.
        text: the word.

    Returns:
        A number or a list of numbers if the type allows it; otherwise the word, which `checked` judges.
    """
    parts = _parts(hint)
    if any(get_origin(part) is tuple for part in parts) and "," in text:
        return [from_text(int, one) for one in text.split(",")]
    for kind in (int, float):
        if kind in parts or (kind is float and int in parts):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _unknown(word: str, command: str, commands: Mapping[str, type]) -> str:
    """Returns the message for a word that is not an option of the command."""
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return f"{command} expects an option before each value; got {shortened(word)}"
    names = ["--" + option.replace("_", "-") for option in options_of(commands[command])]
    names += ["--config", "--preset", "--help"]
    plain = name.removeprefix("--").removeprefix("no-").replace("-", "_")
    others = [one for one, kind in commands.items() if plain in options_of(kind)]
    of = f"; it belongs to {', '.join(others)}" if others and plain not in options_of(commands[command]) else ""
    return f"{command} has no option {name[:60]}{of or near(name, names)}"


def parse(words: Sequence[str], commands: Mapping[str, type]) -> tuple[Any, list[str]]:
    """Reads a command line; `--help` and `--version` print and exit.

    Args:
        words: the command line without the name of the program.
        commands: the dataclass of each command by name.

    Returns:
        The command, and notes about the file of `--config`, one line each.

    Raises:
        ValueError: an option, or a line of the file, is wrong.
    """
    given, unknown = make_parser(commands).parse_known_args(_tidied(words))
    values = vars(given)
    command = values.pop("command")
    # `main` reads this option before it parses the others.
    values.pop("traceback", None)
    if unknown:
        raise ValueError(_unknown(unknown[0], command, commands))
    kind, file, regime = commands[command], values.pop("file", None), values.pop("preset", None)
    options = options_of(kind)
    data: dict[str, Any] = {}
    if regime is not None:
        data |= REGIMES[checked("--preset", RegimeName, regime)]
    for name, value in values.items():
        hint, shown = (
            options[name].hint,
            name if options[name].metadata.get("positional") else "--" + name.replace("_", "-"),
        )
        inner = get_args(hint)[0] if isinstance(value, list) else hint
        texts = [from_text(inner, one) for one in value] if isinstance(value, list) else value
        data[name] = checked(shown, hint, from_text(hint, texts) if isinstance(texts, str) else texts)
    found, notes = ({}, []) if file is None else _from_file(file, command, commands)
    data = _merged(found, data)
    settings = {name: value for name, value in data.items() if options[name].is_setting}
    own = {name: value for name, value in data.items() if not options[name].is_setting}
    if any(option.is_setting for option in options.values()):
        own["config"] = Config(**settings)
    return kind(**own), notes


def _merged(file: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """Merges the values of a file and of the command line, which takes precedence; axes merge by setting."""
    if "axis" in line and "axis" in file:
        names = [repeat.axis_name(text) for text in line["axis"]]
        kept = {repeat.axis_name(text): text for text in file["axis"]}
        new = dict(zip(names, line["axis"], strict=True)) if len(set(names)) == len(names) else {}
        line = line | {"axis": tuple((kept | new).values()) if new else line["axis"]}
    if "axis" in line and "points" in file:
        raise ValueError("--axis: the file lists points; remove them from the file to use axes")
    if isinstance(line.get("seeds"), tuple):
        file = {name: value for name, value in file.items() if name != "first_seed"}
    if "first_seed" in line and isinstance((file | line).get("seeds"), tuple):
        raise ValueError("--first-seed needs a number of runs, but --seeds or the file lists every seed")
    return file | line


def _from_file(path: str, command: str, commands: Mapping[str, type]) -> tuple[dict[str, Any], list[str]]:
    """Reads and checks the values that a file gives a command; also returns notes for the user."""
    found, notes = repeat.read(path)
    writer = found.pop("command", None)
    options = options_of(commands[command])
    every = {name: option for kind in commands.values() for name, option in options_of(kind).items()} | options
    known = {name for name, kind in commands.items() if any(one.is_setting for one in options_of(kind).values())}
    if writer is not None and writer not in known:
        raise ValueError(f"{path}: command must be one of {', '.join(sorted(known))}; got {shortened(writer)}")
    allowed = options | (options_of(commands[writer]) if writer else {})
    unknown = [name for name in found if name not in allowed]
    if unknown:
        raise ValueError(_unknown_keys(path, unknown, command, list(allowed), every))
    data = {name: checked(f"{path}: {name}", allowed[name].hint, value) for name, value in found.items()}
    if writer not in (None, command):
        left = [name for name in data if not allowed[name].is_setting]
        axes = [repeat.axis_name(text) for text in data.get("axis", ())]
        lacks = f"; it has no value for {', '.join(axes)}" if axes else ""
        kept = f"{command} takes its settings, not its {', '.join(left) or 'options'}{lacks}"
        notes.append(f"{path} was written by {writer}: {kept}")
        data = {name: value for name, value in data.items() if allowed[name].is_setting}
    return data, notes


def _unknown_keys(path: str, unknown: list[str], command: str, names: list[str], every: Mapping[str, Any]) -> str:
    """Returns one line that names the first three unknown keys and counts the others."""
    shown = []
    for name in unknown[:3]:
        of = f" (not an option of {command})" if name in every else near(name, names)
        shown.append(f"{shortened(name)[1:-1]}{of}")
    more = f", and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
    return f"{path}: unknown {'setting' if len(unknown) == 1 else 'settings'} {', '.join(shown)}{more}"
