from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from d2djax import channel
from d2djax.config import Config
from d2djax.network import Network, make_network
from d2djax.rng import Stream, at, draw_rounded_up, normal_numbers, run_key, uniform_numbers

SEEDS = np.arange(128)
# Statistics may be off by this many standard errors: about one in two million if all is right.
SIGMAS = 5.0

alone = jax.jit(lambda seed, config: make_network(run_key(seed), config))


@jax.jit
def distances_of(seeds, position, config):
    """Distances in each channel state, [seeds, S, N, N], read off the power of devices that move."""

    def one(seed):
        rss = channel.received_power(run_key(seed), position, config)
        return (rss / (config.transmit_power * config.reference_gain)) ** (-1 / config.path_loss_exponent)

    return jax.vmap(one)(seeds)


@jax.jit
def states_of(seeds, first, config):
    """[seeds, 40] states of the channel, from an arbitrary state before the first episode."""

    def chain(seed):
        def step(state, episode):
            drawn = channel.draw_state(run_key(seed), episode, config)
            state = jnp.where(drawn < 0, state, drawn)
            return state, state

        return jax.lax.scan(step, first, jnp.arange(40))[1]

    return jax.vmap(chain)(seeds)


@pytest.fixture(scope="module")
def networks(tiny_networks):
    return tiny_networks


@pytest.fixture(scope="module")
def draw(network_program, tiny_config):
    """Networks of the same runs with other numbers in the config."""
    return lambda **changes: jax.tree.map(np.asarray, network_program[0](SEEDS, replace(tiny_config, **changes)))


def each(networks):
    """The networks of the single runs."""
    return [jax.tree.map(lambda leaf, run=run: leaf[run], networks) for run in range(len(networks.position))]


def assert_frequency(hits, probability, what=""):
    """The share of hits among independent draws is `probability`."""
    hits = np.asarray(hits)
    error = np.sqrt(probability * (1 - probability) / hits.size)
    assert abs(hits.mean() - probability) <= SIGMAS * error, what


def test_stream_numbers_are_part_of_every_published_result():
    names = "POSITION CHANNEL TRUST PARTITION STATE POLICY BASELINE DEPLOYMENT DELIVERY SPLIT MODEL MINIBATCH POOL"
    assert [stream.name for stream in sorted(Stream)][:13] == names.split()
    assert [int(stream) for stream in sorted(Stream)] == list(range(len(Stream)))


def test_every_address_has_its_own_key():
    steps = np.arange(4)
    data = [
        jax.random.key_data(jax.vmap(at, (None, None, 0))(run_key(seed), stream, steps))
        for seed in (0, 1, 2)
        for stream in (Stream.POSITION, Stream.CHANNEL, Stream.STRAGGLER)
    ]
    assert len(np.unique(np.concatenate(data), axis=0)) == 3 * 3 * 4


def test_shapes_and_kinds(networks, tiny_config):
    n, classes, states = tiny_config.num_devices, tiny_config.num_classes, tiny_config.num_states
    shapes = {
        "position": (n, 2),
        "rss": (states, n, n),
        "outage": (states, n, n),
        "cluster": (n,),
        "budget": (n,),
        "trust": (n, n, classes),
        "counts": (n, classes),
        "thresholds": (n, classes),
    }
    assert {field.name for field in fields(Network)} == set(shapes)
    for name, shape in shapes.items():
        assert getattr(networks, name).shape == (len(SEEDS), *shape), name
    assert networks.cluster.dtype == networks.counts.dtype == np.int32
    assert networks.trust.dtype == bool


def test_parts_agree_with_the_oracle(networks, tiny_config):
    for network in each(networks)[:8]:
        expected = [
            oracle.outage_probability(rss, tiny_config.rate, tiny_config.noise_power) for rss in network.rss
        ]
        np.testing.assert_allclose(network.outage, expected, rtol=1e-5)
        labels = oracle.reliable_clusters(network.outage, tiny_config.max_outage)
        np.testing.assert_array_equal(network.cluster, labels)
    assert (networks.counts.sum(axis=-1) == tiny_config.points_per_device).all()
    assert ((networks.counts > 0).sum(axis=-1) == tiny_config.classes_per_device).all()
    assert (networks.thresholds == tiny_config.threshold).all()
    assert (networks.budget == tiny_config.cluster_budget).all()


