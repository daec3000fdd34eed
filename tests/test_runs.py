import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import pytest
import xarray
from scipy import stats
from scipy.special import stdtrit

import d2djax
from d2djax.analysis import statistics
from d2djax.analysis.studies import ALL as POLICIES
from d2djax.config import Config
from d2djax.data.types import DataError, Dataset
from d2djax.points import arrange
from d2djax.rng import run_key
from d2djax.running import identity, programs, results, runs
from d2djax.supply import held_out_sizes

WHOLE = ("status", "cluster", "exchange_state", "links", "counts", "counts_before", "points_moved")
# A program that computes several runs at a time, or other policies beside, sums in another order.
TOLERANCE = {"rtol": 2e-6, "atol": 1e-6}

SHARDED = """
import json, sys
import numpy as np
import d2djax
from d2djax.data.types import Dataset
given = json.loads(sys.argv[1])
arrays = np.load(sys.argv[2])
config = d2djax.Config(**given["config"] | {"policies": tuple(given["config"]["policies"])})
data = Dataset(arrays["x"], arrays["y"], tuple(given["class_names"]), "tiny", "file")
found = d2djax.run(config, given["seeds"], data=data, progress=False)
assert len(json.loads(found.attrs["manifest"])["machine"]["devices"]) == 2
np.savez(sys.argv[3], **{name: variable.values for name, variable in found.data_vars.items()})
"""


class Linear(nn.Module):
    """Softmax regression: compiles fast."""

    num_classes: int = 5

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


def of_policys(dataset, *policies):
    # A dictionary: the keyword `policy` of `sel` means how to look up values that are not there.
    return dataset.sel(policy=list(policies))


def same(got, expected, **tolerance):
    """Checks that two results agree; whole numbers, places and coordinates without any tolerance."""
    assert set(got.data_vars) == set(expected.data_vars)
    for name in got.data_vars:
        one, other = got[name].values, expected[name].values
        assert got[name].dims == expected[name].dims
        if name in WHOLE or not tolerance:
            np.testing.assert_array_equal(one, other, err_msg=name)
        else:
            np.testing.assert_allclose(one, other, err_msg=name, **tolerance)
    for name in got.coords:
        np.testing.assert_array_equal(got[name].values, expected[name].values, err_msg=name)


@pytest.fixture(scope="module")
def all_policies(tiny_config):
    return replace(tiny_config, policies=POLICIES)


@pytest.fixture(scope="module")
def few_policies(tiny_config):
    return replace(tiny_config, policies=("none", "rl"))


@pytest.fixture(scope="module")
def only_none(tiny_config):
    return replace(tiny_config, policies=("none",))


@pytest.fixture(scope="module")
def found(every_policy):
    """All policies, seeds 0, 1, 2, one at a time."""
    return every_policy


@pytest.fixture(scope="module")
def found_none(no_exchange):
    return no_exchange


# --- what is in a result ---


def test_dimensions_and_coordinates(found, all_policies, tiny_dataset):
    sizes = {"run": 3, "policy": 6, "round": 3, "episode": 3, "state": 3, "device": 6, "class": 5, "axis": 2}
    assert dict(found.sizes) == sizes
    assert found["run"].values.tolist() == [0, 1, 2]
    assert found["policy"].values.tolist() == list(POLICIES)
    assert found["round"].values.tolist() == [0, 4, 8]
    assert found["episode"].values.tolist() == [20, 40, 60]
    assert found["class"].values.tolist() == list(tiny_dataset.class_names)
    expected = {
        "accuracy": ("run", "policy", "round"),
        "train_loss": ("run", "policy", "round"),
        "links": ("run", "policy", "state", "device"),
        "counts": ("run", "policy", "device", "class"),
        "counts_before": ("run", "device", "class"),
        "points_moved": ("run", "policy"),
        "status": ("run", "policy"),
        "position": ("run", "device", "axis"),
        "cluster": ("run", "device"),
        "exchange_state": ("run",),
        "graph_reward": ("run", "policy", "state"),
        "discovery_reward": ("run", "policy", "episode"),
    }
    for name, dims in expected.items():
        assert found[name].dims == dims, name


def test_every_variable_has_unit_and_meaning(found):
    for name, variable in found.data_vars.items():
        assert variable.attrs["units"] and variable.attrs["long_name"], name


