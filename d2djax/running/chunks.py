"""Distributes the unfinished chunks of a sweep among the processes that share its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.running.identity import differences
from d2djax.storage import checksums, files, locks, store
from d2djax.storage.layout import Layout, merged, places_of_runs

MOST_LINES = 20
SECONDS_BETWEEN_LOOKS = 0.2


def prepare(path: Path, wanted: Layout, part: tuple[int, int], held: locks.Locks) -> Chunks:
    """Creates a store, or repairs and extends an existing one, and registers this process as a worker.

    Args:
        path: the store.
        wanted: the layout of a new store with exactly the requested runs.
        part: the shard, from 0, and the number of shards.
        held: the locks of the folder; this process holds the lock for preparation.

    Returns:
        The unfinished chunks of the requested runs.

    Raises:
        ValueError: the folder holds something else, or another process works on a sweep that would have to grow.
        OSError: the folder cannot be written.
    """
    files.check_own(path.parent, "sweep", ())
    others = held.others()
    if not others:
        store.recover(path)
    if not path.exists():
        store.create(wanted, path)
    check_same(path, store.manifest_at(path), json.loads(wanted.attributes["manifest"]))
    if not others:
        store.clean(path)
    found = _mended(path, held)
    if found.layout.variables.keys() != wanted.variables.keys():
        raise ValueError(f"{path}: holds the results of another version of d2djax; choose another folder")
    if not store.holds(found.layout, wanted):
        if others:
            who = ", ".join(others[:3])
            raise ValueError(f"{path}: a sweep cannot grow while {who} works on it; rerun the command afterwards")
        store.grow(found, merged(found.layout, wanted))
        found = store.Store(path, store.layout_of(path))
    held.sit()
    return Chunks(found, held, places_of_runs(wanted, found.layout), part)


def _mended(path: Path, held: locks.Locks) -> store.Store:
    """Opens the store and marks runs with a damaged file as not done; prints one line for each such file."""
    for line in store.repair(path):
        held.say(line)
    found = store.Store(path, store.layout_of(path))
    bad: list[Path] = []
    for number, region in enumerate(found.layout.regions()):
        # A chunk that another process computes will be rewritten anyway.
        if held.take(locks.FIRST_TASK + number):
            faults = found.faults(region)
            if faults:
                _check_files(faults)
                found.unmark(region)
                bad += faults
            held.release(locks.FIRST_TASK + number)
    for file in bad[:MOST_LINES]:
        held.say(f"{checksums.fault(file)}; its runs are computed again")
    if len(bad) > MOST_LINES:
        held.say(f"{path}: {len(bad) - MOST_LINES} more files are damaged or missing")
    return found


def _check_files(faults: list[Path]) -> None:
    """Checks that damaged files can be rewritten; a folder in place of a file does not belong to the store."""
    for file in faults:
        if file.is_dir():
            raise ValueError(f"{file}: expected a file; found a folder, which d2djax does not replace")


class Chunks:
    """The unfinished chunks of a shard; the process that holds the lock of a chunk computes it.

    Attributes:
        left: number of missing runs of each unfinished chunk.
        is_all: whether every run of the store is requested.
    """

    def __init__(self, found: store.Store, held: locks.Locks, asked: np.ndarray, part: tuple[int, int]) -> None:
        """Reads from the store which runs are done.

        Args:
            found: the store.
            held: the locks of its folder.
            asked: int in the shape of the store, the number of each requested run, -1 for the others.
            part: the shard, from 0, and the number of shards.
        """
        self._store, self._held, self._asked = found, held, asked
        self._regions = found.layout.regions()
        self.is_all = bool((asked >= 0).all())
        self._at: tuple[int, np.ndarray] | None = None
        self._numbers = range(len(self._regions))[part[0] :: part[1]]
        missing = {number: int(self._missing(number).sum()) for number in self._numbers}
        self.left = {number: runs for number, runs in missing.items() if runs}

    def sizes(self) -> np.ndarray:
        """Returns five counts, [5] int.

        These are, for this shard, the requested runs, their chunks, the missing runs and the unfinished chunks;
        and, for all shards, the requested runs of the largest chunk.
        """
        asked = [int((self._asked[region] >= 0).sum()) for region in self._regions]
        own = [asked[number] for number in self._numbers]
        return np.array([sum(own), np.count_nonzero(own), sum(self.left.values()), len(self.left), max(asked)])

    def _missing(self, number: int) -> np.ndarray:
        """Returns which requested runs of a chunk are not done, bool in its shape."""
        region = self._regions[number]
        return (self._asked[region] >= 0) & (self._store.marks(region) == 0)

    def take(self) -> np.ndarray:
        """Locks the next chunk that no other process computes; if there is none, waits for the other processes.

        Returns:
            The numbers of its missing runs, from 1, padded with zeros to the length of the largest chunk, int; all
            zeros if every chunk is done.
        """
        row, said = np.zeros(self.sizes()[-1], int), False
        while self.left:
            for number in list(self.left):
                # If a process died, its lock is free and its chunk is not done.
                if not self._held.take(locks.FIRST_TASK + number):
                    continue
                missing = self._missing(number)
                del self.left[number]
                if missing.any():
                    self._at = number, missing
                    row[: missing.sum()] = self._asked[self._regions[number]][missing] + 1
                    return row
                self._held.release(locks.FIRST_TASK + number)
            if self.left:
                if not said:
                    owner = self._held.owner(locks.FIRST_TASK + next(iter(self.left)))
                    self._held.say(f"waiting for {owner}; chunks left: {len(self.left)}")
                    said = True
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return row

    def write(self, values: dict[str, np.ndarray], own: dict[str, np.ndarray]) -> None:
        """Writes the results of the chunk from `take` and releases its lock.

        Args:
            values: see `Store.write`.
            own: see `Store.write`.
        """
        assert self._at is not None
        number, missing = self._at
        self._store.write(self._regions[number], missing, values, own)
        self._held.release(locks.FIRST_TASK + number)
        self._at = None


def check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Checks that a store holds results of the requested sweep; values of axes and seeds may differ.

    Args:
        path: the store.
        found: the manifest of the store.
        wanted: the manifest of the requested sweep.

    Raises:
        ValueError: they differ in anything else; the line names the differences.
    """
    different = differences(*_to_compare(found, wanted), besides=("seeds", "data.points"))
    if different:
        raise ValueError(f"{path}: holds the results of another sweep ({different}); choose another folder")


def _to_compare(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns both manifests without what may differ in one store: values of axes and the order of axes."""
    both: list[dict[str, Any]] = json.loads(json.dumps([found, wanted]))
    for one in both:
        one |= {name: sorted(one.get(name, ())) for name in ("axes", "dimensions")}
    # Only one side may have settings that only some points read, and data sets that only some points use.
    for parts in ([one.get("config", {}) for one in both], [one.get("data", {}).get("digest", {}) for one in both]):
        for name in parts[0].keys() ^ parts[1].keys():
            for part in parts:
                part.pop(name, None)
    if "model" in both[0]["axes"]:
        # These describe only the model of the first point.
        for one in both:
            one["recipe"] = {
                name: part for name, part in one["recipe"].items() if name not in ("model", "parameters")
            }
    return both
