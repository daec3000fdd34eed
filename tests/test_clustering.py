import time

import jax
import numpy as np
import oracle
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from strategies import distinct_outages, first_appearance, outages

from d2djax import clustering

clusters_of = jax.jit(clustering.reliable_clusters)
NUM_STATES, NUM_DEVICES = 3, 7
NUM_PAIRS = NUM_DEVICES * (NUM_DEVICES - 1) // 2


def scipy_clusters(outage, alpha):
    distance = oracle.pair_distance(outage)
    tree = linkage(squareform(distance), "complete")
    return first_appearance(fcluster(tree, alpha, "distance"))


def threshold(outage, rank):
    """A threshold strictly between two neighbouring pair distances, `rank` of them below it."""
    distance = squareform(oracle.pair_distance(outage))
    edges = np.concatenate([[0], np.sort(distance), [1]])
    return float(edges[rank] + edges[rank + 1]) / 2


def field(seed, num_states, num_devices):
    """Outages of devices thrown into a square of 300 m, with log-normal shadowing of 6 dB in each state."""
    rng = np.random.default_rng(seed)
    position = rng.uniform(0, 300, (num_devices, 2))
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1) + np.eye(num_devices)
    shadowing = 10 ** (0.6 * rng.normal(size=(num_states, num_devices, num_devices)))
    rss = 1e-5 * distance**-3.75 * shadowing
    return np.array([oracle.outage_probability(state, 1.0, 10**-14.4) for state in rss])


@settings(deadline=None, max_examples=40)
@given(distinct_outages(NUM_STATES, NUM_DEVICES), st.integers(0, NUM_PAIRS))
def test_matches_oracle_and_scipy_over_states(outage, rank):
    alpha = threshold(outage, rank)
    labels = np.asarray(clusters_of(outage, alpha))
    np.testing.assert_array_equal(labels, oracle.reliable_clusters(outage, alpha))
    np.testing.assert_array_equal(labels, scipy_clusters(outage, alpha))


@settings(deadline=None, max_examples=40)
@given(distinct_outages(1, NUM_DEVICES), st.integers(0, NUM_PAIRS))
def test_matches_scipy_on_symmetric_distances(outage, rank):
    symmetric = np.maximum(outage[0], outage[0].T)
    alpha = threshold(symmetric, rank)
    np.testing.assert_array_equal(clusters_of(symmetric, alpha), scipy_clusters(symmetric, alpha))


@pytest.mark.parametrize("alpha", [0.001, 0.02, 0.1, 0.4, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_matches_scipy_on_a_radio_field(seed, alpha):
    outage = field(seed, 2, 14)
    np.testing.assert_array_equal(clusters_of(outage, alpha), scipy_clusters(outage, alpha))


@settings(deadline=None, max_examples=40)
@given(outages((NUM_STATES, NUM_DEVICES, NUM_DEVICES)), st.floats(0.01, 0.99))
def test_partition_is_reliable_and_cannot_be_made_coarser(outage, alpha):
    distance = oracle.pair_distance(outage)
    assume((abs(distance - alpha) > 1e-6).all())
    labels = np.asarray(clusters_of(outage, alpha))
    # Equal outages leave several right partitions; each must have these properties.
    np.testing.assert_array_equal(labels, first_appearance(labels))
    # The documented rule, smallest device numbers first, picks one of them.
    np.testing.assert_array_equal(labels, oracle.reliable_clusters(outage, alpha))
    for a in range(labels.max() + 1):
        for b in range(a + 1):
            furthest = distance[np.ix_(labels == a, labels == b)].max()
            assert furthest <= alpha if a == b else furthest > alpha


@settings(deadline=None, max_examples=30)
@given(distinct_outages(NUM_STATES, NUM_DEVICES), st.integers(0, NUM_PAIRS), st.permutations(range(NUM_DEVICES)))
def test_permuting_devices_permutes_the_partition(outage, rank, order):
    alpha = threshold(outage, rank)
    labels = np.asarray(clusters_of(outage, alpha))
    permuted = clusters_of(outage[:, order][:, :, order], alpha)
    np.testing.assert_array_equal(permuted, first_appearance(labels[list(order)]))


def test_complete_linkage_does_not_chain():
    # Neighbours on a line are near each other, the two ends are not.
    outage = np.array([[0, 0.1, 0.5], [0.1, 0, 0.2], [0.5, 0.2, 0]])
    np.testing.assert_array_equal(clusters_of(outage, 0.3), [0, 0, 1])
    np.testing.assert_array_equal(clusters_of(outage, 0.6), [0, 0, 0])


def test_one_bad_state_or_direction_parts_a_pair():
    good = np.array([[0, 0.1], [0.1, 0]])
    bad_direction = np.array([[0, 0.1], [0.9, 0]])
    np.testing.assert_array_equal(clusters_of(good, 0.5), [0, 0])
    np.testing.assert_array_equal(clusters_of(bad_direction, 0.5), [0, 1])
    np.testing.assert_array_equal(clusters_of(np.stack([good, good]), 0.5), [0, 0])
    np.testing.assert_array_equal(clusters_of(np.stack([good, bad_direction]), 0.5), [0, 1])


def test_labels_follow_the_smallest_index():
    # Pairs (0, 3) and (1, 2); the second merges first.
    outage = np.full((4, 4), 0.9)
    np.fill_diagonal(outage, 0)
    outage[0, 3] = outage[3, 0] = 0.2
    outage[1, 2] = outage[2, 1] = 0.1
    np.testing.assert_array_equal(clusters_of(outage, 0.3), [0, 1, 1, 0])


@pytest.mark.parametrize("alpha", [0.25, np.float32(0.001)])
def test_outage_equal_to_the_threshold_is_reliable(alpha):
    outage = np.array([[0, alpha], [alpha, 0]], np.float32)
    np.testing.assert_array_equal(clusters_of(outage, alpha), [0, 0])


def test_nobody_and_everybody():
    outage = np.random.default_rng(0).uniform(0.2, 0.8, (NUM_STATES, NUM_DEVICES, NUM_DEVICES))
    outage = outage * ~np.eye(NUM_DEVICES, dtype=bool)
    np.testing.assert_array_equal(clusters_of(outage, 0.1), np.arange(NUM_DEVICES))
    np.testing.assert_array_equal(clusters_of(outage, 0.9), np.zeros(NUM_DEVICES))


def test_dead_links_part_everybody_and_perfect_ones_part_nobody():
    dead = 1.0 - np.eye(5)
    np.testing.assert_array_equal(clusters_of(dead, 0.999), np.arange(5))
    np.testing.assert_array_equal(clusters_of(np.zeros((5, 5)), 0.0), np.zeros(5))


@pytest.mark.parametrize("shape", [(1, 1), (2, 1, 1)])
def test_one_device_is_one_cluster(shape):
    np.testing.assert_array_equal(clusters_of(np.zeros(shape), 0.1), [0])


def test_labels_are_32_bit_integers():
    labels = clusters_of(np.zeros((3, 3), np.float32), 0.1)
    assert labels.dtype == np.int32
    assert labels.shape == (3,)


def test_works_outside_jit_and_in_jit_alike():
    outage = field(0, 2, 6)
    np.testing.assert_array_equal(clustering.reliable_clusters(outage, 0.1), clusters_of(outage, 0.1))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3, 3)])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"outage must be \[S, N, N\] or \[N, N\]"):
        clustering.reliable_clusters(np.zeros(shape), 0.1)