def test_kinds_of_numbers(found):
    needed = {name: str(variable.dtype) for name, variable in found.data_vars.items()}
    whole = {name: "int32" for name in WHOLE} | {"status": "int8"}
    assert {name: needed.pop(name) for name in WHOLE} == whole
    # Bits sent are exact and may pass what 32 bits hold.
    assert needed.pop("upload_bits") == "int64"
    assert set(needed.values()) == {"float32"}


def test_values_are_in_their_range(found):
    assert (found["status"] == 0).all()
    assert ((found["accuracy"] >= 0) & (found["accuracy"] <= 1)).all()
    trained = statistics.in_training(found)
    assert (found["loss"] > 0).all() and (trained["train_loss"] > 0).all()
    assert ((found["links"] >= 0) & (found["links"] < 6)).all()
    assert ((found["exchange_state"] >= 0) & (found["exchange_state"] < 3)).all()
    assert ((found["position"] >= 0) & (found["position"] <= 400)).all()


def test_results_without_rl_have_no_episodes(found_none):
    assert "episode" not in found_none.sizes
    assert not [name for name in found_none.data_vars if str(name).startswith("discovery")]


@pytest.mark.parametrize("partition", ["dirichlet", "shards", "iid"])
def test_every_partition_runs_from_end_to_end(tiny_config, tiny_dataset, partition):
    config = replace(tiny_config, partition=partition, concentration=0.2, policies=("none", "rl", "pooled"))
    results = d2djax.run(config, 2, data=tiny_dataset, recipe=d2djax.Recipe(Linear()), progress=False)
    assert (results["status"] == 0).all()
    before, after = results["counts_before"], results["counts"]
    np.testing.assert_array_equal(before.sum("device"), np.full((2, 5), 48))
    assert (after.sum("device") == before.sum("device")).all()
    assert (before.sum("class") == 40).all() == (partition != "dirichlet")
    assert (after.sel(policy="none") == before).all()
    assert (after.sel(policy="pooled").sum("class") == 40).all()
    assert (results["points_moved"].sel(policy="rl") > 0).all()
    # All learn something; one class in five is .2.
    assert (results["accuracy"].isel(round=-1) > 0.25).all()


# --- what runs depend on ---


def test_run_equals_simulate(found, few_policies, tiny_dataset):
    points = arrange(tiny_dataset, few_policies)
    got = jax.jit(d2djax.simulate)(run_key(1), few_policies, points)
    one = of_policys(found, *few_policies.policies).sel(run=1)
    for name in ("accuracy", "loss", "train_loss"):
        np.testing.assert_allclose(getattr(got.learning, name), one[name], err_msg=name, **TOLERANCE)
    for name in ("links", "counts", "points_moved"):
        np.testing.assert_array_equal(getattr(got.graphs, name), one[name], err_msg=name)
    np.testing.assert_array_equal(got.graphs.state, one["exchange_state"])
    np.testing.assert_array_equal(got.graphs.network.position, one["position"])
    for name, values in got.graphs.values.items():
        np.testing.assert_allclose(values, one[f"graph_{name}"], err_msg=name, **TOLERANCE)
    np.testing.assert_allclose(got.graphs.history.reward, one["discovery_reward"], **TOLERANCE)
    assert one["discovery_reward"].isnull().all("episode").values.tolist() == [True, False]


def test_run_alone_equals_the_run_among_others(found, all_policies, tiny_dataset):
    # The same program, one run after another: bit for bit.
    alone = d2djax.run(all_policies, [2], data=tiny_dataset, progress=False, width=1)
    same(alone, found.sel(run=[2]))


def test_more_seeds_keep_the_old_ones(found, all_policies, tiny_dataset):
    more = d2djax.run(all_policies, 5, data=tiny_dataset, progress=False, width=1)
    same(more.sel(run=[0, 1, 2]), found)


def test_order_of_seeds_is_kept(found, all_policies, tiny_dataset):
    turned = d2djax.run(all_policies, (2, 0), data=tiny_dataset, progress=False, width=1)
    assert turned["run"].values.tolist() == [2, 0]
    same(turned.sel(run=[0, 2]), found.sel(run=[0, 2]))


