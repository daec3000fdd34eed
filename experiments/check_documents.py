"""Reruns commands whose tables experiments/README.md shows, and compares all figures in these tables.

`python experiments/check_documents.py quality` (half a minute), or `all` (a quarter of an hour on two cores)
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import discovery_quality
import numpy as np

import d2djax
from d2djax.analysis.statistics import mean_accuracy
from d2djax.analysis.summary import costs, summary

DOCUMENT = Path(__file__).with_name("README.md")
# The commands, as the document has them above each table.
FASHION = "d2djax run --dataset fashion_mnist --seeds 8"
RUNS = {
    "fashion_mnist": f"{FASHION} --policies none uniform rl pooled --out results/fashion_mnist",
    "other_seeds": f"{FASHION} --first-seed 100 --policies none uniform rl pooled --out results/other_seeds",
    "fedsgd_stragglers": f"{FASHION} --scheme fedsgd --num-stragglers 15 --out results/fedsgd_stragglers",
    "energy": "d2djax run --out results/energy",
}
QUALITY = "python experiments/discovery_quality.py --seeds 8"
# By row and heading.
Cells, Numbers = dict[tuple[str, str], str], dict[tuple[str, str], list[float]]


def table_of(command: str, text: str) -> Cells:
    """Reads the first table below a command.

    Args:
        command: a whole line of a code block.
        text: the document.

    Returns:
        Text of each cell, by its row (the first column) and its heading.
    """
    below = text.split(f"\n{command}\n")[1]
    lines = re.search(r"\n\|.*?\n\n", below + "\n", re.DOTALL)[0].strip().splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {
        (row[0].replace("`", ""), name): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=True)
    }


def numbers_in(cell: str) -> list[tuple[float, float]]:
    """Returns the numbers in a cell, each with half a unit of its last digit; per cents are shares."""
    found = []
    for sign, number, percent in re.findall(r"([-−+]?)(\d*\.?\d+)( ?%)?", cell):
        decimals = len(number.partition(".")[2])
        scale = 0.01 if percent else 1.0
        found.append((float(number) * scale * (-1 if sign in "-−" and sign else 1), 0.5 * scale * 10.0**-decimals))
    return found


def _above_the_one_before(results: Any) -> dict[str, list[float]]:
    mean = mean_accuracy(results)
    names = [str(name) for name in mean["policy"].values]
    pairs = zip(names[1:], names, strict=False)
    return {own: [float((mean.sel(policy=own) > mean.sel(policy=before)).sum())] for own, before in pairs}


def _column(of: Callable[..., Any], *names: str) -> Callable[[Any], dict[str, list[float]]]:
    """Reads variables (policy) of `summary` or `costs`: the numbers of a cell, in their order."""

    def read(results: Any) -> dict[str, list[float]]:
        found = of(results)
        return {
            str(policy): [float(found[name].sel(policy=policy)) for name in names]
            for policy in found["policy"].values
        }

    return read


def _exchange_and_messages(results: Any) -> Any:
    found = summary(results)
    return found.assign(both=found["exchange"] + found["messages"])


# What each heading of a table of a run stands for.
COLUMNS: dict[str, Callable[[Any], dict[str, list[float]]]] = {
    "final accuracy": _column(summary, "final_accuracy"),
    "mean accuracy over the rounds": _column(summary, "mean_accuracy"),
    "above the policy before, of 8 seeds": _above_the_one_before,
    "difference to none, with 95 % interval": _column(
        summary, "difference_to_none", "difference_to_none_low", "difference_to_none_high"
    ),
    "above none, of 8 seeds": _column(summary, "above_none"),
    "exchange": _column(summary, "exchange"),
    "messages": _column(summary, "messages"),
    "exchange and messages": _column(_exchange_and_messages, "both"),
    "uploads": _column(costs, "uploads"),
    "energy to none's final accuracy": _column(costs, "energy"),
}


def of_run(command: str, folder: Path, headings: Collection[str]) -> Numbers:
    """Runs a command with another folder.

    Args:
        command: one of `RUNS`, or a similar one.
        folder: where the results go.
        headings: columns that are wanted, names of `COLUMNS`.

    Returns:
        The numbers of each cell, by policy and heading.
    """
    words = shlex.split(command)[1:]
    words[words.index("--out") + 1] = str(folder)
    # Compiled as users compile, whatever this process is told.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-m", "d2djax", *words], check=True, stdout=subprocess.DEVNULL, env=environment)
    results = d2djax.read(folder / "results.zarr").load()
    columns = {name: COLUMNS[name](results) for name in headings}
    return {(policy, name): values for name, column in columns.items() for policy, values in column.items()}


def of_quality() -> Numbers:
    """Computes what the table of `discovery_quality.py` shows of rl, with its defaults."""
    found: Numbers = {}
    for setting, config in discovery_quality.settings_of(4000).items():
        policies = discovery_quality.qualities(np.arange(8), config)
        (reward, share), (best, _) = (policies[name] for name in ("rl", "best_response"))
        ratio = reward / best
        found[setting, "rl, of the best response"] = [float(ratio.mean())]
        found[setting, "worst seed"] = [float(ratio.min())]
        found[setting, "devices with L-hat classes"] = [float(share.mean())]
    return found


def differences(shown: Cells, found: Numbers) -> tuple[int, list[str]]:
    """Compares a table with a rerun.

    Args:
        shown: result of `table_of`.
        found: the numbers of each cell.

    Returns:
        How many numbers were compared, and one line for each that differs in its last digit or is not in the rerun.
    """
    compared, lines = 0, []
    for (row, heading), cell in shown.items():
        printed = numbers_in(cell)
        rerun = found.get((row, heading), [])
        if len(rerun) < len(printed):
            lines.append(f"{row}, {heading}: {cell} is shown; a rerun gives nothing to compare it with")
            continue
        for (number, half), again in zip(printed, rerun, strict=False):
            compared += 1
            if not abs(number - again) <= half * 1.001:
                lines.append(f"{row}, {heading}: {cell} is shown; a rerun gives {again:.5g}")
    return compared, lines


def main(names: list[str], folder: Path) -> int:
    """Checks tables.

    Args:
        names: of `RUNS`, and `quality`.
        folder: where the results of the runs go.

    Returns:
        How many numbers differ.
    """
    text, wrong = DOCUMENT.read_text(), 0
    for name in names:
        command = QUALITY if name == "quality" else RUNS[name]
        shown = table_of(command, text)
        headings = {heading for _, heading in shown}
        found = of_quality() if name == "quality" else of_run(command, folder / name, headings)
        compared, lines = differences(shown, found)
        print(*lines, f"{name}: {compared} figures compared, {len(lines)} differ", sep="\n", flush=True)
        wrong += len(lines)
    return wrong


if __name__ == "__main__":
    parser = ArgumentParser(
        description="Compares tables of experiments/README.md with a rerun.",
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    tables = ["quality", *RUNS]
    parser.add_argument("tables", nargs="+", choices=[*tables, "all"], help="which tables")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(bool(main(tables if "all" in given.tables else given.tables, Path(temporary))))
