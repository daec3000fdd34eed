"""Public functions check what they are given outside `jit`: one line, before anything is computed or compiled."""

from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import d2djax
from d2djax import channel, clustering, energy, messages, policy, reward
from d2djax.points import assign
from d2djax.recipe import Recipe
from d2djax.rng import run_key
from d2djax.running.axes import Choice, LogUniform, Uniform, lay_out, random_points
from d2djax.running.sweeps import sweep
from d2djax.searching.searches import search
from d2djax.supply import held_out_sizes
from d2djax.transfer import pool, transfer


def refused(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) <= 220


# --- numbers of points that do not add up ---

TEN = d2djax.Config(num_devices=10, num_classes=10, points_per_device=220)
SIZES = (500,) * 10
LEFT = int((np.array(SIZES) - held_out_sizes(np.array(SIZES), TEN)).sum())


def counts_of(per_class):
    """[10, 10]: four classes for each device."""
    counts = np.zeros((10, 10), np.int32)
    for device in range(10):
        counts[device, (device + np.arange(4)) % 10] = per_class
    return counts


@pytest.mark.parametrize(
    "changes, message",
    [
        # 1,200 of 2,200 points: the last device got the other thousand as well.
        ({}, "sum of counts must be 2200, the number of points; got 1200"),
        ({"counts": counts_of(55)[:9]}, r"counts must be \[N, L\] = \[10, 10\]; got shape \[9, 10\]"),
        ({"counts": counts_of(55) - 1}, r"counts must be whole numbers, 0 or more; got -1 at \[0, 4\]"),
        ({"counts": counts_of(55) * 1.01}, r"counts must be whole numbers, 0 or more; got 55.55 at \[0, 0\]"),
        (
            {"counts": np.eye(10, dtype=int) * 220, "sizes": (200,) * 10},
            "at most the training points of each class",
        ),
        ({"counts": counts_of(55), "train": np.arange(9)}, r"train must be the training points, \[n\]"),
    ],
)
def test_points_that_do_not_add_up_are_not_dealt(changes, message):
    sizes = changes.get("sizes", SIZES)
    left = int((np.array(sizes) - held_out_sizes(np.array(sizes), TEN)).sum())
    train = changes.get("train", np.arange(left, dtype=np.int32))
    refused(lambda: assign(train, changes.get("counts", counts_of(30)), sizes, TEN), message)


def test_points_that_add_up_are_dealt():
    train = np.arange(LEFT, dtype=np.int32)
    dealt = assign(train, counts_of(55), SIZES, TEN)
    assert dealt.shape == (2200,) and len(np.unique(dealt)) == 2200
    refused(
        lambda: assign(train, counts_of(55), SIZES, TEN, 2199),
        "sum of counts must be at most 2199, the length of the list",
    )


COUNTS = np.array([[4, 0], [1, 3], [2, 2]], np.int32)
MOVE = {
    "points": np.arange(12, dtype=np.int32),
    "counts": COUNTS,
    "links": np.array([0, 0, 1], np.int32),
    "received": np.array([[0, 0], [2, 0], [0, 1]], np.int32),
}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"points": np.arange(13)}, "sum of counts must be 13, the number of points; got 12"),
        ({"links": np.array([0, 0, 3])}, r"links must be in 0..2 for 3 devices; got 3 at \[2\]"),
        ({"links": np.array([0.0, 0, 1])}, "links must be whole numbers"),
        ({"links": np.array([0, 0])}, r"links must be \[N\] = \[3\]"),
        ({"received": np.zeros((3, 3), int)}, r"received must be \[N, L\] = \[3, 2\]"),
        ({"received": MOVE["received"] * 4}, r"sum of received over the receivers .* at most its counts; got 8"),
        ({"received": -MOVE["received"]}, "received must be whole numbers, 0 or more; got -2"),
    ],
)
def test_more_than_there_is_does_not_move(changes, message):
    refused(lambda: transfer(**(MOVE | changes)), message)


def test_what_there_is_moves():
    assert transfer(**MOVE).size.tolist() == [2, 5, 5]
    refused(lambda: pool(run_key(0), MOVE["points"], 0), "num_devices must be at least 1; got 0")


# --- parts of the method ---

