"""Runs per second on 1, 2, 4, ... CPU devices, by the number of runs: discovery and federated training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax

from benchmarks.__main__ import main
from benchmarks.federated_numpy import Setting
from benchmarks.harness import Contestant, Report, Result, Target, race, ratio
from d2djax.running.machine import num_cores

NAME = "scaling"
ROOT = Path(__file__).parent.parent
WORKS = ("discovery", "training")
# How many times as fast 2 devices should be as 1, on a machine with 2 cores or more.
WANTED = 1.6


@dataclass(frozen=True)
class Sizes:
    """How much is timed.

    Attributes:
        runs: numbers of runs, from few to many.
        episodes: of each discovery.
        setting: of each training.
        rounds: aggregations of each training.
        repeats: rounds of the race.
    """

    runs: tuple[int, ...]
    episodes: int = 4000
    setting: Setting = field(default_factory=Setting)
    rounds: int = 2
    repeats: int = 5


FULL = Sizes(runs=(1, 4, 16))
TOY = Sizes(
    runs=(1, 4),
    episodes=80,
    setting=Setting(clients=2, points=20, held_out=40, minibatch=4, interval=2),
    repeats=2,
)


def counts(cores: int) -> list[int]:
    """Numbers of devices: 1, 2, and further powers of two up to the number of cores."""
    return [1, 2, *(2**power for power in range(2, cores.bit_length()) if 2**power <= cores)]


class Worker:
    """A process with some CPU devices; see `scaling_worker`."""

    def __init__(self, devices: int, sizes: Sizes) -> None:
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
        told = {"episodes": sizes.episodes, "setting": asdict(sizes.setting), "rounds": sizes.rounds}
        command = [sys.executable, "-m", "benchmarks.scaling_worker", json.dumps(told)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.devices = devices
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)
        self.compiling: dict[str, float] = {}
        self.cores: dict[str, float] = {}

    def wait_until_ready(self) -> None:
        """Waits until it has compiled everything.

        Raises:
            RuntimeError: it has ended, or has a different number of devices.
        """
        said = self._hear()
        if said["devices"] != self.devices:
            raise RuntimeError(f"a process asked for {self.devices} CPU devices has {said['devices']}")
        self.compiling = said["compiling"]

    def ask(self, work: str, runs: int, digests: bool = False) -> list[str]:
        """Starts its computation and waits; with `digests`, returns one number for all bits of each run's results.

        Afterwards, `cores` holds the number of busy cores, by work.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"work": work, "runs": runs, "digests": digests}) + "\n")
        self.process.stdin.flush()
        said = self._hear()
        self.cores[work] = said["cores"]
        return said["digests"]

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process with {self.devices} CPU devices has ended; it says why above")
        return json.loads(line)

    def stop(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.communicate()


def check(workers: Sequence[Worker], sizes: Sizes) -> str:
    """Compares the results for all numbers of devices, and of few runs with many; reports that they are equal.

    Raises:
        RuntimeError: a run differs in a bit.
    """
    few, many = min(sizes.runs), max(sizes.runs)
    for work in WORKS:
        wanted = workers[0].ask(work, many, digests=True)
        if len(set(wanted)) < many:
            raise RuntimeError(f"{work}: runs of different seeds are equal")
        for worker in workers:
            for runs in {few, many}:
                found = worker.ask(work, runs, digests=True)
                if found != wanted[:runs]:
                    differ = sum(one != other for one, other in zip(found, wanted, strict=False))
                    raise RuntimeError(
                        f"{work}: {differ} of {runs} runs on {worker.devices} CPU devices are not, bit by bit, "
                        f"those of {many} runs on {workers[0].devices}"
                    )
    devices = ", ".join(str(worker.devices) for worker in workers)
    return f"{NAME}: checked, runs are bitwise equal on {devices} CPU devices, and among {few} or {many} runs"


def contestants(workers: Sequence[Worker], work: str, runs: int) -> list[Contestant]:
    """The same runs on each number of devices."""
    return [
        Contestant(
            f"{worker.devices} CPU device{'s' if worker.devices > 1 else ''}",
            lambda worker=worker: worker.ask(work, runs),
            runs,
            compile_seconds=worker.compiling[work],
        )
        for worker in workers
    ]


def target_of(raced: Sequence[Result], cores: int) -> Target:
    """2 devices against 1, for the largest number of runs; not measured on a machine with a single core."""
    measured, spread = ratio(raced[1], raced[0])
    if cores < 2:
        measured, spread = None, None
    what = f"{raced[0].case['work']}, {raced[0].case['runs']} runs: (2 CPU devices) / (1 CPU device)"
    return Target(NAME, what, WANTED, measured, spread=spread)


def notes_of(raced: Sequence[Result]) -> list[str]:
    """The speed of each number of devices relative to one device."""
    found, case = [], raced[0].case
    for one in raced[1:]:
        gain, spread = ratio(one, raced[0])
        if gain is not None and spread is not None:
            found.append(
                f"{NAME}: {case['work']}, {case['runs']} runs: {one.contestant} are {gain:.2f} times as fast as "
                f"one ({spread[0]:.2f} to {spread[1]:.2f})"
            )
    return found


def run(toy: bool = False) -> Report:
    """The scaling benchmark; it is for the CPU and does not use an accelerator."""
    sizes, cores, report = TOY if toy else FULL, num_cores(), Report()
    backend = jax.default_backend()
    if backend != "cpu":
        report.notes.append(f"{NAME}: for CPU devices alone; the {backend} of this machine is left out")
    with ExitStack() as stack:
        workers = []
        for devices in counts(cores):
            workers.append(Worker(devices, sizes))
            stack.callback(workers[-1].stop)
        for worker in workers:
            worker.wait_until_ready()
        report.notes.append(check(workers, sizes))
        for work in WORKS:
            for runs in sizes.runs:
                made = contestants(workers, work, runs)
                raced = race(NAME, {"work": work, "runs": runs}, made, unit="runs", repeats=sizes.repeats)
                # The known memory is that of this process, which only waits.
                raced = [replace(one, peak_process_bytes=None, peak_device_bytes=None) for one in raced]
                report.results += raced
                report.notes += notes_of(raced)
            report.targets.append(target_of(raced, cores))
            busy = ", ".join(f"{one.cores[work]:.2f} with {one.devices}" for one in workers)
            report.notes.append(f"{NAME}: {work}, {max(sizes.runs)} runs keep that many cores busy: {busy} devices")
    return report


if __name__ == "__main__":
    main(["--only", NAME, *sys.argv[1:]])
