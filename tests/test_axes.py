import dataclasses
from dataclasses import replace
from typing import get_args

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from jax.interpreters import partial_eval

import d2djax
from d2djax.channel import MODELS
from d2djax.config import GRAPH_NUMBERS, TRAINING_NUMBERS, Config, PolicyName, numbers_of, stack_configs
from d2djax.federated import SCHEMES
from d2djax.network import make_network
from d2djax.points import arrange
from d2djax.policies import candidates_of
from d2djax.rng import run_key
from d2djax.running.axes import Choice, LogUniform, Uniform, by_program, lay_out, random_points
from d2djax.simulation import exchange_and_train, find_graphs, moves, sizes_of

# --- layout ---


def test_a_grid_takes_every_combination(tiny_config):
    laid = lay_out(tiny_config, {"gamma": [0, 0.5, 1], "min_classes": np.array([2, 3])})
    assert laid.dims == {"gamma": 3, "min_classes": 2}
    assert laid.coordinates == {"gamma": ("gamma", [0.0, 0.5, 1.0]), "min_classes": ("min_classes", [2, 3])}
    expected = [(0, 2), (0, 3), (0.5, 2), (0.5, 3), (1, 2), (1, 3)]
    assert [(config.gamma, config.min_classes) for config in laid.configs] == expected
    assert laid.configs[3] == replace(tiny_config, gamma=0.5, min_classes=3)
    assert {type(value) for _, values in laid.coordinates.values() for value in values} == {int, float}


def test_a_list_of_points_is_taken_as_it_is(tiny_config):
    points = [{"gamma": 1, "rate": 2}, {"rate": 0.5, "gamma": np.float32(0.25)}, {"gamma": 1, "rate": 2}]
    laid = lay_out(tiny_config, points)
    assert laid.dims == {"point": 3}
    assert laid.coordinates == {"gamma": ("point", [1.0, 0.25, 1.0]), "rate": ("point", [2.0, 0.5, 2.0])}
    assert [(config.gamma, config.rate) for config in laid.configs] == [(1, 2), (0.25, 0.5), (1, 2)]


def test_no_axes_are_the_config_alone(tiny_config):
    laid = lay_out(tiny_config, {})
    assert (laid.dims, laid.coordinates, laid.configs) == ({}, {}, (tiny_config,))


def test_what_is_left_to_the_data_set_is_filled_at_each_point(tiny_config):
    laid = lay_out(tiny_config, {"learning_rate": [None, 0.2], "model": ["auto", "image_cnn"]})
    assert laid.coordinates["learning_rate"] == ("learning_rate", [0.05, 0.2])
    assert laid.coordinates["model"] == ("model", ["mlp", "image_cnn"])


BAD = [
    ({"gama": [1]}, "axis 'gama' must be a setting; did you mean 'gamma'?"),
    ({"zzzzzz": [1]}, "axis 'zzzzzz' must be a setting"),
    ([{"alpha_outages": 1}], "did you mean 'alpha_outage'?"),
    ({"gamma": [0.5, 0.5]}, "axis gamma must not repeat a value"),
    ({"gamma": [0, 1, 0.0]}, "axis gamma must not repeat a value"),
    ({"learning_rate": [None, 0.05]}, "no defaults for learning_rate"),
    ({"model": ["auto", "mlp"]}, "no defaults for model"),
    ({"model": ["mlp", "mlp"]}, "axis model must not repeat a value"),
    ({"gamma": [0.1, np.float32(0.1)]}, "axis gamma must not repeat a value"),
    ({"gamma": []}, "axis gamma must have at least one value"),
    ({"gamma": 0.5}, "axis gamma must be a list of values; got 0.5"),
    ({"scheme": "fedavg"}, "axis scheme must be a list of values; got 'fedavg'"),
    ({"gamma": Uniform(0, 1)}, "axis gamma must be a list of values"),
    ({"gamma": [0.5, -1], "rate": [1]}, "at gamma=-1, rate=1: gamma must be 0 or more; got -1"),
    ({"num_stragglers": [1, 7]}, "at num_stragglers=7: num_stragglers must be at most the 6 devices; got 7"),
    ({"gamma": [float("nan")]}, "at gamma=nan: gamma must be a finite number"),
    ({"gamma": ["a"]}, "at gamma=a: gamma must be a number"),
    ({"aggregation_interval": [4, 3]}, "at aggregation_interval=3: .* a divisor of num_steps, 8; got 3"),
    ([{"gamma": 1, "rate": 0}], "at gamma=1, rate=0: rate must be in"),
    ([{"gamma": 1}, {"rate": 1}], "every point of a list must set the same settings"),
    ([{"gamma": 1}, {}], "every point of a list must set the same settings"),
    ([{}], "at least one"),
    ([], "at least one"),
    ({"policies": [("none",), ("rl",)]}, "policies cannot be an axis; use one sweep for each value"),
    ({"dataset": ["cifar10", "radioml"]}, "dataset cannot be an axis"),
    ({"num_classes": [5]}, "num_classes cannot be an axis"),
    ({"reference_weights": [(1, 2, 0.001, 0.5)]}, "reference_weights cannot be an axis"),
]


