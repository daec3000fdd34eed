"""Networks of one's own: in part or as a whole, one or several, from functions and files; what is refused."""

import json
import re
import tomllib
import zipfile
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import d2djax
from d2djax import GivenNetwork, Recipe, make_network
from d2djax.cli import arguments, commands
from d2djax.config import Config, numbers_of
from d2djax.data.types import DataError
from d2djax.networks import check_made, fixed_by, unread
from d2djax.rng import run_key
from d2djax.running import programs, repeat, results
from d2djax.running.network_files import load_network
from d2djax.running.runs import set_up

# A power of two: a gain is the power over it, to the last bit.
POWER = 2.0**-7
N, S, L = 6, 3, 5


@pytest.fixture(scope="module")
def config(tiny_config):
    return replace(tiny_config, transmit_power=POWER, policies=("none", "uniform", "rl", "pooled"))


@pytest.fixture(scope="module")
def options(tiny_dataset):
    return {"data": tiny_dataset, "progress": False}


@pytest.fixture(scope="module")
def drawn(config, options):
    return d2djax.run(config, 4, **options)


@pytest.fixture(scope="module")
def two(config):
    """The networks that are drawn for the seeds 0 and 1, with a leading axis."""
    made = [jax.jit(make_network)(run_key(seed), config) for seed in (0, 1)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *made)


@pytest.fixture(scope="module")
def left_out(config):
    """The same config without the sizes that follow from a network."""
    return replace(config, num_devices=25, num_states=10, points_per_device=0)


@pytest.fixture(scope="module")
def given(two, left_out, options):
    return d2djax.run(left_out, 4, recipe=Recipe(network=two), **options)


def parts_of(network):
    return {
        "gain": network.rss / np.float32(POWER),
        "position": network.position,
        "trust": network.trust,
        "counts": network.counts,
    }


def assert_equal(one, other, runs=slice(None)):
    assert set(one.data_vars) == set(other.data_vars)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name].isel(run=runs), other[name].isel(run=runs), err_msg=str(name))


def assert_outage(found, run, outage, change=lambda outage: outage, policy="uniform"):
    """The graph of a policy in a run has the outage of a network in every state."""
    one, outage = found.isel(run=run).sel(policy=policy), change(np.asarray(outage, np.float64))
    links, device = one["links"].values, np.arange(outage.shape[-1])
    for state, chosen in enumerate(links):
        expected = outage[state, device, chosen].sum() / max(1, (chosen != device).sum())
        np.testing.assert_allclose(one["graph_outage"][state], expected, rtol=1e-4, err_msg=str(state))


# --- by hand ---


def test_gains_by_hand():
    gain = np.array([[[np.nan, 1e-11, 0.0], [2e-11, -3.0, 1e-12], [1e-13, 1e-9, 7.0]]])
    config = Config(transmit_power=0.02, noise_power=4e-15, rate=2.0, num_classes=4, min_classes=2, threshold=5.0)
    network = jax.jit(lambda: make_network(run_key(0), config, gain=gain))()
    # W = .02 gain and P_D = 1 - exp(-(2^2 - 1) 4e-15 / W) = 1 - exp(-6e-13 / gain), row = receiver.
    expected = [
        [0, 1 - np.exp(-0.06), 1],
        [1 - np.exp(-0.03), 0, 1 - np.exp(-0.6)],
        [1 - np.exp(-6), 1 - np.exp(-6e-4), 0],
    ]
    np.testing.assert_allclose(network.outage[0], expected, rtol=1e-5)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(np.asarray(network.rss[0])[off], 0.02 * gain[0][off], rtol=1e-6)
    # On the diagonal the power over 1 m.
    np.testing.assert_allclose(np.diag(network.rss[0]), 0.02 * 1e-3, rtol=1e-6)
    # Devices 1 and 2 fail with .45 at worst, 0 and 1 with .058.
    np.testing.assert_array_equal(network.cluster, [0, 0, 1])
    np.testing.assert_allclose(network.outage[0], oracle.outage_probability(network.rss[0], 2.0, 4e-15), rtol=1e-5)
    assert network.position.shape == (3, 2) and network.trust.shape == (3, 3, 4)


