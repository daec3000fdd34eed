"""Files on disk: one rule for paths, atomic writes, and which kind of result a folder holds."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

# What commands name their results in the output folder.
STORE, JOURNAL = "results.zarr", "journal.log"
Place = str | os.PathLike[str]
Kind = Literal["nothing", "run", "sweep", "search", "figures", "something else"]


def expand(path: Place, name: str = "out") -> Path:
    """The absolute path, with `~` and links in its parents resolved; a link as the last component stays a link.

    Args:
        path: as a user gives it.
        name: of the argument, for the message.

    Raises:
        ValueError: it is empty or no path, has a null byte or circular links, or names an unknown home folder.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"{name} must be a path; got {path!r:.60}")
    try:
        place = Path(path).expanduser()
        # `resolve` would follow a link as the last component too, and hide that it is one.
        return place.resolve() if place.name in ("", "..") else place.parent.resolve() / place.name
    except (RuntimeError, OSError, ValueError) as error:
        raise ValueError(f"{name} {str(path)!r}: {reason(error)}") from error


def cache_folder() -> Path | None:
    """`$XDG_CACHE_HOME/d2djax`, or `~/.cache/d2djax`, for files that can be recreated; None if `D2DJAX_CACHE=0`."""
    if os.environ.get("D2DJAX_CACHE") == "0":
        return None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "d2djax"


def check_folder(path: Place, name: str = "out") -> Path:
    """Checks, before any work is done, that files can be written to a folder; does not create it.

    Args:
        path: the folder, or a link to it.
        name: of the argument, for the message.

    Returns:
        The absolute path of the folder, with all links resolved.

    Raises:
        ValueError: the path exists but is no folder, or it cannot be written to.
    """
    place = expand(path, name)
    with _named(f"{name} {path}"):
        if place.is_symlink() and not place.exists():
            raise ValueError(f"{name} {path}: expected a folder; found a broken link")
        place = place.resolve()
        _check_writable(place, f"{name} {path}")
    return place


def check_file(path: Place, name: str = "out") -> Path:
    """Checks, before any work is done, that a file can be created or replaced; does not write it.

    Args:
        path: the file.
        name: of the argument, for the message.

    Returns:
        The absolute path of the file.

    Raises:
        ValueError: the path is a folder, a device or a link, which are never replaced, or it cannot be written.
    """
    place = expand(path, name)
    with _named(f"{name} {path}"):
        if _what(place) not in ("nothing", "a file"):
            raise ValueError(f"{name} {path}: expected a file; found {_what(place)}, which is not replaced")
        _check_writable(place.parent, f"{name} {path}")
    return place


def _check_writable(folder: Path, given: str) -> None:
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    if not nearest.is_dir():
        raise ValueError(f"{given}: expected a folder; found {_what(nearest)} at {nearest}")
    with tempfile.TemporaryFile(dir=nearest) as file:
        # A full disk still accepts an empty file.
        file.write(bytes(4096))


def _what(path: Path) -> str:
    """Names the kind of file at a path, in words for a message."""
    if path.is_symlink():
        return "a link"
    if not path.exists():
        return "nothing"
    return "a file" if path.is_file() else "a folder" if path.is_dir() else "a device or a pipe"


