"""The results of the benchmarks as tables for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Report, Result, Target


def number(value: float | None) -> str:
    """Three significant digits, with thousands separators; a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def results_table(results: Sequence[Result]) -> Table:
    """Rates with their spread, compile time and memory; a line between cases."""
    table = Table(title="median of the rounds (least .. most); memory in MB")
    for heading in ("benchmark", "case", "contestant", "per second", "spread", "compile s", "program", "process"):
        table.add_column(heading, justify="left" if heading in ("benchmark", "case", "contestant") else "right")
    before = None
    for result in results:
        case = ", ".join(f"{name} {value}" for name, value in result.case.items())
        if before is not None and (result.benchmark, case) != before:
            table.add_section()
        head = ("", "") if (result.benchmark, case) == before else (result.benchmark, case)
        before = (result.benchmark, case)
        table.add_row(*head, result.contestant, *_cells(result))
    return table


def _cells(result: Result) -> tuple[str, ...]:
    if not result.seconds:
        return (f"missing: {result.missing}", "", "", "", "")
    memory = [None if size is None else size / 1e6 for size in (result.program_bytes, result.peak_process_bytes)]
    spread = f"{number(min(result.rates))} .. {number(max(result.rates))}"
    return (f"{number(result.rate)} {result.unit}", spread, number(result.compile_seconds), *map(number, memory))


def targets_table(targets: Sequence[Target]) -> Table:
    """Target, measured, met."""
    table = Table(title="targets")
    for heading in ("benchmark", "what", "target", "measured", "spread", "met"):
        table.add_column(heading, justify="left" if heading in ("benchmark", "what") else "right")
    words = {True: "yes", False: "NO", None: "not measured"}
    for target in targets:
        sign = "<=" if target.at_most else ">="
        spread = " .. ".join(map(number, target.spread)) if target.spread else ""
        cells = (f"{sign} {number(target.wanted)}", number(target.measured), spread, words[target.met])
        table.add_row(target.benchmark, target.what, *cells)
    return table


def show(report: Report) -> None:
    """Prints both tables and the notes."""
    # A file or a pipe has no width, and 80 columns would break every row.
    console = Console() if Console().is_terminal else Console(width=160)
    console.print(results_table(report.results))
    if report.targets:
        console.print(targets_table(report.targets))
    for note in report.notes:
        console.print(note, highlight=False)