def test_what_is_not_given_is_drawn_as_if_nothing_were(two, config):
    one, rng = jax.tree.map(lambda leaf: leaf[0], two), np.random.default_rng(2)
    position, trust = rng.uniform(0, 300, (N, 2)), rng.random((N, N, L)) < 0.5
    counts = rng.integers(0, 30, (N, L))
    made = jax.jit(lambda: make_network(run_key(0), config, position=position, trust=trust, counts=counts))()
    np.testing.assert_array_equal(made.position, position.astype(np.float32))
    np.testing.assert_array_equal(made.trust, trust | np.eye(N, dtype=bool)[:, :, None])
    np.testing.assert_array_equal(made.counts, counts)
    # The shadowing is that of the seed: the power differs by the path alone.
    distance = lambda place: np.maximum(np.linalg.norm(place[:, None] - place, axis=-1), 1)  # noqa: E731
    path = (distance(position) / distance(one.position)) ** -config.path_loss_exponent
    np.testing.assert_allclose(made.rss / one.rss, np.broadcast_to(path, made.rss.shape), rtol=2e-3)
    for name in ("trust", "counts", "position"):
        part = {name: np.asarray(getattr(made, name))}
        alone = jax.jit(lambda part=part: make_network(run_key(0), config, **part))()
        for other in {"trust", "counts", "position"} - {name}:
            np.testing.assert_array_equal(getattr(alone, other), getattr(one, other), err_msg=other)


def test_sizes_follow_from_what_is_given():
    shapes = lambda config, **parts: jax.eval_shape(lambda: make_network(run_key(0), config, **parts))  # noqa: E731
    made = shapes(Config(min_classes=1), gain=np.full((4, 4), 1e-9), counts=np.full((4, 2), 7))
    assert made.outage.shape == (1, 4, 4) and made.trust.shape == (4, 4, 2) and made.thresholds.shape == (4, 2)
    made = shapes(Config(num_states=2, min_classes=1, classes_per_device=2), trust=np.ones((5, 5, 3)))
    assert made.outage.shape == (2, 5, 5) and made.counts.shape == (5, 3)


# --- in runs ---


def test_networks_that_would_be_drawn_change_nothing(drawn, given):
    assert_equal(given, drawn, [0, 1])
    about = json.loads(given.attrs["manifest"])
    assert about["config"]["num_devices"] == N and about["config"]["num_states"] == S
    assert "trust_probability" not in about["config"] and "rate" in about["config"]


def test_of_several_networks_seed_g_takes_number_g_mod_G(given, drawn, two, left_out, options):
    for number in (0, 1):
        one = jax.tree.map(lambda leaf, number=number: leaf[number], two)
        alone = d2djax.run(left_out, [number, number + 2], recipe=Recipe(network=one), **options)
        assert_equal(alone, given.isel(run=[number, number + 2]))
    for seed in (2, 3):
        np.testing.assert_array_equal(given["position"][seed], given["position"][seed - 2])
        assert (given["position"][seed] != drawn["position"][seed]).any()
    assert (given["links"].sel(policy="uniform")[2] != given["links"].sel(policy="uniform")[0]).any()


def test_parts_that_would_be_drawn_change_nothing(drawn, given, two, left_out, options):
    before = programs.num_compiled()
    found = d2djax.run(left_out, 4, recipe=Recipe(network=GivenNetwork(**parts_of(two))), **options)
    # That of the networks; the others are those of `given`.
    assert programs.num_compiled() == before + 1
    assert_equal(found, drawn, [0, 1])
    # Other gains of the same shapes compile nothing.
    weaker = GivenNetwork(**parts_of(two) | {"gain": parts_of(two)["gain"] / 2})
    less = d2djax.run(left_out, 4, recipe=Recipe(network=weaker), **options)
    assert programs.num_compiled() == before + 1
    assert_outage(less, 3, two.outage[1], lambda outage: 1 - (1 - outage) ** 2)


def test_another_network_of_the_same_shapes_compiles_nothing(given, two, left_out, options):
    before = programs.num_compiled()
    other = replace(two, outage=two.outage**2, trust=np.ones_like(two.trust))
    found = d2djax.run(left_out, 4, recipe=Recipe(network=other), **options)
    assert programs.num_compiled() == before
    assert_outage(found, 2, two.outage[0], np.square)
    assert found["points_moved"].sum() != given["points_moved"].sum()


