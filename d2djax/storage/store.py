"""A sweep's results on disk: the store is created first, filled chunk by chunk, and readable at any time."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.storage import checksums, files
from d2djax.storage.layout import Layout, Region, fill_value, labels, places

DONE = "done"
# Copies of the files without which nothing can be recomputed.
COPIES = f"{DONE}/copies"
# The checksums of each chunk's files, since a file swapped with another passes its own checksum.
SUMS = f"{DONE}/sums"
# Attributes of a root that describe its files.
OF_THE_SEAL = ("checksum", "sums")


SETTINGS = threading.Lock()


def create(layout: Layout, path: Path) -> None:
    """Creates an empty store atomically; keeps a store that another process created first.

    Args:
        layout: of the store.
        path: its folder.

    Raises:
        OSError: the store cannot be written.
    """
    with files.replacing(path, keep=True) as new:
        _make(layout, new)


def _make(layout: Layout, path: Path) -> None:
    """Writes a store without results."""
    import xarray
    import zarr

    empty = xarray.Dataset(coords=layout.coordinates, attrs=layout.attributes)
    # zarr's settings are global to the process: another thread would reset them in the middle of this.
    with SETTINGS, zarr.config.set({"array.write_empty_chunks": True}):
        encoding = {name: checksums.codecs() for name in layout.coordinates}
        empty.to_zarr(path, mode="w-", zarr_format=3, consolidated=False, encoding=encoding)
        group = zarr.open_group(path, mode="r+")
        marks = {DONE: (tuple(layout.dims), np.dtype(np.int8), {"long_name": "1: this run is finished"})}
        by_dim = dict(zip(layout.dims, layout.chunk, strict=True))
        for name, (dims, kind, attributes) in (layout.variables | marks).items():
            array = group.create_array(
                name,
                shape=tuple(layout.length(dim) for dim in dims),
                chunks=tuple(by_dim.get(dim, layout.length(dim)) for dim in dims),
                dtype=kind,
                fill_value=0 if name == DONE else fill_value(kind),
                dimension_names=dims,
                # One folder for each variable, however many chunks it has.
                chunk_key_encoding={"name": "default", "separator": "."},
                **checksums.codecs(),
            )
            array.attrs.update(attributes)
        # All marks are written from the start, so that a missing one is detected.
        group[DONE][...] = 0  # type: ignore[index]
    checksums.seal(path, without=(*layout.variables, DONE))
    for name, content in _to_copy(path).items():
        (path / COPIES / name).parent.mkdir(parents=True, exist_ok=True)
        (path / COPIES / name).write_bytes(content)


def _to_copy(path: Path) -> dict[str, bytes]:
    """The files of a new store that get a copy, with their bytes: its root and the values of its coordinates."""
    arrays = _arrays(json.loads((path / "zarr.json").read_bytes()))
    files = [path / "zarr.json", *_coordinate_files(path, arrays)]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def _arrays(root: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return root["consolidated_metadata"]["metadata"]


def _is_sweep(arrays: Mapping[str, Any]) -> bool:
    """Whether `create` made a store, rather than a user who saved a dataset that was read from one."""
    return DONE in arrays and arrays[DONE]["chunk_key_encoding"]["configuration"]["separator"] == "."


def _is_result(arrays: Mapping[str, Any], name: str) -> bool:
    """Whether an array of a store has a value for each run; otherwise it is a coordinate."""
    outer = arrays[DONE]["dimension_names"]
    return name != DONE and arrays[name]["dimension_names"][: len(outer)] == outer and name not in outer


def _coordinate_files(path: Path, arrays: Mapping[str, Any]) -> list[Path]:
    return _chunks(path, arrays, [name for name in arrays if name != DONE and not _is_result(arrays, name)])


def _root(path: Path) -> dict[str, Any] | None:
    """The sealed metadata of a sweep's store, from the copy if the original is damaged; None if both are."""
    for file in (path / "zarr.json", path / COPIES / "zarr.json"):
        content = checksums.content_of(file)
        if content is not None and checksums.is_sealed(content):
            root = json.loads(content)
            return root if _is_sweep(_arrays(root)) else None
    return None


