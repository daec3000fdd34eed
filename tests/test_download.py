"""`d2djax.data.download`: from a server on this machine, whole files or a `DataError` that says what to do."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import socket
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from d2djax import data
from d2djax.data import SOURCES, DataError, idx
from d2djax.data.source import Download
from d2djax.settings import DownloadName

# Not `from d2djax.data import download`, which is the function.
MODULE = importlib.import_module("d2djax.data.download")
SHARED = Path(os.environ.get("D2DJAX_SHARED_DATA") or Path(__file__).parents[2] / "shared" / "data")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no shared data in {SHARED} (D2DJAX_SHARED_DATA)")
ARCHIVE = "cifar-10-binary.tar.gz"
CONTENT = bytes(range(256)) * 2000  # stands for the archive where nothing reads it


class Handler(BaseHTTPRequestHandler):
    """Sends `server.files`; `server.spoil` is how."""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.server.requests.append(name)
        content = self.server.files.get(name)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.spoil == "cut":
            content = content[: len(content) // 2]
        elif self.server.spoil == "change":
            content = content[:-1] + bytes([content[-1] ^ 1])
        elif self.server.spoil == "stall":
            self.wfile.write(content[:100])
            self.server.is_over.wait(20)
            return
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server that the table of addresses points to, and the only one that may be reached."""
    connect = socket.socket.connect

    def refuse(self, address):
        assert address[0] == "127.0.0.1", f"went online: {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(variable, "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as it:
        it.files, it.requests, it.spoil, it.is_over = {}, [], None, threading.Event()
        thread = threading.Thread(target=it.serve_forever, args=(0.01,))
        thread.start()
        yield it
        it.is_over.set()
        it.shutdown()
        thread.join()


def serve(server, monkeypatch, name, files):
    """Puts files on the server, and their addresses and hashes into the table; the names must be its own."""
    assert files.keys() == SOURCES[name].download.sha256.keys()
    server.files = files
    hashes = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
    address = f"http://127.0.0.1:{server.server_port}/files"
    serve_from(monkeypatch, name, address, hashes)
    return address


def serve_from(monkeypatch, name, address, hashes):
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], download=Download(address, hashes)))


