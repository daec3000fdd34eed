"""Downloads the official files of the image data sets on request, atomically and checked by SHA-256."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from d2djax.data.built_in import SOURCES
from d2djax.data.types import DataError

# Seconds to wait for a connection to one address, and for the next bytes.
_TIMEOUTS = (10.0, 30.0)
_CHUNK = 1 << 16


class _Bar:
    """A progress bar with the interface that pooch expects of tqdm; rich draws it until `stack` is closed."""

    def __init__(self, name: str, stack: contextlib.ExitStack) -> None:
        self._name, self._stack = name, stack
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        text = TextColumn("{task.description:<26}")
        self._progress = Progress(text, *columns, console=Console(stderr=True))

    def _show(self, total: int) -> None:
        self._stack.enter_context(self._progress)
        self._task = self._progress.add_task(self._name, total=total or None)

    total = property(None, _show)

    def update(self, size: int) -> None:
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps pooch from logging its progress to standard error."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(level)


def _share(path: str, action: str, _: object) -> str:
    """Gives a new file its folder's permissions, since pooch's temporary file is private to its owner."""
    if action != "fetch":
        # Some file systems have no permissions to set.
        with contextlib.suppress(OSError):
            os.chmod(path, os.stat(os.path.dirname(path)).st_mode & 0o666)
    return path


def _fetch(url: str, sha256: str, folder: Path, progressbar: bool) -> None:
    """Downloads one file into `folder` unless it exists already; raises OSError or ValueError."""
    import pooch

    name = url.rsplit("/", 1)[1]
    with contextlib.ExitStack() as stack:
        # pooch 1.9 accepts any bar and its own downloaders, but its annotations do not say so.
        bar: Any = _Bar(name, stack) if progressbar else False

        def close_later(response: Any, **_: object) -> None:
            # pooch does not close a failed response.
            stack.callback(response.close)

        downloader: Any = pooch.HTTPDownloader(
            progressbar=bar,
            chunk_size=_CHUNK,
            timeout=_TIMEOUTS,
            # The hash is of the stored file, so the server must not compress it for transfer.
            headers={"Accept-Encoding": "identity"},
            hooks={"response": close_later},
        )
        pooch.retrieve(url, f"sha256:{sha256}", fname=name, path=folder, processor=_share, downloader=downloader)


def _reason(error: BaseException, outer: BaseException | None) -> str:
    """Kind of `error`, and the message of its innermost cause: errors in between repeat long addresses."""
    kind = type(error).__name__
    while (inner := error.__cause__ or error.__context__) not in (None, outer):
        error = inner
    return " ".join(f"{kind}: {error}".split())


def download(name: str, data_dir: str | os.PathLike[str], *, progressbar: bool = False) -> Path:
    """Downloads the official files of an image data set to `data_dir/<name>`, where `load` reads them.

    A file with the right SHA-256 is kept; any other is replaced. A file gets its name only once it is complete and
    verified.

    Args:
        name: a built-in data set with official files: "fashion_mnist" or "cifar10".
        data_dir: folder for data sets; it is created if it is missing.
        progressbar: show size, speed and time left on standard error; otherwise nothing is printed.

    Returns:
        The folder of the files.

    Raises:
        DataError: the name is another, or a file could not be fetched or written or has another SHA-256; one line
            with the address, the reason, and which files to put where by hand.
    """
    source = SOURCES.get(name)
    if source is None:
        known = [one.name for one in SOURCES.values() if one.download]
        raise DataError(f"expected a data set among {', '.join(known)}; got {name!r}")
    folder = Path(data_dir).expanduser() / name
    if source.download is None:
        raise DataError(f"{name} {source.by_hand} into {folder}")
    address, files = source.download.address, source.download.sha256
    outer = sys.exception()
    with _silence():
        for file, sha256 in files.items():
            url = f"{address}/{file}"
            try:
                _fetch(url, sha256, folder, progressbar)
            except (OSError, ValueError) as error:
                raise DataError(
                    f"{url}: could not be downloaded to {folder} ({_reason(error, outer)}); "
                    f"for offline use put {', '.join(files)} there by hand"
                ) from error
    return folder
