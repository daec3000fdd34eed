"""The chunks of a sweep that are left to do, which all processes that share its folder divide among themselves."""

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
    """Lays a store out, or mends the one that is there and lets it grow, and takes a seat beside it.

    Args:
        path: the store.
        wanted: what is asked for, as it would be laid out alone.
        part: the shard, from 0, and the number of shards.
        held: the locks of the folder; this process is in the door.

    Returns:
        What is left of what is asked for.

    Raises:
        ValueError: something else is there, results of another sweep, or a process that works on a sweep that
            would have to grow.
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
        raise ValueError(f"{path}: results of another version of d2djax are here; choose another folder")
    if not store.holds(found.layout, wanted):
        if others:
            who = ", ".join(others[:3])
            raise ValueError(f"{path}: a sweep cannot grow while {who} works on it; start it again afterwards")
        store.grow(found, merged(found.layout, wanted))
        found = store.Store(path, store.layout_of(path))
    held.sit()
    return Chunks(found, held, places_of_runs(wanted, found.layout), part)


def _mended(path: Path, held: locks.Locks) -> store.Store:
    """The store, in which runs count as not done where a file of theirs is damaged; a line names each file."""
    for line in store.repair(path):
        held.say(line)
    found = store.Store(path, store.layout_of(path))
    bad: list[Path] = []
    for number, region in enumerate(found.layout.regions()):
        # What another process is at is written anew anyway.
        if held.take(locks.FIRST_TASK + number):
            faults = found.faults(region)
            if faults:
                _check_files(faults)
                found.unmark(region)
                bad += faults
            held.release(locks.FIRST_TASK + number)
    for file in bad[:MOST_LINES]:
        held.say(f"{checksums.fault(file)}; what was in it is computed again")
    if len(bad) > MOST_LINES:
        held.say(f"{path}: {len(bad) - MOST_LINES} more files are damaged or missing")
    return found


def _check_files(faults: list[Path]) -> None:
    """Checks that damaged files can be written again: a folder in the place of one is somebody else's."""
    for file in faults:
        if file.is_dir():
            raise ValueError(f"{file}: expected a file; found a folder, which is not replaced")


class Chunks:
    """What is left to a shard; a chunk is computed by the process that holds its lock.

    Attributes:
        left: number of runs that are to be computed, for each chunk that is left.
        is_all: all that the store has place for is asked for.
    """

    def __init__(self, found: store.Store, held: locks.Locks, asked: np.ndarray, part: tuple[int, int]) -> None:
        """Looks at what is done.

        Args:
            found: the store.
            held: the locks of its folder.
            asked: in the shape of the store, the number of each run that is asked for, or -1.
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
        """Of this shard: runs asked for, their chunks, runs and chunks left. Of all: runs of the largest chunk."""
        asked = [int((self._asked[region] >= 0).sum()) for region in self._regions]
        own = [asked[number] for number in self._numbers]
        return np.array([sum(own), np.count_nonzero(own), sum(self.left.values()), len(self.left), max(asked)])

    def _missing(self, number: int) -> np.ndarray:
        """Runs of a chunk that are asked for and not done, bool in its shape."""
        region = self._regions[number]
        return (self._asked[region] >= 0) & (self._store.marks(region) == 0)

    def take(self) -> np.ndarray:
        """Takes the next chunk that no other process is at; where there is none, waits for the others to end.

        Returns:
            The numbers of its missing runs, from 1, then zeros, in the length of the largest chunk; only zeros
            when all is done.
        """
        row, said = np.zeros(self.sizes()[-1], int), False
        while self.left:
            for number in list(self.left):
                # The lock of a process that died is free, and its chunk not done.
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
                    self._held.say(f"waiting for what {owner} computes; chunks left: {len(self.left)}")
                    said = True
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return row

    def write(self, values: dict[str, np.ndarray], own: dict[str, np.ndarray]) -> None:
        """Writes what was computed of the chunk that was taken, see `Store.write`, and gives it back."""
        assert self._at is not None
        number, missing = self._at
        self._store.write(self._regions[number], missing, values, own)
        self._held.release(locks.FIRST_TASK + number)
        self._at = None


def check_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Checks that a store holds results of the sweep that is asked for, maybe of other values and seeds.

    Args:
        path: the store.
        found: the manifest of what is there.
        wanted: the manifest of what is asked for.

    Raises:
        ValueError: they differ in anything else; the differences are named.
    """
    different = differences(*_to_compare(found, wanted), besides=("seeds", "data.points"))
    if different:
        raise ValueError(f"{path}: results of another sweep are here ({different}); choose another folder")


def _to_compare(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What must be equal for two sweeps to share a store: values may differ, and the order of axes."""
    both: list[dict[str, Any]] = json.loads(json.dumps([found, wanted]))
    for one in both:
        one |= {name: sorted(one.get(name, ())) for name in ("axes", "dimensions")}
    # Settings that only some points read, and data sets that only they use, may be on one side alone.
    for parts in ([one.get("config", {}) for one in both], [one.get("data", {}).get("digest", {}) for one in both]):
        for name in parts[0].keys() ^ parts[1].keys():
            for part in parts:
                part.pop(name, None)
    if "model" in both[0]["axes"]:
        # The network of the first point.
        for one in both:
            one["recipe"] = {
                name: part for name, part in one["recipe"].items() if name not in ("model", "parameters")
            }
    return both
