"""Non-finite numbers: `status` reports every stored one, and none of them counts."""

from types import SimpleNamespace

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from d2djax.analysis.drawings import degrees
from d2djax.analysis.plots import map_of
from d2djax.analysis.tables import above_bound
from d2djax.config import Config
from d2djax.evaluation import evaluate
from d2djax.points import Points
from d2djax.policies import candidates_of
from d2djax.running.results import (
    BOUND,
    ENERGY,
    GRAPH,
    MISSING,
    TRAINING,
    counted,
    dimensions_of,
    kind_of,
    not_finite,
    variables,
)

POLICIES = ("none", "rl", "pooled")
CONFIG = Config(policies=POLICIES, num_devices=4, num_classes=3, num_states=2)
RUNS, ROUNDS = 3, 5
WORTH = (
    *("reward", "local_reward", "global_reward", "reference_reward", "diverse_share", "num_classes", "outage"),
    *("requested_inter", "over_budget"),
)


def numbers():
    """The variables of three runs without anything that is not finite, but for what is missing on purpose."""
    real, whole = (lambda *shape, kind=kind: np.ones((RUNS, *shape), kind) for kind in (np.float32, np.int32))
    graph_values = {name: real(3, 2) for name in WORTH}
    for values in graph_values.values():
        values[:, 2] = np.nan
    learning_curve = real(3, 6)
    learning_curve[:, [0, 2]] = np.nan
    exchange = real(3)
    exchange[:, 2] = np.nan
    graphs = SimpleNamespace(
        network=SimpleNamespace(cluster=whole(4), counts=whole(4, 3)),
        state=whole(),
        place=real(4, 2),
        links=whole(3, 2, 4),
        values=graph_values,
        counts=whole(3, 4, 3),
        points_moved=whole(3),
        exchange_energy=exchange,
        control_energy=real(3),
        upload_energy=real(),
        history=SimpleNamespace(**{name: learning_curve.copy() for name in (*WORTH, "entropy")}),
        bound=None,
    )
    curves = {name: real(3, ROUNDS) for name in ("accuracy", "loss", "train_loss", "drift")}
    for name in ("train_loss", "drift"):
        curves[name][..., 0] = np.nan
    learning = SimpleNamespace(class_accuracy=real(3, ROUNDS, 3), **curves)
    return graphs, learning


def dataset(graphs, learning):
    return xarray.Dataset(
        variables(CONFIG, candidates_of(CONFIG, {}), graphs, learning, 10), {"policy": list(POLICIES)}
    )


FLOATS = {
    name: one.dims for name, one in dataset(*numbers()).data_vars.items() if one.dtype.kind == "f" and one.dims
}


def broken(name, at, value):
    """The status when one number of a variable is another."""
    graphs, learning = numbers()
    whole = dataset(graphs, learning)
    assert (whole["status"] == 0).all()
    # As arrays share their memory with the dataset, what is written here is in what it was made of.
    whole[name].values[at] = value
    return dataset(graphs, learning)["status"].values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", FLOATS)
def test_status_tells_of_every_stored_number(name, value):
    dims = FLOATS[name]
    at = tuple(1 if dim in ("run", "policy") else -1 for dim in dims)
    expected = np.zeros((RUNS, 3), int)
    # What has no policy is shared by all.
    expected[1, 1 if "policy" in dims else slice(None)] = kind_of(name)
    np.testing.assert_array_equal(broken(name, at, value), expected)


def test_kinds():
    kinds = {kind: {name for name in FLOATS if kind_of(name) == kind} for kind in (TRAINING, GRAPH, ENERGY)}
    assert kinds[TRAINING] == {"accuracy", "loss", "class_accuracy", "train_loss", "drift"}
    assert kinds[ENERGY] == {"exchange_energy", "control_energy", "upload_energy"}
    assert "position" in kinds[GRAPH] and "discovery_entropy" in kinds[GRAPH]


def test_several_kinds_add_up():
    graphs, learning = numbers()
    learning.drift[0, 1, 2] = np.inf
    graphs.exchange_energy[0, 1] = np.nan
    graphs.values["outage"][0, 1, 0] = np.nan
    assert dataset(graphs, learning)["status"].values[0].tolist() == [0, TRAINING + GRAPH + ENERGY, 0]


def test_what_is_missing_on_purpose_is_named():
    found = dataset(*numbers())
    for name, one in found.data_vars.items():
        missing = one.dtype.kind == "f" and bool(one.isnull().any())
        assert missing == (name in MISSING) == ("missing" in one.attrs), name
    # Missing, not infinite.
    assert broken("exchange_energy", (0, 2), np.inf)[0].tolist() == [0, 0, ENERGY]


# --- what counts ---


def counted_with(status, name):
    found = dataset(*numbers())
    found["status"].values[:] = status
    return counted(found, name)