@pytest.mark.parametrize("axes, message", BAD, ids=lambda value: str(value)[:40])
def test_bad_axes_are_refused_in_one_line(tiny_config, tiny_dataset, tmp_path, monkeypatch, axes, message):
    monkeypatch.setattr("d2djax.running.plan.set_up", lambda *_, **__: pytest.fail("the data was read"))
    with pytest.raises(ValueError, match=message) as caught:
        d2djax.sweep(tiny_config, axes, 2, tmp_path / "out", data=tiny_dataset, progress=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# --- draws ---


def test_more_draws_keep_the_old_ones():
    ranges = {"gamma": Uniform(0, 1), "alpha_outage": LogUniform(0.1, 10), "scheme": Choice(("fedavg", "fedsgd"))}
    points = random_points(ranges, 20)
    assert random_points(ranges, 5) == points[:5]
    assert random_points(ranges, 20, seed=1) != points
    assert all(list(point) == list(ranges) for point in points)
    assert len({point["gamma"] for point in points}) == 20


def test_draws_are_spread_as_they_say():
    ranges = {"gamma": Uniform(2, 4), "alpha_outage": LogUniform(0.01, 100), "scheme": Choice(("a", "b", "c", "d"))}
    points = random_points(ranges, 2000)
    gamma, alpha = (np.array([point[name] for point in points]) for name in ("gamma", "alpha_outage"))
    assert gamma.min() >= 2 and gamma.max() <= 4 and abs(gamma.mean() - 3) < 0.06
    assert alpha.min() >= 0.01 and alpha.max() <= 100
    # A quarter for each order of magnitude, and for each choice; the deviation of a share is .01.
    assert np.abs(np.histogram(np.log10(alpha), 4, (-2, 2))[0] / 2000 - 0.25).max() < 0.04
    counts = np.unique([point["scheme"] for point in points], return_counts=True)[1]
    assert np.abs(counts / 2000 - 0.25).max() < 0.04


@pytest.mark.parametrize("low, high", [(1, 4), (0.5, 4.4)])
def test_whole_settings_are_drawn_whole_and_equally_often(low, high):
    values = [point["min_classes"] for point in random_points({"min_classes": Uniform(low, high)}, 2000)]
    assert {type(value) for value in values} == {int}
    numbers, counts = np.unique(values, return_counts=True)
    assert numbers.tolist() == [1, 2, 3, 4]
    assert np.abs(counts / 2000 - 0.25).max() < 0.04


def test_whole_settings_stay_within_limits_of_a_logarithm():
    values = [point["batch_size"] for point in random_points({"batch_size": LogUniform(1, 8)}, 2000)]
    numbers, counts = np.unique(values, return_counts=True)
    assert numbers.tolist() == list(range(1, 9))
    # The smaller, the more often; 1 no less than others.
    assert counts[0] > counts[1] > counts[3] > counts[7] > 0


@pytest.mark.parametrize(
    "ranges, count, message",
    [
        ({"gama": Uniform(0, 1)}, 2, "did you mean 'gamma'"),
        ({"policies": Choice((("rl",),))}, 2, "policies cannot be an axis"),
        ({"gamma": Uniform(1, 0)}, 2, "axis gamma must go from a number to a larger one"),
        ({"gamma": Uniform(1, 1)}, 2, "axis gamma must go from a number to a larger one"),
        ({"gamma": Uniform(0, np.inf)}, 2, "axis gamma must go from a number to a larger one"),
        ({"gamma": LogUniform(0, 1)}, 2, "axis gamma must begin above 0"),
        ({"gamma": Choice(())}, 2, "axis gamma must have at least one value"),
        ({"min_classes": Uniform(1.2, 1.8)}, 2, "axis min_classes must have a whole number between its limits"),
        ({"gamma": Uniform(0, 1)}, 0, "count of points must be at least 1; got 0"),
    ],
)
def test_bad_ranges_are_refused(ranges, count, message):
    with pytest.raises(ValueError, match=message):
        random_points(ranges, count)


# --- programs ---


def test_points_that_differ_in_numbers_share_a_program(tiny_config):
    laid = lay_out(tiny_config, {"gamma": [0, 1], "scheme": ["fedavg", "fedsgd"], "score_fraction": [None, 0.5]})
    groups = by_program(laid.configs)
    assert [group.tolist() for group in groups] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    names = [name for name in numbers_of(tiny_config) if isinstance(getattr(tiny_config, name), float)]
    points = [{name: getattr(tiny_config, name) * factor for name in names} for factor in (0.5, 0.75)]
    assert len(by_program(lay_out(tiny_config, points).configs)) == 1


class Linear(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


def numbers_read(function, config, *others):
    """Names of the numbers of a config on which the result of a function depends, and the result's shapes."""
    # Several leaves of one name where a setting is several numbers.
    names = [name for name in numbers_of(config) for _ in jax.tree.leaves(getattr(config, name))]
    arguments = jax.tree.map(np.asarray, config)
    assert len(names) == len(jax.tree.leaves(arguments))
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(arguments, *others)
    used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))[1]
    return {name for name, is_used in zip(names, used, strict=False) if is_used}, shapes