def test_two_runs_at_a_time_change_nothing(found, few_policies, tiny_dataset):
    # Two at a time do not divide three runs: the first block is full, the last is filled up, and the filling is
    # left out.
    together = d2djax.run(few_policies, 3, data=tiny_dataset, progress=False, width=2)
    same(together, of_policys(found, *few_policies.policies), **TOLERANCE)


def test_seeds_differ(found):
    for name in ("position", "loss", "discovery_reward", "counts_before"):
        assert len(np.unique(found[name].values.reshape(3, -1), axis=0)) == 3, name


def test_policies_share_their_random_numbers(found, found_none):
    # Alone or beside the others, `none` has the same network, split, first model and minibatches.
    without_rl = found.drop_dims("episode")
    same(found_none, of_policys(without_rl, "none"), **TOLERANCE)


def test_numbers_do_not_compile_anew(found_none, only_none, tiny_dataset):
    before = programs.num_compiled()
    for rate in (0.01, 0.1, 0.7):
        other = d2djax.run(replace(only_none, learning_rate=rate), 1, data=tiny_dataset, progress=False, width=1)
        assert not np.array_equal(other["loss"], found_none["loss"].isel(run=[0]))
    assert programs.num_compiled() == before


def test_what_compiles_ahead_is_what_runs(found, all_policies, tiny_dataset, monkeypatch):
    started, used, compiled = [], [], programs.compiled
    monkeypatch.setattr(programs, "start", lambda program, width: started.append(program))
    monkeypatch.setattr(
        programs, "compiled", lambda program, width: used.append(program) or compiled(program, width)
    )
    d2djax.run(all_policies, 1, data=tiny_dataset, progress=False, width=1)
    assert [program.function for program in used] == [runs.network_of, runs.graphs_of, runs.learning_of]
    assert started == used


def test_programs_compile_beside_each_other(monkeypatch):
    begun, real = threading.Barrier(3, timeout=60), programs._compile

    def together(*arguments):
        begun.wait()
        return real(*arguments)

    monkeypatch.setattr(programs, "_compile", together)
    add = [lambda shared, item, static, n=n: item + n for n in range(3)]
    needed = [programs.program_of(one, None, np.arange(3), None) for one in add]
    for program in needed:
        programs.start(program, 1)
    assert [programs.compiled(program, 1).width for program in needed] == [1, 1, 1]


def test_two_devices_equal_one(found_none, only_none, tiny_dataset, tmp_path):
    # Three runs on two devices, one of which computes the filling; each device has the program of a device
    # alone, so the results agree bit for bit.
    np.savez(tmp_path / "data.npz", x=tiny_dataset.x, y=tiny_dataset.y)
    given = {"config": asdict(only_none), "class_names": tiny_dataset.class_names, "seeds": [0, 1, 2]}
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(d2djax.__file__).parents[1]),
    }
    subprocess.run(
        [sys.executable, "-c", SHARDED, json.dumps(given), tmp_path / "data.npz", tmp_path / "out.npz"],
        env=environment,
        check=True,
        timeout=300,
    )
    with np.load(tmp_path / "out.npz") as sharded:
        assert set(sharded) == set(found_none.data_vars)
        for name, values in sharded.items():
            np.testing.assert_array_equal(values, found_none[name].values, err_msg=name)


# --- points ---


@pytest.mark.parametrize("policy", POLICIES)
def test_no_point_is_made_or_lost(found, policy):
    before = found["counts_before"].sum("device")
    np.testing.assert_array_equal(found["counts"].sel(policy=policy).sum("device"), before)
    assert (found["counts"].sel(policy=policy) >= 0).all()


def test_points_moved(found):
    change = (found["counts"] - found["counts_before"]).clip(min=0).sum(["device", "class"])
    moved = found["points_moved"]
    assert (moved.sel(policy=["none", "pooled"]) == 0).all()
    # A device may receive and give points of the same class: at least as many points move as counts change.
    exchanging = ["uniform", "rl", "nearest", "best_response"]
    assert (moved.sel(policy=exchanging) >= change.sel(policy=exchanging)).all()
    assert (moved.sel(policy=exchanging).sum("run") > 0).all()