def test_a_diverged_training_does_not_count_in_any_round():
    status = np.zeros((RUNS, 3), int)
    status[0, 1], status[1, 0], status[2, 2] = TRAINING, GRAPH, ENERGY
    accuracy = counted_with(status, "accuracy")
    assert accuracy.dims == ("run", "policy", "round") and accuracy.attrs["units"] == "1"
    np.testing.assert_array_equal(accuracy.isnull().all("round"), [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(accuracy.isnull().any("round"), accuracy.isnull().all("round"))
    # Training that diverged takes nothing from the graph and its energy; a graph that did, from both.
    np.testing.assert_array_equal(counted_with(status, "points_moved").isnull(), [[0, 0, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(
        counted_with(status, "control_energy").isnull(), [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    )


def test_numbers_of_all_policies_and_of_one_that_learns():
    status = np.zeros((RUNS, 3), int)
    status[0, 1], status[1] = GRAPH, ENERGY
    assert counted_with(status, "upload_energy").isnull().values.tolist() == [False, True, False]
    curves = counted_with(status, "discovery_reward")
    assert curves.isnull().all("episode")[:, 1].values.tolist() == [True, False, False]


def test_selections_and_unfinished_runs():
    found = dataset(*numbers()).assign(done=("run", np.array([1, 0, 1], np.int8)))
    found["status"].values[0, 1] = TRAINING
    rl = found.sel(policy="rl")
    assert counted(rl, "accuracy").isnull().all("round").values.tolist() == [True, True, False]
    assert counted(rl.isel(run=2), "accuracy").notnull().all()
    assert counted(found, "upload_energy").isnull().values.tolist() == [False, True, False]


def test_infinity_and_absent_devices_are_no_numbers():
    found = dataset(*numbers())
    found["counts"].values[:, :, 3] = -1
    found["drift"].values[0, 0, 1] = np.inf
    assert counted(found, "counts").isnull().all(("run", "policy", "class")).values.tolist() == [False] * 3 + [True]
    drift = counted(found, "drift").isel(round=slice(1, None))
    assert np.isnan(drift[0, 0, 0]) and int(drift.isnull().sum()) == 1


def test_every_variable_tells_its_dimensions():
    found = dataset(*numbers())
    assert {name: dimensions_of(name) for name in found} == {
        name: one.dims for name, one in found.data_vars.items()
    }


def test_what_xarray_fills_gaps_in_counts_alike():
    found = dataset(*numbers()).assign(done=("run", np.ones(RUNS, np.int8)))
    found["counts"].values[1, :, 3] = -1
    found["status"].values[1, 2] = GRAPH
    part = found.where(found["done"] > 0)
    for name in ("counts", "points_moved", "accuracy"):
        xarray.testing.assert_identical(counted(part, name), counted(found, name))
    shorter = found.where(found["run"] < 2)
    assert shorter["status"].isnull().any() and counted(shorter, "points_moved").isnull().sum("run")[2] == 2
    with pytest.raises(ValueError, match="results must have speed, which these lack"):
        counted(found, "speed")


def test_a_policy_without_weights_has_no_graph():
    graphs, learning = numbers()
    graphs.history.entropy[0, 1, 3] = np.nan
    # NaN by the reward alone: there is a graph.
    graphs.history.reward[1, 1, 3] = np.nan
    found, before = dataset(graphs, learning), dataset(*numbers())
    assert found["status"].values.tolist() == [[0, GRAPH, 0], [0, GRAPH, 0], [0, 0, 0]]
    lost = {name for name in found.data_vars if name.startswith("graph_") or kind_of(name) == TRAINING}
    assert {"graph_reward", "accuracy", "class_accuracy"} <= lost
    for name in ("links", "counts", "points_moved"):
        assert (found[name][0, 1] == -1).all() and found[name].dtype == before[name].dtype, name
        assert (found[name][1:] == before[name][1:]).all()
    assert map_of(found, "rl").count(",\n") == 4 and map_of(found, "none").count(",\n") == 1
    receivers = degrees(found).axes[0].lines[1].get_ydata()
    np.testing.assert_array_equal(receivers, degrees(before).axes[0].lines[1].get_ydata())
    for name in {"exchange_energy"} | lost:
        assert np.isnan(found[name][0, 1]).all() and found[name].dtype == np.float32, name
        others = (found[name].run != 0) | (found[name].policy != "rl")
        np.testing.assert_array_equal(found[name].where(others), before[name].where(others))
    assert found["control_energy"].notnull().all()


def test_a_reward_above_its_bound_is_told_and_counts():
    graphs, learning = numbers()
    # All rewards are 1 but one of another policy in the last run, which rl never found.
    graphs.values["reward"][2, 0, 1] = 3.0
    graphs.bound = np.array([1.0, 0.9, 2.0], np.float32)
    found = dataset(graphs, learning)
    assert found["status"].values.tolist() == [[0, 0, 0], [0, BOUND, 0], [0, BOUND, 0]]
    assert not not_finite(found["status"]).any()
    assert counted(found, "graph_reward").sel(policy="rl").notnull().all()
    assert counted(found, "accuracy").notnull().all()
    (line,) = above_bound(found)
    assert line.startswith("in 2 runs a mean reward is above the upper_bound")
    graphs.history.entropy[1, 1, 3] = np.nan
    status = dataset(graphs, learning)["status"]
    assert status[1, 1] == GRAPH + BOUND and not_finite(status).sum() == 1
    assert above_bound(dataset(*numbers())) == []


# --- where it comes from ---


class Biased(nn.Module):
    """Logits that are the input: whatever is to be evaluated."""

    @nn.compact
    def __call__(self, x):
        return x


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_diverged_has_no_accuracy(value):
    # The argmax of NaN is class 0, as good a guess as any.
    y = np.arange(12, dtype=np.int32) % 3
    x = np.eye(3, dtype=np.float32)[y]
    points = lambda x: Points(jnp.asarray(x), jnp.asarray(y), jnp.float32(0), jnp.float32(1), (4, 4, 4))  # noqa: E731
    good = evaluate(Biased(), {}, points(x), jnp.arange(12))
    assert float(good.accuracy) == 1.0 and np.isfinite(good.loss)
    bad = evaluate(Biased(), {}, points(np.full_like(x, value)), jnp.arange(12))
    assert np.isnan(bad.accuracy) and np.isnan(bad.class_accuracy).all() and not np.isfinite(bad.loss)
