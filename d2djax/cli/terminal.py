"""Terminal output: tables for any terminal, log or pipe; one-line errors; exit codes."""

from __future__ import annotations

import codecs
import difflib
import dis
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, RenderableType

from d2djax.cli import interrupts

# ASCII replacements of characters that some encodings lack.
PLAIN_SIGNS = {"±": "+-", "–": "-", "…": "...", "×": "x", "≥": ">=", "≤": "<="}
# Exit codes: bad input, an internal or system error, Ctrl-C, a closed pipe (128 + the signal).
REFUSED, FAILED, INTERRUPTED, BROKEN_PIPE = 2, 1, interrupts.CODE, 141
_PACKAGE = Path(__file__).parents[1]


def show(*things: RenderableType) -> None:
    """Prints texts and tables to standard output.

    Numbers are never cut, whatever the width. Characters that the encoding lacks become ASCII.

    Raises:
        OSError: the reader closed the pipe, or writing failed, as on a full disk.
    """
    if sys.stdout is None:
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for thing in things:
        try:
            sys.stdout.write(_rendered(thing, encoding))
            sys.stdout.flush()
        except OSError as error:
            let_go(sys.stdout)
            error.filename = "standard output"
            raise


def _rendered(thing: RenderableType, encoding: str) -> str:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding, "plain signs", newline="")
    options: dict[str, Any] = {"file": stream, "highlight": False, "markup": False}
    # The full width of the table: rich would cut numbers at 80 columns in logs and pipes. Narrow terminals wrap.
    width = Console(width=100_000, **options).measure(thing).maximum
    Console(width=max(1, width), force_terminal=sys.stdout.isatty(), **options).print(thing)
    stream.flush()
    return written.getvalue().decode(encoding)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAIN_SIGNS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error("plain signs", _plain)


class Messages:
    """Wraps standard error so that a failed write is dropped and the work continues."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes a text; ignores failures."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        """Flushes the stream; ignores failures."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def _last(trace: TracebackType | None) -> TracebackType | None:
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace


def is_for_people(error: BaseException) -> bool:
    """Tells whether an error is meant for the user: a ValueError from a `raise` statement of this package.

    Errors from libraries or from operations on wrong values are bugs, whatever their class.
    """
    last = _last(error.__traceback__)
    if not isinstance(error, ValueError) or last is None:
        return False
    code = last.tb_frame.f_code
    is_raised = code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return is_raised and Path(code.co_filename).is_relative_to(_PACKAGE)


def one_line(error: BaseException) -> str:
    """Joins the message of an error into one line."""
    return " ".join(str(error).split())


def _failure(error: Exception) -> str:
    """Describes an error other than bad input in one line."""
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"out of memory; use fewer devices or points, or a smaller batch ({one_line(error)[:200]})"
    if isinstance(error, OSError) and error.errno:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return ": ".join([" -> ".join(names) or "a file", error.strerror or str(error)])
    last = _last(error.__traceback__)
    place = f" ({Path(last.tb_frame.f_code.co_filename).name}, line {last.tb_lineno})" if last else ""
    return f"a bug: {type(error).__name__}: {one_line(error)[:300]}{place}; please report it with --traceback"


def say(text: str) -> None:
    """Prints one line to standard error, prefixed with `d2djax:`."""
    try:
        print(f"d2djax: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def let_go(stream: TextIO) -> None:
    """Redirects a closed stream to the null device, because the interpreter flushes it at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        return


VARIABLES = ("D2DJAX_CACHE", "D2DJAX_DATA", "D2DJAX_TRACEBACK")


def unknown_variables() -> list[str]:
    """Returns one line for each environment variable `D2DJAX_*` that d2djax does not know."""
    lines = []
    for name in sorted(os.environ):
        if name.startswith("D2DJAX_") and name not in VARIABLES:
            close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.7)
            lines.append(f"{name} is unknown and ignored{f'; did you mean {close[0]}?' if close else ''}")
    return lines


@contextmanager
def ends(with_traceback: bool = False) -> Iterator[None]:
    """Turns an error into one line and an exit code.

    Args:
        with_traceback: whether to print the traceback first.

    Raises:
        SystemExit: 2 for bad input, 1 for a failure, 130 for Ctrl-C, 141 for a broken pipe.
    """
    try:
        yield
    except BrokenPipeError:
        raise SystemExit(BROKEN_PIPE) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        # A library may convert an interrupt into another error.
        if interrupts.is_stopping:
            raise SystemExit(INTERRUPTED) from None
        if with_traceback:
            traceback.print_exc()
        if is_for_people(error):
            say(one_line(error))
            raise SystemExit(REFUSED) from None
        say(_failure(error))
        raise SystemExit(FAILED) from None
