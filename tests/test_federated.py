import math
from dataclasses import replace
from functools import partial

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle
import pytest

from d2djax import evaluation, federated, sampling
from d2djax.config import as_numbers
from d2djax.points import Points, arrange
from d2djax.recipe import Recipe
from d2djax.rng import Stream, at, run_key
from d2djax.transfer import Holding

KEY = run_key(11)
# Uneven, with a device that holds one point.
SIZES = np.array([1, 5, 40, 17, 60, 30], np.int32)


class Linear(nn.Module):
    """Softmax regression: the oracle has its gradient."""

    num_classes: int = 5

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


class Dropped(Linear):
    """Softmax regression whose inputs are dropped in training; its parameters have the names of `Linear`."""

    rate: float = 0.5

    @nn.compact
    def __call__(self, x, train=False):
        dropped = nn.Dropout(self.rate, deterministic=not train)(x.reshape(x.shape[0], -1))
        return nn.Dense(self.num_classes)(dropped)


TRACES = []


@partial(jax.jit, static_argnums=1)
def trained(key, model, points, test, holding, config):
    TRACES.append(config)
    return federated.train(key, Recipe(model), points, test, holding, config)


drawn = jax.jit(sampling.minibatch)
evaluated = jax.jit(evaluation.evaluate, static_argnums=0)
participants_of = jax.jit(sampling.participants)


def hold(points, sizes):
    start = np.cumsum(sizes) - sizes
    return Holding(jnp.asarray(points, jnp.int32), jnp.asarray(start, jnp.int32), jnp.asarray(sizes, jnp.int32))


@pytest.fixture(scope="module")
def points(tiny_dataset, tiny_config):
    return arrange(tiny_dataset, tiny_config)


@pytest.fixture(scope="module")
def shuffled(points):
    return np.random.default_rng(3).permutation(points.y.shape[0]).astype(np.int32)


@pytest.fixture(scope="module")
def holding(shuffled):
    return hold(shuffled[: SIZES.sum()], SIZES)


@pytest.fixture(scope="module")
def test_points(shuffled):
    return shuffled[SIZES.sum() : SIZES.sum() + 99]


@pytest.fixture(scope="module")
def config(tiny_config):
    return replace(
        tiny_config, num_steps=12, aggregation_interval=3, evaluate_every=2, batch_size=4, learning_rate=0.5
    )


def as_images(points):
    """[n, F] float64, standardised over all bytes, labels [n]."""
    x = np.asarray(points.x, float)
    return (x.reshape(len(x), -1) - x.mean()) / x.std(), np.asarray(points.y)


def first_model(points):
    dense = Linear().init(at(KEY, Stream.MODEL), jnp.zeros((1, *points.x.shape[1:])))["params"]["Dense_0"]
    return np.asarray(dense["kernel"], float), np.asarray(dense["bias"], float)


def logits_and_loss(kernel, bias, x, y):
    logits = x @ kernel + bias
    losses = []
    for row, label in zip(logits, y, strict=True):
        shift = max(row)
        losses.append(shift + math.log(sum(math.exp(z - shift) for z in row)) - row[label])
    return logits, sum(losses) / len(losses)


def minibatch_points(holding, step, config):
    """[N, B]: the documented draw, floor(uniform * size) places after the device's first point."""
    shape = (len(holding.size), config.batch_size)
    uniform = np.asarray(jax.random.uniform(at(KEY, Stream.MINIBATCH, step), shape))
    numbers = np.zeros(shape, int)
    for i in np.flatnonzero(holding.size):
        for b in range(shape[1]):
            place = math.floor(uniform[i, b] * np.float32(holding.size[i]))
            numbers[i, b] = holding.points[holding.start[i] + place]
    return numbers