def test_equal_keys_and_configs_give_equal_networks(networks, draw):
    jax.tree.map(np.testing.assert_array_equal, draw(), networks)


def test_a_run_among_others_is_the_run_alone(networks, tiny_config):
    for seed, among in list(zip(SEEDS, each(networks), strict=True))[:3]:
        single = alone(seed, tiny_config)
        for name in ("cluster", "budget", "trust", "counts", "thresholds"):
            np.testing.assert_array_equal(getattr(single, name), getattr(among, name), err_msg=name)
        # The two programs may round powers and exponentials in another order.
        np.testing.assert_allclose(single.position, among.position, rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(single.rss, among.rss, rtol=1e-4)
        np.testing.assert_allclose(single.outage, among.outage, rtol=1e-4)


def test_seeds_differ(networks):
    for name in ("position", "rss", "outage", "trust"):
        flat = getattr(networks, name).reshape(len(SEEDS), -1)
        assert len(np.unique(flat, axis=0)) == len(SEEDS), name
    # There are only so many ways to deal 2 of 5 classes.
    assert len(np.unique(networks.counts[:8], axis=0)) == 8


def test_numbers_of_the_config_are_traced(network_program, networks, draw):
    before = len(network_program[1])
    assert (draw(threshold=5.0).thresholds == 5).all()
    assert draw(field_size=200.0, transmit_power=0.02).position.max() <= 200
    assert draw(trust_probability=1.0).trust.all()
    assert len(network_program[1]) == before


@pytest.mark.parametrize("spread", [0.0, 45.0, 3000.0])
def test_devices_stand_in_the_field(spread, draw, tiny_config):
    # The last spread throws devices over the border several times over.
    position = draw(hotspot_spread=spread).position
    assert ((position >= 0) & (position <= tiny_config.field_size)).all()


def test_devices_without_spread_stand_on_their_hot_spots(draw, tiny_config):
    for position in draw(hotspot_spread=0.0).position:
        assert len(np.unique(position, axis=0)) <= tiny_config.num_hotspots < tiny_config.num_devices


def test_hot_spots_are_uniform_over_the_field(draw):
    # One device of each run: those of a run share hot spots.
    first = draw(field_size=100_000.0).position[:, 0] / 100_000
    for quantile in (0.25, 0.5, 0.75):
        assert_frequency(first < quantile, quantile)


def test_spread_around_a_hot_spot_is_that_of_the_config(draw, tiny_config):
    # In a field of 1,000 km two devices are near each other if and only if they share a hot spot.
    position = draw(field_size=1e6, hotspot_spread=500.0).position.astype(np.float64)
    difference = position[:, 0::2] - position[:, 1::2]  # three pairs without a common device
    shared = (np.abs(difference) < 10_000).all(axis=-1)
    assert_frequency(shared, 1 / tiny_config.num_hotspots)
    variance = np.mean(difference[shared] ** 2)
    relative_error = np.sqrt(2 / (2 * shared.sum()))
    assert abs(variance / (2 * 500.0**2) - 1) < SIGMAS * relative_error


def test_distances_are_those_of_the_plane_and_never_under_a_metre():
    position = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.5]], np.float32)
    np.testing.assert_allclose(
        channel.distances(position), [[1, 5, np.sqrt(29.25)], [5, 1, 1], [np.sqrt(29.25), 1, 1]], rtol=1e-6
    )


def test_path_power_by_hand():
    config = Config(transmit_power=0.02, reference_gain=1e-3, path_loss_exponent=3.0)
    got = channel.path_power(jnp.array([1.0, 2.0, 10.0]), config)
    np.testing.assert_allclose(got, [2e-5, 2.5e-6, 2e-8], rtol=1e-5)


def test_states_are_reciprocal(networks):
    np.testing.assert_array_equal(networks.rss, np.swapaxes(networks.rss, -1, -2))
    np.testing.assert_array_equal(networks.outage, np.swapaxes(networks.outage, -1, -2))


