import errno
import json
import math
import os
import random
import re
import shutil
import threading
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xarray

from d2djax.running import chunks, results, sweeps
from d2djax.storage import layout, locks, store

GAMMAS, SEEDS = [0.0, 0.5, 1.0], range(5)


def make_layout(gammas=GAMMAS, seeds=SEEDS, chunk=(2, 3), rounds=2, **about):
    """A sweep over gamma."""
    manifest = {"axes": {"gamma": list(gammas)}, "dimensions": {"gamma": len(gammas)}, "seeds": list(seeds)} | about
    return layout.Layout(
        dims={"gamma": len(gammas), "run": len(seeds)},
        chunk=tuple(min(pair) for pair in zip(chunk, (len(gammas), len(seeds)), strict=True)),
        coordinates={
            "gamma": ("gamma", np.array(gammas), {}),
            "run": ("run", np.array(seeds, np.int32), {"long_name": "seed"}),
            "policy": ("policy", np.array(["none", "rl"], object), {}),
            "round": ("round", np.arange(1, rounds + 1), {}),
        },
        variables={
            "loss": (("gamma", "run", "policy", "round"), np.dtype(np.float32), {"units": "nat"}),
            "moved": (("gamma", "run"), np.dtype(np.int64), {"units": "point"}),
        },
        attributes={"title": "d2djax sweep on numbers", "manifest": json.dumps(manifest)},
    )


def result(gamma, seed, rounds=2):
    """What a run has come to: it depends on its point and its seed alone."""
    rng = np.random.default_rng([int(1000 * gamma), seed])
    return {"moved": rng.integers(0, 2**40), "loss": rng.normal(size=(rounds, 2)).T.astype(np.float32)}


def fill(path, wanted, part=(0, 1), most=None, say=lambda line: None):
    """Computes what is missing, as `sweep` does: chunks that were computed, by the numbers of their runs."""
    computed = []
    runs = [pair for pair in product(wanted.coordinates["gamma"][1], wanted.coordinates["run"][1])]
    rounds = wanted.coordinates["round"][1]
    with locks.working(path.with_name(f"{path.name}.lock"), say) as held:
        left = chunks.prepare(path, wanted, part, held)
        while len(computed) != most and (row := left.take()).any():
            found = [result(*runs[number - 1], len(rounds)) for number in row[row > 0]]
            left.write({name: np.stack([one[name] for one in found]) for name in found[0]}, {"round": rounds})
            computed.append([runs[number - 1] for number in row[row > 0]])
    return computed


def check(found, gammas, seeds, rounds=2):
    """Checks that every run has its own results."""
    assert found["gamma"].values.tolist() == list(gammas) and found["run"].values.tolist() == list(seeds)
    assert found["loss"].dims == ("gamma", "run", "policy", "round")
    found = found.load()
    for gamma, seed in product(gammas, seeds):
        one, expected = found.sel(gamma=gamma, run=seed), result(gamma, seed, rounds)
        assert one["done"] == 1
        for name, values in expected.items():
            np.testing.assert_array_equal(one[name].values, values, err_msg=f"{name} at {gamma}, {seed}")


def laid_out(path):
    return store.Store(path, store.layout_of(path))


def files_of(folder):
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


# --- chunks ---


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 24, 100, 10_000])
@pytest.mark.parametrize("lengths", [(5,), (1, 1), (4, 1000), (3, 2, 7), (40, 3), (1, 6, 1, 2)])
def test_chunks_cover_every_run_once_and_are_no_longer_than_asked(lengths, most):
    dims = dict(zip("abcdefg", lengths, strict=False))
    chunk = layout.chunk_lengths(dims, most)
    assert all(1 <= one <= length for one, length in zip(chunk, lengths, strict=True))
    assert math.prod(chunk) <= most
    laid = layout.Layout(dims, chunk, {}, {}, {})
    seen = np.zeros(lengths, int)
    for region in laid.regions():
        seen[region] += 1
        # Zarr's chunks, so that two processes never write to one file.
        assert all(part.start % step == 0 for part, step in zip(region, chunk, strict=True))
    assert (seen == 1).all()
    if most >= math.prod(lengths):
        assert chunk == lengths