NETWORK = {
    "counts": np.array([[20.0], [0.0]]),
    "thresholds": np.full((2, 1), 10.0),
    "trust": np.ones((2, 2, 1), bool),
    "links": np.array([0, 0]),
    "outage": np.zeros((2, 2)),
}
REWARDED = {
    "score": np.ones(2),
    "outage": np.zeros(2),
    "requested": np.zeros((2, 1)),
    "links": np.array([0, 0]),
    "cluster": np.array([0, 1]),
    "budget": np.ones(2),
}
WEIGHTS = {"alpha_diversity": 1.0, "alpha_outage": 2.0, "alpha_budget": 0.001, "gamma": 0.5}
BUFFER = policy.empty_buffer(3, 2)
NAN, FAR = np.array([[np.nan], [0.0]]), np.array([0, 2])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: messages.exchange(**NETWORK | {"counts": NAN}), r"counts must be 0 or more; got nan at \[0, 0\]"),
        (lambda: messages.exchange(**NETWORK | {"links": FAR}), "links must be in 0..1 for 2 devices; got 2"),
        (
            lambda: messages.exchange(**NETWORK | {"outage": np.full((2, 2), 3)}),
            r"outage must be in \[0, 1\]; got 3",
        ),
        (
            lambda: messages.exchange(**NETWORK | {"trust": np.full((2, 2, 1), 2)}),
            "trust must be true or false; got 2",
        ),
        (lambda: reward.diversity_score(np.ones((2, 1)), np.ones((3, 1)), 1), "thresholds must be of the shape of"),
        (lambda: reward.diversity_score(NAN, NAN, 1), "counts must be 0 or more; got nan"),
        (lambda: reward.rewards(**REWARDED | {"cluster": FAR}, **WEIGHTS), "cluster must be in 0..1"),
        (lambda: reward.rewards(**REWARDED | {"budget": np.ones(3)}, **WEIGHTS), r"budget must be \[N\] = \[2\]"),
        (lambda: reward.rewards(**REWARDED | {"links": FAR}, **WEIGHTS), "links must be in 0..1"),
        (
            lambda: channel.outage_probability(-np.ones((2, 2)), 1.0, 1e-15),
            "rss must be 0 or more, in watts; got -1",
        ),
        (lambda: channel.outage_probability(np.ones((2, 2)), np.nan, 1e-15), "rate must be 0 or more; got nan"),
        (
            lambda: clustering.reliable_clusters(np.full((2, 2), np.nan), 0.1),
            r"outage must be in \[0, 1\]; got nan",
        ),
        (lambda: policy.probabilities(BUFFER, 3), "state must be in 0..2 for 3 states; got 3"),
        (lambda: policy.probabilities(BUFFER, 0, temperature=0.0), "temperature must be positive; got 0.0"),
        (lambda: policy.probabilities(policy.Buffer(BUFFER.reward[0], BUFFER.tries), 0), "buffer.reward must be"),
        (lambda: policy.update(BUFFER, 0, FAR, np.ones(2)), "links must be in 0..1"),
        (lambda: policy.update(BUFFER, 0, FAR - 1, np.ones(3)), r"links must be in 0..1 for .*; got -1 at \[0\]"),
        (lambda: policy.update(BUFFER, 0, np.array([0, 0]), np.ones(3)), r"reward must be \[N\] = \[2\]"),
        (lambda: energy.transmit_energy(-1.0, 10.0), "bits must be 0 or more; got -1"),
        (lambda: energy.transmit_energy(8.0, 10.0, outage=1.0), r"outage must be inside \(0, 1\); got 1.0"),
        (lambda: energy.transmit_energy(8.0, 10.0, rate=0.0), "rate must be positive; got 0.0"),
        (lambda: energy.receive_energy(8.0, receive_power=np.nan), "receive_power must be 0 or more; got nan"),
    ],
)
def test_parts_of_the_method_check_their_arguments(call, message):
    refused(call, message)


def test_networks_and_settings_are_checked(tiny_config, tiny_networks):
    network = jax.tree.map(lambda leaf: leaf[0], tiny_networks)
    find = lambda network, config=tiny_config: d2djax.discover(run_key(0), network, config)  # noqa: E731
    bad = np.array(network.outage)
    bad[0, 1, 2] = 1.5
    refused(
        lambda: find(replace(network, outage=bad)), r"network.outage must be in \[0, 1\]; got 1.5 at \[0, 1, 2\]"
    )
    # A config of more states: the states past the last were taken for the last one.
    refused(
        lambda: find(network, replace(tiny_config, num_states=4)),
        "num_states must be 3, the states of the network; got 4",
    )
    refused(lambda: find(replace(network, counts=network.counts[:, :4])), r"network.trust must be \[N, N, L\]")
    refused(lambda: find(network, replace(tiny_config, temperature=-1.0)), "temperature must be positive; got -1.0")
    refused(lambda: d2djax.make_network(run_key(0), replace(tiny_config, rate=0.0)), "rate must be in .*; got 0.0")
    refused(lambda: d2djax.make_network(run_key(0), {"rate": 1}), "config must be a Config")
    # Traced numbers are not known yet; the rules of what is static hold all the same.
    shapes = jax.eval_shape(lambda config: d2djax.make_network(run_key(0), config), tiny_config)
    assert shapes.counts.shape == (6, 5)
    wrong = replace(tiny_config, shards_per_device=3, partition="shards")
    refused(lambda: jax.eval_shape(lambda config: d2djax.make_network(run_key(0), config), wrong), "a divisor of")


