"""Handles Ctrl-C: at once before work begins, with cleanup during work, and at once on a second Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

CODE = 128 + signal.SIGINT
is_stopping = False


def _end(*_: object) -> None:
    """Ends the process at once, because compilation in other threads cannot be cancelled."""
    os._exit(CODE)


def _end_early(*_: object) -> None:
    # A C library that is being loaded could swallow an exception or crash on it.
    try:
        os.write(2, b"d2djax: interrupted\n")
    finally:
        os._exit(CODE)


def _raise(number: int, frame: FrameType | None) -> None:
    global is_stopping
    is_stopping = True
    signal.signal(signal.SIGINT, _end)
    raise KeyboardInterrupt


def watch() -> None:
    """Makes Ctrl-C end the process at once until `work_begins`; does nothing if the shell ignores Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_early)
        sys.unraisablehook = _unraisable


def work_begins() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt from here on, so that incomplete files are removed."""
    if signal.getsignal(signal.SIGINT) is _end_early:
        signal.signal(signal.SIGINT, _raise)


def _unraisable(error: sys.UnraisableHookArgs) -> None:
    """Ends the process on a KeyboardInterrupt that Python would swallow, for example in garbage collection."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        _end_early()
    sys.__unraisablehook__(error)