def test_none_leaves_all_where_it_was(found):
    np.testing.assert_array_equal(found["counts"].sel(policy="none"), found["counts_before"])
    assert (found["links"].sel(policy="none") == found["device"]).all()


def test_pooled_deals_equal_numbers_of_all_classes(found, tiny_config):
    counts = found["counts"].sel(policy="pooled")
    assert (counts.sum("class") == tiny_config.points_per_device).all()
    # 40 points of 5 classes: a class that a device lacks has probability 1e-4.
    assert (counts > 0).mean() > 0.95


def test_devices_start_with_their_classes(found, tiny_config):
    before = found["counts_before"]
    assert (before.sum("class") == tiny_config.points_per_device).all()
    assert ((before > 0).sum("class") == tiny_config.classes_per_device).all()


# --- divergence ---


def test_divergence_is_flagged_and_saved(only_none, tiny_dataset, tmp_path):
    wild = replace(only_none, learning_rate=1e30)
    got = d2djax.run(wild, 2, data=tiny_dataset, progress=False, width=1)
    assert (got["status"] == 1).all()
    assert not np.isfinite(got["loss"]).all()
    # A model of NaN has no accuracy.
    assert (np.isfinite(got["accuracy"]) == np.isfinite(got["loss"])).all()
    assert (np.isfinite(got["class_accuracy"]).all("class") == np.isfinite(got["loss"])).all()
    xarray.testing.assert_identical(results.read(results.save(got, tmp_path / "wild.zarr")).load(), got)


def test_diverged_run_touches_no_other(only_none, tiny_dataset):
    # One bad point: some seeds hold it out or train on it, the others never see it. It is the first of the
    # first class, so it also fills up the blocks of every evaluation.
    x = tiny_dataset.x.astype(np.float32) / 255
    clean = replace_data(tiny_dataset, x=x)
    bad = replace_data(clean, x=x.copy())
    # Written afterwards, as a data set is not made with it.
    bad.x[np.argmax(tiny_dataset.y == 0)] = np.nan
    arguments = {"seeds": range(8), "recipe": d2djax.Recipe(Linear()), "progress": False, "width": 1}
    expected = d2djax.run(only_none, data=clean, **arguments)
    got = d2djax.run(only_none, data=bad, **arguments)
    assert (expected["status"] == 0).all()
    is_bad = got["status"].values[:, 0] == 1
    assert 0 < is_bad.sum() < 8
    finite = np.isfinite(statistics.in_training(got)[["loss", "train_loss", "drift"]]).to_array().all("variable")
    np.testing.assert_array_equal(is_bad, ~finite.all("round").values[:, 0])
    same(got.isel(run=~is_bad), expected.isel(run=~is_bad))


def replace_data(dataset, **changes):
    fields = {name: getattr(dataset, name) for name in ("x", "y", "class_names", "name", "source")}
    return Dataset(**fields | changes)


# --- keeping results ---


def test_saved_results_read_back(found, tmp_path):
    path = results.save(found, tmp_path / "deep" / "results.zarr")
    assert path == tmp_path / "deep" / "results.zarr"
    xarray.testing.assert_identical(results.read(path).load(), found)
    assert [entry.name for entry in path.parent.iterdir()] == ["results.zarr"]


def test_saving_replaces_an_earlier_store_whole(found, found_none, tmp_path):
    path = results.save(found, tmp_path / "results.zarr")
    results.save(found_none, path)
    # Nothing of the earlier, larger store is left.
    xarray.testing.assert_identical(results.read(path).load(), found_none)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.zarr"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupted_save_leaves_the_earlier_store(found, found_none, tmp_path, monkeypatch, error):
    path = results.save(found, tmp_path / "results.zarr")

    def half(dataset, store, **options):
        Path(store).mkdir()
        (Path(store) / "zarr.json").write_text("{")
        raise error("disk full")

    monkeypatch.setattr(xarray.Dataset, "to_zarr", half)
    with pytest.raises(error):
        results.save(found_none, path)
    xarray.testing.assert_identical(results.read(path).load(), found)
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.zarr"]