def layout_of(path: Path) -> Layout:
    """Reads the layout of an existing store.

    Args:
        path: the store's folder; its metadata and coordinates must be sound, see `repair`.
    """
    import zarr

    root = json.loads((path / "zarr.json").read_bytes())
    arrays, group = _arrays(root), zarr.open_group(path, mode="r")
    outer = arrays[DONE]["dimension_names"]
    coordinates, variables = {}, {}
    for name, array in arrays.items():
        dims = tuple(array["dimension_names"])
        # xarray writes `_FillValue` itself.
        attributes = {key: value for key, value in array["attributes"].items() if key != "_FillValue"}
        if _is_result(arrays, name):
            variables[name] = (dims, np.dtype(array["data_type"]), attributes)
        elif name != DONE:
            values = np.asarray(group[name][...])  # type: ignore[index]
            coordinates[name] = (
                dims[0],
                values if values.dtype.kind in "biuf" else values.astype(object),
                attributes,
            )
    attributes = {
        name: value for name, value in root["attributes"].items() if name not in (*OF_THE_SEAL, "coordinates")
    }
    return Layout(
        dims=dict(zip(outer, arrays[DONE]["shape"], strict=True)),
        chunk=tuple(arrays[DONE]["chunk_grid"]["configuration"]["chunk_shape"]),
        coordinates=coordinates,
        variables=variables,
        attributes=attributes,
    )


