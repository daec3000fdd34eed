"""Progress of long work for people: a bar with the time left, or plain lines where the output is a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SECONDS_BETWEEN_LINES = 5.0
Advance = Callable[[int], None]


def clock(seconds: float) -> str:
    """Seconds as `m:ss`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


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
    console.print(f"{name}: 0/{total}, compiling")

    def advance(more: int) -> None:
        nonlocal done, last
        done += more
        now = time.monotonic()
        if done < total and now - last < SECONDS_BETWEEN_LINES:
            return
        last, left = now, (now - start) / done * (total - done)
        console.print(f"{name}: {done}/{total}, {clock(now - start)} elapsed, {clock(left)} left")

    yield advance


@contextmanager
def stage(console: Console | None, name: str, total: int) -> Iterator[Advance]:
    """Shows one stage of the work on standard error, in a notebook, or in a log.

    Args:
        console: where to; none: nothing is shown.
        name: what is being done.
        total: units of work.

    Yields:
        A function to call with the number of units just done.
    """
    if console is None:
        yield lambda done: None
        return
    show = _bar if console.is_terminal or console.is_jupyter else _lines
    with show(console, name, total) as advance:
        yield advance
