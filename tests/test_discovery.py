from dataclasses import fields, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import exchanges, first_appearance, indices

from d2djax import baselines, policy
from d2djax.config import Config, score_fraction
from d2djax.discovery import History, discover, summarise
from d2djax.episode import exchange_and_reward, prepare
from d2djax.network import Network, make_network
from d2djax.reward import initial_value
from d2djax.rng import Stream, at, run_key
from d2djax.validation import validate

CURVES = tuple(field.name for field in fields(History))
traces = []


def counted(key, network, config):
    traces.append(config.num_devices)
    return discover(key, network, config)


discovered = jax.jit(counted)
best_response_of = jax.jit(baselines.best_response)


def network_of(networks, run):
    return jax.tree.map(lambda leaf: leaf[run], networks)


@pytest.fixture(scope="module")
def found(tiny_networks, tiny_config):
    """What seed 0 discovers in the tiny setting, and its network."""
    network = network_of(tiny_networks, 0)
    return network, discovered(run_key(0), network, tiny_config)


# The episode loop against plain loops.


def as_oracle(network, config):
    """Network and settings as the oracle wants them."""
    names = ("outage", "counts", "thresholds", "cluster", "budget", "trust")
    same = ("min_classes", *oracle.WEIGHTS, "reference_weights", "temperature", "stay_probability")
    settings = {name: getattr(config, name) for name in same}
    most = config.alpha_diversity * network.counts.shape[1]
    start = most + config.gamma * (most + config.alpha_budget * config.cluster_budget)
    settings |= {"score_fraction": score_fraction(config), "initial_value": start}
    return {name: np.asarray(getattr(network, name)) for name in names}, settings


@jax.jit
def draws(key, config):
    """The package's own random numbers of all episodes, as the oracle takes them."""
    episodes = jnp.arange(config.num_episodes)
    state = jax.vmap(lambda e: jax.random.uniform(at(key, Stream.STATE, e), (2,)))(episodes)
    link = jax.vmap(lambda e: jax.random.uniform(at(key, Stream.POLICY, e), (config.num_devices,)))(episodes)
    return jnp.concatenate([state, link], axis=1)


@pytest.mark.parametrize(
    "seed, changes",
    [
        (0, {}),
        (1, {"stay_probability": 0.6, "temperature": 0.5, "gamma": 2.0}),
        (2, {"cluster_budget": 5.0, "alpha_budget": 0.1, "max_outage": 0.02, "min_classes": 2}),
        (3, {"trust_probability": 0.5, "alpha_outage": 6.0, "threshold": 15.0}),
        (4, {"gamma": 0.0, "reference_weights": (2.0, 1.0, 0.01, 3.0)}),
    ],
)
def test_discovery_is_the_episode_loop_of_the_paper(seed, changes, network_program, tiny_config):
    # Single and double precision part for good once a draw falls between their two probabilities, some
    # 1e-6 apart; in 60 x 6 draws that is one chance in thousands, and these seeds are fixed.
    config = replace(tiny_config, **changes)
    network = network_of(network_program[0](np.arange(128), config), seed)
    got = discovered(run_key(seed), network, config)
    plain = oracle.discover(*as_oracle(network, config), np.asarray(draws(run_key(seed), config), float), 20)
    reward, tries = plain["reward"], plain["tries"]
    np.testing.assert_array_equal(got.buffer.tries, tries)
    np.testing.assert_allclose(got.buffer.reward, reward, rtol=1e-5, atol=1e-4)
    assert set(plain["history"]) == set(CURVES)
    for name, expected in plain["history"].items():
        np.testing.assert_allclose(getattr(got.history, name), expected, rtol=1e-4, atol=1e-4, err_msg=name)
    np.testing.assert_array_equal(got.links, policy.greedy(got.buffer))
    # If two links are equally good to five digits, either may be the greedy one, here and in the plain loop.
    mean = np.where(tries > 0, reward / np.maximum(tries, 1), -np.inf)
    chosen = np.take_along_axis(mean, np.asarray(got.links)[..., None], axis=-1)[..., 0]
    tried = tries.any(axis=-1)
    assert (chosen[tried] >= mean.max(axis=-1)[tried] - 1e-4).all()
    own = np.broadcast_to(np.arange(tiny_config.num_devices), tried.shape)
    np.testing.assert_array_equal(np.asarray(got.links)[~tried], own[~tried])