def replay(points, test, holding, config, mask=lambda shape, step, device: 1.0):
    """Sections II-A.4 and IV in loops over steps and devices; accuracy, loss, train_loss, drift per evaluation."""
    x, y = as_images(points)
    model = first_model(points)
    num_devices, occupied, curves, train_losses, drifts = len(holding.size), holding.size > 0, [], [], []
    interval = 1 if config.scheme == "fedsgd" else config.aggregation_interval
    mu = config.proximal_weight if config.scheme == "fedprox" else 0.0
    local = [model] * num_devices
    for step in range(config.num_steps):
        batch = minibatch_points(holding, step, config)
        for i in np.flatnonzero(occupied):
            x_batch, y_batch = x[batch[i]] * mask((config.batch_size, x.shape[1]), step, i), y[batch[i]]
            train_losses.append(logits_and_loss(*local[i], x_batch, y_batch)[1])
            local[i] = oracle.sgd_step(*local[i], x_batch, y_batch, config.learning_rate, mu, model)
        if (step + 1) % interval == 0:
            middle = [oracle.weighted_average([m[part] for m in local], occupied) for part in (0, 1)]
            squares = [sum(((m[part] - middle[part]) ** 2).sum() for part in (0, 1)) for m in local]
            drifts.append(np.mean(np.sqrt(squares)[occupied]))
            weights = np.where(np.asarray(participants_of(KEY, step // interval, config)), holding.size, 0)
            if weights.sum() > 0:
                model = tuple(oracle.weighted_average([m[part] for m in local], weights) for part in (0, 1))
            local = [model] * num_devices
        if (step + 1) % (config.aggregation_interval * config.evaluate_every) == 0:
            logits, loss = logits_and_loss(*model, x[test], y[test])
            right = np.mean(np.argmax(logits, axis=1) == y[test])
            curves.append([right, loss, np.mean(train_losses), np.mean(drifts)])
            train_losses, drifts = [], []
    return np.array(curves).T


def masks(shape, step, device):
    """What dropout leaves of the inputs of a minibatch: 0 or 2 for each, by step and device alone."""
    key = jax.random.fold_in(at(KEY, Stream.DROPOUT, step), device)
    # With each input 1 and a layer that keeps them apart, the logits are the mask.
    eye = {"params": {"Dense_0": {"kernel": jnp.eye(shape[1]), "bias": jnp.zeros(shape[1])}}}
    return np.asarray(Dropped(shape[1]).apply(eye, jnp.ones(shape), train=True, rngs={"dropout": key}), float)


def split_rounds(learning):
    """The first evaluation, before training, and all others."""
    return tuple(jax.tree.map(lambda curve, part=part: curve[part], learning) for part in (0, slice(1, None)))


def same_as_replay(points, test_points, holding, config, model=None, **options):
    first, got = split_rounds(trained(KEY, model or Linear(), points, test_points, holding, config))
    parameters, x, y = first_model(points), *as_images(points)
    logits, loss = logits_and_loss(*parameters, x[test_points], y[test_points])
    np.testing.assert_allclose(first.loss, loss, rtol=1e-4)
    np.testing.assert_allclose(first.accuracy, np.mean(np.argmax(logits, axis=1) == y[test_points]), atol=1e-4)
    assert np.isnan(first.train_loss) and np.isnan(first.drift)
    accuracy, loss, train_loss, drift = replay(points, test_points, holding, config, **options)
    np.testing.assert_allclose(got.loss, loss, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.train_loss, train_loss, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.accuracy, accuracy, rtol=1e-4, atol=1e-4)
    # FedSGD has one model only, so no drift.
    expected = np.zeros_like(drift) if config.scheme == "fedsgd" else drift
    np.testing.assert_allclose(got.drift, expected, rtol=1e-3, atol=1e-5)
    return got


@pytest.mark.parametrize("scheme", ["fedavg", "fedprox", "fedsgd"])
@pytest.mark.parametrize("straggler_draw", ["run", "aggregation"])
def test_schemes_and_stragglers_match_a_replay_in_loops(
    points, test_points, holding, config, scheme, straggler_draw
):
    config = replace(config, scheme=scheme, straggler_draw=straggler_draw, proximal_weight=0.7, num_stragglers=2)
    same_as_replay(points, test_points, holding, config)
    alone = same_as_replay(points, test_points, holding, replace(config, num_stragglers=5))
    assert np.isfinite(alone.loss).all()


@pytest.mark.parametrize("scheme", ["fedavg", "fedsgd"])
def test_dropout_acts_in_training_alone_by_step_and_device(points, test_points, holding, config, scheme):
    config = replace(config, scheme=scheme)
    got = same_as_replay(points, test_points, holding, config, Dropped(), mask=masks)
    plain = trained(KEY, Linear(), points, test_points, holding, config)
    assert not np.allclose(got.train_loss, split_rounds(plain)[1].train_loss)
    # Nothing is dropped: the masks are there, and the numbers are those without.
    none = trained(KEY, Dropped(rate=0.0), points, test_points, holding, config)
    np.testing.assert_allclose(none.loss, plain.loss, rtol=1e-5)
    assert not np.array_equal(masks((4, 9), 1, 0), masks((4, 9), 1, 1))
    assert not np.array_equal(masks((4, 9), 1, 0), masks((4, 9), 2, 0))


def test_a_model_of_no_weight_may_be_no_number():
    local = {"w": jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf], [3.0, 6.0]])}
    average = federated.weighted_average(local, jnp.array([1.0, 0.0, 3.0]))
    np.testing.assert_allclose(average["w"], [2.5, 5.0])


