import errno
import json
import math
import os
import threading
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xarray

from d2djax import results, store


def make_layout(chunk=(2, 3), manifest=None):
    return store.Layout(
        dims={"gamma": 3, "run": 5},
        chunk=chunk,
        coordinates={
            "gamma": ("gamma", np.array([0, 0.5, 1]), {}),
            "run": ("run", np.arange(5), {"long_name": "seed"}),
            "policy": ("policy", np.array(["none", "rl"], object), {}),
        },
        variables={
            "loss": (("gamma", "run", "policy"), np.dtype(np.float32), {"units": "nat"}),
            "moved": (("gamma", "run"), np.dtype(np.int64), {"units": "point"}),
        },
        attributes={"manifest": json.dumps({"config": {"gamma": 1}} if manifest is None else manifest)},
    )


def values_at(region):
    lengths = [part.stop - part.start for part in region]
    rng = np.random.default_rng([part.start for part in region])
    loss = rng.normal(size=(*lengths, 2)).astype(np.float32)
    return {"loss": loss, "moved": rng.integers(0, 2**40, lengths)}


# --- chunks ---


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 24, 100, 10_000])
@pytest.mark.parametrize("lengths", [(5,), (1, 1), (4, 1000), (3, 2, 7), (40, 3), (1, 6, 1, 2)])
def test_chunks_cover_every_run_once_and_are_no_longer_than_asked(lengths, most):
    dims = dict(zip("abcdefg", lengths, strict=False))
    chunk = store.chunk_lengths(dims, most)
    assert all(1 <= one <= length for one, length in zip(chunk, lengths, strict=True))
    assert math.prod(chunk) <= most
    layout = store.Layout(dims, chunk, {}, {}, {})
    seen = np.zeros(lengths, int)
    for region in layout.regions():
        seen[region] += 1
        # Zarr's chunks, so that two processes never write to one file.
        assert all(part.start % step == 0 for part, step in zip(region, chunk, strict=True))
    assert (seen == 1).all()
    if most >= math.prod(lengths):
        assert chunk == lengths


def test_the_seeds_are_cut_first():
    assert store.chunk_lengths({"a": 4, "b": 3, "run": 1000}, 36) == (4, 3, 3)
    assert store.chunk_lengths({"a": 4, "b": 3, "run": 1000}, 6) == (4, 1, 1)


# --- a store ---


def test_an_empty_store_has_everything_but_results(tmp_path):
    path = tmp_path / "deep" / "results.zarr"
    store.create(make_layout(), path)
    found = results.read(path).load()
    assert dict(found.sizes) == {"gamma": 3, "run": 5, "policy": 2}
    assert found["policy"].values.tolist() == ["none", "rl"]
    assert np.isnan(found["loss"]).all() and (found["moved"] == -1).all() and (found["done"] == 0).all()
    assert found["loss"].dtype == np.float32 and found["moved"].dtype == np.int64
    assert found["loss"].attrs["units"] == "nat" and found["run"].attrs["long_name"] == "seed"
    assert [entry.name for entry in path.parent.iterdir()] == ["results.zarr"]
    chunk, done = store.progress_of(path)
    assert (chunk, done.shape, done.sum()) == ((2, 3), (3, 5), 0)


@pytest.mark.parametrize("chunk", [(2, 3), (1, 1), (3, 5)])
def test_what_is_written_is_read(tmp_path, chunk):
    layout, path = make_layout(chunk), tmp_path / "results.zarr"
    store.create(layout, path)
    expected = {"loss": np.full((3, 5, 2), np.nan, np.float32), "moved": np.full((3, 5), -1)}
    done = np.zeros((3, 5))
    for region in layout.regions():
        values = values_at(region)
        store.write(path, region, values)
        done[region] = 1
        for name, array in values.items():
            expected[name][region] = array
        found = results.read(path)
        for name, array in (expected | {"done": done}).items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert store.progress_of(path)[1].all()