def far(key, config):
    """Devices in a row, as a user would write it; reads a number that no network of the package reads."""
    place = jnp.stack([jnp.arange(6) * 100.0 * config.gamma, jnp.zeros(6)], axis=-1)
    return make_network(key, config, position=place)


def test_functions_make_networks(two, config, options):
    graphs = options | {"training": False}
    axes = {"gamma": [0.5, 1.0]}
    found = d2djax.sweep(config, axes, 2, "far", recipe=Recipe(network=far), **graphs)
    np.testing.assert_array_equal(found["position"].values[:, 0, :, 0], [np.arange(6) * 50.0, np.arange(6) * 100.0])
    place = found["position"].values[1, 1]
    alone = jax.jit(lambda: make_network(run_key(1), config, position=place))()
    assert_outage(found.isel(gamma=1), 1, alone.outage)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_counts_of_any_sum(left_out, options):
    counts = np.array(
        [[9, 0, 3, 0, 40], [0, 0, 0, 0, 1], [7, 0, 21, 0, 0], [0, 33, 0, 0, 0], [0, 0, 50, 5, 0], [8, 8, 8, 8, 8]]
    )
    config = replace(left_out, policies=("uniform", "pooled"))
    found = d2djax.run(config, 2, recipe=Recipe(network=GivenNetwork(counts=counts)), **options)
    assert (found["status"] == 0).all()
    after = found["counts"].transpose("run", "policy", "device", "class").values
    for run in range(2):
        np.testing.assert_array_equal(found["counts_before"][run], counts)
        np.testing.assert_array_equal(after[run].sum(1), np.tile(counts.sum(0), (2, 1)))
    # 209 points, dealt anew as equally as they go.
    np.testing.assert_array_equal(found["counts"].sel(policy="pooled").sum("class"), [[35, 35, 35, 35, 35, 34]] * 2)
    assert (found["points_moved"].sel(policy="uniform") > 0).all()


def test_a_reward_of_ones_own_is_tried_on_the_network(two, left_out, tiny_dataset):
    def reward(network, state, links, exchange, config):
        assert network.outage.shape == (S, N, N)
        return d2djax.PaperReward()(network, state, links, exchange, config)

    for network in (two, GivenNetwork(**parts_of(two)), make_network):
        sizes = {"num_devices": N, "num_states": S} if network is make_network else {}
        given = replace(left_out, initial_value=20.0, points_per_device=40, **sizes)
        setup = set_up(given, tiny_dataset, Recipe(network=network, reward=reward), trains=False)
        assert setup.config.num_devices == N


def test_simulate_takes_a_network(two, config, tiny_dataset):
    one = jax.tree.map(lambda leaf: leaf[1], two)
    points = d2djax.arrange(tiny_dataset, config)
    shapes = jax.eval_shape(lambda: d2djax.simulate(run_key(0), config, points, Recipe(network=one)))
    assert shapes.graphs.links.shape == (4, S, N)
    with pytest.raises(ValueError, match="must be one network for one run"):
        d2djax.simulate(run_key(0), config, points, Recipe(network=two))


# --- what is refused ---


def refused(message, call):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


GAIN = np.full((S, N, N), 1e-9)