def test_vmap_over_networks_and_thresholds():
    outage = np.stack([field(seed, 2, 6) for seed in range(4)])
    alpha = np.array([0.01, 0.1, 0.3, 0.8], np.float32)
    labels = jax.jit(jax.vmap(clustering.reliable_clusters))(outage, alpha)
    expected = [scipy_clusters(one, cut) for one, cut in zip(outage, alpha, strict=True)]
    np.testing.assert_array_equal(labels, expected)


# Few levels, with dead links among them: nearly every merger is a choice among equal distances.
@settings(deadline=None, max_examples=60)
@given(arrays(np.int32, (2, 12, 12), elements=st.integers(0, 4)), st.integers(0, 4))
def test_of_equal_distances_the_smallest_devices_join_first(levels, alpha):
    outage = (levels / 4 * ~np.eye(12, dtype=bool)).astype(np.float32)
    np.testing.assert_array_equal(clusters_of(outage, alpha / 4), oracle.reliable_clusters(outage, alpha / 4))


@pytest.mark.parametrize("num_levels", [1, 2, 6, 30])
def test_ties_in_larger_networks(num_levels):
    rng = np.random.default_rng(num_levels)
    for alpha in (0.0, 0.45, 0.95):
        outage = rng.integers(0, num_levels + 1, (40, 40)) / num_levels * ~np.eye(40, dtype=bool)
        outage = np.where(rng.random(outage.shape) < 0.02, 1.0, outage).astype(np.float32)
        np.testing.assert_array_equal(clusters_of(outage, alpha), oracle.reliable_clusters(outage, alpha))


@pytest.mark.parametrize("kind", ["field", "all equal", "one by one"])
def test_two_thousand_devices_take_no_cubic_time(kind):
    # Seconds of the processor, whatever else it does; a search over all pairs for each merger takes above 10.
    size = 2000
    device = np.arange(size)
    outage = {
        "field": lambda: field(0, 1, 10).repeat(size // 10, axis=1).repeat(size // 10, axis=2)[0],
        "all equal": lambda: np.full((size, size), 0.25),
        # Each device is nearest to the one before it, so that whatever joins changes the next one's distance.
        "one by one": lambda: 1.0 - 0.5 * np.maximum(device[:, None], device) / size,
    }[kind]()
    outage = np.asarray(outage * (device[:, None] != device), np.float32)
    program = clusters_of.lower(outage, 0.9).compile()
    started = time.process_time()
    jax.block_until_ready(program(outage, 0.9))
    assert time.process_time() - started < 3
