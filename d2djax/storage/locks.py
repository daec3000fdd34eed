"""Locks between processes that share a folder, on one or several machines; a lock ends with its process."""

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

# The lock file is a list of records; each is locked separately and names its owner.
RECORD_BYTES = 128
DOOR, FIRST_SEAT, FIRST_TASK = 0, 1, 4096
SECONDS_BETWEEN_TRIES = 0.05
SECONDS_BEFORE_A_LINE = 1.0

Say = Callable[[str], None]
_open: set[Path] = set()


@dataclass
class Locks:
    """The locks that this process holds on a folder.

    The door admits one process at a time; inside, it may change everything if no other process has a seat. Each
    working process has a seat, and locks a task while computing it.

    Attributes:
        path: the lock file.
        file: its descriptor; None where locks are unavailable.
        say: called with a one-line message for the user.
        seat: the number of this process's seat; None before `sit`.
    """

    path: Path
    file: int | None
    say: Say
    seat: int | None = None

    def take(self, number: int) -> bool:
        """Locks a record, without waiting.

        Args:
            number: of the record: `DOOR`, a seat from `FIRST_SEAT` on, or a task from `FIRST_TASK` on.

        Returns:
            False if another process holds the record; always True where locks are unavailable.
        """
        if self.file is None:
            return True
        assert fcntl is not None
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, RECORD_BYTES, number * RECORD_BYTES)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            self.say(f"{self.path}: this file system has no locks ({error.strerror}); run only one process here")
            os.close(self.file)
            self.file = None
            return True
        self._name(number, f"process {os.getpid()} on {socket.gethostname()}")
        return True

    def _name(self, number: int, text: str) -> None:
        # A full disk cannot store the name, but the lock still works.
        with suppress(OSError):
            content = text.encode()[:RECORD_BYTES].ljust(RECORD_BYTES, b"\0")
            os.pwrite(self.file or 0, content, number * RECORD_BYTES)

    def release(self, number: int) -> None:
        """Unlocks a record by number."""
        if self.file is not None:
            assert fcntl is not None
            self._name(number, "")
            fcntl.lockf(self.file, fcntl.LOCK_UN, RECORD_BYTES, number * RECORD_BYTES)

    def owner(self, number: int) -> str:
        """The process that holds a record, by name, or `another process` if the name is missing."""
        text = (
            os.pread(self.file, RECORD_BYTES, number * RECORD_BYTES).rstrip(b"\0") if self.file is not None else b""
        )
        return text.decode(errors="replace") or "another process"

    def others(self) -> list[str]:
        """Names the other processes that have a seat; call it only while holding the door."""
        if self.file is None:
            return []
        records = os.pread(self.file, FIRST_TASK * RECORD_BYTES, 0)
        found = []
        for number in range(FIRST_SEAT, len(records) // RECORD_BYTES):
            # A name without a lock was left by a process that crashed.
            if records[number * RECORD_BYTES] and number != self.seat:
                owner = self.owner(number)
                if self.take(number):
                    self.release(number)
                else:
                    found.append(owner)
        return found

    def enter(self) -> None:
        """Waits until this process holds the door."""
        started, said = time.monotonic(), False
        while not self.take(DOOR):
            if not said and time.monotonic() - started > SECONDS_BEFORE_A_LINE:
                self.say(f"{self.path.parent}: waiting for {self.owner(DOOR)}, which prepares the results")
                said = True
            time.sleep(SECONDS_BETWEEN_TRIES)

    def sit(self) -> None:
        """Takes a free seat, then unlocks the door.

        Raises:
            ValueError: all seats are taken.
        """
        self.seat = next((seat for seat in range(FIRST_SEAT, FIRST_TASK) if self.take(seat)), None)
        if self.seat is None:
            raise ValueError(f"{self.path.parent}: {FIRST_TASK - 1} processes already work in this folder")
        self.release(DOOR)

    def leave(self) -> None:
        """Unlocks everything; the last process removes the lock file."""
        if self.file is None:
            return
        if self.take(DOOR) and not self.others():
            with suppress(OSError):
                self.path.unlink()
        os.close(self.file)
        self.file = None


def _is_there(file: int, path: Path) -> bool:
    """Whether a path still names an open file, which the last process may have removed in the meantime."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def working(path: Path, say: Say) -> Iterator[Locks]:
    """Opens the locks of a folder and waits for its door.

    Locks are POSIX record locks: they work across machines on NFS 4, on NFS 3 with `lockd`, and on Lustre mounted
    with `flock`. If a file system has no locks, one line says so and work continues without them.

    Args:
        path: the lock file; it is created, and the last process removes it.
        say: called with a one-line message for the user.

    Yields:
        The locks, with this process in the door.

    Raises:
        ValueError: another thread of this process already works in the folder.
        OSError: the folder cannot be created.
    """
    if path in _open:
        raise ValueError(f"{path.parent}: another thread of this process already works in this folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    _open.add(path)
    held = Locks(path, None, say)
    try:
        while fcntl is not None:
            try:
                held.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                # The folder is read-only, so there is nothing to protect.
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