def with_entry(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


PARTS = [
    ({"gain": GAIN[:, :5]}, "gain must be [S, N, N] with N = 5, square; got shape [3, 5, 6]"),
    ({"gain": GAIN[0, 0]}, "gain must be [S, N, N]; got float64 of shape (6,)"),
    ({"gain": with_entry(GAIN, (1, 2, 3), np.nan)}, "gain must be finite off the diagonal; got nan at [1, 2, 3]"),
    (
        {"gain": -80 * np.ones((N, N))},
        "gain must be 0 or more, a ratio of powers; 10 ** (gain / 10) converts decibels",
    ),
    ({"gain": with_entry(GAIN, (0, 1, 0), 1.5)}, "at most 1, as a passive channel does not amplify; got 1.5 at"),
    ({"gain": GAIN.astype(complex)}, "gain must be numbers; got complex128"),
    ({"gain": "strong"}, "gain must be [S, N, N]; got"),
    ({"gain": [[0.5, 0.5], [0.5]]}, "gain must be [S, N, N]; got [[0.5, 0.5], [0.5]]"),
    (
        {"gain": np.ma.masked_array(GAIN, GAIN > 0)},
        "gain must have no masked values; got float64 of shape (3, 6, 6)",
    ),
    ({"position": np.zeros((N, 3))}, "position must be [N, 2]; got float64 of shape (6, 3)"),
    ({"position": np.full((N, 2), np.inf)}, "position must be metres from -1e+07 to 1e+07; got inf at [0, 0]"),
    ({"trust": np.full((N, N, L), 0.5)}, "trust must be true or false; got 0.5 at [0, 0, 0]"),
    ({"trust": np.ones((N, 5, L))}, "trust must be [N, N, L] with N = 6, square; got shape [6, 5, 5]"),
    ({"counts": np.full((N, L), 0.5)}, "counts must be whole numbers of points, 0 or more; got 0.5"),
    ({"counts": np.full((N, L), -1)}, "counts must be whole numbers of points, 0 or more; got -1"),
    ({"counts": np.zeros((N, L), int)}, "sum of counts must be from 1 to 2**31 - 1; got 0"),
    (
        {"gain": GAIN, "position": np.zeros((7, 2))},
        "position must be [N, 2] with N = 6, as gain of shape [3, 6, 6]; got shape [7, 2]",
    ),
    (
        {"trust": np.ones((N, N, L)), "counts": np.ones((N, 4))},
        "counts must be [N, L] with L = 5, as trust of shape [6, 6, 5]; got shape [6, 4]",
    ),
]


@pytest.mark.parametrize("parts, message", PARTS, ids=[message[:40] for _, message in PARTS])
def test_parts_that_are_none_are_refused(parts, message):
    refused(message, lambda: make_network(run_key(0), Config(), **parts))
    refused(message, lambda: Recipe(network=GivenNetwork(**parts)))


@pytest.mark.parametrize(
    "parts, settings, message",
    [
        (
            {"gain": GAIN},
            {"num_devices": 7},
            "num_devices must be 6, as in the given gain of shape [3, 6, 6]; got 7",
        ),
        (
            {"gain": GAIN[0]},
            {"num_states": 3},
            "num_states must be 1, as in the given gain of shape [6, 6], one state",
        ),
        (
            {"gain": GAIN},
            {"channel_model": "mobility"},
            "channel_model must be shadowing, as devices cannot move if",
        ),
        ({"counts": np.ones((N, L))}, {"num_classes": 4}, "num_classes must be 5, as in the given counts of shape"),
        (
            {"position": np.full((N, 2), -1.0)},
            {"channel_model": "mobility"},
            "position must be in [0, 400], the field in which devices move; got -1.0 at [0, 0]",
        ),
    ],
)
def test_settings_that_contradict_are_refused(parts, settings, message):
    refused(message, lambda: make_network(run_key(0), Config(**settings), **parts))


def test_nothing_is_dealt_without_counts():
    message = "partition='own' stands for points that have owners, or for given counts; neither is given"
    refused(message, lambda: jax.eval_shape(lambda: make_network(run_key(0), Config(partition="own"))))
    refused(message, lambda: d2djax.run(Config(partition="own"), 1, progress=False))


@pytest.fixture
def one(two):
    return jax.tree.map(lambda leaf: leaf[0], two)


def test_networks_that_are_none_are_refused(one, two):
    takes = lambda network: lambda: Recipe(network=network)  # noqa: E731
    refused("recipe.network: must be a Network, a GivenNetwork or a function (key, config) -> Network", takes(3))
    refused("recipe.network: must be a Network", takes(d2djax.Network))
    refused("recipe.network: GivenNetwork must have at least one of gain, position, trust", takes(GivenNetwork()))
    refused(
        "recipe.network: cluster must be [N] = [6]; got shape [5]", takes(replace(one, cluster=one.cluster[:5]))
    )
    wrong = with_entry(one.outage, (1, 2, 2), 0.5)
    refused(
        "recipe.network: outage must be 0 on the diagonal; got 0.5 at [1, 2, 2]", takes(replace(one, outage=wrong))
    )
    wrong = with_entry(two.outage, (1, 0, 0, 1), np.nan)
    refused("recipe.network: outage must be in [0, 1]; got nan at [1, 0, 0, 1]", takes(replace(two, outage=wrong)))
    refused(
        "trust must have the 2 networks of outage along its first axis", takes(replace(two, trust=two.trust[:1]))
    )
    refused("counts must be whole numbers", takes(replace(one, counts=one.counts + 0.5)))
    stacks = {"gain": np.full((2, S, N, N), 1e-9), "position": np.zeros((3, N, 2))}
    refused(
        "parts of a network must have the same number of networks; got gain of 2, position of 3",
        takes(GivenNetwork(**stacks)),
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_devices": 8}, "num_devices must be 6, as in the given network; got 8"),
        ({"num_states": 2}, "num_states must be 3, as in the given network; got 2"),
        (
            {"points_per_device": 50},
            "points_per_device must be 40, as in the given counts, whose sum is 240; got 50",
        ),
        ({"partition": "iid"}, "partition must be left out if counts are given; got iid"),
        (
            {"channel_model": "mobility"},
            "channel_model must be shadowing, as devices cannot move if recipe.network",
        ),
        (
            {"cluster_budget": 100.0},
            "cluster_budget must be at least 300, the largest budget of recipe.network; got 100",
        ),
        ({"cluster_budget": "many"}, "cluster_budget must be a number; got 'many'"),
    ],
)
def test_settings_that_contradict_a_network_are_refused(one, config, options, changes, message):
    refused(message, lambda: d2djax.run(replace(config, **changes), 1, recipe=Recipe(network=one), **options))