def test_failed_rename_leaves_the_earlier_store(found, found_none, tmp_path, monkeypatch):
    path = results.save(found, tmp_path / "results.zarr")
    rename, sources = os.replace, []

    def refuse_the_new_store(source, target):
        sources.append(source)
        if Path(source).name == "new":
            raise OSError("no space left")
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse_the_new_store)
        with pytest.raises(OSError, match="no space left"):
            results.save(found_none, path)
    assert sources
    xarray.testing.assert_identical(results.read(path).load(), found)


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.zarr: no results here"):
        results.read(tmp_path / "none.zarr")


def test_manifest_tells_how_to_make_the_results_again(found, all_policies, tiny_dataset):
    about = json.loads(found.attrs["manifest"])
    setup = runs.set_up(all_policies, tiny_dataset, None)
    same = identity.identify(
        [setup.config], [0, 1, 2], [tiny_dataset], setup.recipe, setup.parameters, runs.TAKES_PART
    )
    assert {name: about[name] for name in same} == same
    assert about["seeds"] == [0, 1, 2] and about["data"]["source"] == tiny_dataset.source
    assert about["config"]["dataset"] == "own"
    for package in ("d2djax", "jax", "jaxlib", "flax", "numpy", "xarray", "zarr"):
        assert about["machine"]["versions"][package] == metadata.version(package)
    assert len(about["machine"]["devices"]) == jax.local_device_count()
    assert about["machine"]["backend"] == jax.default_backend()
    assert about["machine"]["cores"] >= 1
    assert about["wall_seconds"] > 0
    assert datetime.fromisoformat(about["finished"]).tzinfo is not None


# --- statistics ---


def test_interval_is_that_of_scipy():
    samples = np.random.default_rng(0).normal(3, 2, (7, 4))
    mean, low, high = statistics.interval(samples)
    expected = stats.t.interval(0.95, 6, loc=samples.mean(axis=0), scale=stats.sem(samples))
    np.testing.assert_allclose(mean, samples.mean(axis=0))
    np.testing.assert_allclose([low, high], expected)
    narrow = statistics.interval(samples, level=0.5)
    np.testing.assert_allclose(narrow[1:], stats.t.interval(0.5, 6, loc=mean, scale=stats.sem(samples)))


def test_students_quantile_is_that_of_scipy_stats_bit_for_bit():
    others = np.arange(1, 500)
    for level in (0.5, 0.95, 0.99):
        np.testing.assert_array_equal(stdtrit(others, 0.5 + level / 2), stats.t.ppf(0.5 + level / 2, others))


def test_interval_by_hand():
    # 1, 2, 3: deviation 1, standard error 1 / sqrt(3); Student's quantile for 2 degrees of freedom is 4.302653.
    mean, low, high = statistics.interval(np.array([1.0, 2.0, 3.0]))
    half = 4.302653 / np.sqrt(3)
    np.testing.assert_allclose([mean, low, high], [2, 2 - half, 2 + half], rtol=1e-6)


def test_interval_of_one_seed_is_unknown():
    mean, low, high = statistics.interval(np.array([[1.0, 4.0]]))
    np.testing.assert_array_equal(mean, [1, 4])
    assert np.isnan(low).all() and np.isnan(high).all()


def curves(accuracy):
    coordinates = {"run": [0, 1], "policy": ["uniform", "none", "rl"], "round": [0, 5, 10]}
    return xarray.Dataset({"accuracy": (("run", "policy", "round"), np.array(accuracy))}, coords=coordinates)


# The first of each is that of round 0.
ACCURACY = [[[0.9, 0.2, 0.4], [0.9, 0.1, 0.2], [0.9, 0.5, 0.7]], [[0, 0.6, 0.8], [0, 0.4, 0.8], [0, 0.5, 0.5]]]


def test_mean_accuracy_is_over_the_rounds_of_training():
    got = statistics.mean_accuracy(curves(ACCURACY))
    assert got.dims == ("run", "policy")
    np.testing.assert_allclose(got, [[0.3, 0.15, 0.6], [0.7, 0.6, 0.5]])


def test_differences_are_within_runs():
    got = statistics.paired_differences(statistics.mean_accuracy(curves(ACCURACY)))
    assert got["policy"].values.tolist() == ["uniform", "rl"]
    np.testing.assert_allclose(got, [[0.15, 0.45], [0.1, -0.1]], atol=1e-12)
    to_rl = statistics.paired_differences(statistics.mean_accuracy(curves(ACCURACY)), "rl")
    np.testing.assert_allclose(to_rl.sel(policy="none"), [-0.45, 0.1], atol=1e-12)


