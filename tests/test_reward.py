import jax
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import indices, quarters, reward_inputs

from d2djax import messages, reward

rewarded = jax.jit(reward.rewards)
score_of = jax.jit(reward.diversity_score)

NUM_DEVICES, NUM_CLASSES = 5, 3
FIELDS = ("local", "global_", "total", "requested_inter")
drawn = reward_inputs(NUM_DEVICES, NUM_CLASSES)
weights = st.fixed_dictionaries(
    {
        "alpha_diversity": st.floats(0, 3),
        "alpha_outage": st.floats(0, 5),
        "alpha_budget": st.floats(0, 0.1),
        "gamma": st.floats(0, 2),
    }
)
UNIT = {"alpha_diversity": 1.0, "alpha_outage": 1.0, "alpha_budget": 1.0, "gamma": 1.0}


def as_arrays(rewards):
    return {name: np.asarray(getattr(rewards, name)) for name in FIELDS}


def check(got, rtol=1e-5, atol=1e-6, **expected):
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(got, name), values, rtol=rtol, atol=atol, err_msg=name)


def test_worked_rewards():
    # Device 0 takes from 1 in its own cluster; 1 and 2 take from outside theirs. The third budget is unused.
    got = rewarded(
        np.array([3.0, 0.0, 2.0]),
        np.array([0.1, 0.25, 0.5]),
        np.array([[5.0, 0.0, 1.0], [4.0, 2.0, 0.0], [10.0, 0.0, 3.0]]),
        np.array([1, 2, 0]),
        np.array([0, 0, 1]),
        np.array([30.0, 12.0, 999.0]),
        alpha_diversity=1.0,
        alpha_outage=2.0,
        alpha_budget=0.01,
        gamma=0.5,
    )
    check(
        got,
        requested_inter=[6, 13, 0],
        local=[2.8, -0.5, 1.0],
        global_=[1.34, 1.34, 1.09],
        total=[3.47, 0.17, 1.545],
    )


def test_worked_episode():
    # The three devices of the worked exchange: [[30, 0], [0, 20], [0, 0]] become [[21, 4], [9, 13], [0, 3]].
    counts = np.array([[30.0, 0.0], [0.0, 20.0], [0.0, 0.0]])
    thresholds, links = np.full((3, 2), 10.0), np.array([1, 0, 1])
    outage = np.array([[0, 0.2, 0.9], [0.1, 0, 0.9], [0.9, 0.4, 0]])
    moved = messages.exchange(counts, thresholds, np.ones((3, 3, 2), bool), links, outage)
    # At 0.9 of the threshold device 1 has both classes; device 0 has one and device 2 none.
    score = reward.diversity_score(moved.counts, 0.9 * thresholds, 2)
    np.testing.assert_array_equal(score, [0, 2, 0])
    got = reward.rewards(
        score,
        np.array([0.2, 0.1, 0.4]),
        moved.requested,
        links,
        np.array([0, 0, 1]),
        np.array([20.0, 5.0, 0.0]),
        alpha_diversity=1.0,
        alpha_outage=2.0,
        alpha_budget=0.1,
        gamma=0.5,
    )
    check(
        got,
        requested_inter=[0, 10, 0],
        local=[-0.4, 1.8, -0.8],
        global_=[2.2, 2.2, -0.3],
        total=[0.7, 2.9, -0.95],
    )


def test_budget_counts_requests_over_links_between_clusters_only():
    requested = np.array([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0], [64.0, 128.0]])
    cluster = np.array([0, 1, 0, 1])
    # 0 takes from 2 (inside), 1 takes from 0 (between), 2 takes nothing, 3 takes from 2 (between).
    got = rewarded(
        np.zeros(4),
        np.zeros(4),
        requested,
        np.array([2, 0, 2, 2]),
        cluster,
        np.array([7.0, 5.0, 0, 0]),
        **UNIT,
    )
    check(got, requested_inter=[0, 204, 0, 0], global_=[7, -199, 7, -199], local=[0, 0, 0, 0])


def test_score_is_zero_below_the_least_number_of_classes():
    counts = np.array([[10.0, 10.0, 10.0], [10.0, 10.0, 9.0], [10.0, 9.0, 9.0], [0.0, 0.0, 0.0]])
    thresholds = np.full((4, 3), 10.0)
    for least, expected in [(0, [3, 2, 1, 0]), (1, [3, 2, 1, 0]), (2, [3, 2, 0, 0]), (3, [3, 0, 0, 0])]:
        np.testing.assert_array_equal(score_of(counts, thresholds, least), expected)


def test_thresholds_are_those_of_the_device_and_class():
    counts = np.array([[5.0, 20.0], [5.0, 20.0]])
    thresholds = np.array([[5.0, 30.0], [6.0, 20.0]])
    np.testing.assert_array_equal(score_of(counts, thresholds, 1), [1, 1])
    np.testing.assert_array_equal(score_of(counts, thresholds[::-1], 1), [1, 1])
    np.testing.assert_array_equal(score_of(counts, thresholds, 2), [0, 0])