# In FedSGD no device has a model of its own that could leave the finite numbers.
@pytest.mark.parametrize("scheme", ["fedavg", "fedprox"])
def test_what_a_straggler_holds_does_not_reach_the_model(points, test_points, holding, config, scheme):
    config = replace(config, scheme=scheme, num_stragglers=2)
    absent = np.flatnonzero(~np.asarray(participants_of(KEY, 0, config)))
    theirs = np.concatenate([stretch_of(holding, device) for device in absent])
    values = np.asarray(points.x, np.float32) - 100
    tame = replace(points, x=jnp.asarray(values), mean=jnp.float32(0), std=jnp.float32(50))
    values[np.setdiff1d(theirs, test_points)] *= 1e30
    wild = replace(tame, x=jnp.asarray(values))
    expected, got = (trained(KEY, Linear(), some, test_points, holding, config) for some in (tame, wild))
    np.testing.assert_array_equal(got.loss, expected.loss)


def stretch_of(holding, device):
    start = int(holding.start[device])
    return np.asarray(holding.points)[start : start + int(holding.size[device])]


@pytest.mark.parametrize("scheme", ["fedavg", "fedsgd"])
def test_devices_without_a_point_count_for_nothing(points, test_points, shuffled, config, scheme):
    # The third and the last of them have none, as a Dirichlet partition may leave them.
    sizes = np.array([1, 45, 0, 17, 90, 0], np.int32)
    few = hold(shuffled[: SIZES.sum()], sizes)
    same_as_replay(points, test_points, few, replace(config, scheme=scheme))


def test_no_weight_in_fedprox_is_fedavg(points, test_points, holding, config):
    average = trained(KEY, Linear(), points, test_points, holding, config)
    proximal = replace(config, scheme="fedprox", proximal_weight=0.0)
    chex.assert_trees_all_equal(trained(KEY, Linear(), points, test_points, holding, proximal), average)


def test_more_weight_in_fedprox_means_less_drift(points, test_points, holding, config):
    drifts = [
        float(
            trained(KEY, Linear(), points, test_points, holding, replace(config, scheme="fedprox", **mu)).drift[1]
        )
        for mu in ({"proximal_weight": 0.0}, {"proximal_weight": 0.5}, {"proximal_weight": 1.5})
    ]
    assert drifts[0] > drifts[1] > drifts[2] > 0


@pytest.mark.parametrize("scheme", ["fedavg", "fedprox", "fedsgd"])
def test_if_all_straggle_the_model_stays(points, test_points, holding, config, scheme):
    config = replace(config, scheme=scheme, num_stragglers=6)
    got = trained(KEY, Linear(), points, test_points, holding, config)
    x, y = as_images(points)
    _, loss = logits_and_loss(*first_model(points), x[test_points], y[test_points])
    np.testing.assert_allclose(got.loss, [loss, loss, loss], rtol=1e-4)


def test_stragglers_are_fixed_or_drawn_anew(config):
    fixed, fresh = (replace(config, num_stragglers=2, straggler_draw=draw) for draw in ("run", "aggregation"))
    masks = {
        config.straggler_draw: np.array([participants_of(KEY, step, config) for step in range(40)])
        for config in (fixed, fresh)
    }
    for mask in masks.values():
        assert (mask.sum(axis=1) == 4).all()
    assert (masks["run"] == masks["run"][0]).all()
    # Each of 6 devices straggles in a third of 40 draws, give or take three standard deviations.
    straggles = (~masks["aggregation"]).sum(axis=0)
    assert (straggles > 4).all() and (straggles < 23).all()