SETTINGS = [
    ({"score_fraction": 0.5, "initial_value": 1.0}, None),
    (
        {"partition": "dirichlet", "channel_model": "mobility", "delivery": "sampled", "scheme": "fedprox"},
        optax.adam,
    ),
    ({"partition": "iid", "deployment": "sampled", "power_mode": "fixed", "scheme": "fedsgd"}, None),
    ({"partition": "shards", "straggler_draw": "aggregation", "scheme": "fedprox"}, None),
    ({"policies": ("none",), "delivery": "sampled", "straggler_draw": "aggregation"}, optax.adam),
    # Whatever joins these tables.
    *(({"scheme": name}, None) for name in SCHEMES if name not in ("fedavg", "fedprox", "fedsgd")),
    *(({"channel_model": name}, None) for name in MODELS if name not in ("shadowing", "mobility")),
]


@pytest.mark.parametrize("settings, server", SETTINGS, ids=lambda one: getattr(one, "__name__", str(one)))
def test_numbers_are_read_only_where_runs_think_so(tiny_config, tiny_dataset, settings, server):
    # What differs in other numbers is not computed again: one that is read and not known of gives wrong results.
    changes = {"policies": get_args(PolicyName), "server_learning_rate": 1.0 if server else None}
    config = d2djax.validate(replace(tiny_config, **changes | settings))
    points, recipe = arrange(tiny_dataset, config), d2djax.Recipe(Linear(), server=server)
    key, sizes, candidates = run_key(0), sizes_of(points, recipe), candidates_of(config, {})
    of_network, network = numbers_read(lambda config: make_network(key, config), config)

    def find(config, network):
        found = find_graphs(key, network, config, sizes, candidates)
        return found, moves(found, candidates)

    of_graphs, (_, move) = numbers_read(find, config, network)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), move)
    train = lambda config, move: exchange_and_train(key, move, config, points, recipe)  # noqa: E731
    of_training, _ = numbers_read(train, config, one)
    assert not of_network & (GRAPH_NUMBERS | TRAINING_NUMBERS)
    assert not of_graphs & (TRAINING_NUMBERS - GRAPH_NUMBERS)
    assert of_training <= TRAINING_NUMBERS
    # Not vacuous.
    assert {"rate", "field_size"} <= of_network and {"alpha_outage", "min_classes"} <= of_graphs
    assert {"learning_rate", "num_stragglers"} <= of_training
    assert ("proximal_weight" in of_training) == (config.scheme == "fedprox")
    assert ("server_learning_rate" in of_training) == (server is not None)


def test_sets_of_numbers_are_numbers_of_the_config():
    assert set(numbers_of(Config())) >= GRAPH_NUMBERS | TRAINING_NUMBERS


def test_stacked_configs_keep_their_kinds(tiny_config):
    stacked = stack_configs([replace(tiny_config, gamma=g, min_classes=m) for g, m in ((0.0, 1), (1.0, 2))])
    assert stacked.gamma.dtype == np.float32 and stacked.min_classes.dtype == np.int32
    assert all(leaf.shape == (2,) for leaf in jax.tree.leaves(stacked))
    static = [field.name for field in dataclasses.fields(Config) if field.metadata.get("static")]
    assert all(getattr(stacked, name) == getattr(tiny_config, name) for name in static)
