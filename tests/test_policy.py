import jax
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from strategies import floats, indices

from d2djax import policy

probabilities_of = jax.jit(policy.probabilities)
updated = jax.jit(policy.update)
greedy_of = jax.jit(policy.greedy)

NUM_STATES, NUM_DEVICES = 3, 4
SHAPE = (NUM_STATES, NUM_DEVICES, NUM_DEVICES)
states = st.integers(0, NUM_STATES - 1)


def _buffer(tries, mean):
    return (tries * mean).astype(np.float32), tries.astype(np.float32)


# Mean rewards of at most 50, a quarter of the links untried.
tries = arrays(np.int32, SHAPE, elements=st.integers(-4, 12).map(lambda x: max(x, 0)))
buffers = st.tuples(tries, floats(SHAPE, -50, 50)).map(lambda drawn: _buffer(*drawn))


def one_receiver(means, tried):
    """A buffer of one state in which every receiver has the same values."""
    num_devices = len(means)
    rows = np.ones((1, num_devices, 1))
    return policy.Buffer(
        reward=(rows * np.multiply(means, tried)).astype(np.float32),
        tries=(rows * np.asarray(tried)).astype(np.float32),
    )


def test_worked_numbers():
    # Means 2, 1 and 0 after 3, 1 and 2 tries: e^2, e and 1 over their sum.
    got = policy.probabilities(one_receiver([2.0, 1.0, 0.0], [3, 1, 2]), 0)
    np.testing.assert_allclose(got, 3 * [[0.66524096, 0.24472847, 0.09003057]], rtol=1e-6)


def test_untried_link_has_the_initial_value():
    buffer = one_receiver([1.0, 0.0], [4, 0])
    # e / (e + 1) with the value 0 of the literal reading; e / (e + e^3) with an optimistic 3.
    np.testing.assert_allclose(probabilities_of(buffer, 0), 2 * [[0.73105858, 0.26894142]], rtol=1e-6)
    got = probabilities_of(buffer, 0, initial_value=3.0)
    np.testing.assert_allclose(got, 2 * [[0.11920292, 0.88079708]], rtol=1e-6)


def test_temperature_divides_the_values():
    buffer = one_receiver([1.0, 0.0], [1, 1])
    got = probabilities_of(buffer, 0, temperature=0.25)
    np.testing.assert_allclose(got, 2 * [[0.98201379, 0.01798621]], rtol=1e-6)


def test_temperature_divides_the_initial_value_too():
    buffer = one_receiver([0.0, 0.0], [1, 0])
    got = probabilities_of(buffer, 0, initial_value=1.0, temperature=0.25)
    np.testing.assert_allclose(got, 2 * [[0.01798621, 0.98201379]], rtol=1e-6)


@pytest.mark.parametrize("initial_value", [0.0, 7.5, -1e6])
def test_without_experience_every_link_is_equally_likely(initial_value):
    empty = policy.Buffer(reward=np.zeros(SHAPE, np.float32), tries=np.zeros(SHAPE, np.float32))
    got = probabilities_of(empty, 1, initial_value=initial_value)
    np.testing.assert_allclose(got, np.full(SHAPE[1:], 0.25), rtol=1e-6)


def test_large_values_do_not_overflow():
    got = policy.probabilities(one_receiver([1e5, -1e5, 0.0], [1, 1, 0]), 0, initial_value=2e5)
    np.testing.assert_array_equal(got, 3 * [[0, 0, 1]])


@settings(deadline=None, max_examples=60)
@given(buffers, states, st.floats(-5, 50), st.floats(0.5, 10))
def test_matches_oracle(buffer, state, initial_value, temperature):
    got = probabilities_of(policy.Buffer(*buffer), state, initial_value=initial_value, temperature=temperature)
    expected = oracle.policy_probabilities(*buffer, state, initial_value, temperature)
    # Exponents reach 200, so single precision leaves 5 digits; 1e-37 is its smallest normal number.
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-37)


@settings(deadline=None, max_examples=60)
@given(buffers, states, st.floats(-5, 50), st.floats(0.05, 10))
def test_rows_are_distributions(buffer, state, initial_value, temperature):
    got = np.asarray(
        probabilities_of(policy.Buffer(*buffer), state, initial_value=initial_value, temperature=temperature)
    )
    assert ((got >= 0) & (got <= 1 + 1e-6)).all()
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-6)