def fails(data_dir, *words, name="cifar10"):
    """Checks that a download is refused in one line that holds all `words`, and leaves nothing behind."""
    before = contents(data_dir)
    with pytest.raises(DataError) as caught:
        data.download(name, data_dir)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert str(word) in message, message
    assert contents(data_dir) == before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def real_files(name, folder):
    """The official layouts, with fewer images."""
    if name == "fashion_mnist":
        return {f"{file}.gz": (SHARED / "fashion_mnist_idx_tiny" / f"{file}.gz").read_bytes() for file in idx.FILES}
    with tarfile.open(folder / "served.tar.gz", "w:gz") as archive:
        archive.add(SHARED / "cifar10" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    return {ARCHIVE: (folder / "served.tar.gz").read_bytes()}


@needs_shared
@pytest.mark.parametrize(
    ("name", "layout"), [("fashion_mnist", "fashion_mnist_idx_tiny"), ("cifar10", "cifar10/cifar-10-batches-bin")]
)
def test_downloaded_files_load(name, layout, server, monkeypatch, tmp_path, capfd):
    files = real_files(name, tmp_path)
    serve(server, monkeypatch, name, files)
    folder = data.download(name, str(tmp_path / "new" / "data"))
    assert folder == tmp_path / "new" / "data" / name
    assert contents(folder) == {folder / file: content for file, content in files.items()}
    loaded, expected = data.load(name, folder.parent), data.load(name, SHARED / layout)
    assert np.array_equal(loaded.x, expected.x) and np.array_equal(loaded.y, expected.y)
    assert sorted(server.requests) == sorted(files)
    assert data.download(name, folder.parent) == folder
    assert len(server.requests) == len(files), "nothing is fetched again"
    assert capfd.readouterr() == ("", "")


def test_only_what_is_damaged_is_fetched_again(server, monkeypatch, tmp_path):
    files = {f"{file}.gz": file.encode() * 1000 for file in idx.FILES}
    serve(server, monkeypatch, "fashion_mnist", files)
    folder = tmp_path / "fashion_mnist"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    damaged, missing = list(files)[1:3]
    (folder / damaged).write_bytes(files[damaged][:-1])
    (folder / missing).unlink()
    data.download("fashion_mnist", tmp_path)
    assert server.requests == [damaged, missing]
    assert contents(folder) == {folder / file: content for file, content in files.items()}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("change", ["sha256", hashlib.sha256(CONTENT).hexdigest()]),
        # Either the length is checked, or the hash is.
        ("cut", [""]),
        ("stall", ["timed out"]),
        ("404", ["404"]),
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_bad_answers(is_there, spoil, words, server, monkeypatch, tmp_path):
    address = serve(server, monkeypatch, "cifar10", {ARCHIVE: CONTENT})
    monkeypatch.setattr(MODULE, "_TIMEOUTS", (5, 0.2))
    server.spoil = spoil
    if spoil == "404":
        server.files = {}
    if is_there:
        (tmp_path / "cifar10").mkdir()
        (tmp_path / "cifar10" / ARCHIVE).write_bytes(b"damaged")
    fails(tmp_path, f"{address}/{ARCHIVE}: could", f"{tmp_path / 'cifar10'} (", f"put {ARCHIVE} there", *words)
    server.spoil, server.files = None, {ARCHIVE: CONTENT}
    data.download("cifar10", tmp_path)
    assert contents(tmp_path) == {tmp_path / "cifar10" / ARCHIVE: CONTENT}


def test_all_files_are_named_and_those_before_stay(server, monkeypatch, tmp_path):
    files = {f"{file}.gz": file.encode() for file in idx.FILES}
    serve(server, monkeypatch, "fashion_mnist", files)
    first, second = list(files)[:2]
    server.files = {first: files[first]}
    with pytest.raises(DataError, match=f"/{second}: .*404.*put {', '.join(files)} there"):
        data.download("fashion_mnist", tmp_path)
    assert contents(tmp_path) == {tmp_path / "fashion_mnist" / first: files[first]}


def test_unreachable(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, "cifar10", {ARCHIVE: CONTENT})
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    serve_from(monkeypatch, "cifar10", address, SOURCES["cifar10"].download.sha256)
    fails(tmp_path, address, tmp_path / "cifar10", ARCHIVE, "refused")

    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    try:
        raise KeyError("an earlier error")
    except KeyError:
        fails(tmp_path, address, "Name or service not known")


def test_folder_that_cannot_be_written(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, "cifar10", {ARCHIVE: CONTENT})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=f"{tmp_path / 'file' / 'cifar10'} .*put {ARCHIVE} there"):
        data.download("cifar10", tmp_path / "file")
    (tmp_path / "cifar10" / ARCHIVE).mkdir(parents=True)
    fails(tmp_path, "directory", ARCHIVE)
    assert not server.requests


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="this user may write anywhere")
def test_folder_without_permission(server, monkeypatch, tmp_path):
    serve(server, monkeypatch, "cifar10", {ARCHIVE: CONTENT})
    tmp_path.chmod(0o500)
    fails(tmp_path, "Permission denied", tmp_path / "cifar10", ARCHIVE)
    tmp_path.chmod(0o700)
    (tmp_path / "cifar10").mkdir(mode=0o500)
    fails(tmp_path, "Permission denied", tmp_path / "cifar10", ARCHIVE)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o755, 0o644), (0o700, 0o600), (0o2775, 0o664)])
def test_files_are_shared_as_their_folder_is(folder_mode, file_mode, server, monkeypatch, tmp_path):
    serve(server, monkeypatch, "cifar10", {ARCHIVE: CONTENT})
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10").chmod(folder_mode)
    path = data.download("cifar10", tmp_path) / ARCHIVE
    assert path.stat().st_mode & 0o777 == file_mode
    path.chmod(0o400)
    data.download("cifar10", tmp_path)
    assert path.stat().st_mode & 0o777 == 0o400, "a file that is kept is left alone"


def test_progress_bar(server, monkeypatch, tmp_path, capfd):
    files = {f"{file}.gz": CONTENT for file in idx.FILES}
    serve(server, monkeypatch, "fashion_mnist", files)
    data.download("fashion_mnist", tmp_path, progressbar=True)
    out, err = capfd.readouterr()
    assert out == "" and all(file in err for file in files) and "512.0/512.0 kB" in err
    data.download("fashion_mnist", tmp_path, progressbar=True)
    assert capfd.readouterr() == ("", "")


def test_names(tmp_path):
    fails(tmp_path, "fashion_mnist, cifar10", "'mnist'", name="mnist")
    fails(tmp_path, "in process", "RML2016.10a_dict.pkl", "by hand", tmp_path / "radioml", name="radioml")


def test_real_table_is_that_of_tensorflow_datasets():
    package = importlib.util.find_spec("tensorflow_datasets")  # not imported: that takes seconds
    if package is None:
        pytest.skip("tensorflow-datasets is not installed")
    folder = Path(package.submodule_search_locations[0]) / "url_checksums"
    official = {source.name: source.download for source in SOURCES.values() if source.download}
    assert tuple(official) == get_args(DownloadName)
    for name, given in official.items():
        rows = [line.split("\t") for line in (folder / f"{name}.txt").read_text().splitlines()]
        assert {row[0]: row[2] for row in rows} == {
            f"{given.address}/{file}": one for file, one in given.sha256.items()
        }
