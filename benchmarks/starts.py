"""Seconds until a fresh process has finished its first run, without compiled programs and with the cache."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, Result, Target, ratio

FIRST, SECOND, SLOW = "first start", "second start, cache", "first start, XLA's last level too"
ROOT = Path(__file__).parent.parent
LEVEL = "--xla_backend_optimization_level"


@dataclass(frozen=True)
class Start:
    """One process and its first run.

    Attributes:
        wall: seconds until the first call of `d2djax.run` is done.
        call: seconds of that call.
        compiling: seconds of that call beyond those of a second call in the same process.
        xla: seconds of that call in which XLA compiles.
    """

    wall: float
    call: float
    compiling: float
    xla: float


def start(settings: dict[str, Any], cache: Path | None, flags: str = "") -> Start:
    """Starts a process and waits for it.

    Args:
        settings: fields of its config.
        cache: folder of compiled programs; none: without a cache.
        flags: XLA flags, in addition to those of this process.

    Raises:
        RuntimeError: it fails; the message is the last line of its output.
    """
    # An optimisation level set here, as in the tests, would keep the package from choosing its own.
    inherited = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(LEVEL)]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"XLA_FLAGS": " ".join([*inherited, flags]).strip()}
    environment |= {"D2DJAX_CACHE": "0"} if cache is None else {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    if cache is not None:
        environment.pop("D2DJAX_CACHE", None)
    command = [sys.executable, "-m", "benchmarks.start_up", json.dumps(settings)]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    wall = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"a fresh process fails: {(done.stderr.splitlines() or ['no word'])[-1]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return Start(wall - said["second"], said["first"], said["first"] - said["second"], said["XLA"])


def starts(settings: dict[str, Any], repeats: int, slow: bool, flags: str = "") -> dict[str, list[Start]]:
    """Starts in turn, by name; the second start of a round finds the programs of the first.

    Args:
        settings: fields of the config of all.
        repeats: rounds.
        slow: in the first round also with XLA's last optimisation level, which d2djax omits on a CPU.
        flags: of XLA, for the others.
    """
    found: dict[str, list[Start]] = {}
    for turn in range(repeats):
        print(f"end_to_end: fresh processes, round {turn + 1} of {repeats}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            ways = {FIRST: (Path(folder), flags), SECOND: (Path(folder), flags)}
            if slow and turn == 0:
                ways[SLOW] = (None, f"{LEVEL}=3")
            for name, way in ways.items():
                found.setdefault(name, []).append(start(settings, *way))
    return found


def report(name: str, settings: dict[str, Any], repeats: int, slow: bool, most: float, flags: str = "") -> Report:
    """Wall times of the starts as results, and their compile times as notes and a target.

    Args:
        name: of the benchmark.
        settings: fields of the config.
        repeats: rounds.
        slow: see `starts`.
        most: maximum compile time of the first start, in seconds.
        flags: see `starts`.
    """
    found, case = starts(settings, repeats, slow, flags), {"fresh process": "1 run, default network"}
    middle = lambda some, field: statistics.median(getattr(one, field) for one in some)  # noqa: E731
    results = [
        Result(
            *(name, case, way, "starts", 1.0, [one.wall for one in some]),
            compile_seconds=middle(some, "compiling"),
        )
        for way, some in found.items()
    ]
    notes = [
        f"{name}: {way}: {middle(some, 'wall'):.1f} s in all, {middle(some, 'call'):.1f} s in d2djax.run, "
        f"{middle(some, 'compiling'):.1f} s more than the next call; XLA at work for {middle(some, 'xla'):.1f} s"
        for way, some in found.items()
    ]
    gain, spread = ratio(results[1], results[0])
    if gain is not None and spread is not None:
        notes.append(
            f"{name}: with the cache the run ends {gain:.2f} times as fast ({spread[0]:.2f} to {spread[1]:.2f})"
        )
    compiling = [one.compiling for one in found[FIRST]]
    what = "seconds that the first start compiles, default network and policies"
    middle_of_all, around = statistics.median(compiling), (min(compiling), max(compiling))
    return Report(results, [Target(name, what, most, middle_of_all, at_most=True, spread=around)], notes)