def server_momentum(rate):
    return optax.sgd(rate, momentum=0.9)


def test_server_optimiser_of_step_one_is_the_average(points, test_points, holding, config):
    average = trained(KEY, Linear(), points, test_points, holding, config)
    recipe = Recipe(Linear(), server=optax.sgd)
    got = federated.train(KEY, recipe, points, test_points, holding, replace(config, server_learning_rate=1.0))
    chex.assert_trees_all_close(got, average, rtol=1e-5, atol=1e-6)


def test_server_momentum_goes_on(points, test_points, holding, config):
    # Two aggregations by hand: the second change adds 0.9 of the first one.
    config = replace(config, num_steps=6, evaluate_every=1, server_learning_rate=1.0)
    recipe = Recipe(Linear(), server=server_momentum)
    got = federated.train(KEY, recipe, points, test_points, holding, config)
    x, y = as_images(points)
    model, momentum = first_model(points), (0.0, 0.0)
    for aggregation in range(2):
        local = [model] * 6
        for step in range(3 * aggregation, 3 * aggregation + 3):
            batch = minibatch_points(holding, step, config)
            local = [oracle.sgd_step(*local[i], x[batch[i]], y[batch[i]], config.learning_rate) for i in range(6)]
        average = [oracle.weighted_average([m[part] for m in local], holding.size) for part in (0, 1)]
        momentum = tuple(0.9 * momentum[part] + model[part] - average[part] for part in (0, 1))
        model = tuple(model[part] - momentum[part] for part in (0, 1))
        _, loss = logits_and_loss(*model, x[test_points], y[test_points])
        assert float(got.loss[aggregation + 1]) == pytest.approx(loss, rel=1e-4)


def test_fedsgd_refuses_a_server_optimiser(points, test_points, holding, config):
    recipe = Recipe(Linear(), server=optax.sgd)
    config = replace(config, scheme="fedsgd", server_learning_rate=1.0)
    with pytest.raises(ValueError, match="fedsgd"):
        federated.train(KEY, recipe, points, test_points, holding, config)


@pytest.mark.parametrize("server, missing", [(None, "learning_rate"), (optax.adam, "server_learning_rate")])
def test_step_sizes_that_are_missing_are_named(points, test_points, holding, config, server, missing):
    recipe = Recipe(Linear(), server=server)
    with pytest.raises(ValueError, match=f"{missing} must be given"):
        federated.train(KEY, recipe, points, test_points, holding, replace(config, **{missing: None}))


def test_accuracy_by_class_averages_to_the_accuracy(points, test_points, holding, config):
    got = trained(KEY, Linear(), points, test_points, holding, config)
    share = np.bincount(np.asarray(points.y)[test_points], minlength=5) / len(test_points)
    np.testing.assert_allclose(np.asarray(got.class_accuracy) @ share, got.accuracy, rtol=1e-5)


def test_training_matches_a_replay_in_loops(points, test_points, holding, config):
    got = same_as_replay(points, test_points, holding, config)
    assert got.accuracy.shape == (2,)
    # The replay is worth something only if training moved the model.
    assert got.loss[1] < got.loss[0]
    assert got.accuracy[1] > 0.25


def test_identical_holdings_and_one_local_step_are_centralised_sgd(points, test_points, config):
    config = replace(config, num_steps=4, aggregation_interval=1, evaluate_every=1)
    everyone = Holding(jnp.arange(60, dtype=jnp.int32), jnp.zeros(6, jnp.int32), jnp.full(6, 60, jnp.int32))
    got = trained(KEY, Linear(), points, test_points, everyone, config)
    x, y = as_images(points)
    kernel, bias = first_model(points)
    for step in range(4):
        batch = minibatch_points(everyone, step, config).reshape(-1)
        # One gradient over all minibatches together: they are equally large, so it is the mean of theirs.
        d_kernel, d_bias = oracle.softmax_gradient(kernel, bias, x[batch], y[batch])
        kernel, bias = kernel - config.learning_rate * d_kernel, bias - config.learning_rate * d_bias
        _, loss = logits_and_loss(kernel, bias, x[test_points], y[test_points])
        assert float(got.loss[step + 1]) == pytest.approx(loss, rel=1e-4)