@pytest.mark.parametrize("threshold", [0.5, 10.0, 299.7, 1e4])
def test_count_equal_to_its_threshold_up_to_rounding_is_reached(threshold):
    # Within 1e-5 of the threshold counts; 2e-5 below it does not.
    counts = threshold * np.array([[1.0], [1 - 5e-6], [1 - 2e-5]])
    np.testing.assert_array_equal(score_of(counts, np.full((3, 1), threshold), 1), [1, 1, 0])


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.1])
def test_least_delivery_inside_a_cluster_reaches_the_scaled_threshold(loss):
    # A device with nothing asks for c and gets (1 - alpha) c, computed by another route than (1 - alpha) * c.
    need = np.arange(1, 401, dtype=np.float32)[:, None]
    delivered = need - np.float32(loss) * need
    scaled = np.float32(1 - loss) * need
    np.testing.assert_array_equal(reward.diversity_score(delivered, scaled, 1), np.ones(400))


def test_threshold_of_zero_is_always_reached():
    np.testing.assert_array_equal(score_of(np.zeros((2, 3)), np.zeros((2, 3)), 3), [3, 3])


@settings(deadline=None, max_examples=60)
@given(
    quarters((NUM_DEVICES, NUM_CLASSES), 3),
    quarters((NUM_DEVICES, NUM_CLASSES), 3),
    st.integers(0, NUM_CLASSES),
)
def test_score_matches_oracle(counts, thresholds, min_classes):
    expected = oracle.diversity_score(counts, thresholds, min_classes)
    np.testing.assert_array_equal(score_of(counts, thresholds, min_classes), expected)


@settings(deadline=None, max_examples=60)
@given(drawn, weights)
def test_rewards_match_oracle(arguments, weights):
    got = as_arrays(rewarded(*arguments, **weights))
    for name, expected in oracle.rewards(*arguments, **weights).items():
        # Terms reach 200 (budget) and cancel, so the absolute part is 1e-6 of that.
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=2e-4, err_msg=name)


@settings(deadline=None, max_examples=30)
@given(drawn, weights)
def test_total_is_local_when_gamma_is_zero(arguments, weights):
    got = as_arrays(rewarded(*arguments, **{**weights, "gamma": 0.0}))
    np.testing.assert_array_equal(got["total"], got["local"])


@settings(deadline=None, max_examples=30)
@given(drawn, weights)
def test_without_a_budget_term_the_global_reward_is_the_mean_local_one(arguments, weights):
    got = as_arrays(rewarded(*arguments, **{**weights, "alpha_budget": 0.0}))
    np.testing.assert_allclose(got["global_"], got["local"].mean() * np.ones(NUM_DEVICES), rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(drawn, weights)
def test_unused_budgets_do_not_matter(arguments, weights):
    cluster, budget = arguments[4:]
    other = budget.copy()
    other[cluster.max() + 1 :] = -1e6
    first, second = rewarded(*arguments, **weights), rewarded(*arguments[:5], other, **weights)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@settings(deadline=None, max_examples=40)
@given(drawn, weights, st.permutations(range(NUM_DEVICES)))
def test_permuting_devices_permutes_the_rewards(arguments, weights, order):
    score, outage, requested, links, cluster, budget = arguments
    order = np.array(order)
    new_name = np.argsort(order).astype(np.int32)
    # Clusters keep their labels, so what is indexed by label stays where it is.
    permuted = as_arrays(
        rewarded(
            score[order],
            outage[order],
            requested[order],
            new_name[links[order]],
            cluster[order],
            budget,
            **weights,
        )
    )
    expected = as_arrays(rewarded(*arguments, **weights))
    for name in ("local", "global_", "total"):
        np.testing.assert_allclose(permuted[name], expected[name][order], rtol=1e-5, atol=2e-4, err_msg=name)
    np.testing.assert_allclose(permuted["requested_inter"], expected["requested_inter"], rtol=1e-6)


@settings(deadline=None, max_examples=30)
@given(drawn, weights, indices((NUM_DEVICES,), NUM_DEVICES))
def test_one_cluster_never_spends_its_budget(arguments, weights, links):
    score, outage, requested, _, _, budget = arguments
    got = rewarded(score, outage, requested, links, np.zeros(NUM_DEVICES, np.int32), budget, **weights)
    assert not np.asarray(got.requested_inter).any()


def test_vmap_over_runs():
    rng = np.random.default_rng(0)
    batch = (
        rng.integers(0, 4, (3, NUM_DEVICES)).astype(np.float32),
        rng.random((3, NUM_DEVICES)).astype(np.float32),
        rng.integers(0, 30, (3, NUM_DEVICES, NUM_CLASSES)).astype(np.float32),
        rng.integers(0, NUM_DEVICES, (3, NUM_DEVICES)).astype(np.int32),
        rng.integers(0, 3, (3, NUM_DEVICES)).astype(np.int32),
        rng.integers(0, 99, (3, NUM_DEVICES)).astype(np.float32),
    )
    scalars = {
        "alpha_diversity": np.float32([1, 2, 0]),
        "alpha_outage": np.float32([2, 1, 1]),
        "alpha_budget": np.float32([0.01, 0, 0.1]),
        "gamma": np.float32([0, 0.5, 1]),
    }
    got = as_arrays(jax.jit(jax.vmap(lambda one, weights: reward.rewards(*one, **weights)))(batch, scalars))
    for run in range(3):
        one = {name: values[run] for name, values in scalars.items()}
        for name, expected in oracle.rewards(*[part[run] for part in batch], **one).items():
            np.testing.assert_allclose(got[name][run], expected, rtol=1e-5, atol=1e-4, err_msg=name)
