"""The command `python -m benchmarks`: runs the scripts, prints one table, appends to the record."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.harness import RESULTS, Report, record
from benchmarks.tables import show
from d2djax.running import machine

SCRIPTS = ("discovery", "convolution", "federated", "end_to_end", "sweep", "scaling")


def main() -> None:
    about = "Time d2djax and its alternatives on this machine; takes minutes."
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=about, allow_abbrev=False)
    option, names = parser.add_argument, ", ".join(SCRIPTS)
    option("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, metavar="SCRIPT", help=f"scripts to run: {names}")
    option("--gpu", action="store_true", help="run only the script for an accelerator; it also runs on a CPU")
    option("--toy", action="store_true", help="tiny sizes, seconds each, to check that everything works")
    option("--out", type=Path, default=RESULTS, help="folder with the files to which the results are appended")
    chosen = parser.parse_args()
    machine.use_all_cores()
    total = Report()
    for name in ("device",) if chosen.gpu else chosen.only:
        report = importlib.import_module(f"benchmarks.{name}").run(toy=chosen.toy)
        record(report, chosen.out)
        total.results += report.results
        total.targets += report.targets
        total.notes += report.notes
    show(total)


if __name__ == "__main__":
    main()
