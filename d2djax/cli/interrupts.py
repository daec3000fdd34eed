"""Ctrl-C: at once while nothing is lost, in good order during work, and at once when it is pressed again."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

CODE = 128 + signal.SIGINT
is_stopping = False


def _end(*_: object) -> None:
    """Ends the process: programs that still compile in other threads cannot be stopped."""
    os._exit(CODE)


def _end_early(*_: object) -> None:
    # An exception amid the start of a library in C would be swallowed there, or crash it.
    try:
        os.write(2, b"d2djax: stopped\n")
    finally:
        os._exit(CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    global is_stopping
    is_stopping = True
    signal.signal(signal.SIGINT, _end)
    raise KeyboardInterrupt


def watch() -> None:
    """Answers Ctrl-C until `work_begins`, unless it is ignored, as in the background of a shell."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_early)
        sys.unraisablehook = _unraisable


def work_begins() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, so that what is half-written is tidied up."""
    if signal.getsignal(signal.SIGINT) is _end_early:
        signal.signal(signal.SIGINT, _raise)


def _unraisable(error: sys.UnraisableHookArgs) -> None:
    """A KeyboardInterrupt where Python swallows it, as while it collects garbage, still ends the process."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        _end_early()
    sys.__unraisablehook__(error)