def manifest_at(path: Path) -> dict[str, Any]:
    """The manifest of a sweep's store: what its results were computed from.

    Args:
        path: the store's folder.

    Raises:
        ValueError: `path` is not a sweep's store, or is too damaged to tell.
    """
    root = _root(path)
    try:
        found = json.loads(root["attributes"]["manifest"]) if root else None
    except (KeyError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(
            f"{path}: this is not a sweep, or was written before d2djax 0.2, or is damaged in zarr.json and its "
            "copy; choose another folder"
        )
    return found


def repair(path: Path) -> list[str]:
    """Restores damaged metadata and coordinates of a sweep's store from their copies.

    Args:
        path: the store; see `manifest_at`.

    Returns:
        One line for each restored file.

    Raises:
        ValueError: both a file and its copy are damaged.
    """
    root = _root(path)
    assert root is not None
    sums = root["attributes"].get("sums", {})
    twice = [Path("zarr.json"), *(file.relative_to(path) for file in _coordinate_files(path, _arrays(root)))]
    wanted: dict[Path, bytes] = {}
    for name in twice:
        found = [checksums.content_of(file) for file in (path / name, path / COPIES / name)]
        is_root, expected = name.name == "zarr.json", sums.get(name.as_posix())
        good = [
            content
            for content in found
            if content is not None
            and (checksums.is_sealed(content) if is_root else checksums.is_sound_content(content))
            and (is_root or expected in (None, checksums.end_of(content)))
        ]
        if not good:
            raise ValueError(f"{checksums.fault(path / name)}, as is its copy; choose another folder")
        wanted |= {path / name: good[0], path / COPIES / name: good[0]}
    wanted |= checksums.metadata_files(path, wanted[path / "zarr.json"])[1]
    damaged = {file: content for file, content in wanted.items() if checksums.content_of(file) != content}
    lines = [f"{checksums.fault(file)}; restored from its copy" for file in damaged]
    for file, content in damaged.items():
        files.write_bytes(file, content)
    return lines


@dataclass(frozen=True)
class Store:
    """A sweep's store on disk.

    Attributes:
        path: its folder.
        layout: see `layout_of`.
    """

    path: Path
    layout: Layout

    @cached_property
    def _metadata(self) -> dict[str, dict[str, Any]]:
        return _arrays(json.loads((self.path / "zarr.json").read_bytes()))

    @cached_property
    def _zarr(self) -> dict[str, Any]:
        import zarr

        with SETTINGS, zarr.config.set({"array.write_empty_chunks": True}):
            group = zarr.open_group(self.path, mode="r+", use_consolidated=True)
            return {name: group[name] for name in (*self.layout.variables, DONE)}

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(checksums.THREADS)

    def file(self, name: str, region: Region) -> Path:
        """The file that holds a chunk of a variable.

        Args:
            name: of the variable.
            region: the chunk; see `Layout.regions`.
        """
        place = [part.start // step for part, step in zip(region, self.layout.chunk, strict=True)]
        rest = len(self._metadata[name]["shape"]) - len(place)
        return checksums.chunk_file(self.path, name, self._metadata[name], [*place, *[0] * rest])

    def marks(self, region: Region) -> np.ndarray:
        """int8 in the shape of the region: 1 for each finished run; all 0 if the marks are damaged."""
        found = self._sound_marks(region)
        return np.zeros(tuple(part.stop - part.start for part in region), np.int8) if found is None else found

    def _sound_marks(self, region: Region) -> np.ndarray | None:
        if not checksums.is_sound(self.file(DONE, region)):
            return None
        try:
            return self.read(DONE, region)
        except ValueError:  # The file of another chunk, whose size differs, passes its own checksum.
            return None

    def read(self, name: str, region: Region) -> np.ndarray:
        """Reads a variable.

        Args:
            name: of the variable.
            region: one slice for each chunked dimension; see `Layout.regions`.

        Returns:
            The values; the axes are those of the region, then the dimensions within a run.
        """
        return np.asarray(self._zarr[name][region])

    def _sync(self, chunks: list[Path]) -> None:
        """Flushes chunks to disk, in parallel because each flush waits for the disk."""
        # Only the entries of their folders: other processes are writing the other files there.
        list(self._pool.map(files.sync_one, [*chunks, *(file.parent for file in chunks)]))

    def faults(self, region: Region) -> list[Path]:
        """Files of a chunk that are damaged, or missing although at least one of its runs is finished."""
        marks = self.file(DONE, region)
        done = self._sound_marks(region)
        if done is None:
            return [marks]
        if not done.any():
            return []
        found = _sums(self._sums_file(region))
        if found is None:
            return [self._sums_file(region)]
        files = {self.file(name, region): found.sums.get(name) for name in self.layout.variables}
        good = self._pool.map(checksums.is_the_one, files.keys(), files.values())
        bad = [file for file, is_good in zip(files, good, strict=True) if not is_good]
        return bad if found.allow(done) else [marks, *bad]

    def _sums_file(self, region: Region) -> Path:
        return _sums_file(self.path, self.file(DONE, region))

    def _note_sums(self, region: Region, done: np.ndarray, names: Iterable[str]) -> None:
        """Stores the checksums of some files of a chunk, and which runs may be marked as finished."""
        file = self._sums_file(region)
        sums = {name: checksums.end_of(self.file(name, region).read_bytes()) for name in names}
        content = json.dumps({"of": file.name, "sums": sums, "done": done.astype(int).ravel().tolist()}).encode()
        files.write_bytes(file, checksums.with_sum(content))

    def unmark(self, region: Region) -> None:
        """Marks all runs of a chunk as unfinished."""
        self._zarr[DONE][region] = 0
        files.sync(self.file(DONE, region))

    def write(
        self, region: Region, runs: np.ndarray, values: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray] = {}
    ) -> None:
        """Writes results of some runs of a chunk; marks them as finished once everything is on disk.

        Args:
            region: the chunk.
            runs: bool in the shape of the region, the runs to write; the results of other finished runs stay.
            values: results of each variable, by name; the first axis runs over these runs in C order.
            own: coordinate values of the dimensions within a run, by name, for those of which `values` has only a
                part of the store's.

        Raises:
            OSError: the disk is full or unavailable; the runs stay unfinished.
        """
        done = self.marks(region) == 1
        if (done & ~runs).any():
            # Finished runs stay valid if this process is interrupted when only some files are new.
            self._note_sums(region, done, ())
        within = self.layout.within()
        place = {dim: places(own.get(dim, all_).tolist(), all_.tolist()) for dim, all_ in within.items()}
        for name, rows in values.items():
            dims, kind, _ = self.layout.variables[name]
            inner = dims[len(self.layout.dims) :]
            if (done & ~runs).any():
                whole = self.read(name, region)
            else:
                whole = np.full((*runs.shape, *(len(within[dim]) for dim in inner)), fill_value(kind), kind)
            full = np.full((len(rows), *whole.shape[runs.ndim :]), fill_value(kind), kind)
            full[np.ix_(np.arange(len(rows)), *(place[dim] for dim in inner))] = rows
            whole[runs] = full
            self._zarr[name][region] = whole
        self._sync([self.file(name, region) for name in values])
        self._note_sums(region, done | runs, values)
        # The marks come last, so that marked results are on disk even after a power failure.
        self._zarr[DONE][region] = (done | runs).astype(np.int8)
        files.sync(self.file(DONE, region))


@dataclass(frozen=True)
class Sums:
    """What is recorded of a chunk's files: the checksum of each variable's file, and which runs may be marked."""

    sums: dict[str, str]
    done: np.ndarray

    def allow(self, marks: np.ndarray) -> bool:
        """Whether marks agree with the record; after an interruption, some may not be set yet."""
        found = marks.ravel()
        return found.size == self.done.size and bool(((found == 0) | (found == self.done)).all())


def _sums_file(path: Path, marks: Path) -> Path:
    return path / SUMS / marks.name


def _sums(file: Path) -> Sums | None:
    """Reads what is recorded of a chunk's files; None if the record is missing or damaged."""
    try:
        content = file.read_bytes()
        if not checksums.is_sound_content(content):
            return None
        found = json.loads(content[:-4])
        if found["of"] != file.name:
            return None
        return Sums(dict(found["sums"]), np.array(found["done"], np.int8))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def holds(there: Layout, wanted: Layout) -> bool:
    """Whether one layout contains another.

    Args:
        there: layout of a store.
        wanted: requested layout.

    Returns:
        True if `there` has each run of `wanted`, and each of its coordinate values within a run.
    """
    dims = [*there.dims, *wanted.within()]
    return all((places(labels(wanted.coordinates, dim), labels(there.coordinates, dim)) >= 0).all() for dim in dims)


def grow(store: Store, layout: Layout) -> None:
    """Replaces a store by a larger one that takes over all finished runs.

    The old store is kept until the new one is complete; `recover` finishes an interrupted replacement.

    Args:
        store: the old store; no other process may work on it, and all its files must be sound.
        layout: the larger layout; see `layout.merged`.

    Raises:
        OSError: the disk is full or unavailable; the old store is unchanged.
    """
    grown = _beside(store.path, "grown")
    with files.replacing(grown) as folder:
        _make(layout, folder)
        new = Store(folder, layout)
        for region in layout.regions():
            _take_over(store, new, region)
    os.rename(store.path, _beside(store.path, "before"))
    os.rename(grown, store.path)
    recover(store.path)


def _take_over(old: Store, new: Store, region: Region) -> None:
    """Copies the finished runs of a chunk; positions of the old store come first in the new store."""
    lengths = old.layout.dims.values()
    part = tuple(slice(one.start, min(one.stop, length)) for one, length in zip(region, lengths, strict=True))
    if any(one.start >= one.stop for one in part):
        return
    done = old.read(DONE, part) == 1
    if not done.any():
        return
    within, is_same = old.layout.within(), old.layout.chunk == new.layout.chunk and part == region
    if is_same and all(np.array_equal(within[dim], values) for dim, values in new.layout.within().items()):
        for name in (*new.layout.variables, DONE):
            _link(old.file(name, region), new.file(name, region))
        new._note_sums(region, done, new.layout.variables)
        return
    runs = np.zeros(tuple(one.stop - one.start for one in region), bool)
    runs[tuple(slice(0, length) for length in done.shape)] = done
    new.write(region, runs, {name: old.read(name, part)[done] for name in old.layout.variables}, within)


def _link(old: Path, new: Path) -> None:
    """Links a file, which is never modified in place; copies it if the file system has no hard links."""
    new.unlink(missing_ok=True)
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.name}.d2djax-{what}")