def test_states_differ_in_every_link(networks):
    off_diagonal = ~np.eye(networks.rss.shape[-1], dtype=bool)
    for rss in networks.rss:
        assert (np.diff(rss[:, off_diagonal], axis=0) != 0).all()


def test_shadowing_is_log_normal_with_the_deviation_of_the_config(draw, tiny_config):
    found = draw(shadowing_std=6.0)
    mean_power = np.asarray(channel.path_power(channel.distances(found.position), tiny_config), np.float64)
    decibel = 10 * np.log10(found.rss.astype(np.float64) / mean_power[:, None])
    upper = np.triu_indices(tiny_config.num_devices, 1)
    z = decibel[..., upper[0], upper[1]] / 6.0  # [128 runs, 3 states, 15 pairs]
    assert abs(z.mean()) < SIGMAS / np.sqrt(z.size)
    assert abs(z.std() - 1) < SIGMAS / np.sqrt(2 * z.size)
    # Normal tails and not, say, uniform ones.
    assert_frequency(np.abs(z) > 2, 0.0455003)
    # No state tells of the next, no pair of another, no run of the next.
    assert abs(np.mean(z[:, 1:] * z[:, :-1])) < SIGMAS / np.sqrt(z[:, 1:].size)
    assert abs(np.mean(z[1:] * z[:-1])) < SIGMAS / np.sqrt(z[1:].size)
    between_pairs = np.corrcoef(z.reshape(-1, 15).T)[np.triu_indices(15, 1)]
    assert np.abs(between_pairs).max() < SIGMAS / np.sqrt(z[..., 0].size)


def test_without_shadowing_all_states_are_the_mean_path(draw, tiny_config):
    found = draw(shadowing_std=0.0)
    expected = np.asarray(channel.path_power(channel.distances(found.position), tiny_config))
    np.testing.assert_allclose(found.rss, np.broadcast_to(expected[:, None], found.rss.shape), rtol=1e-4)


def moving(position, **changes):
    """Distances of 6 moving devices in 4 snapshots, [2000 runs, 4, 6, 6]."""
    config = Config(num_devices=6, num_states=4, channel_model="mobility", **changes)
    return np.asarray(distances_of(np.arange(2000), position, config), np.float64)


def test_first_snapshot_shows_the_first_places():
    position = np.random.default_rng(2).uniform(0, 400, (6, 2)).astype(np.float32)
    distance = moving(position)
    expected = np.broadcast_to(channel.distances(position), distance[:, 0].shape)
    np.testing.assert_allclose(distance[:, 0], expected, rtol=1e-4)
    np.testing.assert_allclose(distance, np.swapaxes(distance, -1, -2), rtol=1e-5)


def test_devices_that_do_not_move_give_equal_snapshots():
    position = np.random.default_rng(3).uniform(0, 400, (6, 2)).astype(np.float32)
    distance = moving(position, mobility_step=0.0)
    np.testing.assert_allclose(distance, np.broadcast_to(distance[:, :1], distance.shape), rtol=1e-5)


def test_moving_devices_stay_in_the_field():
    # Steps wider than the field: without the reflection distances would be kilometres.
    position = np.random.default_rng(4).uniform(0, 400, (6, 2)).astype(np.float32)
    distance = moving(position, mobility_step=1000.0)
    assert 500 < distance.max() <= 400 * np.sqrt(2) * (1 + 1e-4)


def test_devices_walk_at_random_with_the_step_of_the_config():
    # Far from every border and all in one place: after s steps the mean squared distance of a pair is
    # 2 axes x 2 devices x s x step^2. Three pairs without a common device are independent.
    position = np.full((6, 2), 50_000, np.float32)
    distance = moving(position, mobility_step=20.0, field_size=100_000.0)
    squared = distance[:, :, [0, 2, 4], [1, 3, 5]] ** 2
    np.testing.assert_allclose(distance[:, 0], 1, rtol=1e-5)
    for steps in (1, 2, 3):
        ratio = squared[:, steps].mean() / (4 * steps * 20.0**2)
        # A squared distance in the plane is exponential: its deviation is its mean.
        assert abs(ratio - 1) < SIGMAS / np.sqrt(3 * 2000)