# --- arguments of runs, sweeps and searches ---


@pytest.mark.parametrize("number", [jnp.int32(5), np.int64(5), np.array(5), 5.0, np.float32(5)])
def test_numbers_of_any_library_are_numbers(number):
    config = d2djax.validate(d2djax.Config(num_devices=number, gamma=number))
    assert type(config.num_devices) is int and type(config.gamma) is float
    assert config.num_devices == config.gamma == 5


@pytest.mark.parametrize(
    "given", [jnp.array([5]), "5", True, None, [5], object(), 1j, b"5", {5}, 10**400, np.array(["a"])]
)
def test_what_is_no_number_is_none(given):
    refused(lambda: d2djax.validate(d2djax.Config(num_devices=given)), "num_devices must be a (whole )?number")
    refused(lambda: d2djax.validate(d2djax.Config(gamma=given)), "gamma must be a number")


def test_settings_of_a_wrong_kind():
    for name in ("policies", "model", "data_dir", "reference_weights"):
        for given in (3, [[]], {}, object(), np.arange(4.0), b"x" * 500):
            refused(lambda name=name, given=given: d2djax.validate(d2djax.Config(**{name: given})), name)
    refused(lambda: d2djax.validate({"num_devices": 3}), "config must be a Config")


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


@pytest.fixture
def call(tiny_config, tiny_dataset, tmp_path):
    """Calls one of the three with a setting whose runs need no training."""

    def call(which, **options):
        options = {"config": tiny_config, "data": tiny_dataset, "progress": False} | options
        if which is not d2djax.run:
            options = {"out": tmp_path / "new"} | options
        if which is sweep:
            options = {"axes": {"gamma": [0.0]}} | options
        if which is search:
            options = {"ranges": {"stay_probability": Uniform(0, 0.5)}, "objectives": ("reliability",)} | options
        try:
            return which(**options)
        finally:
            assert not (tmp_path / "new").exists()

    return call


@pytest.mark.parametrize("which", [d2djax.run, sweep, search])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"seeds": "30"}, "seeds must be a count or a list of whole numbers; got '30'"),
        ({"seeds": 1.5}, "seeds must be a count or a list of whole numbers; got 1.5"),
        ({"seeds": {1, 2}}, "seeds must be a count or a list of whole numbers"),
        ({"seeds": [[1], [2, 3]]}, r"seeds must be different whole numbers"),
        ({"seeds": [0, "1"]}, "seeds must be different whole numbers"),
        ({"seeds": range(10**12)}, "count of seeds must be at most"),
        ({"width": 1.5}, "width must be a whole number; got 1.5"),
        ({"width": 0}, "width must be at least 1; got 0"),
        ({"width": True}, "width must be a whole number; got True"),
        ({"progress": "no"}, "progress must be True or False; got 'no'"),
        ({"config": {"gamma": 1}}, "config must be a Config"),
        ({"data": (np.ones((9, 2)), np.zeros(9))}, "data must be a Dataset"),
        ({"recipe": Net()}, r"recipe must be a Recipe, such as Recipe\(model\); got Net\("),
        ({"recipe": optax.sgd}, "recipe must be a Recipe"),
    ],
)
def test_arguments_that_all_three_share(call, which, options, message):
    refused(lambda: call(which, **options), message)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"training": "no"}, "training must be True or False; got 'no'"),
        ({"shard": (1.5, 2)}, r"shard must be two whole numbers, such as \(1, 4\); got \(1.5, 2\)"),
        ({"shard": 3}, "shard must be two whole numbers"),
        ({"shard": "12"}, "shard must be two whole numbers"),
        ({"shard": (1, 2, 3)}, "shard must be two whole numbers"),
        ({"out": None}, "out must be a path; got None"),
        ({"out": ""}, "out must be a path; got ''"),
        ({"axes": None}, "axes must be {setting: values} or a list of such points; got None"),
        ({"axes": "gamma"}, "axes must be {setting: values} or a list of such points; got 'gamma'"),
        ({"axes": [{"gamma": 1}, 3]}, "axes must be {setting: values} or a list of such points"),
        ({"axes": Uniform(0, 1)}, "axes must be {setting: values} or a list of such points"),
        ({"axes": {3: [1]}}, "axis 3 must be the name of a setting"),
        ({"axes": {"gamma": {0.5, 1}}}, "axis gamma must be a list of values"),
        ({"axes": {"gamma": iter([1, 2])}}, "axis gamma must be a list of values"),
        ({"axes": {"gamma": [2**2000]}}, r"at gamma=114.*: gamma must be a number that single precision holds"),
    ],
)
def test_arguments_of_sweeps(call, options, message):
    refused(lambda: call(sweep, **options), message)


