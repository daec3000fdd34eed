"""Tables that the site makes of the code, so that they cannot tell anything else than it."""

from __future__ import annotations

import re

import numpy as np

from d2djax import Config, Dataset, Recipe
from d2djax.cli import parser
from d2djax.cli.options import Run
from d2djax.running.plan import lay_out_store, plan_sweep

UNIT = re.compile(r", (m|dB|W|Hz|bit/s/Hz)(?=[;.]|$)")
PAPERS = " As in the paper."
KINDS = {"Literal": "", "float": "number", "int": "whole number", "str": "text"}


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(map(_row, [head, ["---"] * len(head), *rows]))


def _values(option: parser.Option) -> str:
    """What a setting may be: its choices, or its kind and range."""
    rule, hint = option.metadata.get("rule", ""), str(option.hint)
    choices = re.findall(r"'(\w+)'", hint) if "Literal" in hint else []
    kind = next(word for name, word in KINDS.items() if name in hint)
    found = ", ".join(f"`{choice}`" for choice in choices) or ", ".join(filter(None, (kind, rule)))
    # Both stand for what the data set says.
    also = {None: ", or none", 0: ", or 0" if rule.startswith("at least") else ""}
    return found + (also.get(option.default, "") if not isinstance(option.default, tuple) else "")


def settings_tables() -> str:
    """Every field of `Config` in the groups of the command line's help, as Markdown."""
    groups: dict[str, list[list[str]]] = {}
    for option in parser.options_of(Run).values():
        if not option.is_setting:
            continue
        meaning, unit = option.help.replace(PAPERS, ""), UNIT.search(option.help)
        default = option.default if isinstance(option.default, tuple) else (option.default,)
        shown = ("none" if one is None else f"{one:.7g}" if isinstance(one, float) else str(one) for one in default)
        row = [
            f"`{option.name}`",
            f"`{', '.join(shown)}`" + (f" {unit[1]}" if unit else ""),
            "paper" if PAPERS in option.help else "ours",
            _values(option),
            "static" if option.metadata.get("static") else "traced",
            meaning,
        ]
        groups.setdefault(option.group, []).append(row)
    head = ["setting", "default", "of", "values", "kind", "meaning"]
    return "\n\n".join(f"## {name.capitalize()}\n\n{_table(head, rows)}" for name, rows in groups.items())


def variables_table() -> str:
    """Every variable of results as Markdown, from the layout of a sweep, for which nothing is computed."""
    config = Config(
        num_devices=2, classes_per_device=1, points_per_device=4, threshold=1, min_classes=1, num_episodes=40,
        num_steps=2, aggregation_interval=1, learning_rate=0.1, model="mlp", policies=("none", "rl"),
    )  # fmt: skip
    label = np.arange(40, dtype=np.int32) % 2
    points = Dataset(np.zeros((40, 2, 2, 1), np.uint8), label, ("a", "b"), "two classes", "zeros")
    laid = lay_out_store(plan_sweep(config, {}, 1, points, Recipe()), {})
    rows = []
    for name, (dims, kind, about) in laid.variables.items():
        missing = f". {about['missing']}" if "missing" in about else ""
        dims = ", ".join(f"`{dim}`" for dim in dims)
        rows.append([f"`{name}`", dims, str(kind), about["units"], about["long_name"] + missing])
    return _table(["variable", "dimensions", "type", "unit", "meaning"], rows)