def test_average_weighs_devices_by_their_points():
    local = {"kernel": jnp.array([[[1.0, 2.0]], [[5.0, 10.0]], [[9.0, 0.0]]]), "bias": jnp.array([4.0, 8.0, 100.0])}
    got = federated.weighted_average(local, jnp.array([3.0, 1.0, 0.0]))
    np.testing.assert_allclose(got["kernel"], [[2.0, 4.0]], rtol=1e-6)
    np.testing.assert_allclose(got["bias"], 5.0, rtol=1e-6)


def test_average_matches_oracle():
    rng = np.random.default_rng(0)
    models, weights = rng.normal(size=(5, 3, 2)), rng.integers(1, 900, 5)
    got = federated.weighted_average({"w": jnp.asarray(models, jnp.float32)}, jnp.asarray(weights, jnp.float32))
    np.testing.assert_allclose(got["w"], oracle.weighted_average(list(models), weights), rtol=1e-5, atol=1e-6)


def test_average_of_equal_models_is_that_model():
    local = {"w": jnp.full((4, 3), 0.1)}
    np.testing.assert_allclose(federated.weighted_average(local, jnp.arange(1.0, 5.0))["w"], 0.1, rtol=1e-6)


@pytest.fixture(scope="module")
def many_batches(holding, config):
    """[steps, N, B]."""
    steps = jnp.arange(300)
    return np.asarray(jax.vmap(lambda step: drawn(KEY, step, holding, config))(steps))


def test_minibatches_hold_every_point_of_the_device_and_no_other(many_batches, holding):
    # 1,200 draws from at most 60 points: one is missed with probability 1e-7.
    for i, (start, size) in enumerate(zip(holding.start, holding.size, strict=True)):
        own = set(np.asarray(holding.points[start : start + size]).tolist())
        assert set(many_batches[:, i].ravel().tolist()) == own


def test_minibatches_are_uniform_over_the_points(many_batches, holding):
    # Device 1 holds 5 points, 1,200 draws: 240 of each, standard deviation 14.
    _, times = np.unique(many_batches[:, 1], return_counts=True)
    assert np.abs(times - 240).max() < 5 * 14


def test_minibatches_differ_by_step_and_device(many_batches, points, config):
    everyone = Holding(jnp.arange(60, dtype=jnp.int32), jnp.zeros(6, jnp.int32), jnp.full(6, 60, jnp.int32))
    batches = [np.asarray(drawn(KEY, step, everyone, config)) for step in range(3)]
    rows = np.concatenate(batches)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_minibatch_is_the_documented_draw(holding, config):
    for step in (0, 7):
        np.testing.assert_array_equal(drawn(KEY, step, holding, config), minibatch_points(holding, step, config))


def test_policies_share_the_draws(holding, config):
    # Where a device is as large as before, the same places of its stretch are drawn, whatever it now holds.
    other_sizes = SIZES.copy()
    other_sizes[[2, 3]] = [20, 37]
    other = hold(np.asarray(holding.points)[::-1], other_sizes)
    alike = other_sizes == SIZES
    places = []
    for one in (holding, other):
        place_of = np.argsort(np.asarray(one.points))
        numbers = np.asarray(drawn(KEY, 5, one, config))
        sorted_points = np.sort(np.asarray(one.points))
        places.append(place_of[np.searchsorted(sorted_points, numbers)] - np.asarray(one.start)[:, None])
    np.testing.assert_array_equal(places[0][alike], places[1][alike])
    # Elsewhere the same uniform number gives places a point apart at most, as shares of the size.
    shares = [place / np.asarray(one.size)[:, None] for place, one in zip(places, (holding, other), strict=True)]
    assert (np.abs(shares[0] - shares[1]) < 1 / np.minimum(SIZES, other_sizes)[:, None]).all()


def test_uniform_that_rounds_to_one_stays_on_the_device(holding, config, monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.ones(shape))
    numbers = sampling.minibatch(KEY, 0, holding, config)
    last = np.asarray(holding.points)[np.asarray(holding.start + holding.size) - 1]
    np.testing.assert_array_equal(numbers, np.broadcast_to(last[:, None], numbers.shape))


