"""Locks between processes that work in one folder, on one machine or on several; each ends with its owner."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None

# The file is a list of records: each is locked for itself, and names its owner.
RECORD_BYTES = 128
DOOR, FIRST_SEAT, FIRST_TASK = 0, 1, 4096
SECONDS_BETWEEN_TRIES = 0.05
SECONDS_BEFORE_A_LINE = 1.0

Say = Callable[[str], None]
_open: set[Path] = set()


@dataclass
class Locks:
    """What this process holds of a folder.

    Only one process at a time is in the door, where it may change everything if no other has a seat. Who works has
    a seat, and locks each task while it is at it.

    Attributes:
        path: the file of the locks.
        file: its descriptor; none where there are no locks.
        say: called with one line for people.
        seat: the seat of this process.
    """

    path: Path
    file: int | None
    say: Say
    seat: int | None = None

    def take(self, number: int) -> bool:
        """Locks a record, or says that another process holds it."""
        if self.file is None:
            return True
        assert fcntl is not None
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, RECORD_BYTES, number * RECORD_BYTES)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            self.say(
                f"{self.path}: this file system has no locks ({error.strerror}); let no two processes work here"
            )
            os.close(self.file)
            self.file = None
            return True
        self._name(number, f"process {os.getpid()} on {socket.gethostname()}")
        return True

    def _name(self, number: int, text: str) -> None:
        # A full disk takes no names, and locks all the same.
        with suppress(OSError):
            content = text.encode()[:RECORD_BYTES].ljust(RECORD_BYTES, b"\0")
            os.pwrite(self.file or 0, content, number * RECORD_BYTES)

    def release(self, number: int) -> None:
        """Gives a record back."""
        if self.file is not None:
            assert fcntl is not None
            self._name(number, "")
            fcntl.lockf(self.file, fcntl.LOCK_UN, RECORD_BYTES, number * RECORD_BYTES)

    def owner(self, number: int) -> str:
        """Who holds a record, as far as is known."""
        text = (
            os.pread(self.file, RECORD_BYTES, number * RECORD_BYTES).rstrip(b"\0") if self.file is not None else b""
        )
        return text.decode(errors="replace") or "another process"

    def others(self) -> list[str]:
        """Who else has a seat; for the process in the door, which has none itself."""
        if self.file is None:
            return []
        records = os.pread(self.file, FIRST_TASK * RECORD_BYTES, 0)
        found = []
        for number in range(FIRST_SEAT, len(records) // RECORD_BYTES):
            # A name without a lock is that of a process that died.
            if records[number * RECORD_BYTES] and number != self.seat:
                owner = self.owner(number)
                if self.take(number):
                    self.release(number)
                else:
                    found.append(owner)
        return found

    def enter(self) -> None:
        """Waits for the door."""
        started, said = time.monotonic(), False
        while not self.take(DOOR):
            if not said and time.monotonic() - started > SECONDS_BEFORE_A_LINE:
                self.say(f"{self.path.parent}: waiting for {self.owner(DOOR)}, which prepares the results")
                said = True
            time.sleep(SECONDS_BETWEEN_TRIES)

    def sit(self) -> None:
        """Takes a seat and leaves the door to the next.

        Raises:
            ValueError: all seats are taken.
        """
        self.seat = next((seat for seat in range(FIRST_SEAT, FIRST_TASK) if self.take(seat)), None)
        if self.seat is None:
            raise ValueError(f"{self.path.parent}: {FIRST_TASK - 1} processes work here already")
        self.release(DOOR)

    def leave(self) -> None:
        """Gives everything back; the last one removes the file."""
        if self.file is None:
            return
        if self.take(DOOR) and not self.others():
            with suppress(OSError):
                self.path.unlink()
        os.close(self.file)
        self.file = None


def _is_there(file: int, path: Path) -> bool:
    """Whether a path still leads to an open file, which the last process may have removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def working(path: Path, say: Say) -> Iterator[Locks]:
    """Opens the locks of a folder, in whose door this process then is.

    Locks are POSIX record locks: they hold between machines on NFS 4, on NFS 3 with `lockd`, and on Lustre mounted
    with `flock`. Where a file system has none, one line says so, and work goes on without.

    Args:
        path: the file of the locks; it is made, and removed by the last process that leaves.
        say: called with one line for people.

    Yields:
        The locks.

    Raises:
        ValueError: another thread of this process works there.
        OSError: the folder cannot be made.
    """
    if path in _open:
        raise ValueError(f"{path.parent}: this process works here already, in another thread")
    path.parent.mkdir(parents=True, exist_ok=True)
    _open.add(path)
    held = Locks(path, None, say)
    try:
        while fcntl is not None:
            try:
                held.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                # Nothing can be written here, so there is nothing to protect.
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                break
            held.enter()
            if held.file is None or _is_there(held.file, path):
                break
            os.close(held.file)
        yield held
    finally:
        held.leave()
        _open.discard(path)
