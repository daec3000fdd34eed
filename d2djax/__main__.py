"""Entry point of the command line; handles Ctrl-C from the first import to the last thread."""

from __future__ import annotations

import os
import sys

from d2djax.cli import interrupts


def main() -> None:
    """Runs a command and ends the process with its exit code."""
    interrupts.watch()
    from d2djax.cli import commands, terminal

    if sys.stderr:
        sys.stderr = terminal.Messages(sys.stderr)
    code = 0
    try:
        with terminal.ends():
            commands.main()
            if sys.stdout:
                sys.stdout.flush()
    except SystemExit as end:
        code = end.code
    if code in (terminal.INTERRUPTED, terminal.BROKEN_PIPE):
        # Compilations in other threads cannot be stopped, so exit without waiting for them.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
