"""The command `python -m benchmarks`: runs the scripts, prints one table, appends to the record."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import tyro

from benchmarks.harness import RESULTS, Report, record
from benchmarks.tables import show
from d2djax.running import machine

Script = Literal["discovery", "convolution", "federated", "end_to_end", "sweep", "scaling"]


@dataclass(frozen=True)
class Benchmarks:
    """Time d2djax and its alternatives on this machine; takes minutes.

    Attributes:
        only: Scripts to run; none: all.
        gpu: Run only the script for an accelerator, a few minutes; it also runs on a CPU.
        toy: Tiny sizes, seconds each, to check that everything works; the numbers mean nothing.
        out: Folder with the files to which the results are appended.
    """

    only: tuple[Script, ...] = ()
    gpu: bool = False
    toy: bool = False
    out: Path = RESULTS


def main(arguments: list[str] | None = None) -> None:
    chosen = tyro.cli(Benchmarks, args=arguments, prog="python -m benchmarks")
    machine.use_all_cores()
    total = Report()
    for name in ("device",) if chosen.gpu else chosen.only or get_args(Script):
        report = importlib.import_module(f"benchmarks.{name}").run(toy=chosen.toy)
        record(report, chosen.out)
        total.results += report.results
        total.targets += report.targets
        total.notes += report.notes
    show(total)


if __name__ == "__main__":
    main()
