import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
import xarray

import d2djax
from d2djax.analysis import tables
from d2djax.analysis.merging import merge
from d2djax.config import numbers_of
from d2djax.running import many_runs, plan, programs, progress, repeat, results, runs
from d2djax.running.axes import LogUniform, Uniform
from d2djax.running.identity import differences
from d2djax.storage import store


class Linear(nn.Module):
    """Softmax regression: compiles fast."""

    last: Callable = np.asarray

    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


GRID = {"gamma": [0.0, 0.5], "learning_rate": [0.05, 0.2]}
RECIPE = d2djax.Recipe(Linear())
MAP_RUNS = runs.map_runs


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config


@pytest.fixture(scope="module")
def sweep(config, tiny_dataset):
    """`sweep(out, axes=...)`: the grid for three seeds, or what else is asked for."""

    def start(out, axes=GRID, seeds=3, config=config, **options):
        given = {"data": tiny_dataset, "recipe": RECIPE, "progress": False} | options
        return d2djax.sweep(config, axes, seeds, out, **given)

    return start


@pytest.fixture(scope="module")
def run(config, tiny_dataset):
    def start(seeds=3, **changes):
        return d2djax.run(replace(config, **changes), seeds, data=tiny_dataset, recipe=RECIPE, progress=False)

    return start