def test_replayed_settings_are_not_all_alike(network_program, tiny_config):
    # The cases above must reach every scalar of the history: exchange, requests from outside, budget.
    config = replace(tiny_config, cluster_budget=5.0, max_outage=0.02, min_classes=2)
    network = network_of(network_program[0](np.arange(128), config), 2)
    history = discovered(run_key(2), network, config).history
    for name in CURVES:
        assert (np.asarray(getattr(history, name)) > 0).all(), name


# What holds in every discovery.


def test_shapes_and_kinds(found, tiny_config):
    _, got = found
    n, s = tiny_config.num_devices, tiny_config.num_states
    assert got.links.shape == (s, n) and got.links.dtype == jnp.int32
    assert got.buffer.reward.shape == got.buffer.tries.shape == (s, n, n)
    for name in CURVES:
        curve = getattr(got.history, name)
        assert curve.shape == (tiny_config.num_episodes // tiny_config.record_every,) and curve.dtype == jnp.float32


def test_every_device_tries_one_link_per_episode(found, tiny_config):
    tries = np.asarray(found[1].buffer.tries)
    assert tries.sum() == tiny_config.num_episodes * tiny_config.num_devices
    # In an episode all devices are in the same state.
    by_state = tries.sum(axis=-1)
    np.testing.assert_array_equal(by_state, np.broadcast_to(by_state[:, :1], by_state.shape))
    assert (tries == np.floor(tries)).all()


def test_entropy_lies_between_none_and_uniform(tiny_networks, tiny_config):
    for run in range(4):
        curve = np.asarray(discovered(run_key(run), network_of(tiny_networks, run), tiny_config).history.entropy)
        assert (curve >= 0).all() and (curve <= np.log(tiny_config.num_devices) * (1 + 1e-6)).all()


def test_seeds_differ(found, tiny_config):
    network, _ = found
    rewards = [np.asarray(discovered(run_key(seed), network, tiny_config).buffer.reward) for seed in range(6)]
    assert len(np.unique(np.reshape(rewards, (6, -1)), axis=0)) == 6


def test_equal_keys_give_equal_discoveries(found, tiny_config):
    network, got = found
    jax.tree.map(np.testing.assert_array_equal, discovered(run_key(0), network, replace(tiny_config)), got)


def test_numbers_of_the_config_are_traced(found, tiny_config):
    network, got = found
    before = len(traces)
    others = [discovered(run_key(0), network, replace(tiny_config, gamma=gamma)) for gamma in (0.0, 0.25, 3.0)]
    discovered(run_key(0), network, replace(tiny_config, temperature=2.0, min_classes=2, stay_probability=0.5))
    assert len(traces) == before
    sums = [float(jnp.sum(other.buffer.reward)) for other in [got, *others]]
    assert len(set(sums)) == 4


def test_reference_weights_value_graphs_and_teach_nothing(found, tiny_config):
    network, got = found
    own = tuple(getattr(tiny_config, name) for name in oracle.WEIGHTS)
    same = discovered(run_key(0), network, replace(tiny_config, reference_weights=own))
    np.testing.assert_allclose(same.history.reference_reward, same.history.reward, rtol=1e-5)
    other = discovered(run_key(0), network, replace(tiny_config, reference_weights=(0.0, 1.0, 0.0, 0.0)))
    jax.tree.map(np.testing.assert_array_equal, (other.buffer, other.links), (got.buffer, got.links))
    np.testing.assert_array_equal(other.history.reward, got.history.reward)
    # Minus the mean outage over all devices, linked or not.
    assert (np.asarray(other.history.reference_reward) < 0).all()


def test_reward_does_not_grow_with_its_own_weights(found, tiny_config):
    # By its own weights the same graphs are worth more and more: gamma is in what it is to be chosen by.
    network, _ = found
    few = [discovered(run_key(0), network, replace(tiny_config, gamma=gamma)).history for gamma in (0.5, 2.0)]
    own, reference = ([float(getattr(one, name)[-1]) for one in few] for name in ("reward", "reference_reward"))
    assert own[1] > 1.5 * own[0] and reference[1] < 1.2 * reference[0]
    np.testing.assert_allclose(
        few[1].reward, np.asarray(few[1].local_reward) + 2.0 * np.asarray(few[1].global_reward), rtol=1e-5
    )


@pytest.mark.parametrize(
    "weights, message",
    [
        ((1.0, 2.0, 0.001), r"reference_weights must have 4 entries; got \(1.0, 2.0, 0.001\)"),
        ((1.0, -2.0, 0.001, 0.5), r"reference_weights must be 0 or more; got \(1.0, -2.0, 0.001, 0.5\)"),
        (1.0, "reference_weights must be a tuple; got 1.0"),
        ((1.0, "2", 0.001, 0.5), "reference_weights must be a number; got '2'"),
    ],
)
def test_bad_reference_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        validate(Config(reference_weights=weights))


def test_recording_less_often_changes_only_the_history(found, tiny_config):
    network, got = found
    fine = discovered(run_key(0), network, replace(tiny_config, record_every=5))
    jax.tree.map(np.testing.assert_array_equal, fine.buffer, got.buffer)
    np.testing.assert_array_equal(fine.links, got.links)
    for name in CURVES:
        curve = np.asarray(getattr(fine.history, name)).reshape(3, 4)
        # The entropy is that at the end of a block, all else the mean over it.
        expected = curve[:, -1] if name == "entropy" else curve.mean(axis=1)
        np.testing.assert_allclose(getattr(got.history, name), expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_run_among_others_is_the_run_alone(tiny_networks, tiny_config):
    runs = np.array([3, 0, 5])
    networks = network_of(tiny_networks, runs)
    together = jax.jit(jax.vmap(lambda seed, network: discover(run_key(seed), network, tiny_config)))
    among = together(runs, networks)
    for place, run in enumerate(runs):
        single = discovered(run_key(run), network_of(tiny_networks, run), tiny_config)
        one = network_of(among, place)
        np.testing.assert_array_equal(one.links, single.links)
        np.testing.assert_array_equal(one.buffer.tries, single.buffer.tries)
        # The two programs may add in another order; 60 episodes are too few for that to change a link.
        np.testing.assert_allclose(one.buffer.reward, single.buffer.reward, rtol=1e-5, atol=1e-5)
        for name in CURVES:
            np.testing.assert_allclose(
                getattr(one.history, name), getattr(single.history, name), rtol=1e-5, atol=1e-5, err_msg=name
            )


def test_no_key_is_used_twice(tiny_config):
    config = replace(tiny_config, num_episodes=20)
    with jax.debug_key_reuse(True):
        jax.jit(lambda key: discover(key, make_network(key, config), config))(run_key(0))
        with pytest.raises(jax.errors.KeyReuseError):
            jax.jit(lambda key: jax.random.uniform(key) + jax.random.normal(key))(run_key(0))


def test_record_that_does_not_divide_the_episodes_is_refused(found, tiny_config):
    with pytest.raises(ValueError, match="record_every must be a divisor of num_episodes, 60; got 7"):
        discover(run_key(0), found[0], replace(tiny_config, record_every=7))


def test_numpy_network_is_accepted(tiny_networks, tiny_config):
    # Traced only: whether the program works is the matter of the other tests.
    network = network_of(tiny_networks, 0)
    assert isinstance(network.outage, np.ndarray)
    jax.eval_shape(lambda key: discover(key, network, tiny_config), run_key(0))


# Networks whose best graph is known.


def made_network(outage, counts, threshold=8.0, budget=300.0):
    """A network in which all trust each other and form one cluster."""
    num_devices, num_classes = np.shape(counts)
    return Network(
        position=np.zeros((num_devices, 2), np.float32),
        rss=1 - np.asarray(outage, np.float32),
        outage=np.asarray(outage, np.float32),
        cluster=np.zeros(num_devices, np.int32),
        budget=np.full(num_devices, budget, np.float32),
        trust=np.ones((num_devices, num_devices, num_classes), bool),
        counts=np.asarray(counts, np.int32),
        thresholds=np.full((num_devices, num_classes), threshold, np.float32),
    )


PAIR = Config(num_devices=2, num_classes=2, num_states=1, num_episodes=100, record_every=100, min_classes=2)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_the_one_good_link_is_found(gamma):
    # Device 0 has both classes; device 1 has none and gets 9.8 of the 10 that count for 9.
    network = made_network([[[0, 0.02], [0.02, 0]]], [[40, 40], [0, 0]], threshold=10.0)
    got = discovered(run_key(0), network, replace(PAIR, gamma=gamma))
    assert got.links[0, 1] == 0
    assert policy.probabilities(got.buffer, 0)[1, 0] > 0.8
    if gamma == 0:
        # Its own reward alone tells device 0 that a link costs and brings nothing.
        assert got.links[0, 0] == 0


def test_a_link_that_always_fails_is_not_taken():
    network = made_network([[[0, 1], [1, 0]]], [[40, 40], [0, 0]], threshold=10.0)
    got = discovered(run_key(0), network, PAIR)
    np.testing.assert_array_equal(got.links, [[0, 1]])


def plain_network(config, outage=0.0):
    """Every device has plenty of each class, so that no link brings anything."""
    shape = (config.num_states, config.num_devices, config.num_devices)
    return made_network(np.full(shape, outage), np.full((config.num_devices, config.num_classes), 100))


def test_equal_links_leave_the_policy_uniform(tiny_config):
    # No device can have 6 of 5 classes: every link earns the same, far less than an untried one promises.
    config = replace(tiny_config, min_classes=6)
    got = discovered(run_key(0), plain_network(config), config)
    for state in range(config.num_states):
        np.testing.assert_allclose(policy.probabilities(got.buffer, state), np.full((6, 6), 1 / 6), rtol=1e-5)
    np.testing.assert_allclose(got.history.entropy[-1], np.log(6), rtol=1e-6)
    # Once each link is tried: 54 of 60 episodes at most, 9 per transmitter and receiver on average.
    tries = np.asarray(got.buffer.tries)
    assert (tries >= 1).all()
    total = tries.sum(axis=(0, 1))
    assert np.abs(total - 60).max() < 5 * np.sqrt(60 * 5 / 6)


def test_a_link_that_costs_is_tried_once_and_abandoned(tiny_config):
    config = replace(tiny_config, min_classes=6, gamma=0.0, alpha_outage=10.0)
    network = plain_network(config)
    outage = network.outage.copy()
    outage[:, 0, 3] = 1.0
    got = discovered(run_key(1), replace(network, outage=outage), config)
    np.testing.assert_array_equal(got.buffer.tries[:, 0, 3], np.ones(config.num_states))
    np.testing.assert_array_equal(got.buffer.reward[:, 0, 3], np.full(config.num_states, -10.0))
    for state in range(config.num_states):
        assert policy.probabilities(got.buffer, state)[0, 3] < 1e-4
    assert (np.asarray(got.links)[:, 0] != 3).all()


# The value of an untried link.

weights = st.fixed_dictionaries(
    {
        "alpha_diversity": st.floats(0, 10),
        "alpha_outage": st.floats(0, 10),
        "alpha_budget": st.floats(0, 1),
        "gamma": st.floats(0, 5),
        "cluster_budget": st.floats(0, 500),
        "max_outage": st.floats(0.01, 0.99),
        "min_classes": st.integers(0, 3),
    }
)
random_plays = st.tuples(exchanges(5, 3), indices((5,), 5).map(first_appearance), weights)


@jax.jit
def total_of(network, links, config):
    return exchange_and_reward(prepare(network, config), 0, links, config)[1].rewards.total


@settings(deadline=None, max_examples=100)
@given(random_plays)
def test_no_reward_exceeds_the_value_of_an_untried_link(case):
    (counts, thresholds, trust, links, outage), cluster, changes = case
    config = Config(num_devices=5, num_classes=3, **changes)
    network = Network(
        position=np.zeros((5, 2), np.float32),
        rss=1 - outage[None],
        outage=outage[None],
        cluster=cluster,
        budget=np.full(5, config.cluster_budget, np.float32),
        trust=trust,
        counts=counts,
        thresholds=thresholds,
    )
    # Up to the rounding of single precision.
    assert np.max(total_of(network, links, config)) <= initial_value(config, 3) * (1 + 1e-6)


def test_value_of_an_untried_link_can_be_earned():
    # All classes, no outage, no request: a bound that no play reaches would be needlessly optimistic.
    config = Config(num_devices=5, num_classes=3, min_classes=3, num_states=1)
    network = plain_network(config)
    total = total_of(network, np.array([0, 0, 1, 2, 3], np.int32), config)
    np.testing.assert_allclose(total, np.full(5, initial_value(config, 3)), rtol=1e-6)
    assert initial_value(replace(config, initial_value=0.0), 3) == 0.0


# The other ways to choose a graph.


def test_none_is_no_link(found, tiny_config):
    links = baselines.none(run_key(0), found[0], tiny_config)
    np.testing.assert_array_equal(links, np.tile(np.arange(6), (3, 1)))


def test_uniform_is_uniform_over_the_other_devices(found, tiny_config):
    network = found[0]
    many = jax.jit(jax.vmap(lambda seed: baselines.uniform(run_key(seed), network, tiny_config)))
    links = np.asarray(many(np.arange(400)))  # [400 runs, 3 states, 6 devices]
    assert links.shape == (400, 3, 6) and links.dtype == np.int32
    number = 400 * 3
    for device in range(6):
        share = np.bincount(links[..., device].reshape(-1), minlength=6) / number
        assert share[device] == 0
        assert np.abs(np.delete(share, device) - 0.2).max() < 5 * np.sqrt(0.16 / number)
    # Devices and states draw by themselves: receivers 0 and 1 share one of four others by chance.
    assert abs(np.mean(links[..., 0] == links[..., 1]) - 4 / 25) < 5 * np.sqrt(4 / 25 / number)
    assert abs(np.mean(links[:, 0] == links[:, 1]) - 0.2) < 5 * np.sqrt(0.16 / (400 * 6))


def test_nearest_hears_best(tiny_networks, tiny_config):
    for run in range(5):
        network = network_of(tiny_networks, run)
        links = np.asarray(baselines.nearest(run_key(run), network, tiny_config))
        for state in range(3):
            for i in range(6):
                others = [j for j in range(6) if j != i]
                assert links[state, i] == max(others, key=lambda j: network.rss[state, i, j])


def test_nearest_breaks_ties_by_the_smallest_index(tiny_config):
    links = baselines.nearest(run_key(0), plain_network(tiny_config, outage=0.5), tiny_config)
    np.testing.assert_array_equal(links, np.tile([1, 0, 0, 0, 0, 0], (3, 1)))


FOUR = validate(
    Config(
        dataset="fashion_mnist",
        num_devices=4,
        num_classes=4,
        num_states=2,
        classes_per_device=2,
        points_per_device=40,
        threshold=8.0,
        min_classes=3,
    )
)


def test_best_response_of_four_devices_is_the_best_of_all_graphs():
    make = jax.jit(lambda seed: make_network(run_key(seed), FOUR))
    share = {}
    for run in range(6):
        network = make(run)
        links = np.asarray(best_response_of(run_key(run), network, FOUR))
        plain, settings_ = as_oracle(network, FOUR)
        for state in range(FOUR.num_states):
            _, best = oracle.best_response_exhaustive(plain, state, settings_)
            assert best > 0, "a ratio says nothing of a negative reward"
            share[run, state] = oracle.total_reward_of(plain, state, links[state], settings_) / best
    assert min(share.values()) >= 0.999, share


def test_no_device_alone_can_improve_on_best_response(tiny_networks, tiny_config):
    for run in range(3):
        network = network_of(tiny_networks, run)
        all_links = np.asarray(best_response_of(run_key(run), network, tiny_config))
        plain, settings_ = as_oracle(network, tiny_config)
        for state, links in enumerate(all_links):
            got = oracle.total_reward_of(plain, state, links, settings_)
            for device in range(6):
                for transmitter in range(6):
                    other = links.copy()
                    other[device] = transmitter
                    # Sums of a few tens in single precision are good to 1e-5.
                    assert oracle.total_reward_of(plain, state, other, settings_) <= got + 1e-4


def test_best_response_is_at_least_its_start(tiny_networks, tiny_config):
    for run in range(3):
        network = network_of(tiny_networks, run)
        plain, settings_ = as_oracle(network, tiny_config)
        best = np.asarray(best_response_of(run_key(run), network, tiny_config))
        for state, links in enumerate(best):
            alone = oracle.total_reward_of(plain, state, np.arange(6), settings_)
            assert alone <= oracle.total_reward_of(plain, state, links, settings_) + 1e-4


# The whole of discovery at the paper's size.


def worth(network, links, config):
    prepared = prepare(network, config)

    def one(state, links):
        return summarise(exchange_and_reward(prepared, state, links, config)[1], links, network, config)

    return jax.vmap(one)(jnp.arange(config.num_states), links)


# At full size the work takes longer than compiling, which for other tests is done without optimisation.
optimised = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})