@pytest.mark.parametrize("name", ["loss", "moved", "done"])
def test_a_full_disk_is_an_error_and_the_chunk_is_not_done(tmp_path, monkeypatch, name):
    layout, path = make_layout(), tmp_path / "results.zarr"
    store.create(layout, path)
    first, second = layout.regions()[:2]
    store.write(path, first, values_at(first))
    opened = Path.open

    def full(file, *arguments, **options):
        if "partial" in file.name and f"/{name}/" in str(file):
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(file, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OSError, match="No space left"):
            store.write(path, second, values_at(second))
    done = store.progress_of(path)[1]
    assert done[first].all() and done.sum() == done[first].size
    np.testing.assert_array_equal(results.read(path)["loss"][first], values_at(first)["loss"])
    store.write(path, second, values_at(second))
    assert store.progress_of(path)[1][second].all()


def test_of_two_that_lay_out_one_wins(tmp_path):
    path, failures = tmp_path / "results.zarr", []

    def one(number):
        try:
            store.create(make_layout(manifest={"number": number}), path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures
    assert json.loads(results.read(path).attrs["manifest"])["number"] in range(4)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.zarr"]


def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        store.create(make_layout(), tmp_path / "results.zarr")
    assert not list(tmp_path.iterdir())


def test_clean_removes_what_a_stopped_process_left(tmp_path):
    path = tmp_path / "results.zarr"
    store.create(make_layout(), path)
    before = sorted(path.rglob("*"))
    (path / "loss" / "c" / "0").mkdir(parents=True)
    (path / "loss" / "c" / "0" / "0.1f3a.partial").write_bytes(b"half")
    (tmp_path / "results.zarr.abc.partial" / "store").mkdir(parents=True)
    (tmp_path / "other.partial").write_text("of somebody else")
    store.clean(path)
    assert [entry for entry in sorted(path.rglob("*")) if entry.is_file()] == [e for e in before if e.is_file()]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other.partial", "results.zarr"]


# --- whose it is ---


@pytest.mark.parametrize(
    "found, wanted, text",
    [
        ({"config": {"rate": 1}}, {"config": {"rate": 1}}, ""),
        ({"config": {"rate": 1}}, {"config": {"rate": 2}}, "config.rate: 1 there, 2 now"),
        (
            {"axes": {"rate": [1]}},
            {"axes": {"gamma": [1]}},
            "axes.rate: [1] there, nothing now; axes.gamma: nothing there, [1] now",
        ),
        (
            {"seeds": [0, 1], "training": True},
            {"seeds": [0], "training": False},
            "seeds: 1 only there; training: true there, false now",
        ),
        ({"axes": {}}, {"axes": []}, "axes"),
        ([1], {"axes": {}}, "not a sweep"),
    ],
)
def test_differences_are_named(tmp_path, found, wanted, text):
    path = tmp_path / "results.zarr"
    store.create(make_layout(manifest=found), path)
    if not text:
        return store.check_same(path, wanted)
    with pytest.raises(ValueError) as caught:
        store.check_same(path, wanted)
    assert str(path) in str(caught.value) and text in str(caught.value) and "\n" not in str(caught.value)


def other_folders(path):
    """Ways in which something else may stand where results should go."""

    def array():
        xarray.Dataset({"x": ("x", np.arange(3))}).to_zarr(path, zarr_format=3, consolidated=False)

    def files():
        path.mkdir()
        (path / "mine.partial").write_text("mine")

    return {
        "empty": path.mkdir,
        "files": files,
        "file": lambda: path.write_text("text"),
        "another zarr store": array,
        "broken": lambda: (path.mkdir(), (path / "zarr.json").write_text("{")),
    }


@pytest.mark.parametrize("kind", list(other_folders(Path())))
def test_something_else_is_refused_and_stays(tmp_path, kind):
    path = tmp_path / "results.zarr"
    other_folders(path)[kind]()
    before = {entry: entry.read_bytes() for entry in tmp_path.rglob("*") if entry.is_file()}
    with pytest.raises(ValueError, match=r"results\.zarr: there is something here that is not a sweep"):
        store.check_same(path, {})
    assert before == {entry: entry.read_bytes() for entry in tmp_path.rglob("*") if entry.is_file()}


def test_kinds_of_what_is_missing():
    kinds = list(product((np.float32, np.float64), [np.nan])) + list(product((np.int8, np.int32, np.int64), [-1]))
    for kind, expected in kinds:
        np.testing.assert_equal(store.fill_value(np.dtype(kind)), expected)