@pytest.fixture(scope="module")
def whole(sweep, tmp_path_factory):
    """The grid, never stopped, in one chunk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_most_runs", lambda *_: 100)
        return sweep(tmp_path_factory.mktemp("whole")).load()


@pytest.fixture
def computed(monkeypatch):
    """Runs of each stage that are computed, one entry for each call."""
    found = {"network_of": [], "graphs_of": [], "learning_of": []}

    def count(function, shared, items, *arguments, **options):
        found[function.__name__].append(len(items["seed"]))
        return MAP_RUNS(function, shared, items, *arguments, **options)

    monkeypatch.setattr(runs, "map_runs", count)
    return found


def same(got, expected):
    """Checks that all results are equal, to the last bit."""
    assert set(got.data_vars) == set(expected.data_vars)
    for name in {**got.data_vars, **got.coords}:
        np.testing.assert_array_equal(got[name].values, expected[name].values, err_msg=str(name))
        assert got[name].dims == expected[name].dims and got[name].dtype == expected[name].dtype


def same_as_run(point, expected):
    """Checks that one point of a sweep is a run; what belongs to other points is NaN or -1."""
    assert (point["done"] == 1).all()
    for name in expected.data_vars:
        own = point[name].sel({dim: expected[dim].values for dim in expected[name].dims})
        np.testing.assert_array_equal(own.values, expected[name].values, err_msg=str(name))
        kind = point[name].dtype
        is_filled = np.isnan(point[name]) if np.issubdtype(kind, np.floating) else point[name] == -1
        own_filled = int((np.isnan(own) if np.issubdtype(kind, np.floating) else own == -1).sum())
        assert int(is_filled.sum()) == own_filled + point[name].size - own.size, name


# --- what is in a sweep ---


def test_a_sweep_is_a_run_at_each_point(whole, run):
    assert whole["loss"].dims == ("gamma", "learning_rate", "run", "policy", "round")
    assert whole["gamma"].values.tolist() == GRID["gamma"] and whole["run"].values.tolist() == [0, 1, 2]
    for gamma in GRID["gamma"]:
        for rate in GRID["learning_rate"]:
            same_as_run(whole.sel(gamma=gamma, learning_rate=rate), run(gamma=gamma, learning_rate=rate))
    for name, variable in whole.data_vars.items():
        assert variable.attrs["long_name"] and (name == "done" or variable.attrs["units"])


def test_no_axes_are_a_run(sweep, run, tmp_path):
    found = sweep(tmp_path, {}, 2)
    assert found["status"].dims == ("run", "policy")
    same_as_run(found, run(2))
    assert tables.diverged(found) == []


def test_points_are_taken_as_they_come(sweep, run, tmp_path):
    points = d2djax.random_points({"gamma": Uniform(0, 1), "learning_rate": LogUniform(0.01, 1)}, 2)
    found = sweep(tmp_path, points, [4, 1])
    assert found["status"].dims == ("point", "run", "policy")
    for number, point in enumerate(points):
        assert {name: found[name].values[number] for name in point} == point
        same_as_run(found.isel(point=number), run([4, 1], **point))


def test_stragglers_differ_between_points(sweep, run, tmp_path, monkeypatch):
    # In one chunk: the graphs are found once, but not so the energy and the bits of the uploads.
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 100)
    found = sweep(tmp_path, {"num_stragglers": [0, 2]}, 2)
    for number in (0, 2):
        same_as_run(found.sel(num_stragglers=number), run(2, num_stragglers=number))


@pytest.mark.slow
def test_shapes_may_differ_between_points(sweep, run, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 3)
    points = [{"num_devices": 6, "aggregation_interval": 4}, {"num_devices": 8, "aggregation_interval": 2}]
    before = programs.num_compiled()
    found = sweep(tmp_path, points, 2)
    # The first point has those of the other tests.
    assert programs.num_compiled() in (before + 3, before + 6)
    assert found["round"].values.tolist() == [0, 2, 4, 6, 8] and found.sizes["device"] == 8
    assert (found["cluster"].isel(point=0, device=slice(6, None)) == -1).all()
    assert np.isnan(found["loss"].isel(point=0).sel(round=[2, 6])).all()
    for number, point in enumerate(points):
        same_as_run(found.isel(point=number), run(2, **point))


# --- what is computed ---


def test_what_an_axis_does_not_touch_is_computed_once(sweep, tmp_path, monkeypatch, computed):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 100)
    sweep(tmp_path, GRID | {"num_stragglers": [0, 1]})
    assert computed["network_of"] == [3]
    # Uploads, which are counted with the graphs, are those of all but the stragglers.
    assert computed["graphs_of"] in ([2 * 3], [2 * 2 * 3])
    # `none` and `uniform` train once for each seed, rate and number of stragglers; `rl` also for each graph.
    assert 3 * 12 <= computed["learning_of"][0] <= 2 * 12 + 24 and len(computed["learning_of"]) == 1


def test_weights_of_the_reward_do_not_train_anew(sweep, tmp_path, monkeypatch, computed):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 100)
    found = sweep(tmp_path, {"alpha_outage": [0.5, 1, 2], "alpha_diversity": [1, 2]}, 2)
    assert computed["network_of"] == [2] and computed["graphs_of"] == [12]
    state = xarray.DataArray(found["exchange_state"].values[0, 0], dims="run")
    links = found["links"].isel(state=state).stack(at=("run", "alpha_outage", "alpha_diversity", "policy"))
    trainings = {(one["run"].item(), *one.values.tolist()) for one in links.transpose("at", "device")}
    # One for each graph that a seed has: a single one of `none`, and of `uniform`.
    assert computed["learning_of"] == [len(trainings)] and len(trainings) <= 2 + 2 + 12
    fixed = found.sel(policy=["none", "uniform"])
    assert (fixed["loss"] == fixed["loss"].isel(alpha_outage=0, alpha_diversity=0)).all()
    assert len(np.unique(fixed["graph_reward"].isel(run=0, policy=1, state=0))) == 6


def test_all_values_of_all_numbers_share_their_programs(whole, sweep, config, tmp_path):
    names = [name for name in numbers_of(config) if isinstance(getattr(config, name), float)]
    points = [{name: getattr(config, name) * (1 - step / 20) for name in names} for step in range(3)]
    before = programs.num_compiled()
    found = sweep(tmp_path, points, 2)
    assert programs.num_compiled() == before
    assert (found["done"] == 1).all() and len(np.unique(found["loss"].isel(run=0, policy=0, round=-1))) == 3


# --- what results do not depend on ---


@pytest.mark.parametrize("length", [1, 3, 8])
def test_chunks_change_nothing(whole, sweep, tmp_path, monkeypatch, length):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: length)
    monkeypatch.setattr(many_runs, "SECONDS_PER_CALL", 0.0 if length == 8 else 1.0)
    found = sweep(tmp_path)
    assert np.prod(store.layout_of(tmp_path / "results.zarr").chunk) in range(1, length + 1)
    same(found, whole)


def test_more_seeds_keep_the_old_ones(whole, sweep, tmp_path):
    same(sweep(tmp_path, seeds=5).isel(run=slice(3)), whole)


def test_runs_that_do_not_train_have_the_same_graphs(whole, sweep, tmp_path):
    found = sweep(tmp_path, {"gamma": [0.5]}, training=False)
    assert "loss" not in found and "graph_reward" in found
    expected = whole.sel(gamma=[0.5]).isel(learning_rate=0, drop=True)
    same(found, expected[list(found.data_vars)])


def test_shards_together_are_the_whole(whole, sweep, tmp_path):
    first = sweep(tmp_path, shard=(1, 2)).load()
    assert 0 < first["done"].sum() < first["done"].size
    assert (np.isnan(first["loss"]).all(["policy", "round"]) == (first["done"] == 0)).all()
    same(sweep(tmp_path, shard=(2, 2)), whole)


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), (-1, 4)])
def test_bad_shards_are_refused(sweep, tmp_path, computed, shard):
    with pytest.raises(ValueError, match=f"shard must be a number from 1 .* got {shard[0]}/{shard[1]}"):
        sweep(tmp_path / "out", shard=shard)
    assert not (tmp_path / "out").exists()


# --- interruption and resumption ---


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_stopped_sweep_goes_on(whole, sweep, tmp_path, monkeypatch, computed, stopping, error):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 4)
    with stopping(2, error), pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else OSError):
        sweep(tmp_path)
    # All but what was being written stays.
    before = results.read(tmp_path / "results.zarr").load()
    assert before["done"].sum() == 8
    same(before.isel(run=slice(2)), whole.isel(run=slice(2)))
    computed["network_of"].clear()
    # Also where chunks would be laid out otherwise now.
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 5)
    same(sweep(tmp_path), whole)
    assert computed["network_of"] == [1]
    sweep(tmp_path)
    assert computed["network_of"] == [1]


def test_a_sweep_grows_by_seeds_and_by_values(whole, sweep, tmp_path, computed):
    sweep(tmp_path, {"gamma": [0.5], "learning_rate": [0.2]}, [1])
    sweep(tmp_path, {"learning_rate": [0.2, 0.05], "gamma": [0.5]}, [1, 0], shard=(1, 2))
    computed["network_of"].clear()
    # What is there for other reasons is not computed, and not returned.
    found = sweep(tmp_path)
    same(found, whole)
    assert sum(computed["network_of"]) < 3 * 4
    assert json.loads(found.attrs["manifest"]) == json.loads(whole.attrs["manifest"])
    text = (tmp_path / "config.toml").read_text()
    assert "gamma=0.0,0.5" in text and "seeds = 3" in text and repeat.MORE_IS_HERE not in text
    computed["network_of"].clear()
    same(
        sweep(tmp_path, {"gamma": [0.5]} | {"learning_rate": [0.05]}, [2, 1]),
        whole.isel(gamma=[1], learning_rate=[0], run=[2, 1]),
    )
    # Reading a part of the results does not change the file that repeats all of them.
    assert not computed["network_of"] and (tmp_path / "config.toml").read_text() == text
    sweep(tmp_path, {"gamma": [0.5], "learning_rate": [0.2]}, [7])
    text = (tmp_path / "config.toml").read_text()
    assert "first_seed = 7" in text and text.endswith(repeat.MORE_IS_HERE)


def test_shards_whose_axes_come_in_another_order_are_one_sweep(whole, sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 2)
    turned = {"learning_rate": [0.2, 0.05], "gamma": [0.5, 0.0]}
    sweep(tmp_path, shard=(1, 2))
    found = sweep(tmp_path, turned, shard=(2, 2))
    same(found, whole.isel(gamma=[1, 0], learning_rate=[1, 0]).transpose("learning_rate", "gamma", ...))
    same(results.read(tmp_path / "results.zarr"), whole)


def test_points_with_other_shapes_join_a_sweep(sweep, run, tmp_path):
    options = {"training": False}
    # The shapes of another test, whose programs these are.
    sweep(tmp_path, {"num_devices": [6]}, 2, **options)
    found = sweep(tmp_path, {"num_devices": [8, 6]}, 3, **options)
    same(found, sweep(tmp_path / "at_once", {"num_devices": [8, 6]}, 3, **options))
    same(
        sweep(tmp_path, {"num_devices": [8]}, 2, **options),
        sweep(tmp_path / "few", {"num_devices": [8]}, 2, **options),
    )


OTHER = [
    ({"axes": {"gamma": [0.0, 0.5]}}, 'axes: "learning_rate" only there'),
    ({"axes": [{"gamma": 0.0, "learning_rate": 0.05}]}, "dimensions: "),
    ({"training": False}, "training: true there, false now"),
    ({"rate": 2.0}, r"config\.rate: 1\.0 there, 2\.0 now"),
    ({"num_steps": 16}, r"config\.num_steps: 8 there, 16 now"),
    ({"recipe": d2djax.Recipe(Linear(nn.relu))}, "recipe"),
    ({"version": "9.9"}, r"versions\.d2djax: .* there, .9\.9. now"),
    ({"data": 1}, r"data\.digest"),
]


@pytest.mark.parametrize("changes, message", OTHER, ids=",".join)
def test_results_of_another_sweep_are_refused(
    whole, sweep, config, tiny_dataset, monkeypatch, computed, changes, message
):
    path = whole.encoding["source"]
    changes = dict(changes)
    if "version" in changes:
        version = changes.pop("version")
        monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    if "data" in changes:
        changes["data"] = replace(tiny_dataset, x=255 - tiny_dataset.x)
    own = {name: changes.pop(name) for name in ("rate", "num_steps") if name in changes}
    with pytest.raises(ValueError, match=message) as caught:
        sweep(path.rpartition("/")[0], config=replace(config, **own), **changes)
    assert "holds the results of another sweep" in str(caught.value) and "\n" not in str(caught.value)
    assert not computed["network_of"]
    xarray.testing.assert_identical(results.read(path).load(), whole)


def test_a_folder_of_something_else_is_refused(sweep, tmp_path, computed):
    (tmp_path / "results.zarr").mkdir()
    (tmp_path / "results.zarr" / "mine.partial").write_text("mine")
    with pytest.raises(ValueError, match="this is not a sweep"):
        sweep(tmp_path)
    assert (tmp_path / "results.zarr" / "mine.partial").read_text() == "mine"
    assert not computed["network_of"]


def as_it_is(x):
    return x


def test_another_recipe_is_refused(sweep, config, tiny_dataset):
    made = lambda recipe: plan.plan_sweep(config, GRID, 3, tiny_dataset, recipe)  # noqa: E731
    recipes = [
        d2djax.Recipe(Linear(last), client=partial(optax.sgd, momentum=momentum))
        for last, momentum in ((np.tanh, 0.9), (as_it_is, 0.9), (np.tanh, 0.8))
    ]
    found = [plan.manifest_of(made(recipe)) for recipe in recipes]
    assert "0x" not in json.dumps(found)
    assert differences(found[0], found[1]).startswith("recipe.model.hash: ")
    assert differences(found[0], found[2]).startswith("recipe.client.numbers.momentum: 0.9 there, 0.8 now")


# --- progress and what went wrong ---


def test_lines_of_progress(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 4)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    sweep(tmp_path, {"learning_rate": [0.05, 1e38]}, 6, progress=True)
    out, err = capsys.readouterr()
    assert not out and "\r" not in err and "\x1b" not in err
    lines = err.splitlines()
    assert "12 runs in 3 chunks; left to do here: 12 in 3" in lines
    shown = [line for line in lines if " runs, " in line or " runs/s" in line]
    counts = [int(re.match(r"(\d+)/12 runs", line)[1]) for line in shown]
    assert counts == sorted(counts) and counts[-1] == 12
    rates = r" runs/s, \S+ episodes/s, \S+ steps/s, \d+:\d\d elapsed, (\d+:\d\d left, )?\d+\.\d GiB"
    assert re.fullmatch(rf"12/12 runs, \S+{rates}, 6 diverged", shown[-1])
    assert any(re.match(rf"8/12 runs, \S+{rates}", line) and " left, " in line for line in shown)
    capsys.readouterr()
    sweep(tmp_path, {"learning_rate": [0.05, 1e38]}, 6, progress=True)
    assert "left to do here: 0 in 0" in capsys.readouterr().err


def test_parts_are_merged_to_what_one_sweep_computes(sweep, run, whole, config, tmp_path):
    left = sweep(tmp_path / "left", {"learning_rate": [0.05, 0.2], "gamma": [0.5]}, [2, 0])
    right = sweep(tmp_path / "right", {"gamma": [0.0]}, 3, replace(config, learning_rate=0.2))
    runs = [run([1], learning_rate=rate, gamma=0.5) for rate in (0.05, 0.2)]
    # The last part is not complete.
    rest = whole.sel(gamma=0.0, learning_rate=0.05).isel(run=[0, 1])
    found = merge([left, right, *runs, rest]).transpose(*whole["status"].dims, ...)
    assert int(found["done"].sum()) == 11
    is_done = found["done"] > 0
    for name, one in whole.data_vars.items():
        xarray.testing.assert_equal(found[name].where(is_done), one.where(is_done))
    about, wanted = (json.loads(one.attrs["manifest"]) for one in (found, whole))
    assert not differences(about, wanted, ["dimensions", "parts"])


def test_divergence_is_counted_and_named(sweep, tmp_path):
    found = sweep(tmp_path, {"learning_rate": [0.05, 1e38], "gamma": [0.5]})
    status = found["status"].isel(gamma=0)
    assert (status.sel(learning_rate=0.05) == 0).all() and (status.isel(learning_rate=1) == 1).all()
    assert tables.diverged(found) == ["diverged: 3 of 3 runs at learning_rate=1e+38, gamma=0.5"]
    points = sweep(tmp_path / "points", [{"learning_rate": rate} for rate in (1e38, 0.05, 2e38)], 2)
    lines = ["diverged: 2 of 2 runs at learning_rate=1e+38", "diverged: 2 of 2 runs at learning_rate=2e+38"]
    assert tables.diverged(points) == lines


def test_only_the_worst_points_are_named():
    status = np.zeros((15, 4, 1), np.int8)
    status[2:, 0] = 1
    status[7, :3] = 2
    found = xarray.Dataset({"status": (("point", "run", "policy"), status)}, {"rate": ("point", np.arange(15))})
    lines = tables.diverged(found)
    assert len(lines) == tables.MOST_LINES + 1
    assert lines[:2] == ["diverged: 3 of 4 runs at rate=7", "diverged: 1 of 4 runs at rate=2"]
    assert lines[-1] == "diverged: runs at 3 more points, see `status`"


def test_memory_that_runs_out_changes_only_the_width(whole, sweep, tmp_path, monkeypatch):
    compiled, failed = programs.compiled, []

    def limited(*arguments):
        def fail(*_):
            failed.append(arguments)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

        real = compiled(*arguments[:-1], 1)
        return real if arguments[-1] == 1 else replace(real, call=fail, width=2, slots=2)

    monkeypatch.setattr(programs, "compiled", limited)
    # No program of two runs at a time is called: none is compiled beside.
    monkeypatch.setattr(programs, "start", lambda *_: None)
    monkeypatch.setattr(many_runs, "_most_width", {})
    same(sweep(tmp_path, width=2), whole)
    assert len(failed) == 3