def recover(path: Path) -> None:
    """Finishes or discards a `grow` that was interrupted.

    Args:
        path: the store's folder; no other process may work on it.
    """
    grown, before = _beside(path, "grown"), _beside(path, "before")
    if not path.exists() and grown.exists():
        os.rename(grown, path)
    if grown.exists():
        shutil.rmtree(grown)
    if path.exists() and before.exists():
        names = [file.parent.name for file in before.glob("*/zarr.json")]
        for file in before.rglob("*"):
            name = file.relative_to(before)
            if not file.is_dir() and not _is_own(name, names):
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                os.rename(file, path / name)
        shutil.rmtree(before)


def _is_own(name: Path, arrays: list[str]) -> bool:
    """Whether zarr or this module wrote a file in a store, judging by its relative path."""
    text = name.as_posix()
    first, _, rest = text.partition("/")
    partial = r"(\.[0-9a-f]{32}\.partial)?"
    return (
        re.fullmatch(rf"zarr\.json{partial}", text) is not None
        or text.startswith((f"{COPIES}/", f"{SUMS}/"))
        or (first in arrays and re.fullmatch(rf"(c([./]\d+)*|zarr\.json){partial}", rest) is not None)
    )


def clean(path: Path) -> None:
    """Removes partial files of interrupted writes; leaves all files that d2djax did not write.

    Args:
        path: the store's folder; no other process may work on it.
    """
    for one in path.parent.iterdir():
        is_own = re.fullmatch(rf"{re.escape(path.name)}(\.d2djax-grown)?\.[a-z0-9_]{{8}}\.partial", one.name)
        # With any other entry, the folder is not ours or holds the last version of something.
        if is_own and one.is_dir() and {entry.name for entry in one.iterdir()} <= {"new"}:
            shutil.rmtree(one)
    names = [file.parent.name for file in path.glob("*/zarr.json")]
    for one in list(path.rglob("*.partial")):
        name = one.relative_to(path)
        if not one.is_dir():
            if _is_own(name, names):
                one.unlink(missing_ok=True)
        elif {entry.name for entry in one.iterdir()} <= {"new"}:
            whole = Path(re.sub(r"\.[a-z0-9_]{8}\.partial$", "", name.as_posix()))
            if whole != name and _is_own(whole, names):
                shutil.rmtree(one)