@pytest.fixture(scope="module")
def many_points():
    """2,500 points of whole numbers, on which a model of whole numbers is exact in single precision."""
    rng = np.random.default_rng(5)
    y = np.sort(rng.integers(0, 4, 2500)).astype(np.int32)
    x = rng.integers(-9, 10, (2500, 3)).astype(np.float32)
    parameters = {"kernel": rng.integers(-9, 10, (3, 4)).astype(np.float32), "bias": np.arange(4, dtype=np.float32)}
    points = Points(jnp.asarray(x), jnp.asarray(y), jnp.float32(0), jnp.float32(1), tuple(np.bincount(y).tolist()))
    return points, {"params": {"Dense_0": parameters}}


@pytest.mark.parametrize("size", [7, 2048, 2500])
def test_evaluation_counts_each_point_once(many_points, size):
    points, parameters = many_points
    test = np.random.default_rng(size).permutation(2500)[:size].astype(np.int32)
    found = evaluated(Linear(4), parameters, points, test)
    accuracy, loss = found.accuracy, found.loss
    x, y = np.asarray(points.x, float)[test], np.asarray(points.y)[test]
    dense = parameters["params"]["Dense_0"]
    logits, expected = logits_and_loss(dense["kernel"].astype(float), dense["bias"].astype(float), x, y)
    right = int((np.argmax(logits, axis=1) == y).sum())
    # Exact but for the last bit: XLA multiplies by the reciprocal of a constant.
    np.testing.assert_array_max_ulp(np.asarray(accuracy), np.float32(right / size), maxulp=1)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-6)


def test_evaluation_in_small_blocks(many_points, monkeypatch):
    points, parameters = many_points
    test = np.arange(1001, dtype=np.int32)
    whole = evaluation.evaluate(Linear(4), parameters, points, test)
    monkeypatch.setattr(evaluation, "EVALUATION_BLOCK", 100)
    blocks = evaluation.evaluate(Linear(4), parameters, points, test)
    assert float(blocks.accuracy) == float(whole.accuracy)
    np.testing.assert_allclose(blocks.loss, whole.loss, rtol=1e-5)


def test_padding_of_a_block_is_not_counted(many_points):
    # The padding repeats point 0: make its loss infinite, and leave it out of the test points.
    points, parameters = many_points
    bad = replace(points, x=points.x.at[0].set(jnp.nan))
    test = np.arange(1, 8, dtype=np.int32)
    got, expected = (evaluated(Linear(4), parameters, data, test) for data in (bad, points))
    chex.assert_trees_all_equal(got, expected)


def test_numbers_of_the_config_do_not_compile_anew(points, test_points, holding, config):
    losses, before = [], len(TRACES)
    for rate in (0.1, 0.5, 2.0):
        numbers = as_numbers(replace(config, learning_rate=rate))
        losses.append(float(trained(KEY, Linear(), points, test_points, holding, numbers).loss[-1]))
    assert len(TRACES) <= before + 1
    assert len(set(losses)) == 3


def test_divergence_is_data(points, test_points, holding, config):
    # Single precision ends at 3.4e38.
    got = trained(KEY, Linear(), points, test_points, holding, replace(config, learning_rate=3e38))
    assert np.isfinite(got.loss[0]) and not np.isfinite(got.loss[1:]).any()
    # The largest of logits that are no numbers would be class 0, and right for every point of it.
    assert jnp.isnan(got.accuracy[1:]).all() and jnp.isnan(got.class_accuracy[1:]).all()


def test_evaluating_less_often_keeps_the_training(points, test_points, holding, config):
    often = trained(KEY, Linear(), points, test_points, holding, replace(config, evaluate_every=1))
    seldom = trained(KEY, Linear(), points, test_points, holding, config)
    np.testing.assert_allclose(seldom.loss, often.loss[::2], rtol=1e-6)
    np.testing.assert_array_equal(seldom.accuracy, often.accuracy[::2])
    np.testing.assert_allclose(seldom.train_loss[1:], often.train_loss[1:].reshape(2, 2).mean(axis=1), rtol=1e-6)