def test_counts_that_the_data_do_not_have_are_refused(one, left_out, options):
    # 240 of 1,000 points: class b has 180, 144 of them for training.
    counts = with_entry(np.zeros_like(one.counts), (slice(None), 1), 40)
    network = Recipe(network=replace(one, counts=counts))
    message = "counts of the network need up to 240 training points of class 'b'; 144 are available"
    refused(message, lambda: d2djax.run(left_out, 1, recipe=network, **options))
    few = Recipe(network=GivenNetwork(counts=np.ones((N, 4))))
    refused(
        "num_classes must be 4, as in the given counts of shape [6, 4]; got 5",
        lambda: d2djax.run(left_out, 1, recipe=few, **options),
    )


def test_settings_that_are_no_part_of_what_results_are_of_change_nothing(two, left_out, given, options):
    everything = GivenNetwork(**parts_of(two))
    assert (fixed_by(two, left_out) | fixed_by(everything, left_out)) <= {item.name for item in fields(Config)}
    left = sorted(unread(two, left_out) & set(numbers_of(left_out)))
    assert "trust_probability" in left and "shadowing_std" in unread(everything, left_out)
    other = replace(left_out, **{name: getattr(left_out, name) * 0.5 for name in left})
    assert_equal(d2djax.run(other, 4, recipe=Recipe(network=two), **options), given)


@pytest.mark.parametrize(
    "name",
    ["trust_probability", "rate", "num_devices", "cluster_budget", "points_per_device", "max_outage"],
)
def test_axes_that_would_change_nothing_are_refused(one, left_out, options, tmp_path, name):
    message = f"{name} cannot be an axis: recipe.network is an array and does not change with it"
    value = getattr(Config, name)
    given = options | {"recipe": Recipe(network=one)}
    refused(message, lambda: d2djax.sweep(left_out, {name: [value]}, 1, tmp_path / "s", **given))
    ranges = {name: d2djax.Choice((value,))}
    refused(message, lambda: d2djax.search(left_out, ranges, trials=1, out=tmp_path / "t", **given))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda key, config: make_network(key, config).outage, "it returns"),
        (lambda key: None, "positional argument"),
        (lambda key, config: make_network(key, config) if config.gamma > 0 else None, "boolean"),
        (
            lambda key, config: replace(make_network(key, config), cluster=jnp.zeros(3, int)),
            "network.cluster must be [N]",
        ),
        (
            lambda key, config: replace(make_network(key, config), counts=jnp.ones((6, 5))),
            "network.counts must be int32",
        ),
    ],
)
def test_functions_that_make_no_network_are_refused(function, message, config, options):
    start = "recipe.network must return a Network for a traced key and config"
    with pytest.raises(ValueError, match=f"{start}.*{re.escape(message)}"):
        d2djax.run(config, 1, recipe=Recipe(network=function), **options)
    larger = lambda key, config: make_network(key, replace(config, num_devices=7))  # noqa: E731
    refused(
        "num_devices must be 7, as in the given network; got 6",
        lambda: d2djax.run(config, 1, recipe=Recipe(network=larger), **options),
    )