def test_differences_to_a_policy_that_was_not_run():
    with pytest.raises(ValueError, match="reference must be among uniform, none, rl; got 'pooled'"):
        statistics.paired_differences(statistics.mean_accuracy(curves(ACCURACY)), "pooled")


# --- bad input ---


@pytest.fixture
def nothing_compiles(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("started to compile")

    monkeypatch.setattr("d2djax.running.runs.map_runs", refuse)


@pytest.mark.parametrize(
    "seeds, message",
    [
        (0, "seeds must be at least 1; got 0"),
        (-3, "seeds must be at least 1; got -3"),
        ([], "seeds must be at least 1"),
        ([1, 2, 1], r"different whole numbers.*\[1, 2, 1\]"),
        ([0, -1], r"different whole numbers.*\[0, -1\]"),
        ([2**31], "different whole numbers"),
        ([0.5, 1], "whole numbers"),
        # Seeds 0 and 1 once: the text has two characters.
        ("30", "seeds must be a count or a list of whole numbers; got '30'"),
        (b"30", "seeds must be a count or a list of whole numbers"),
        (2.0, "seeds must be a count or a list of whole numbers; got 2.0"),
        (None, "seeds must be a count or a list of whole numbers; got None"),
    ],
)
def test_bad_seeds_are_refused(only_none, tiny_dataset, seeds, message, nothing_compiles):
    with pytest.raises(ValueError, match=message):
        d2djax.run(only_none, seeds, data=tiny_dataset, progress=False)


def test_number_of_classes_must_be_that_of_the_data(only_none, tiny_dataset, nothing_compiles):
    with pytest.raises(ValueError, match="num_classes must be 5, the classes of tiny; got 4"):
        d2djax.run(replace(only_none, num_classes=4), data=tiny_dataset, progress=False)


def test_labels_without_a_name_are_refused(tiny_dataset):
    with pytest.raises(DataError, match=r"tiny .* y must be labels in 0..3, one for each of class_names; found 4"):
        replace_data(tiny_dataset, class_names=tiny_dataset.class_names[:4])


def test_too_few_points_are_refused(only_none, tiny_dataset, nothing_compiles):
    sizes = np.bincount(tiny_dataset.y)
    available = (sizes - held_out_sizes(sizes, only_none)).min()
    smallest = tiny_dataset.class_names[int(sizes.argmin())]
    # Three devices share each class, half of a device's points are of it.
    most = 2 * (int(available) // 3)
    message = rf"needs up to {3 * (most // 2 + 1)} .*class '{smallest}'; {available} are available"
    with pytest.raises(ValueError, match=message):
        d2djax.run(replace(only_none, points_per_device=most + 2), data=tiny_dataset, progress=False)


def test_as_many_points_as_there_are_will_do(only_none, tiny_dataset, monkeypatch):
    class StartedError(Exception):
        pass

    def start(*_, **__):
        raise StartedError

    monkeypatch.setattr("d2djax.running.runs.map_runs", start)
    sizes = np.bincount(tiny_dataset.y)
    most = 2 * (int((sizes - held_out_sizes(sizes, only_none)).min()) // 3)
    with pytest.raises(StartedError):
        d2djax.run(replace(only_none, points_per_device=most), data=tiny_dataset, progress=False)


def test_unknown_model_is_refused(only_none, tiny_dataset, nothing_compiles):
    with pytest.raises(
        ValueError, match="model must be one of auto, mlp, image_cnn, radio_cnn, vt_cnn2; got 'vgg'"
    ):
        d2djax.run(replace(only_none, model="vgg"), data=tiny_dataset, progress=False)


def test_classes_of_own_data_need_not_be_given(tiny_config, tiny_dataset, monkeypatch):
    seen = []

    def stop(function, shared, items, *_, **__):
        seen.append(items["config"])
        raise RuntimeError("far enough")

    monkeypatch.setattr("d2djax.running.runs.map_runs", stop)
    with pytest.raises(RuntimeError, match="far enough"):
        d2djax.run(replace(tiny_config, num_classes=0), data=tiny_dataset, progress=False)
    assert isinstance(seen[0], Config) and seen[0].num_classes == 5
