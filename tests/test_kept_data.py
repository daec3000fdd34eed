"""Generated RadioML windows are read from the cache the next time, equal bit for bit."""

import os

import numpy as np
import pytest

from d2djax.data import Dataset, kept, load, radioml

OPTIONS = {"windows_per_key": 3, "min_snr": 14}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("D2DJAX_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "d2djax" / "radioml-made"


@pytest.fixture
def makes(monkeypatch):
    """The number of windows per key of each call that makes some."""
    calls, synthesise = [], radioml.synthesise

    def counted(windows_per_key=160, **options):
        calls.append(windows_per_key)
        return synthesise(windows_per_key, **options)

    monkeypatch.setattr(radioml, "synthesise", counted)
    return calls


def same(one, two):
    assert one.x.dtype == two.x.dtype and one.x.tobytes() == two.x.tobytes()
    assert one.y.dtype == two.y.dtype and one.y.tobytes() == two.y.tobytes()
    assert (one.class_names, one.name, one.source) == (two.class_names, two.name, two.source)


def test_windows_are_made_once(cache, makes):
    first, again = load("radioml", **OPTIONS), load("radioml", **OPTIONS)
    same(first, again)
    assert makes == [3]
    load("radioml", **OPTIONS | {"windows_per_key": 4})
    load("radioml", **OPTIONS | {"min_snr": 16})
    load("radioml", **OPTIONS | {"seed": 1})
    assert makes == [3, 4, 3, 3]
    assert len(list(cache.iterdir())) == 4 == kept.MOST_FILES


def test_other_data_sets_are_kept_apart(cache):
    def make():
        return Dataset(np.ones((3, 2), np.float32), [0, 1, 0], ("a", "b"), "waves", "made in the tests")

    first, again = (kept.made_once("waves", [__file__], {"count": 3}, make) for _ in range(2))
    same(first, again)
    assert first.name == "waves" and len(list((cache.parent / "waves-made").iterdir())) == 1
    assert not cache.exists()


def test_only_the_newest_are_kept(cache, makes):
    for number in range(6):
        load("radioml", windows_per_key=1, min_snr=18, seed=number)
        for age, file in enumerate(sorted(cache.iterdir(), key=os.path.getmtime)[::-1]):
            os.utime(file, (1e9 - 100 * age, 1e9 - 100 * age))
    assert len(list(cache.iterdir())) == kept.MOST_FILES
    load("radioml", windows_per_key=1, min_snr=18, seed=5)
    assert len(makes) == 6


@pytest.mark.parametrize("harm", [lambda data: b"", lambda data: data[:200], lambda data: b"x" * len(data)])
def test_what_is_damaged_is_made_again(cache, makes, harm):
    first = load("radioml", **OPTIONS)
    (file,) = cache.iterdir()
    file.write_bytes(harm(file.read_bytes()))
    same(first, load("radioml", **OPTIONS))
    assert makes == [3, 3]
    same(first, load("radioml", **OPTIONS))
    assert makes == [3, 3]


def test_a_flipped_bit_is_seen(cache, makes):
    first = load("radioml", **OPTIONS)
    (file,) = cache.iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    same(first, load("radioml", **OPTIONS))


def test_other_code_makes_other_windows(cache, makes, monkeypatch, tmp_path):
    load("radioml", **OPTIONS)
    changed = tmp_path / "radioml.py"
    changed.write_text("# another version")
    monkeypatch.setattr(radioml, "__file__", str(changed))
    load("radioml", **OPTIONS)
    assert makes == [3, 3]


def test_without_a_cache_nothing_is_written(cache, makes, monkeypatch):
    monkeypatch.setenv("D2DJAX_CACHE", "0")
    load("radioml", **OPTIONS)
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_costs_only_time(cache, makes):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in the place of the folder")
    assert np.isfinite(load("radioml", **OPTIONS).x).all()
    assert makes == [3]
