"""A data set that is only a record in the table: everything that works with built-in data sets works with it."""

import json
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import d2djax
from d2djax import config, data, settings, supply, validation
from d2djax.data import SOURCES, DataError, Dataset
from d2djax.data.source import Maker, Source
from d2djax.running.memory import check_memory
from d2djax.running.plan import manifest_of, plan_sweep

NAMES = ("low", "middle", "high", "higher", "highest")


def waves(count, source, lowest=0):
    y = np.arange(count * len(NAMES), dtype=np.int32) % len(NAMES)
    x = np.sin(np.arange(8) * (y[:, None] + 1.0) + lowest).astype(np.float32)
    return Dataset(x, y, NAMES, "waves", source)


def make(*, count=1, min_snr=0):
    return waves(count, f"made in the tests, {count} of a class", min_snr)


FILES = Source(
    name="waves",
    title="Waves",
    class_names=NAMES,
    shape=(8,),
    dtype=np.dtype(np.float32),
    points_per_device=40,
    model="mlp",
    learning_rate=0.125,
    find=lambda place: place / "count.txt" if (place / "count.txt").is_file() else None,
    read=lambda path: waves(int(path.read_text()), str(path)),
    how_to_get="count.txt, with a number in it",
)
MADE = replace(
    FILES,
    settings=("min_snr",),
    options=("min_snr",),
    maker=Maker(
        make=make,
        options=("count", "min_snr"),
        amount=lambda needed, *, min_snr: {"count": int(np.ceil(needed)) + 10},
        points_per_class=lambda *, count, min_snr: count,
        what="the waves",
    ),
)


@pytest.fixture
def register(monkeypatch, tmp_path):
    """Puts a record into the table, and its name among those of the settings; files are those in `tmp_path`."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("D2DJAX_DATA", str(tmp_path))
    hints = validation._hints() | {"dataset": Literal[settings.DatasetName, "waves"]}
    monkeypatch.setattr(validation, "_hints", lambda: hints)

    def put(source):
        monkeypatch.setitem(SOURCES, source.name, source)
        # Made from the table when the file is imported.
        monkeypatch.setitem(config.PRESETS, source.name, source.preset)

    return put


def tiny(tiny_config, **changes):
    return replace(
        tiny_config,
        dataset="waves",
        num_classes=0,
        points_per_device=0,
        model="auto",
        learning_rate=None,
        **changes,
    )


def test_presets_are_those_of_the_table():
    assert list(config.PRESETS) == list(SOURCES) == [source.name for source in SOURCES.values()]
    assert {name: source.preset for name, source in SOURCES.items()} == config.PRESETS
    named = set(settings.DatasetName.__args__) - {"own"}
    assert named == set(SOURCES), "the command line offers what the table has"


def test_it_is_found_and_read(register, tmp_path):
    register(FILES)
    folder = tmp_path / "waves"
    with pytest.raises(
        DataError, match=rf"waves: found no data in {folder} .*; expected count.txt, with a number"
    ) as no:
        d2djax.load("waves")
    assert "TensorFlow" not in str(no.value) and "download" not in str(no.value)
    folder.mkdir()
    (folder / "count.txt").write_text("3")
    read = d2djax.load("waves")
    assert (read.num_points, read.shape, read.source) == (15, (8,), str(folder / "count.txt"))
    np.testing.assert_array_equal(read.x, d2djax.load("waves", folder).x)
    with pytest.raises(DataError, match="waves has no option 'count'; options: none"):
        d2djax.load("waves", count=3)
    with pytest.raises(DataError, match=f"waves has no download; its files have to be put by hand into {folder}"):
        data.download("waves", tmp_path)
    register(replace(FILES, shape=(9,)))
    with pytest.raises(DataError, match=r"expected x float32 \[n, 9\]; found float32 \(15, 8\)"):
        d2djax.load("waves")
    register(replace(FILES, read=lambda path: replace(waves(3, str(path)), name="wave")))
    with pytest.raises(DataError, match=f"{folder / 'count.txt'}: expected data named 'waves'; found 'wave'"):
        d2djax.load("waves")


def test_runs_end_with_their_graphs(register, tiny_config):
    register(FILES)
    results = d2djax.run(tiny(tiny_config, policies=("uniform",)), seeds=1, training=False, progress=False)
    assert json.loads(results.attrs["manifest"])["data"]["name"] == "waves"
    assert results.sizes["class"] == len(NAMES)
    assert int(results["counts_before"].sum()) == 6 * 40


def test_points_are_read_for_training(register, tiny_config, tmp_path):
    register(FILES)
    (tmp_path / "count.txt").write_text("200")
    plan = plan_sweep(tiny(tiny_config), {"min_snr": [0, 4]}, 1)
    assert {setup.config.model for setup in plan.setups} == {"mlp"} and plan.setups[0].config.learning_rate == 0.125
    assert plan.setups[0].dataset is plan.setups[1].dataset, "a setting that it does not read makes no difference"
    found = manifest_of(plan)["data"]
    assert (found["name"], found["points"], list(found["digest"])) == ("waves", 1000, ["all"])


def test_points_are_made_as_many_as_are_needed(register, tiny_config):
    register(MADE)
    plan = plan_sweep(tiny(tiny_config), {"min_snr": [0, 4]}, 1)
    [count] = {supply.options_of(setup.config)["count"] for setup in plan.setups}
    assert [setup.dataset.num_points for setup in plan.setups] == [5 * count, 5 * count]
    told = manifest_of(plan)["data"]["digest"]
    assert list(told) == [f"min_snr=0, count={count}", f"min_snr=4, count={count}"]
    assert len(set(told.values())) == 2
    # The setting counts where points are used, and only there.
    one = plan_sweep(tiny(tiny_config, min_snr=4), {}, 1)
    assert manifest_of(one)["config"]["min_snr"] == 4
    graphs = plan_sweep(tiny(tiny_config, min_snr=4), {}, 1, trains=False)
    assert "min_snr" not in manifest_of(graphs)["config"]


def test_memory_that_points_take_is_named(register, tiny_config):
    register(MADE)
    large = d2djax.validate(tiny(tiny_config, min_snr=4))
    large = replace(large, points_per_device=10**12)
    with pytest.raises(ValueError, match="of memory for the waves"):
        check_memory(large, (8,), trains=True)