def test_what_a_function_makes_is_checked_before_it_is_used(two, config):
    seeds, supply = np.array([4, 7]), np.full(L, 100)
    check_made(two, seeds, config, supply)
    wrong = replace(two, outage=with_entry(two.outage, (1, 0, 0, 1), np.nan))
    refused(
        "recipe.network for seed 7: network.outage must be in [0, 1]; got nan",
        lambda: check_made(wrong, seeds, config, None),
    )
    wrong = replace(two, counts=two.counts + 1)
    refused(
        "for seed 4: sum of counts must be 240 (num_devices times points_per_device); got 270",
        lambda: check_made(wrong, seeds, config, None),
    )
    refused(
        "for seed 4: sum of counts over the devices must be at most the training",
        lambda: check_made(two, seeds, config, np.full(L, 3)),
    )


# --- files ---


@pytest.fixture
def city(tmp_path):
    rng = np.random.default_rng(5)
    position = rng.uniform(0, 300, (5, 2))
    distance = np.linalg.norm(position[:, None] - position, axis=-1) + np.eye(5)
    gain = 1e-3 * distance**-3.5 * 10 ** (rng.normal(0, 4, (2, 5, 5)) / 10)
    np.savez(tmp_path / "city.npz", gain=gain, position=position)
    return tmp_path / "city.npz"


SMALL = [
    *("--num-episodes", "40", "--record-every", "20", "--policies", "none", "rl", "--seeds", "2", "--no-training"),
]


def test_a_sweep_of_a_file_is_repeated_and_knows_its_bytes(city, tmp_path, capsys):
    first, again = tmp_path / "first", tmp_path / "again"
    command = ["sweep", "--network", str(city), *SMALL, "--axis", "gamma=0,1"]
    commands.main([*command, "--out", str(first)])
    assert repeat.read(str(first / "config.toml"))[0]["network"] == str(city)
    commands.main(["sweep", "--config", str(first / "config.toml"), "--out", str(again)])
    one, two = results.read(first / "results.zarr"), results.read(again / "results.zarr")
    assert_equal(one, two)
    assert one.sizes["device"] == 5 and one.sizes["state"] == 2
    made = jax.jit(lambda: make_network(run_key(1), Config(num_classes=11), **np.load(city)))()
    assert_outage(one.isel(gamma=0), 1, made.outage, policy="rl")
    about = json.loads(one.attrs["manifest"])["recipe"]["network"]
    assert about["file"] == str(city) and about["gain"].startswith("float64[2, 5, 5] ")
    arrays = dict(np.load(city))
    np.savez(city, **arrays | {"gain": arrays["gain"] / 2})
    assert "holds the results of another sweep (recipe.network.gain: " in exits(
        capsys, *command, "--out", str(first)
    )


def test_the_file_of_a_search_names_the_network(city):
    recipe = arguments.recipe_of(arguments.Search(network=str(city)))
    file = lambda recipe: tomllib.loads(repeat.text_of("search", {}, Config(), recipe=recipe))  # noqa: E731
    assert file(recipe)["network"] == str(city) and "given_in_python" not in file(recipe)
    both = file(replace(recipe, policies={"mine": far}))
    assert both["network"] == str(city) and both["given_in_python"] == ["recipe"]
    assert file(Recipe(network=far))["given_in_python"] == ["recipe"]
    assert "given_in_python" not in file(Recipe())


def exits(capsys, *words):
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        commands.main(list(words))
    out, err = capsys.readouterr()
    assert caught.value.code == 2 and not out
    reasons = [line for line in err.splitlines() if line.startswith("d2djax: ")]
    assert len(reasons) == 1 and reasons[0] == err.splitlines()[-1]
    return reasons[0]


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_a_bit(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"NUMPY") + 200] ^= 1
    path.write_bytes(content)