def check(path: Path) -> bool:
    """Checks all files of a store; of a sweep, the files of finished runs.

    Args:
        path: a store of `run`, `sweep` or `search`.

    Returns:
        False for a store written before d2djax had checksums: it can be read, but damage may go unnoticed.

    Raises:
        ValueError: a file is missing or damaged; one line names it.
    """
    content = checksums.content_of(path / "zarr.json")
    if content is None or not checksums.is_sealed(content):
        if content is not None and checksums.is_older(content):
            _check_older(path)
            return False
        raise ValueError(f"{checksums.fault(path / 'zarr.json')}, or not written by d2djax")
    root, wanted = checksums.metadata_files(path, content)
    arrays = _arrays(root)
    bad = [file for file, expected in wanted.items() if checksums.content_of(file) != expected]
    names = [name for name in arrays if not _is_sweep(arrays) or not _is_result(arrays, name)]
    sums = root["attributes"].get("sums", {})
    chunks = _chunks(path, arrays, names)
    bad += checksums.unsound({file: sums.get(file.relative_to(path).as_posix()) for file in chunks})
    if _is_sweep(arrays) and not bad:
        bad = _faults_of_done_runs(path, arrays)
    if bad:
        again = "rerun the sweep to" if _is_sweep(arrays) else "rerun the command, which recomputes all results, to"
        more = f" (and {len(bad) - 1} more files)" if len(bad) > 1 else ""
        raise ValueError(f"{checksums.fault(bad[0])}{more}; {again} repair it")
    return True


def _chunks(path: Path, arrays: Mapping[str, Any], names: list[str]) -> list[Path]:
    return [
        checksums.chunk_file(path, name, arrays[name], place)
        for name in names
        for place in checksums.places(arrays[name])
    ]


def _faults_of_done_runs(path: Path, arrays: Mapping[str, Any]) -> list[Path]:
    """Damaged files of a sweep's chunks with finished runs; another process may be writing meanwhile."""
    import zarr

    array, names = zarr.open_array(path / DONE, mode="r"), [name for name in arrays if _is_result(arrays, name)]
    bad, sums, outer = [], {}, len(array.shape)
    for place in checksums.places(arrays[DONE]):
        file = checksums.chunk_file(path, DONE, arrays[DONE], place)
        try:
            marks = np.asarray(array.get_block_selection(place))
        except ValueError:  # The file of another chunk, whose size differs, passes its own checksum.
            bad.append(file)
            continue
        if not marks.any():
            continue
        found = _sums(_sums_file(path, file))
        if found is None:
            bad.append(_sums_file(path, file))
        elif not found.allow(marks):
            bad.append(file)
        for name in names:
            chunk = [*place, *[0] * (len(arrays[name]["shape"]) - outer)]
            # Another process may be adding runs to this chunk; its checksums differ until they are marked.
            expected = found.sums.get(name) if found and marks.all() else None
            sums[checksums.chunk_file(path, name, arrays[name], chunk)] = expected
    return bad + checksums.unsound(sums)


def _check_older(path: Path) -> None:
    """Reads everything in a store written before d2djax had checksums."""
    import zarr

    try:
        for _, array in zarr.open_group(path, mode="r", use_consolidated=False).arrays():
            array[...]
    except Exception as error:  # Raised by any library involved.
        raise ValueError(f"{path}: damaged ({str(error).partition(chr(10))[0]})") from error