@optimised
def learned(networks, seeds, config):
    run = lambda part: worth(part[1], discover(run_key(part[0]), part[1], config).links, config)  # noqa: E731
    return jax.lax.map(run, (seeds, networks))


@optimised
def searched(networks, seeds, config):
    run = lambda part: worth(part[1], baselines.best_response(run_key(part[0]), part[1], config), config)  # noqa: E731
    return jax.lax.map(run, (seeds, networks))


@pytest.fixture(scope="module")
def full_size():
    """Mean over states of reward and share of diverse devices, [2 seeds], by setting; of the best response too."""
    config = validate(Config(dataset="fashion_mnist"))
    assert (config.num_devices, config.num_states, config.num_episodes) == (25, 10, 4000)
    # Numbers, so that the three settings share one program.
    config = replace(
        config, initial_value=initial_value(config, config.num_classes), score_fraction=score_fraction(config)
    )
    seeds = np.arange(2)
    networks = jax.jit(lambda seeds: jax.lax.map(lambda seed: make_network(run_key(seed), config), seeds))(seeds)
    outcomes = {
        "best response": searched(networks, seeds, config),
        "default": learned(networks, seeds, config),
        "initial value 0": learned(networks, seeds, replace(config, initial_value=0.0)),
        "literal score": learned(networks, seeds, replace(config, score_fraction=1.0)),
    }
    return {
        name: {key: np.asarray(value).mean(axis=-1) for key, value in outcome.items()}
        for name, outcome in outcomes.items()
    }


@pytest.mark.slow
def test_discovery_reaches_98_percent_of_the_best_response(full_size):
    assert (full_size["default"]["reward"] >= 0.98 * full_size["best response"]["reward"]).all(), full_size


@pytest.mark.slow
def test_98_percent_of_devices_get_enough_classes(full_size):
    assert (full_size["default"]["diverse_share"] >= 0.98).all(), full_size


@pytest.mark.slow
def test_literal_value_of_untried_links_locks_onto_the_first_that_pays(full_size):
    assert (full_size["initial value 0"]["reward"] < 0.95 * full_size["best response"]["reward"]).all(), full_size
    assert (full_size["initial value 0"]["reward"] < full_size["default"]["reward"]).all(), full_size


@pytest.mark.slow
def test_literal_score_cannot_be_reached_over_lossy_links(full_size):
    assert (full_size["literal score"]["diverse_share"] < 0.5).all(), full_size
    assert (full_size["default"]["diverse_share"] > 0.98).all(), full_size