def test_the_seeds_are_cut_first():
    assert layout.chunk_lengths({"a": 4, "b": 3, "run": 1000}, 36) == (4, 3, 3)
    assert layout.chunk_lengths({"a": 4, "b": 3, "run": 1000}, 6) == (4, 1, 1)


# --- a store ---


def test_an_empty_store_has_everything_but_results(tmp_path):
    path = tmp_path / "deep" / "results.zarr"
    store.create(make_layout(), path)
    found = results.read(path).load()
    assert dict(found.sizes) == {"gamma": 3, "run": 5, "policy": 2, "round": 2}
    assert found["policy"].values.tolist() == ["none", "rl"]
    assert np.isnan(found["loss"]).all() and (found["moved"] == -1).all() and (found["done"] == 0).all()
    assert found["loss"].dtype == np.float32 and found["moved"].dtype == np.int64
    assert found["loss"].attrs["units"] == "nat" and found["run"].attrs["long_name"] == "seed"
    assert set(found.attrs) == {"title", "manifest"}
    assert [entry.name for entry in path.parent.iterdir()] == ["results.zarr"]


@pytest.mark.parametrize("chunk", [(2, 3), (1, 1), (3, 5)])
def test_what_is_written_is_read(tmp_path, chunk):
    path, wanted = tmp_path / "results.zarr", make_layout(chunk=chunk)
    number = len(wanted.regions())
    assert len(fill(path, wanted, most=1)) == 1
    found = results.read(path).load()
    assert 0 < found["done"].sum() < 15 or number == 1
    assert (np.isnan(found["loss"]).all(["policy", "round"]) == (found["done"] == 0)).all()
    assert len(fill(path, wanted)) == number - 1
    check(results.read(path), GAMMAS, SEEDS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.zarr"]


def test_a_store_opens_without_a_warning(tmp_path):
    fill(tmp_path / "results.zarr", make_layout())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xarray.open_zarr(tmp_path / "results.zarr", chunks=None)
        assert (found["done"] == 1).all()
        results.save(results.read(tmp_path / "results.zarr"), tmp_path / "again.zarr")
        xarray.testing.assert_identical(
            xarray.open_zarr(tmp_path / "again.zarr", chunks=None).load().drop_attrs(),
            results.read(tmp_path / "results.zarr").load().drop_attrs(),
        )


@pytest.mark.parametrize("name", ["loss", "moved", "done"])
def test_a_full_disk_is_an_error_and_the_chunk_is_not_done(tmp_path, monkeypatch, name):
    path, wanted = tmp_path / "results.zarr", make_layout()
    fill(path, wanted, most=1)
    before, opened = files_of(path), Path.open

    def full(file, *arguments, **options):
        if "partial" in file.name and f"/{name}/" in str(file):
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(file, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OSError, match="No space left"):
            fill(path, wanted)
    after = files_of(path)
    assert all(after[name] == content for name, content in before.items())
    assert results.read(path)["done"].sum() == 6
    assert len(fill(path, wanted)) == 3
    check(results.read(path), GAMMAS, SEEDS)


def test_marks_are_written_when_all_else_is_on_the_disk(tmp_path, monkeypatch):
    path, wanted = tmp_path / "results.zarr", make_layout()
    store.create(wanted, path)
    synced, fsync = [], os.fsync

    def watch(handle):
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        # The last wait before the marks: two chunks and their two folders, their checksums and the folder of these.
        marks = results.read(path)["done"].values if len(synced) == 6 else np.zeros(1)
        assert not marks.any()
        fsync(handle)

    if not Path("/proc/self/fd").exists():
        pytest.skip("tells files apart by /proc")
    monkeypatch.setattr(os, "fsync", watch)
    fill(path, wanted, most=1)
    names = [one.relative_to(path).as_posix() for one in synced]
    assert names[-1] == "done/c.0.0"
    assert sorted(names[:4]) == ["loss", "loss/c.0.0.0.0", "moved", "moved/c.0.0"]
    assert names[5] == "done/sums" and len(names) == 7


def test_of_two_that_lay_out_one_wins(tmp_path):
    path, failures = tmp_path / "results.zarr", []

    def one(number):
        try:
            store.create(make_layout(number=number), path)
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


def test_only_own_leftovers_are_removed(tmp_path):
    path = tmp_path / "results.zarr"
    fill(path, make_layout())
    before = files_of(tmp_path)
    foreign = {
        "other.partial": "a",
        "results.zarr.partial": "b",
        "results.zarr.mine.partial/new": "c",
        "results.zarr.abcdefgh.partial/old/loss": "d",
        "results.zarr/mine.partial": "e",
        "results.zarr/loss/mine.partial": "f",
        "results.zarr/mine/c.0.0123456789abcdef0123456789abcdef.partial": "g",
    }
    for name, text in foreign.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (path / "loss" / "c.0.0.0.0123456789abcdef0123456789abcdef.partial").write_bytes(b"half")
    for name in ("results.zarr.abcdefg_.partial", "results.zarr/done/sums/c.0.0.abcdefg_.partial"):
        (tmp_path / name / "new").mkdir(parents=True)
    fill(path, make_layout())
    assert files_of(tmp_path) == before | {name: text.encode() for name, text in foreign.items()}
    assert not list(tmp_path.rglob("*abcdefg_.partial"))


# --- another order, other values, more seeds ---


def test_another_order_of_values_is_the_same_sweep(tmp_path):
    path = tmp_path / "results.zarr"
    fill(path, make_layout(), part=(0, 2))
    turned = make_layout(GAMMAS[::-1], [3, 1, 4, 0, 2])
    fill(path, turned, part=(1, 2))
    found = results.read(path)
    check(found, GAMMAS, SEEDS)
    check(sweeps._asked(found, turned), GAMMAS[::-1], [3, 1, 4, 0, 2])


def two_axes(names, chunk=(1, 1, 1)):
    values = {"gamma": [0.0, 2.0], "alpha": [0.5, 4.0, 8.0]}
    dims = {name: len(values[name]) for name in names} | {"run": 4}
    about = {"axes": {name: values[name] for name in names}, "dimensions": list(names), "seeds": [0, 1, 2, 3]}
    coordinates = {name: (name, np.array(values[name]), {}) for name in names}
    return layout.Layout(
        dims,
        chunk,
        coordinates | {"run": ("run", np.arange(4), {})},
        {"moved": ((*names, "run"), np.dtype(np.int64), {})},
        {"manifest": json.dumps(about)},
    )


def test_shards_with_their_axes_in_another_order_write_to_the_right_points(tmp_path):
    path = tmp_path / "results.zarr"

    def compute(wanted, part):
        every = list(product(*(wanted.coordinates[dim][1] for dim in wanted.dims)))
        with locks.working(tmp_path / "lock", print) as held:
            left = chunks.prepare(path, wanted, part, held)
            while (row := left.take()).any():
                runs = [dict(zip(wanted.dims, every[number - 1], strict=True)) for number in row[row > 0]]
                left.write(
                    {"moved": np.array([1000 * r["gamma"] + 10 * r["alpha"] + r["run"] for r in runs], int)}, {}
                )

    compute(two_axes(["gamma", "alpha"]), (0, 2))
    compute(two_axes(["alpha", "gamma"]), (1, 2))
    found = results.read(path)
    assert (found["done"] == 1).all() and found["moved"].dims == ("gamma", "alpha", "run")
    expected = 1000 * found["gamma"] + 10 * found["alpha"] + found["run"]
    assert (found["moved"] == expected).all()
    asked = sweeps._asked(found, two_axes(["alpha", "gamma"]))
    assert asked["moved"].dims == ("alpha", "gamma", "run") and (asked["moved"] == expected).all()


@pytest.mark.parametrize(
    "gammas, seeds, num_computed, stored",
    [
        (GAMMAS, range(9), 12, (GAMMAS, range(9))),
        ([0.0, 0.25, 0.5, 1.0], SEEDS, 5, ([0.0, 0.25, 0.5, 1.0], SEEDS)),
        ([1.0, 0.0, 0.5, 0.25], [7, *SEEDS], 9, ([1.0, 0.0, 0.5, 0.25], [7, *SEEDS])),
        # Less than there is, and something else besides: all that was there stays.
        ([2.0], [1, 8], 2, ([*GAMMAS, 2.0], [*SEEDS, 8])),
        ([0.5], [1], 0, (GAMMAS, SEEDS)),
        ([0.3 + 1e-12, 0.5], [1], 1, ([*GAMMAS, 0.3 + 1e-12], SEEDS)),
        ([np.nextafter(0.5, 1)], SEEDS, 0, (GAMMAS, SEEDS)),
    ],
)
@pytest.mark.parametrize("chunk", [(2, 3), (3, 5)])
def test_only_what_is_missing_is_computed(tmp_path, gammas, seeds, num_computed, stored, chunk):
    path, wanted = tmp_path / "results.zarr", make_layout(gammas, seeds, chunk)
    fill(path, make_layout(chunk=chunk))
    before = results.read(path)
    assert sum(map(len, fill(path, wanted))) == num_computed
    found = results.read(path)
    assert (found["gamma"].values.tolist(), found["run"].values.tolist()) == tuple(map(list, stored))
    manifest = json.loads(found.attrs["manifest"])
    assert sorted(manifest["axes"]["gamma"]) == sorted(stored[0]) and sorted(manifest["seeds"]) == sorted(stored[1])
    # What is here for other reasons stays, also in what was read before.
    check(found.sel(gamma=GAMMAS, run=list(SEEDS)), GAMMAS, SEEDS)
    check(before, GAMMAS, SEEDS)
    asked = sweeps._asked(found, wanted)
    check(asked, gammas, seeds)
    assert json.loads(asked.attrs["manifest"])["seeds"] == list(seeds)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.zarr"]
    assert fill(path, wanted) == []


def test_a_sweep_grown_step_by_step_is_the_one_made_at_once(tmp_path):
    for gammas, seeds, rounds in [([0.5], [0], 2), ([0.5], range(3), 2), ([0.0, 0.5, 1.0], range(3), 3)]:
        fill(tmp_path / "grown.zarr", make_layout(gammas, seeds, rounds=rounds), most=2)
    grown, at_once = (tmp_path / "grown.zarr", tmp_path / "at_once.zarr")
    fill(grown, make_layout(rounds=3))
    fill(at_once, make_layout(rounds=3))
    grown, at_once = (results.read(path).load() for path in (grown, at_once))
    # Runs of two rounds have a third one now, in which they have nothing.
    same = grown["loss"].isel(round=2).isnull()
    assert same.sel(gamma=0.5).any() and not same.sel(gamma=[0.0, 1.0]).any()
    xarray.testing.assert_equal(grown.isel(round=slice(2)), at_once.isel(round=slice(2)))
    xarray.testing.assert_equal(grown.sel(gamma=1.0, run=[3, 4]), at_once.sel(gamma=1.0, run=[3, 4]))


def test_small_chunks_become_larger_ones_when_a_sweep_grows(tmp_path):
    path = tmp_path / "results.zarr"
    fill(path, make_layout([0.5], [0], (1, 1)))
    fill(path, make_layout([0.5, 1.0], range(40), (2, 10)))
    assert store.layout_of(path).chunk == (2, 10)
    check(results.read(path), [0.5, 1.0], range(40))


def test_a_list_of_points_grows_by_points(tmp_path):
    def wanted(points):
        gammas, rates = zip(*points, strict=True)
        about = {"axes": {"gamma": gammas, "rate": rates}, "dimensions": ["point"], "seeds": [0, 1]}
        return layout.Layout(
            {"point": len(points), "run": 2},
            (1, 2),
            {
                "gamma": ("point", np.array(gammas), {}),
                "rate": ("point", np.array(rates, object if None in rates or "a" in rates else None), {}),
                "run": ("run", np.arange(2), {}),
            },
            {"moved": (("point", "run"), np.dtype(np.int64), {})},
            {"manifest": json.dumps(about)},
        )

    first = wanted([(0.0, "a"), (1.0, "a")])
    both = layout.merged(first, wanted([(1.0, "b"), (1.0, "a"), (0.0, "b")]))
    assert both.dims == {"point": 4, "run": 2}
    assert layout.labels(both.coordinates, "point") == [(0.0, "a"), (1.0, "a"), (1.0, "b"), (0.0, "b")]
    assert json.loads(both.attributes["manifest"])["axes"] == {"gamma": [0, 1, 1, 0], "rate": ["a", "a", "b", "b"]}
    number = layout.places_of_runs(wanted([(1.0, "b"), (1.0, "a")]), both)
    assert number.tolist() == [[-1, -1], [2, 3], [0, 1], [-1, -1]]


@pytest.mark.parametrize("stop", range(6))
def test_a_stop_while_a_sweep_grows_loses_nothing(tmp_path, monkeypatch, stop):
    path, moves, rename = tmp_path / "results.zarr", [], os.rename
    fill(path, make_layout())
    (path / "notes.txt").write_text("mine")

    def power_cut(source, target):
        if len(moves) == stop // 2 and stop % 2 == 0:
            raise KeyboardInterrupt
        rename(source, target)
        moves.append(target)
        if len(moves) > stop // 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # What would run after a cut does not.
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(os, "rename", power_cut)
        with pytest.raises(KeyboardInterrupt):
            fill(path, make_layout(seeds=range(6)))
    computed = fill(path, make_layout(seeds=range(6)))
    assert sum(map(len, computed)) == 3
    check(results.read(path), GAMMAS, range(6))
    assert (path / "notes.txt").read_text() == "mine"
    assert not [entry.name for entry in tmp_path.iterdir() if "d2djax" in entry.name]


# --- damage ---


def harm(file, rng):
    """Damages a file in the ways that disks and people do."""
    content = file.read_bytes()
    way = rng.choice(["flip", "cut", "delete", "zeros", "another"])
    others = [one for one in sorted(file.parent.rglob("*")) if one.is_file() and one.read_bytes() != content]
    # Marks of another chunk may well be the right ones.
    if way == "another" and others and file.parent.name != "done":
        shutil.copyfile(rng.choice(others), file)
    elif way == "delete":
        file.unlink()
    elif way == "cut":
        file.write_bytes(content[: rng.randrange(len(content))])
    elif way == "zeros":
        start = rng.randrange(len(content))
        changed = content[:start] + bytes(len(content) - start)
        file.write_bytes(changed if changed != content else content + b"0")
    else:
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        file.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    return way


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "results.zarr"
    fill(path, make_layout())
    return path


@pytest.mark.parametrize("seed", range(24))
def test_damage_is_seen_named_and_mended(sound, tmp_path, seed):
    path, rng, lines = tmp_path / "results.zarr", random.Random(seed), []
    shutil.copytree(sound, path)
    file = rng.choice(sorted(one for one in path.rglob("*") if one.is_file()))
    harm(file, rng)
    name = str(file)
    if "copies" in file.parts:
        check(results.read(path), GAMMAS, SEEDS)
    else:
        with pytest.raises(ValueError, match=re.escape(name)) as caught:
            results.read(path)
        assert "\n" not in str(caught.value)
    computed = fill(path, make_layout(), say=lines.append)
    assert len(lines) == 1 and name in lines[0]
    assert len(computed) == (
        1 if re.fullmatch(r"(loss|moved|done|done/sums)/c\.\d.*", str(file.relative_to(path))) else 0
    )
    check(results.read(path), GAMMAS, SEEDS)
    assert files_of(path).keys() == files_of(sound).keys()


def test_a_folder_of_a_variable_that_is_gone_is_made_again(sound, tmp_path):
    path, lines = tmp_path / "results.zarr", []
    shutil.copytree(sound, path)
    shutil.rmtree(path / "loss")
    with pytest.raises(ValueError, match=r"loss/zarr\.json: missing"):
        results.read(path)
    assert len(fill(path, make_layout(), say=lines.append)) == 4
    assert [line for line in lines if "loss/zarr.json: missing; restored from its copy" in line]
    assert len(lines) == 5
    check(results.read(path), GAMMAS, SEEDS)


@pytest.mark.parametrize("name", ["loss/c.0.1.0.0", "moved/c.0.1", "done/sums/c.0.1", "done/c.0.1", "policy/c/0"])
def test_a_sound_file_in_the_place_of_another_is_seen(sound, tmp_path, name):
    path, lines = tmp_path / "results.zarr", []
    shutil.copytree(sound, path)
    other = "run/c/0" if name in ("policy/c/0", "done/c.0.1") else name.replace(".1", ".0", 1)
    shutil.copyfile(path / other, path / name)
    with pytest.raises(ValueError, match=re.escape(f"{path / name}: damaged")):
        results.read(path)
    fill(path, make_layout(), say=lines.append)
    assert len(lines) == 1 and f"{path / name}: damaged" in lines[0]
    check(results.read(path), GAMMAS, SEEDS)


def test_marks_of_runs_that_are_not_done_are_seen(tmp_path):
    path, lines = tmp_path / "results.zarr", []
    fill(path, make_layout(), most=1)
    fill(path, make_layout([0.0], [0, 3]))
    shutil.copyfile(path / "done" / "c.0.0", path / "done" / "c.0.1")
    with pytest.raises(ValueError, match=r"done/c\.0\.1: damaged"):
        results.read(path)
    fill(path, make_layout(), say=lines.append)
    assert [line for line in lines if "done/c.0.1: damaged" in line]
    check(results.read(path), GAMMAS, SEEDS)


@pytest.mark.parametrize("name", ["loss/c.0.1.0.0", "done/c.0.1", "done/sums/c.0.1", "gamma/c/0", "zarr.json"])
def test_a_folder_in_the_place_of_a_file_is_refused_and_stays(sound, tmp_path, name):
    path = tmp_path / "results.zarr"
    shutil.copytree(sound, path)
    (path / name).unlink()
    (path / name).mkdir()
    (path / name / "notes.txt").write_text("mine")
    for work in (lambda: results.read(path), lambda: fill(path, make_layout())):
        with pytest.raises(ValueError, match=re.escape(str(path / name))) as caught:
            work()
        assert "\n" not in str(caught.value)
    assert (path / name / "notes.txt").read_text() == "mine"


def test_a_stop_while_a_chunk_gets_more_runs_loses_none(tmp_path, monkeypatch):
    path, lines = tmp_path / "results.zarr", []
    fill(path, make_layout([0.0], SEEDS))
    fill(path, make_layout([0.0, 0.5], [0]))
    monkeypatch.setattr(store.Store, "_sync", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fill(path, make_layout())
    monkeypatch.undo()
    done = results.read(path)["done"].values.sum()
    assert done == 6
    computed = fill(path, make_layout(), say=lines.append)
    assert not lines and sum(map(len, computed)) == len(GAMMAS) * len(SEEDS) - 6
    check(results.read(path), GAMMAS, SEEDS)


def test_what_cannot_be_told_any_more_is_refused(sound, tmp_path):
    path = tmp_path / "results.zarr"
    shutil.copytree(sound, path)
    for file in (path / "zarr.json", path / store.COPIES / "zarr.json"):
        file.write_bytes(file.read_bytes()[:-1])
    before = files_of(path)
    with pytest.raises(ValueError, match=r"is damaged in zarr\.json and its copy"):
        fill(path, make_layout())
    assert files_of(path) == before


def test_damage_beyond_what_is_asked_for_is_kept_for_later(sound, tmp_path):
    path = tmp_path / "results.zarr"
    shutil.copytree(sound, path)
    (path / "loss" / "c.1.1.0.0").unlink()
    assert fill(path, make_layout([0.0], [0])) == []
    assert results.read(path)["done"].sum() == 13
    assert fill(path, make_layout()) == [[(1.0, 3), (1.0, 4)]]
    check(results.read(path), GAMMAS, SEEDS)


def test_one_variable_is_no_dataset(tmp_path):
    one = xarray.DataArray([1.0], dims="run", name="accuracy")
    with pytest.raises(ValueError, match="such as the results of run; got DataArray"):
        results.save(one, tmp_path / "one")  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(12))
def test_damage_to_saved_results_is_seen(sound, tmp_path, seed):
    path, rng = tmp_path / "results.zarr", random.Random(seed)
    saved = results.read(sound).drop_vars("done").load()
    saved["loss"][0] = np.nan
    results.save(saved, path)
    xarray.testing.assert_identical(results.read(path).load(), saved)
    file = rng.choice(sorted(one for one in path.rglob("*") if one.is_file()))
    harm(file, rng)
    with pytest.raises(ValueError, match=re.escape(str(file))):
        results.read(path)


# --- several processes ---


@pytest.mark.filterwarnings("ignore:os.fork")  # The child works with files alone, never with JAX.
def test_a_process_that_works_here_is_named(tmp_path):
    path, lines, ended = tmp_path / "results.zarr", [], threading.Event()
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        with locks.working(tmp_path / "results.zarr.lock", print) as held:
            left = chunks.prepare(path, make_layout(), (0, 1), held)
            left.take()
            os.write(there, b"x")
            ended.wait(60)
        os._exit(1)
    os.read(here, 1)
    try:
        with pytest.raises(ValueError, match=f"cannot grow while process {pid} on .* works on it"):
            fill(path, make_layout(seeds=range(6)))

        def say(line):
            lines.append(line)
            os.kill(pid, 9)

        # Both help; when the other one dies, its chunk is taken over.
        assert len(fill(path, make_layout(), say=say)) == 4
        assert len(lines) == 1 and re.search(f"waiting for process {pid} on .*; chunks left: 1", lines[0])
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    check(results.read(path), GAMMAS, SEEDS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.zarr"]


@pytest.mark.filterwarnings("ignore:os.fork")  # The child works with files alone, never with JAX.
def test_the_door_is_waited_for(tmp_path):
    lines, (here, there) = [], os.pipe()
    pid = os.fork()
    if pid == 0:
        with locks.working(tmp_path / "lock", print):
            os.write(there, b"x")
            threading.Event().wait(1.5)
        os._exit(0)
    os.read(here, 1)
    with locks.working(tmp_path / "lock", lines.append) as held:
        assert held.others() == []
    os.waitpid(pid, 0)
    assert len(lines) == 1 and f"waiting for process {pid} on " in lines[0]
    assert not list(tmp_path.iterdir())


def test_one_thread_at_a_time(tmp_path):
    with locks.working(tmp_path / "lock", print), pytest.raises(ValueError, match="already works in this folder"):
        locks.working(tmp_path / "lock", print).__enter__()
    with locks.working(tmp_path / "lock", print):
        pass


def test_without_locks_one_line_says_so_and_work_goes_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", refuse)
    lines = []
    fill(tmp_path / "results.zarr", make_layout(), say=lines.append)
    check(results.read(tmp_path / "results.zarr"), GAMMAS, SEEDS)
    assert len(lines) == 1 and "this file system has no locks (No locks available)" in lines[0]


# --- ownership ---


@pytest.mark.parametrize(
    "found, wanted, text",
    [
        ({"config": {"rate": 1}}, {"config": {"rate": 1}}, ""),
        ({"config": {"rate": 1}}, {"config": {"rate": 2}}, "config.rate: 1 there, 2 now"),
        ({"axes": {"rate": [1]}}, {"axes": {"rate": [2]}}, ""),
        ({"axes": {"rate": [1]}}, {"axes": {"gamma": [1]}}, 'axes: "rate" only there, "gamma" only now'),
        ({"dimensions": ["a", "b"]}, {"dimensions": ["b", "a"]}, ""),
        ({"seeds": [0, 1], "training": True}, {"seeds": [0], "training": False}, "training: true there, false now"),
    ],
)
def test_differences_are_named(tmp_path, found, wanted, text):
    if not text:
        return chunks.check_same(tmp_path, found, wanted)
    with pytest.raises(ValueError) as caught:
        chunks.check_same(tmp_path, found, wanted)
    assert f"{tmp_path}: holds the results of another sweep ({text});" in str(caught.value)


def other_folders(path):
    """Ways in which something else may occupy the place of the results."""

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
    before = files_of(tmp_path)
    with pytest.raises(ValueError, match=r"results\.zarr: this is not a sweep"):
        fill(path, make_layout())
    assert files_of(tmp_path) == before


def test_results_of_a_run_or_a_search_are_refused(tmp_path):
    saved = xarray.Dataset({"x": ("run", np.arange(3))}, attrs={"title": "d2djax run on x", "manifest": "{}"})
    results.save(saved, tmp_path / "run" / "results.zarr")
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "journal.log").write_text('{"op_code": 0}\n')
    before = files_of(tmp_path)
    for name in ("run", "search"):
        with pytest.raises(ValueError, match=f"{name}: the results of a {name} are here; choose another folder"):
            fill(tmp_path / name / "results.zarr", make_layout())
    assert files_of(tmp_path) == before


def test_kinds_of_what_is_missing():
    kinds = list(product((np.float32, np.float64), [np.nan])) + list(product((np.int8, np.int32, np.int64), [-1]))
    for kind, expected in kinds:
        np.testing.assert_equal(layout.fill_value(np.dtype(kind)), expected)