def write_a_folder(path):
    path.unlink()
    path.mkdir()


def write_one_array(path):
    with path.open("wb") as file:
        np.save(file, GAIN)


def write_a_text(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gain.txt", "3")


NAMES = "expected one or more of the arrays gain, position, trust and counts; found"


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda path: path.unlink(), "expected an .npz file; found nothing"),
        (write_a_folder, "expected an .npz file; found no file"),
        (cut_in_half, "found a file of another kind"),
        (change_a_bit, "found damage (Bad CRC-32"),
        (lambda path: path.write_bytes(b"gain = 3\n"), "found a file of another kind"),
        (write_one_array, "found a file of another kind"),
        (
            lambda path: np.savez(path, gain=np.array([print], object)),
            "in gain.npy; found a pickle, which could run code",
        ),
        (write_a_text, f"{NAMES} gain.txt"),
        (lambda path: np.savez(path, gain=GAIN, loss=GAIN), f"{NAMES} gain.npy, loss.npy"),
        (lambda path: np.savez(path), f"{NAMES} none"),
        (lambda path: np.savez(path, gain=-GAIN), "gain must be 0 or more, a ratio of powers"),
    ],
)
def test_files_that_are_wrong_are_one_line(city, tmp_path, capsys, damage, message):
    damage(city)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        load_network(city)
    assert str(city) in str(caught.value) and "\n" not in str(caught.value)
    for command in ("run", "sweep", "search"):
        out = tmp_path / "out"
        axis = [] if command == "run" else ["--axis", "gamma=0,1"]
        assert str(city) in exits(capsys, command, "--network", str(city), *axis, "--out", str(out))
        assert not out.exists()


def test_a_file_and_a_recipe_with_a_network_are_two(city, tmp_path):
    (tmp_path / "two_networks.py").write_text(
        "import d2djax\nrecipe = d2djax.Recipe(network=d2djax.make_network)\n"
    )
    command = arguments.Run(recipe=str(tmp_path / "two_networks.py"), network=str(city))
    refused("the recipe already has a network; give only one of them", lambda: arguments.recipe_of(command))


def test_manifests_name_the_file_or_are_refused(tmp_path):
    about = {"config": {"num_devices": 5}, "seeds": [0, 1], "recipe": {"network": {"gain": "", "file": "/a.npz"}}}
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    assert repeat.read(str(tmp_path / "manifest.json"))[0]["network"] == "/a.npz"
    about["recipe"]["network"]["file"] = None
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="the network was given in Python"):
        repeat.read(str(tmp_path / "manifest.json"))


# --- points that have owners ---


def test_networks_of_points_that_have_owners(one, config, tiny_dataset):
    owner = np.arange(len(tiny_dataset.y)) % N
    data = replace(tiny_dataset, owner=owner)
    sizes = {"num_devices": 25, "num_states": 10, "points_per_device": 0, "classes_per_device": 4}
    options = {"data": data, "progress": False, "training": False}
    given = replace(config, **sizes, policies=("uniform",))
    plain = d2djax.run(replace(given, num_states=S), 1, **options)
    counts = plain["counts_before"][0].values
    parts = {name: part for name, part in parts_of(one).items() if name != "counts"}
    found = d2djax.run(given, 1, recipe=Recipe(network=GivenNetwork(**parts)), **options)
    assert_equal(found, plain)
    whole = d2djax.run(given, 1, recipe=Recipe(network=replace(one, counts=counts)), **options)
    assert_equal(whole, plain)
    message = "recipe.network: counts must be the training points of the owners, whose counts may be left out; got"
    refused(message, lambda: d2djax.run(given, 1, recipe=Recipe(network=one), **options))
    refused(
        message, lambda: d2djax.run(given, 1, recipe=Recipe(network=GivenNetwork(counts=one.counts)), **options)
    )
    less = GivenNetwork(gain=np.full((4, 4), 1e-9))
    message = "num_devices must be 4, as in the given gain of shape [4, 4]; got 6"
    refused(message, lambda: d2djax.run(given, 1, recipe=Recipe(network=less), **options))
