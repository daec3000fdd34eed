"""Timing of contestants that alternate in one process, and the record of the results."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jax

from d2djax.running import machine

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Contestant:
    """One way to do a piece of work.

    Attributes:
        name: its name in the table.
        run: does the work once; timing waits for the arrays that it returns. None if the tool is missing.
        work: units of work (episodes, steps, GFLOP) in one call.
        compile_seconds: compile time, if compilation was timed separately.
        compiles: the first call compiles; the second call serves to estimate the compile time.
        program_bytes: memory of the compiled program: arguments, results and temporaries, minus shared memory.
        missing: why it cannot run; empty if it can.
        case: its own sizes, if they differ between the contestants of a race.
    """

    name: str
    run: Callable[[], Any] | None
    work: float
    compile_seconds: float | None = None
    compiles: bool = False
    program_bytes: int | None = None
    missing: str = ""
    case: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The result of one contestant in one case; one line of the record.

    Attributes:
        benchmark: the script.
        case: sizes that distinguish the cases of a benchmark, by name.
        contestant: its name.
        unit: the unit of work; rates are in `unit` per second.
        work: units in one call.
        seconds: of one call, one entry per round; entry r of all contestants of a race was taken in round r.
        calls: calls in each round, over which `seconds` is the mean.
        compile_seconds: none if nothing was compiled.
        program_bytes: memory of the compiled program.
        peak_process_bytes: largest resident memory of the whole process during its first calls.
        peak_device_bytes: largest memory in use on the accelerator since the process started; none on a CPU.
        missing: why it did not run.
    """

    benchmark: str
    case: dict[str, Any]
    contestant: str
    unit: str
    work: float
    seconds: list[float] = field(default_factory=list)
    calls: int = 1
    compile_seconds: float | None = None
    program_bytes: int | None = None
    peak_process_bytes: int | None = None
    peak_device_bytes: int | None = None
    missing: str = ""

    @property
    def rates(self) -> list[float]:
        """Units per second in each round."""
        return [self.work / seconds for seconds in self.seconds]

    @property
    def rate(self) -> float:
        """Median rate; NaN if it did not run."""
        return statistics.median(self.rates) if self.seconds else math.nan


@dataclass(frozen=True)
class Target:
    """A promised number and the measured one.

    Attributes:
        benchmark: the script.
        what: in words.
        wanted: the number promised.
        measured: none if a required tool is missing.
        at_most: whether the wanted number is an upper limit rather than a lower one.
        spread: smallest and largest value over the rounds.
    """

    benchmark: str
    what: str
    wanted: float
    measured: float | None
    at_most: bool = False
    spread: tuple[float, float] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; none if it could not be measured."""
        if self.measured is None or not math.isfinite(self.measured):
            return None
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted


@dataclass
class Report:
    """All results of one script; `notes` are lines for people that are not in the tables."""

    results: list[Result] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compiled(name: str, function: Callable, arguments: Sequence[Any], work: float) -> Contestant:
    """A contestant compiled ahead of time, so that compilation and execution are timed separately.

    Args:
        name: its name in the table.
        function: a pure function, jitted or not, without static arguments.
        arguments: its arguments, placed on the device here, so that no copy is timed.
        work: units of work in one call.
    """
    arguments = jax.block_until_ready(jax.device_put(tuple(arguments)))
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    start = time.perf_counter()
    program = jitted.lower(*arguments).compile()
    seconds = time.perf_counter() - start
    run = lambda: program(*arguments)  # noqa: E731
    return Contestant(name, run, work, compile_seconds=seconds, program_bytes=_program_bytes(program))


def _program_bytes(program: Any) -> int | None:
    sizes = program.memory_analysis()
    if sizes is None:
        return None
    parts = (sizes.argument_size_in_bytes, sizes.output_size_in_bytes, sizes.temp_size_in_bytes)
    return int(sum(parts) - sizes.alias_size_in_bytes)


def missing(name: str, why: str) -> Contestant:
    """A contestant whose tool is missing on this machine; tables name it."""
    return Contestant(name, None, 1.0, missing=why)


def peak_process_bytes(reset: bool = False) -> int | None:
    """Largest resident memory of this process since the last reset; none if Linux's /proc is missing."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)


def _timed(run: Callable[[], Any], calls: int = 1) -> float:
    """Seconds per call, the mean of `calls`; waits for every call before the next begins."""
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(run())
    return (time.perf_counter() - start) / calls


def race(
    benchmark: str,
    case: dict[str, Any],
    contestants: Sequence[Contestant],
    *,
    unit: str,
    repeats: int = 5,
    shortest: float = 0.05,
) -> list[Result]:
    """Times contestants in turn, round after round, so that changes in background load affect all of them.

    Each is called twice beforehand: the first call may compile, and the second determines the calls per round.

    Args:
        benchmark: the script.
        case: sizes that all contestants share, by name.
        contestants: in the order of the table; the starting contestant rotates.
        unit: what `work` counts.
        repeats: rounds, at least 5 for a result that is reported.
        shortest: minimum seconds per contestant and round; short calls are repeated.

    Returns:
        A result for each contestant, in the same order.
    """
    results = []
    print(f"{benchmark}: {case}, {len(contestants)} contestants", file=sys.stderr, flush=True)
    for one in contestants:
        result = Result(benchmark, case | one.case, one.name, unit, one.work, missing=one.missing)
        results.append(_warmed_up(result, one, shortest) if one.run else result)
    for turn in range(repeats):
        for offset in range(len(contestants)):
            index = (turn + offset) % len(contestants)
            run = contestants[index].run
            if run is not None:
                results[index].seconds.append(_timed(run, results[index].calls))
    return results


def _warmed_up(result: Result, one: Contestant, shortest: float) -> Result:
    """A result without times yet, with compile time, calls and memory from two calls."""
    peak_process_bytes(reset=True)
    first, second = _timed(one.run), _timed(one.run)
    statistics_ = jax.local_devices()[0].memory_stats() or {}
    known = asdict(result) | {
        "calls": max(1, math.ceil(shortest / second)),
        "compile_seconds": max(0.0, first - second) if one.compiles else one.compile_seconds,
        "program_bytes": one.program_bytes,
        "peak_process_bytes": peak_process_bytes(),
        "peak_device_bytes": statistics_.get("peak_bytes_in_use"),
    }
    return Result(**known)


def ratio(result: Result, base: Result) -> tuple[float, tuple[float, float]] | tuple[None, None]:
    """How many times as fast `result` is as `base`: median over the rounds of a race, and (minimum, maximum)."""
    if not result.seconds or not base.seconds:
        return None, None
    rounds = [mine / other for mine, other in zip(result.rates, base.rates, strict=True)]
    return statistics.median(rounds), (min(rounds), max(rounds))


@cache
def _about() -> dict[str, Any]:
    return machine.describe()


def record(report: Report, folder: Path = RESULTS) -> None:
    """Appends one JSON line per result and target to `<folder>/<benchmark>.jsonl`."""
    common = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "machine": _about()}
    folder.mkdir(parents=True, exist_ok=True)
    for entry in [*report.results, *report.targets]:
        line: dict[str, Any] = {"kind": type(entry).__name__.lower()} | asdict(entry)
        if isinstance(entry, Result):
            line |= {"rate": entry.rate if entry.seconds else None}
        else:
            line |= {"met": entry.met}
        with (folder / f"{entry.benchmark}.jsonl").open("a") as file:
            file.write(json.dumps(line | common, allow_nan=False) + "\n")
