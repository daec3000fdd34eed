"""Points with owners: the split within each owner, the points of each device, and contradictory settings."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import d2djax
from d2djax import points, supply
from d2djax.data.types import DataError, Dataset
from d2djax.partition import class_counts
from d2djax.recipe import Recipe
from d2djax.rng import run_key
from d2djax.running.axes import Uniform
from d2djax.running.plan import plan_sweep
from d2djax.running.runs import fill_in, set_up
from d2djax.searching.searches import search
from d2djax.simulation import simulate
from d2djax.transfer import transfer

# Points of each of 6 owners: ragged, one with a single point, and whole classes that some lack.
SIZES = (1, 230, 60, 309, 150, 250)


@pytest.fixture(scope="module")
def owned(tiny_dataset):
    """The tiny data set, whose points belong to six owners; the first has one point, the second no class e."""
    owner = np.random.default_rng(1).permutation(np.repeat(np.arange(6), SIZES))
    owner[(owner == 1) & (tiny_dataset.y == 4)] = 3
    return replace(tiny_dataset, owner=owner, name="written")


@pytest.fixture(scope="module")
def config(tiny_config):
    """The tiny setting without what the owners say."""
    left = ("num_devices", "classes_per_device", "points_per_device")
    small = {"model": "mlp", "learning_rate": 0.05, "policies": ("none", "rl", "pooled")}
    return replace(tiny_config, **{name: getattr(d2djax.Config, name) for name in left}, **small)


@pytest.fixture(scope="module")
def filled(config, owned):
    return d2djax.validate(fill_in(config, owned, None))


def test_settings_follow_from_the_owners(filled, owned, config):
    assert (filled.num_devices, filled.partition, filled.points_per_device) == (6, "own", 167)
    # Regardless of the data set's name, no preset sets the number of points per device.
    named = fill_in(replace(config, num_devices=6), replace(owned, name="fashion_mnist"), None)
    assert d2djax.validate(named).points_per_device == 167
    assert fill_in(filled, owned, None) == filled
    # Settings of other partitions are not used.
    others = replace(config, classes_per_device=7, shards_per_device=9, points_per_device=10**6)
    assert d2djax.validate(fill_in(others, owned, None)).points_per_device == 167


# --- the split ---


@given(
    arrays(np.int64, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=st.integers(0, 40)),
    st.floats(0.01, 0.99),
)
@settings(deadline=None)
def test_every_owner_holds_out_its_share_of_each_class(sizes, test_fraction):
    sizes[:, 0] += sizes.sum(axis=1) == 0
    held_out = supply.held_out_of_owners(sizes, d2djax.Config(test_fraction=test_fraction))
    for row, out in zip(sizes, held_out, strict=True):
        total = round(row.sum() * test_fraction)
        assert out.sum() == total
        for have, gives in zip(row, out, strict=True):
            assert 0 <= gives <= have and abs(gives - have * total / row.sum()) < 1


def test_owners_with_few_points_of_each_class_hold_out_every_class_alike():
    # 500 owners with a point or two of each of 10 classes, of which some 750 points are a class: within 4 standard
    # deviations of a random choice.
    sizes = np.random.default_rng(0).integers(1, 3, (500, 10))
    share = supply.held_out_of_owners(sizes, d2djax.Config()).sum(0) / sizes.sum(0)
    assert np.abs(share - 0.2).max() < 4 * np.sqrt(0.16 / 750)


@pytest.fixture(scope="module")
def dealt(owned, filled):
    """The points as they are arranged, and held-out points and those of the devices in 40 runs."""
    arranged = points.arrange(owned, filled)
    deal = lambda seed, all_points: points.deal(run_key(seed), all_points, all_points.owned.counts, filled)  # noqa: E731
    found = jax.jit(jax.vmap(deal, (0, None)))(np.arange(40), arranged)
    return arranged, *map(np.asarray, found)


def test_everybody_keeps_his_own(owned, filled, dealt):
    arranged, test, train = dealt
    order = np.lexsort((owned.y, owned.owner))
    np.testing.assert_array_equal(arranged.x, owned.x[order])
    assert arranged.sizes == (200, 180, 210, 190, 220)
    for run in range(len(test)):
        np.testing.assert_array_equal(np.sort(np.append(test[run], train[run])), np.arange(1000))
        held_out, start = order[test[run]], 0
        for device in range(6):
            # One owner after the other, with plain loops: a fifth is held out, the rest stands in order of class.
            own = np.flatnonzero(owned.owner == device)
            kept = [number for number in own if number not in set(held_out)]
            assert len(own) - len(kept) == round(len(own) * 0.2)
            mine = order[train[run][start : start + len(kept)]]
            assert sorted(mine) == kept and (np.diff(owned.y[mine]) >= 0).all()
            counts = [sum(owned.y[number] == label for number in kept) for label in range(5)]
            np.testing.assert_array_equal(arranged.owned.counts[device], counts)
            start += len(kept)


def test_every_point_is_held_out_in_some_runs(owned, dealt):
    _, test, _ = dealt
    times = np.bincount(test.reshape(-1), minlength=1000)
    of_many = np.sort(owned.owner) > 0
    assert times[of_many].min() > 0 and times.max() < 40 and abs(times[of_many].mean() / 40 - 0.2) < 0.01
    # The only point of an owner trains.
    assert times[~of_many] == 0


def test_what_is_sent_arrives_and_nothing_is_lost(owned, dealt):
    arranged, _, train = dealt
    counts = np.asarray(arranged.owned.counts)
    links = np.array([3, 3, 1, 3, 5, 5])
    received = np.minimum(counts[links] // 3, 40) * (links != np.arange(6))[:, None]
    holding = transfer(train[0], counts, links, received)
    given_away = np.zeros_like(counts)
    np.add.at(given_away, links, received)
    stretch = [np.asarray(holding.points[s : s + n]) for s, n in zip(holding.start, holding.size, strict=True)]
    found = [np.bincount(np.asarray(arranged.y)[one], minlength=5) for one in stretch]
    np.testing.assert_array_equal(found, counts + received - given_away)
    np.testing.assert_array_equal(np.sort(np.concatenate(stretch)), np.sort(train[0]))


# --- a run ---


@pytest.fixture(scope="module")
def results(config, owned):
    return d2djax.run(config, [0, 3], data=owned, progress=False)


def test_a_run_begins_with_what_the_owners_have(results, owned, filled):
    counts = supply.owners_counts(owned, filled)
    assert counts.sum(1).tolist() == [1, *(n - round(0.2 * n) for n in np.bincount(owned.owner)[1:])]
    for run in range(2):
        np.testing.assert_array_equal(results["counts_before"][run], counts)
        np.testing.assert_array_equal(results["counts"].sel(policy="none")[run], counts)
    assert (results["counts"].sum("device") == counts.sum(0)).all()
    size = results["counts"].sel(policy="pooled").sum("class")
    assert size.max() - size.min() <= 1
    assert (results["status"] == 0).all() and np.isfinite(results["accuracy"]).all()
    # None of the owners changes with the seed, and the split does.
    assert (results["accuracy"][0] != results["accuracy"][1]).any()


def test_graphs_alone_are_those_of_runs_that_train(config, owned, results):
    graphs = d2djax.run(config, [0, 3], data=owned, training=False, progress=False)
    for name in ("links", "counts", "graph_reward", "discovery_reward"):
        np.testing.assert_array_equal(graphs[name], results[name])


def test_one_run_by_itself_takes_the_counts_of_the_owners(filled, owned, results):
    arranged = points.arrange(owned, filled)
    found = jax.eval_shape(lambda all_points: simulate(run_key(3), filled, all_points, Recipe()), arranged)
    assert found.graphs.counts.shape == results["counts"].shape[1:]
    assert found.learning.accuracy.shape == results["accuracy"].shape[1:]


def test_manifests_tell_owners_and_no_partition(results, config, owned):
    about = json.loads(results.attrs["manifest"])
    assert about["config"]["partition"] == "own" and about["config"]["num_devices"] == 6
    assert not {"points_per_device", "classes_per_device", "concentration", "shards_per_device"} & set(
        about["config"]
    )
    assert about["config"]["test_fraction"] == 0.2


def test_a_sweep_that_goes_on_with_other_owners_is_refused(config, owned, tmp_path):
    options = {"training": False, "progress": False, "out": tmp_path}
    axes = {"gamma": [0.0, 0.5]}
    found = d2djax.sweep(config, axes, [0], data=owned, **options)
    assert (found["done"] == 1).all() and found.sizes["device"] == 6
    # Two points of different classes change hands.
    owner = owned.owner.copy()
    first, second = np.flatnonzero(owner == 3)[0], np.flatnonzero(owner == 5)[0]
    owner[[first, second]] = owner[[second, first]]
    assert owned.y[first] != owned.y[second]
    with pytest.raises(ValueError, match=r"data\.owners: ") as caught:
        d2djax.sweep(config, axes, [0, 1], data=replace(owned, owner=owner), **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"config.test_fraction: 0.2 there, 0.3 now"):
        d2djax.sweep(replace(config, test_fraction=0.3), axes, [0, 1], data=owned, **options)


def test_shares_that_are_held_out_are_points_of_a_sweep(config, owned):
    design = plan_sweep(config, {"test_fraction": [0.2, 0.5]}, 1, owned)
    counts = [setup.counts.sum() for setup in design.setups]
    assert counts == [setup.points.owned.train.shape[0] for setup in design.setups]
    assert counts == [sum(n - round(n * share) for n in np.bincount(owned.owner)) for share in (0.2, 0.5)]


# --- what is refused ---

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])


def small(owner, y=Y):
    return Dataset(X, y, ("low", "high"), "mine", "drawn here", owner=owner)


@pytest.mark.parametrize(
    "owner, message",
    [
        ([0, 0, 1, 1, 2], "owner must have one entry per point; got 6 points and 5 owners"),
        ([0, 0, 1, 1, 2, -1], r"owner must be device numbers, 0 or more; found -1 at \[5\]"),
        (
            [0, 0, 1, 1, 3, 3],
            "owner must number the devices from 0 without a gap; 2 is unused and 3 is the largest",
        ),
        ([1, 1, 1, 2, 2, 2], "without a gap; 0 is unused and 2 is the largest"),
        ([0, 0, 1, 1, 2, 2**40], "without a gap; 3 is unused and 1099511627776 is the largest"),
        ([0, 0, 1, 1, 2, 0.5], r"owner must be whole numbers; found 0.5 at \[5\]"),
        ([0, 0, 1, 1, 2, np.nan], r"owner must be whole numbers; found nan at \[5\]"),
        (list("aabbcc"), r"owner must be numbers; got 'a' in it; np.unique\(owner, return_inverse=True\)"),
        (np.zeros((6, 2)), r"owner must be \[n\], the device of each point; got shape \[6, 2\]"),
        (np.zeros(6, complex), "owner must be whole numbers; got complex128"),
        (np.ma.masked_array([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1]), "owner must have no masked values"),
    ],
)
def test_wrong_owners_are_refused_in_a_line(owner, message):
    with pytest.raises(DataError, match=message) as caught:
        small(owner)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("mine (drawn here): ")


def test_owners_of_any_whole_kind_are_taken():
    for owner in ([0, 0, 1, 1, 2, 2], np.array([[0.0], [0], [1], [1], [2], [2]]), np.uint8([0, 0, 1, 1, 2, 2])):
        assert small(owner).owner.dtype == np.int32 and small(owner).owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert small(None).owner is None


GRAPHS = d2djax.Config(num_episodes=20, record_every=20, min_classes=1)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_devices": 4}, "num_devices must be 3, the owners of mine; got 4"),
        ({"partition": "iid"}, "partition must be 'own', as the points of mine have owners; got 'iid'"),
        ({"test_fraction": 0.1}, "test_fraction=0.1 leaves class 'low' without a held-out point"),
    ],
)
def test_settings_that_contradict_the_owners_are_refused_in_a_line(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        set_up(replace(GRAPHS, **changes), small([0, 0, 1, 1, 2, 2]), None, trains=False)
    assert "\n" not in str(caught.value)


def test_what_owners_say_is_no_axis(tmp_path):
    data = small([0, 0, 1, 1, 2, 2])
    for name, values in (("num_devices", [3, 25]), ("points_per_device", [2]), ("partition", ["own", "iid"])):
        with pytest.raises(ValueError, match=f"{name} cannot be an axis if points have owners, as in mine"):
            plan_sweep(GRAPHS, {name: values}, 1, data, trains=False)
    with pytest.raises(ValueError, match="concentration cannot be an axis if points have owners"):
        ranges = {"concentration": Uniform(0.1, 1)}
        search(GRAPHS, ranges, ("reward",), data=data, out=tmp_path, progress=False)


def test_a_single_owner_has_nobody_to_ask():
    with pytest.raises(ValueError, match="the points of mine must have at least 2 owners; got 1"):
        set_up(GRAPHS, small(np.zeros(6)), None, trains=False)


def test_nothing_is_left_of_single_points_that_are_held_out():
    with pytest.raises(ValueError, match=r"test_fraction=0\.9 leaves no owner a point for training"):
        set_up(replace(GRAPHS, test_fraction=0.9), small(np.arange(6)), None, trains=False)


def test_own_points_need_owners():
    with pytest.raises(ValueError, match="partition='own' stands for points that have owners; mine has none"):
        set_up(replace(GRAPHS, partition="own", points_per_device=1), small(None), None, trains=False)
    with pytest.raises(ValueError, match="partition='own' stands for "):
        class_counts(run_key(0), replace(GRAPHS, partition="own"))