RANGES = [
    (None, "ranges must name at least one setting"),
    ([0, 1], r"ranges must name at least one setting, such as gamma; got \[0, 1\]"),
    ({"gamma": [0, 1]}, r"axis gamma must be a Uniform, LogUniform or Choice; got \[0, 1\]"),
    ({"gamma": Uniform}, "axis gamma must be a Uniform, LogUniform or Choice"),
    ({"gamma": Uniform("0", 1)}, "axis gamma must go from a number to a larger one"),
    ({"gamma": Uniform([0], 1)}, "axis gamma must go from a number to a larger one"),
    ({"gamma": Uniform(0, np.inf)}, "axis gamma must go from a number to a larger one"),
    ({"gamma": Choice("ab")}, "axis gamma must be a Choice of a tuple of values"),
    ({"gamma": Choice(())}, "axis gamma must have at least one value"),
    ({"gamma": LogUniform(0, 1)}, "axis gamma must begin above 0"),
    ({"model": Uniform(0, 1)}, "axis model must be a Choice, because it is not a number"),
    ({3: Uniform(0, 1)}, "axis 3 must be the name of a setting"),
]


@pytest.mark.parametrize("ranges, message", RANGES)
def test_ranges(call, ranges, message):
    refused(lambda: random_points(ranges, 2), message)
    refused(lambda: call(search, ranges=ranges), message)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"trials": 1.5}, "trials must be a whole number; got 1.5"),
        ({"batch": "2"}, "batch must be a whole number; got '2'"),
        ({"batch": 0}, "batch must be at least 1; got 0"),
        ({"sampler_seed": None}, "sampler_seed must be a whole number; got None"),
        ({"objectives": None}, "objectives must be distinct and from .*; got None"),
        ({"objectives": [["reward"]]}, "objectives must be distinct and from"),
        ({"policy": ["rl"]}, "policy must be one of none, uniform, rl"),
        ({"out": 3}, "out must be a path; got 3"),
        # Found before the first trial, not when one comes upon it.
        ({"ranges": {"stay_probability": Uniform(0, 2)}}, "at stay_probability=2: stay_probability must be in"),
        ({"ranges": {"min_classes": Choice((1, "x"))}}, "at min_classes=x: min_classes must be a number; got 'x'"),
    ],
)
def test_arguments_of_searches(call, options, message):
    refused(lambda: call(search, **options), message)


def test_counts_of_random_points():
    refused(lambda: random_points({"gamma": Uniform(0, 1)}, 1.5), "count of points must be a whole number; got 1.5")
    refused(lambda: random_points({"gamma": Uniform(0, 1)}, 1, -1), "seed must be at least 0; got -1")
    assert len(lay_out(d2djax.Config(), random_points({"gamma": Uniform(0, 1)}, np.int64(2))).configs) == 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"client": optax.sgd(0.1)}, "recipe.client must make an optimiser from a step size, such as optax.adam"),
        ({"client": None}, "recipe.client must make an optimiser from a step size"),
        ({"server": 3}, "recipe.server must make an optimiser from a step size, .*; got 3"),
        ({"model": Net}, r"recipe.model must be a Flax module, such as Net\(\); got <class"),
        ({"model": "mlp"}, r"recipe.model must be a Flax module, such as Net\(\); got 'mlp'"),
    ],
)
def test_parts_of_a_recipe(options, message):
    refused(lambda: Recipe(**options), message)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"client": lambda: optax.sgd(0.1)}, "takes 0 positional arguments"),
        ({"client": lambda rate: 3}, "recipe.client must make an optimiser .*: it returns 3"),
        ({"server": lambda rate: None}, "recipe.server must make an optimiser .*: it returns None"),
        ({"client": lambda rate: optax.adam(float(rate))}, "from a traced step size"),
        (
            {"client": lambda rate: optax.sgd(0.1)},
            "recipe.client must use .* the setting learning_rate, .*ignores it",
        ),
        ({"server": lambda rate: optax.adam(1e-3)}, "recipe.server must use .* the setting server_learning_rate"),
        ({"client": lambda rate: optax.chain(optax.clip(1.0), optax.sgd(0.1))}, "recipe.client must use"),
    ],
)
def test_optimisers_that_cannot_be_made(call, tiny_config, options, message):
    config = replace(tiny_config, server_learning_rate=1.0)
    refused(lambda: call(d2djax.run, config=config, recipe=Recipe(**options)), message)