@pytest.mark.parametrize("stay", [0.0, 0.7, 1.0])
def test_channel_state_chain(stay):
    config = Config(num_states=4, stay_probability=stay)
    chains = np.asarray(states_of(np.arange(1500), jnp.int32(3), config))
    assert chains.min() == 0 and chains.max() == 3
    # Uniform in the first episode, whatever the state before it, and for ever after.
    for state in range(4):
        assert_frequency(chains[:, 0] == state, 0.25, state)
        assert_frequency(chains[:, -1] == state, 0.25, state)
    stays = chains[:, 1:] == chains[:, :-1]
    if stay == 1.0:
        assert stays.all()
    assert_frequency(stays, stay + (1 - stay) / 4)
    # A state that is left goes to each of the others alike.
    for move in (1, 2, 3):
        assert_frequency((chains[:, 1:] - chains[:, :-1]) % 4 == move, (1 - stay) / 4)


def test_state_of_an_episode_does_not_depend_on_the_ones_before():
    config = Config(num_states=4, stay_probability=0.0)
    seeds = np.arange(1500)
    np.testing.assert_array_equal(states_of(seeds, jnp.int32(0), config), states_of(seeds, jnp.int32(2), config))


@pytest.fixture(scope="module")
def trust_of(draw, tiny_config):
    """Trust between different devices, [128 runs, 30 pairs, 5 classes], and of devices in themselves."""
    off_diagonal = ~np.eye(tiny_config.num_devices, dtype=bool)

    def trust(**changes):
        drawn = draw(**changes).trust
        return drawn[:, off_diagonal], drawn[:, ~off_diagonal]

    return trust


def test_devices_trust_themselves_with_everything(trust_of):
    others, itself = trust_of(trust_probability=0.0)
    assert itself.all()
    assert not others.any()
    assert trust_of(trust_probability=1.0)[0].all()


def test_trust_has_the_probability_of_the_config(trust_of):
    others, _ = trust_of(trust_probability=0.7)
    assert_frequency(others, 0.7)
    for label in range(5):
        assert_frequency(others[..., label], 0.7, label)
    # One class says nothing of the next.
    assert_frequency(others[..., 0] == others[..., 1], 0.7**2 + 0.3**2)


def test_trust_need_not_be_mutual(draw):
    trust = draw(trust_probability=0.7).trust
    i, j = np.triu_indices(6, 1)
    assert_frequency(trust[:, i, j] == trust[:, j, i], 0.7**2 + 0.3**2)


def test_as_many_classes_are_sensitive_as_the_config_says(trust_of):
    for number in (0, 2, 5):
        others, _ = trust_of(num_sensitive_classes=number, trust_probability=1.0, sensitive_trust_probability=0.0)
        is_sensitive = ~others.any(axis=1)
        assert (is_sensitive | others.all(axis=1)).all()
        assert (is_sensitive.sum(axis=-1) == number).all()
        for label in range(5):
            assert_frequency(is_sensitive[:, label], number / 5, label)


def test_sensitive_classes_have_their_own_probability(trust_of):
    others, _ = trust_of(num_sensitive_classes=5, trust_probability=0.9, sensitive_trust_probability=0.2)
    assert_frequency(others, 0.2)


@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (256,), (257,), (10, 25, 25), (5, 0)])
def test_a_longer_list_starts_with_the_same_numbers(shape):
    key = at(run_key(3), Stream.TRUST)
    np.testing.assert_array_equal(uniform_numbers(key, shape), jax.random.uniform(key, shape))
    np.testing.assert_array_equal(normal_numbers(key, shape), jax.random.normal(key, shape))


@pytest.mark.parametrize(
    "size, length", [(1, 256), (256, 256), (257, 320), (6250, 7168), (6875, 7168), (2**20, 2**20)]
)
def test_lists_have_few_lengths(size, length):
    asked = []
    draw_rounded_up(run_key(0), lambda key, shape: asked.append(shape) or jnp.zeros(shape), (size,))
    assert asked == [(length,)] and length <= max(256, 1.25 * size)