@settings(deadline=None, max_examples=30)
@given(buffers, states, st.permutations(range(NUM_DEVICES)))
def test_permuting_devices_permutes_the_policy(buffer, state, order):
    got = np.asarray(probabilities_of(policy.Buffer(*buffer), state))
    permuted = [part[:, order][:, :, order] for part in buffer]
    expected = got[order][:, order]
    np.testing.assert_allclose(probabilities_of(policy.Buffer(*permuted), state), expected, rtol=1e-5)


def test_other_states_do_not_matter():
    rng = np.random.default_rng(0)
    reward, tries = rng.normal(size=SHAPE).astype(np.float32), np.ones(SHAPE, np.float32)
    before = np.asarray(probabilities_of(policy.Buffer(reward, tries), 1))
    reward[0], tries[2] = 9.0, 0.0
    np.testing.assert_array_equal(probabilities_of(policy.Buffer(reward, tries), 1), before)


@settings(deadline=None, max_examples=60)
@given(buffers, states, indices((NUM_DEVICES,), NUM_DEVICES), floats((NUM_DEVICES,), -30, 30))
def test_update_adds_to_the_chosen_links_only(buffer, state, links, reward):
    got = updated(policy.Buffer(*buffer), state, links, reward)
    expected_reward, expected_tries = oracle.update(*buffer, state, links, reward)
    np.testing.assert_allclose(got.reward, expected_reward, rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(got.tries, expected_tries)
    untouched = expected_tries == buffer[1]
    assert untouched.sum() == np.prod(SHAPE) - NUM_DEVICES
    np.testing.assert_array_equal(np.asarray(got.reward)[untouched], buffer[0][untouched])


def test_worked_update():
    buffer = policy.Buffer(reward=np.zeros((2, 2, 2), np.float32), tries=np.zeros((2, 2, 2), np.float32))
    for links, reward in [([1, 1], [3.0, -1.0]), ([1, 0], [5.0, 2.0])]:
        buffer = policy.update(buffer, 1, np.array(links), np.array(reward, np.float32))
    np.testing.assert_array_equal(buffer.reward, [[[0, 0], [0, 0]], [[0, 8], [2, -1]]])
    np.testing.assert_array_equal(buffer.tries, [[[0, 0], [0, 0]], [[0, 2], [1, 1]]])
    # Device 0: untried 0 and mean 4; device 1: means 2 and -1.
    expected = [[0.01798621, 0.98201379], [0.95257413, 0.04742587]]
    np.testing.assert_allclose(policy.probabilities(buffer, 1), expected, rtol=1e-5)


def test_update_leaves_its_argument_alone():
    reward, tries = np.zeros((1, 2, 2), np.float32), np.zeros((1, 2, 2), np.float32)
    policy.update(policy.Buffer(reward, tries), 0, np.array([1, 0]), np.ones(2, np.float32))
    assert not reward.any()
    assert not tries.any()


def test_tries_may_be_integers():
    buffer = policy.Buffer(reward=np.array([[[3.0, 0], [0, 0]]], np.float32), tries=np.array([[[3, 0], [0, 0]]]))
    got = policy.update(buffer, 0, np.array([0, 1]), np.array([1.0, 0.0], np.float32))
    np.testing.assert_array_equal(got.tries, [[[4, 0], [0, 1]]])
    np.testing.assert_allclose(policy.probabilities(got, 0)[0], [0.73105858, 0.26894142], rtol=1e-6)


def test_vmap_over_states_and_over_buffers():
    rng = np.random.default_rng(2)
    tries = rng.integers(0, 3, (2, *SHAPE)).astype(np.float32)
    buffer = policy.Buffer(reward=rng.normal(size=tries.shape).astype(np.float32) * tries, tries=tries)
    over_states = jax.vmap(policy.probabilities, in_axes=(None, 0))
    got = jax.vmap(over_states, in_axes=(0, None))(buffer, np.arange(NUM_STATES))
    for run in range(2):
        for state in range(NUM_STATES):
            expected = oracle.policy_probabilities(buffer.reward[run], tries[run], state)
            np.testing.assert_allclose(got[run, state], expected, rtol=1e-5)
    links, reward = rng.integers(0, NUM_DEVICES, (2, NUM_DEVICES)), rng.normal(size=(2, NUM_DEVICES))
    new = jax.vmap(policy.update)(buffer, np.array([0, 2]), links, reward.astype(np.float32))
    for run, state in enumerate([0, 2]):
        expected = oracle.update(buffer.reward[run], tries[run], state, links[run], reward[run])
        np.testing.assert_allclose(new.reward[run], expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(new.tries[run], expected[1])


def test_greedy_is_the_best_tried_link():
    reward = np.array([[[0.0, 6.0, 8.0], [-2.0, 0.0, -1.0], [0.0, 0.0, 0.0]]], np.float32)
    tries = np.array([[[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]], np.float32)
    # 6 beats 8 / 4; -1 beats -2 and the untried link's 0; a device without experience stays alone.
    np.testing.assert_array_equal(policy.greedy(policy.Buffer(reward, tries)), [[1, 2, 2]])


def test_greedy_tie_goes_to_the_smallest_index():
    reward = np.array([[[1.0, 4.0, 2.0], [1.0, 1.0, 1.0], [0.0, 3.0, 3.0]]], np.float32)
    tries = np.array([[[1.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]], np.float32)
    np.testing.assert_array_equal(policy.greedy(policy.Buffer(reward, tries)), [[1, 0, 1]])


@settings(deadline=None, max_examples=30)
@given(buffers)
def test_greedy_matches_oracle(buffer):
    links = np.asarray(greedy_of(policy.Buffer(*buffer)))
    expected = oracle.greedy_links(*buffer)
    # Quotients that are equal but for rounding may go either way; the value has to be the best.
    mean = np.where(buffer[1] > 0, buffer[0] / np.maximum(buffer[1], 1), -np.inf)
    chosen, best = (np.take_along_axis(mean, x[..., None], axis=-1) for x in (links, expected))
    np.testing.assert_allclose(chosen, best, rtol=1e-6)
    assert links.dtype == np.int32


@pytest.mark.parametrize("uniform, link", [(0.0, 1), (0.49, 1), (0.51, 3), (0.999, 3), (1 - 2**-24, 3)])
def test_sampling_inverts_the_distribution(uniform, link):
    rows = np.array(4 * [[0.0, 0.5, 0.0, 0.5]], np.float32)
    np.testing.assert_array_equal(policy.sample(np.full(4, uniform, np.float32), rows), 4 * [link])


@pytest.mark.parametrize("last", [0.0, 1e-7])
def test_sampling_survives_sums_that_rounding_leaves_short_of_one(last):
    row = np.array([0.5, 0.5 - 1e-6 - last, last], np.float32)
    drawn = policy.sample(np.full(3, 1 - 2**-24, np.float32), np.tile(row, (3, 1)))
    np.testing.assert_array_equal(drawn, 3 * [2 if last else 1])


def test_sampled_frequencies_are_the_probabilities():
    row = np.array([0.1, 0.0, 0.6, 0.3], np.float32)
    uniform = (np.arange(1000, dtype=np.float32) + 0.5) / 1000
    links = np.asarray(policy.sample(uniform, np.tile(row, (1000, 1))))
    np.testing.assert_allclose(np.bincount(links, minlength=4), 1000 * row, atol=1)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 400, 1025])
def test_running_sums_in_blocks(size):
    weight = np.random.default_rng(size).random((3, 2, size)).astype(np.float32)
    got = np.asarray(policy.cumulative(weight))
    np.testing.assert_allclose(got, np.cumsum(weight.astype(float), axis=-1), rtol=1e-5)
    # Never falling by more than rounding: a draw falls into one interval.
    assert (np.diff(got, axis=-1) > -1e-4).all()


def test_no_weight_no_draw_in_large_networks():
    # Only three of 100 links have weight, in three blocks; every draw falls on one of them.
    weight = np.zeros((1000, 100), np.float32)
    weight[:, [5, 40, 99]] = [0.2, 0.3, 0.5]
    uniform = np.random.default_rng(0).random(1000).astype(np.float32)
    links = np.asarray(policy.sample(uniform, weight))
    expected = np.where(uniform < 0.2, 5, np.where(uniform < 0.5, 40, 99))
    near = np.minimum(abs(uniform - 0.2), abs(uniform - 0.5)) < 1e-5
    np.testing.assert_array_equal(links[~near], expected[~near])
