"""Shows the progress of long work: a bar with the remaining time, or plain lines if the output is a file.

`stage` shows one stage of a run, with a running clock. `Tally` shows a whole sweep, with rates and memory over many
stages of many chunks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from d2djax.running.machine import most_memory_used

SECONDS_BETWEEN_LINES = 5.0
Advance = Callable[[int], None]
Stage = Callable[[int], AbstractContextManager[Advance]]


def errors() -> Console:
    """Returns a console on standard error, to which all messages go."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def clock(seconds: float) -> str:
    """Formats seconds as `m:ss`, or as `h:mm:ss` from one hour."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def plural(number: int, name: str) -> str:
    """Formats a count with its noun: "1 run", "1,344 runs"."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _rate(value: float) -> str:
    """Formats a rate with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@contextmanager
def _bar(console: Console, name: str, total: int) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.advance(task, done)


@contextmanager
def _lines(console: Console, name: str, total: int) -> Iterator[Advance]:
    start = time.monotonic()
    done, last = 0, start
    console.print(f"{name}: 0/{total:,}, compiling")

    def advance(more: int) -> None:
        nonlocal done, last
        done += more
        now = time.monotonic()
        if done < total and now - last < SECONDS_BETWEEN_LINES:
            return
        last, left = now, (now - start) / done * (total - done)
        console.print(f"{name}: {done:,}/{total:,}, {clock(now - start)} elapsed, {clock(left)} left")

    yield advance


def announcer(console: Console | None) -> Callable[[str, object], None]:
    """Returns a function that prints the name and the program of a stage, each distinct line once.

    Args:
        console: where to print; None: nothing is printed.
    """
    said: set[str] = set()

    def announce(name: str, plan: object) -> None:
        text = f"{name}: {plan}"
        if console and text not in said:
            said.add(text)
            console.print(text)

    return announce


@contextmanager
def stage(console: Console | None, name: str, total: int) -> Iterator[Advance]:
    """Shows one stage of the work on standard error, in a notebook, or in a log.

    Args:
        console: where to print; None: nothing is printed.
        name: name of the stage.
        total: number of units of work.

    Yields:
        A function to call with the number of units just finished.
    """
    if console is None:
        yield lambda done: None
        return
    show = _bar if console.is_terminal or console.is_jupyter else _lines
    with show(console, name, total) as advance:
        yield advance


@dataclass
class Tally:
    """Counts the progress of a sweep.

    Attributes:
        show: called with the tally and the finished share of the work, in [0, 1]; see `live`.
        total: runs that this process has to do, including the `done` ones.
        whole: all requested runs, including earlier ones and those of other processes.
        heavy: the stage that measures progress within a chunk.
        done: runs of finished chunks.
        diverged: runs among them in which the numbers of a policy are not finite.
        work: finished units of each kind of work, by name.
    """

    show: Callable[[Tally, float], None]
    total: int
    whole: int
    heavy: str
    done: int = 0
    diverged: int = 0
    work: dict[str, int] = field(default_factory=dict)
    _part: float = 0.0
    _started: float = field(default_factory=time.monotonic)
    _first: tuple[float, float, dict[str, int]] | None = None

    def stages(self, runs: int, units: dict[str, tuple[str, int]]) -> Callable[[str], Stage]:
        """Returns a function that makes the stages of a chunk by name.

        Args:
            runs: number of runs of the chunk.
            units: for each stage, the kind of work of one unit and its amount.
        """

        @contextmanager
        def shown(name: str, total: int) -> Iterator[Advance]:
            before = self._part

            def advance(done: int) -> None:
                if name in units:
                    kind, size = units[name]
                    self.work[kind] = self.work.get(kind, 0) + done * size
                if name == self.heavy:
                    self._part += runs * done / total
                    # Rates are measured from here, when all programs are compiled.
                    self._first = self._first or (time.monotonic(), self.done + self._part, dict(self.work))
                self._show()

            yield advance
            if name == self.heavy:
                self._part = before + runs

        return lambda name: lambda total: shown(name, total)

    def finish(self, runs: int, diverged: int) -> None:
        """Counts a finished chunk.

        Args:
            runs: number of its runs.
            diverged: number of its runs that diverged.
        """
        self.done, self.diverged, self._part = self.done + runs, self.diverged + diverged, 0.0
        self._show()

    def __str__(self) -> str:
        now, done = time.monotonic(), self.done + self._part
        since, before, work = self._first or (now, done, self.work)
        seconds = max(now - since, 1e-9)
        parts = [f"{self.whole - self.total + int(done):,}/{plural(self.whole, 'run')}"]
        if done > before:
            parts += [f"{_rate((done - before) / seconds)} runs/s"]
            parts += [f"{_rate((n - work.get(kind, 0)) / seconds)} {kind}/s" for kind, n in self.work.items()]
        parts += [f"{clock(now - self._started)} elapsed"]
        if before < done < self.total:
            parts += [f"{clock(seconds / (done - before) * (self.total - done))} left"]
        parts += [f"{most_memory_used() / 2**30:.1f} GiB"] + [f"{self.diverged} diverged"] * (self.diverged > 0)
        return ", ".join(parts)

    def _show(self) -> None:
        self.show(self, 1 - (self.total - self.done - self._part) / max(1, self.whole))


@contextmanager
def live(console: Console | None) -> Iterator[Callable[[Tally, float], None]]:
    """Yields the `show` function of a `Tally`: a bar with its line, or a line every few seconds in a file.

    Args:
        console: where to print; None: nothing is printed.
    """
    shown = -math.inf

    def line(tally: Tally, share: float) -> None:
        nonlocal shown
        if console and (tally.done >= tally.total or time.monotonic() - shown >= SECONDS_BETWEEN_LINES):
            shown = time.monotonic()
            console.print(str(tally))

    if console is None or not (console.is_terminal or console.is_jupyter):
        yield line
        return
    with Progress(BarColumn(20), TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("compiling", total=1.0)
        yield lambda tally, share: progress.update(task, completed=share, description=str(tally))


def bound_line(where: str, reward: str) -> str:
    """Formats the warning that a mean reward is above its bound.

    Args:
        where: the runs, such as "3 of 12 runs".
        reward: name of the reward.
    """
    return (
        f"in {where} a mean reward is above the upper_bound of {reward}: the initial value of untried links is "
        "too low, so policies try too few of them"
    )
