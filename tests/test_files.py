import errno
import json
import os
from pathlib import Path

import pytest

from d2djax.storage import files


def contents(folder):
    """Everything in a folder: text of files, targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.is_file() and path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


# --- paths ---


def test_a_path_is_written_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for given, expected in {
        "~/x": "x",
        "x": "x",
        "~": "",
        ".": "",
        "real/..": "",
        "real/../x": "x",
        "link/x": "real/x",
        "link": "link",
    }.items():
        assert files.expand(given) == tmp_path / expected, given


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "a\0b/c", "round/x"])
def test_a_path_that_is_none(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ValueError, match=r"^--out '.*': ") as caught:
        files.check_folder(path, "--out")
    assert "\n" not in str(caught.value)


def test_a_folder_is_checked_and_not_made(tmp_path):
    assert files.check_folder(tmp_path / "deep" / "out") == tmp_path / "deep" / "out"
    (tmp_path / "link").symlink_to(tmp_path)
    # Folders for results are often links to a larger disk.
    assert files.check_folder(tmp_path / "link") == tmp_path
    assert contents(tmp_path) == {"link": str(tmp_path)}


def places(folder):
    """Paths at which no folder can be made, with the words that say why."""
    (folder / "file").write_text("mine")
    (folder / "dangling").symlink_to(folder / "nowhere")
    return {
        folder / "file": "found a file",
        folder / "file" / "out": "found a file at",
        folder / "dangling": "found a broken link",
        Path("/dev/null"): "found a device",
        Path("/dev/null/out"): "found a device or a pipe at /dev/null",
        Path("/proc/out"): "No such file or directory",
        folder / ("x" * 300): "File name too long",
    }


def test_no_place_for_a_folder(tmp_path):
    for path, words in places(tmp_path).items():
        with pytest.raises(ValueError) as caught:
            files.check_folder(path, "--out")
        message = str(caught.value)
        assert message.startswith(f"--out {path}: ") and words in message and "\n" not in message


def test_a_folder_on_a_full_disk(tmp_path, monkeypatch):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    with pytest.raises(ValueError, match=r"^out .*: No space left on device$"):
        files.check_folder(tmp_path)


def test_no_place_for_a_file(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "page")
    (tmp_path / "page").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    assert files.check_file(tmp_path / "page") == tmp_path / "page"
    for path in (tmp_path, tmp_path / "link", tmp_path / "pipe", Path("/dev/null"), tmp_path / "page" / "x"):
        with pytest.raises(ValueError, match=r"expected a f\w+; found a") as caught:
            files.check_file(path, "--out")
        assert str(path) in str(caught.value)
    assert (tmp_path / "page").read_text() == "mine"


# --- writing ---


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, renamed = [], []
    fsync, replace = os.fsync, os.replace

    def sync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def rename(source, target):
        renamed.append(len(synced))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    with files.replacing(tmp_path / "store") as new:
        (new / "deep").mkdir(parents=True)
        (new / "deep" / "a").write_text("a")
    names = [Path(path).name for path in synced]
    assert names[:3] == ["a", "deep", "new"] and renamed == [3]
    assert Path(synced[-1]) == tmp_path and len(synced) == 4
    files.write_text(tmp_path / "text", "ä")
    assert (tmp_path / "text").read_bytes() == "ä".encode()
    assert [Path(path).name for path in synced[4:]] == ["new", tmp_path.name]


def test_files_are_as_readable_as_any_other(tmp_path):
    files.write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def half_written(new):
    new.mkdir()
    (new / "half").write_text("half")


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_an_earlier_folder_stands_if_writing_fails(tmp_path, monkeypatch, error, fails):
    path = tmp_path / "results"
    path.mkdir()
    (path / "whole").write_text("whole")
    before, replace = contents(tmp_path), os.replace

    def fail(*arguments):
        # The earlier folder can be moved and put back; the new one cannot be moved.
        if fails == "replace" and Path(arguments[0]).name != "new":
            return replace(*arguments)
        raise error("disk full")

    with monkeypatch.context() as patch:
        if fails != "write":
            patch.setattr(os, fails, fail)
        with pytest.raises(error, match="disk full"), files.replacing(path) as new:
            half_written(new)
            if fails == "write":
                fail()
    assert contents(tmp_path) == before


def test_an_earlier_folder_that_cannot_be_put_back_is_kept(tmp_path, monkeypatch):
    path, replace, moved = tmp_path / "results", os.replace, []
    path.mkdir()
    (path / "whole").write_text("whole")

    def once(source, target):
        if moved:
            raise OSError("gone")
        moved.append(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(OSError, match="gone"), files.replacing(path) as new:
        half_written(new)
    assert "whole" in [Path(name).name for name in contents(tmp_path)]


def test_one_sort_does_not_replace_another(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = contents(tmp_path)
    for name in ("folder", "link"):
        with pytest.raises(ValueError, match="which is not replaced"):
            files.write_text(tmp_path / name, "x")
    for name in ("file", "link"):
        with pytest.raises(ValueError, match="which is not replaced"), files.replacing(tmp_path / name) as new:
            half_written(new)
    assert contents(tmp_path) == before


def test_a_folder_that_another_process_made_is_kept(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "theirs").write_text("theirs")
    with files.replacing(tmp_path / "store", keep=True) as new:
        half_written(new)
    assert contents(tmp_path) == {"store": False, "store/theirs": b"theirs"}


# --- what a folder holds ---


def make(folder, kind):
    """A folder as each command leaves it, as far as its kind goes."""
    store = folder / "results.zarr"
    names = {"run": ["status"], "sweep": ["status", "done"], "search": ["trial", "is_best"], "saved": []}
    if kind in names:
        for name in names[kind]:
            (store / name).mkdir(parents=True)
        store.mkdir(parents=True, exist_ok=True)
        about = {} if kind in ("search", "saved") else {"manifest": "{}"}
        (store / "zarr.json").write_text(json.dumps({"attributes": about}))
    if kind in ("search", "stopped search"):
        folder.mkdir(exist_ok=True)
        (folder / "journal.log").write_text('{"op_code": 0}\n')
    if kind == "log of somebody":
        folder.mkdir()
        (folder / "journal.log").write_text("dear diary\n")
    if kind == "figures":
        make(folder / "toy" / "radioml", "sweep")
        (folder / "toy" / "2a.png").write_bytes(b"")
    if kind == "damaged":
        (store / "status").mkdir(parents=True)
        (store / "zarr.json").write_text("{")
    if kind == "photographs":
        folder.mkdir()
        (folder / "cat.png").write_bytes(b"")
    if kind in ("empty", "left"):
        folder.mkdir()
    if kind == "left":
        (folder / "results.zarr.a1b2.partial").mkdir()


@pytest.mark.parametrize(
    "made, found",
    [
        ("absent", "nothing"),
        ("empty", "nothing"),
        ("left", "nothing"),
        ("run", "run"),
        ("sweep", "sweep"),
        ("search", "search"),
        ("stopped search", "search"),
        ("figures", "figures"),
        ("saved", "something else"),
        ("damaged", "run"),
        ("log of somebody", "something else"),
        ("photographs", "something else"),
    ],
)
def test_kind_of_folder(tmp_path, made, found):
    make(tmp_path / "out", made)
    assert files.kind_of(tmp_path / "out") == found
    if made in ("run", "sweep", "search"):
        assert files.kind_of(tmp_path / "out" / "results.zarr") == found


def test_a_file_is_no_folder_of_results(tmp_path):
    (tmp_path / "file").write_text("")
    assert files.kind_of(tmp_path / "file") == "something else"


@pytest.mark.parametrize("kind", ["run", "sweep", "search", "figures"])
def test_results_of_another_command_are_not_written_over(tmp_path, kind):
    make(tmp_path, kind)
    before = contents(tmp_path)
    for other in ("run", "sweep", "search", "figures"):
        if other == kind:
            assert files.check_own(tmp_path, other, ["results.zarr", "new.png"])
        else:
            with pytest.raises(ValueError, match=rf"the results of .*{kind}.* are here; choose another folder"):
                files.check_own(tmp_path, other, ["results.zarr"])
    assert contents(tmp_path) == before


def test_files_of_others_are_not_written_over(tmp_path):
    make(tmp_path / "out", "photographs")
    assert not files.check_own(tmp_path / "out", "run", ["dog.png"])
    with pytest.raises(ValueError, match=r"cat\.png: a file is here that a run did not write"):
        files.check_own(tmp_path / "out", "run", ["dog.png", "cat.png"])
    make(tmp_path / "run", "run")
    (tmp_path / "run" / "graph.png").symlink_to(tmp_path / "out" / "cat.png")
    with pytest.raises(ValueError, match=r"graph\.png: a link is here"):
        files.check_own(tmp_path / "run", "run", ["graph.png"])


def test_waiting_for_a_folder_waits_for_no_file_in_it(tmp_path):
    # What another process has half-written may be renamed between listing and opening: like a link to nothing.
    (tmp_path / "c.0.partial").symlink_to(tmp_path / "gone")
    files.sync_one(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.sync(tmp_path)