def reason(error: BaseException) -> str:
    """The reason of an error for a message: the operating system's text, or the message of the error."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Turns an OSError into a one-line ValueError that names what the user gave."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{place}: {reason(error)}") from error


@contextmanager
def replacing(path: Path, *, keep: bool = False) -> Iterator[Path]:
    """Creates or replaces a file or a folder atomically: yields a temporary path, then renames it to `path`.

    The content is flushed to disk before the rename. If anything fails, an earlier file or folder is unchanged.

    Args:
        path: the destination; a file replaces only a file, and a folder only a folder.
        keep: keep a folder that another process created first, and discard the new one.

    Yields:
        The temporary path, where the caller creates the file or the folder.

    Raises:
        OSError: it cannot be written.
        ValueError: a link, a device, or a file instead of a folder (or the reverse) is at `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{path.name[:100]}.", suffix=".partial", dir=path.parent))
    new, old = temporary / "new", temporary / "old"
    try:
        yield new
        sync(new)
        if keep:
            _rename_to_nothing(new, path)
        else:
            _replace(new, path, old)
        sync_one(path.parent)
    finally:
        # If the earlier version could not be restored, it is still in here.
        if path.exists() or not old.exists():
            shutil.rmtree(temporary, ignore_errors=True)


def _rename_to_nothing(new: Path, path: Path) -> None:
    try:
        os.rename(new, path)
    except OSError:
        if not path.is_dir():
            raise


def _replace(new: Path, path: Path, old: Path) -> None:
    found = _what(path)
    if found not in ("nothing", _what(new)):
        raise ValueError(f"{path}: expected {_what(new)}; found {found}, which is not replaced")
    if found == "a folder":
        os.replace(path, old)
    try:
        os.replace(new, path)
    except BaseException:
        if old.exists():
            os.replace(old, path)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text as UTF-8, atomically; see `replacing`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file atomically; see `replacing`."""
    with replacing(path) as new:
        new.write_bytes(content)


def sync(path: Path) -> None:
    """Flushes a file, or a folder with everything in it, to disk."""
    if path.is_dir():
        for folder, _, names in os.walk(path, topdown=False):
            for name in names:
                sync_one(Path(folder, name))
            sync_one(Path(folder))
    else:
        sync_one(path)


def sync_one(path: Path) -> None:
    """Flushes one file to disk, or the entries of a folder but not their contents."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems have no fsync for folders, and promise no durability.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def kind_of(path: Path) -> Kind:
    """Which command wrote a folder or a store; reads only small text files.

    Args:
        path: folder of a command, such as `results`, or its store, such as `results/results.zarr`.

    Returns:
        "nothing" if the path does not exist or is an empty folder, "something else" if d2djax did not write it.
    """
    if not path.is_dir():
        return "nothing" if _what(path) == "nothing" else "something else"
    # Partial files are left by a process that was interrupted while writing.
    if not [one for one in path.iterdir() if not one.name.endswith(".partial")]:
        return "nothing"
    if (path / JOURNAL).exists():
        return "search" if _is_journal(path / JOURNAL) else "something else"
    store = path / STORE if (path / STORE).exists() else path
    if store.suffix == ".zarr" or (store / "zarr.json").is_file():
        return _kind_of_store(store)
    sizes = [path, *(path / size for size in ("toy", "small", "paper"))]
    stores = [store for size in sizes for store in size.glob(f"*/{STORE}")]
    return "figures" if stores and all(_kind_of_store(one) == "sweep" for one in stores) else "something else"


def check_own(folder: Path, kind: Kind, names: Iterable[str], name: str = "out") -> bool:
    """Checks that a command would overwrite only results of the same command.

    Args:
        folder: see `check_folder`.
        kind: the kind of result that the command writes.
        names: of all files and folders that it writes.
        name: of the argument, for the message.

    Returns:
        True if the folder holds a result of this kind.

    Raises:
        ValueError: the folder holds results of another command, or files of these names that d2djax did not write.
    """
    found = kind_of(folder)
    if found not in ("nothing", kind, "something else"):
        raise ValueError(f"{name} {folder}: the results of {_WORDS[found]} are here; choose another folder")
    for one in (folder / each for each in names):
        if _what(one) not in ("nothing", "a file", "a folder") or (found != kind and _what(one) != "nothing"):
            raise ValueError(
                f"{one}: {_what(one)} is here that {_WORDS[kind]} did not write; choose another folder"
            )
    return found == kind


_WORDS = {"run": "a run", "sweep": "a sweep", "search": "a search", "figures": "figures"}


def _is_journal(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = file.readline(10_000)
        # Empty: a search that was interrupted before its first trial.
        return not first or "op_code" in json.loads(first)
    except (OSError, ValueError, TypeError):
        return False


def _kind_of_store(store: Path) -> Kind:
    # By its arrays first, since these identify a store with damaged metadata too.
    if (store / "status").is_dir():
        return "sweep" if (store / "done").is_dir() else "run"
    if (store / "trial").is_dir() and (store / "is_best").is_dir():
        return "search"
    try:
        # A selection of the results that a user saved with xarray.
        if "manifest" in json.loads((store / "zarr.json").read_text())["attributes"]:
            return "sweep" if (store / "done").is_dir() else "run"
        return "something else"
    except (OSError, ValueError, KeyError, TypeError):
        return "something else"


@contextmanager
def filling(folder: Path, old: Iterable[str] = ()) -> Iterator[Path]:
    """Adds files and folders to a folder: yields a temporary folder, then moves its entries to `folder`.

    All entries are flushed to disk before the first move. If the caller fails, `folder` is unchanged.

    Args:
        folder: see `check_folder`; it is created if it is missing.
        old: names of an earlier result's entries; those that are not replaced are removed.

    Yields:
        The temporary folder, where the caller creates the entries.

    Raises:
        OSError: an entry cannot be written.
        ValueError: an entry to replace or remove is a link or a device, or a file instead of a folder (or reverse).
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix="new.", suffix=".partial", dir=folder))
    try:
        yield temporary
        sync(temporary)
        made = [path.name for path in temporary.iterdir()]
        for name in {*old} - {*made}:
            _remove(folder / name)
        for name in made:
            with replacing(folder / name) as new:
                os.replace(temporary / name, new)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def _remove(path: Path) -> None:
    found = _what(path)
    if found == "a folder":
        shutil.rmtree(path)
    elif found == "a file":
        path.unlink()
    elif found != "nothing":
        raise ValueError(f"{path}: expected a file; found {found}, which is not removed")


def spare_folders(prefix: str) -> Iterator[Path]:
    """Creates fallback folders, on demand: in the temporary, the home and the working folder, if writable."""
    for base in dict.fromkeys((Path(tempfile.gettempdir()), Path.home(), Path.cwd())):
        try:
            yield Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        except OSError:
            continue
