import jax
import jax.numpy as jnp
import numpy as np
import pytest

from d2djax import partition
from d2djax.config import Config
from d2djax.rng import run_key
from d2djax.validation import validate

# (devices, classes, classes per device): decks that come out even, decks with a rest, one hand per deck.
DEALS = [(25, 10, 4), (25, 11, 4), (6, 5, 2), (7, 3, 3)]
SEEDS = np.arange(60)


def setting(num_devices, num_classes, hand, points=0):
    return Config(
        num_devices=num_devices,
        num_classes=num_classes,
        classes_per_device=hand,
        points_per_device=points or 10 * hand + 1,
        min_classes=1,
    )


def dealt(config):
    """Hands [60, N, k] and counts [60, N, L] of 60 runs."""

    def one(seed):
        return partition.deal_classes(run_key(seed), config), partition.class_counts(run_key(seed), config)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(SEEDS))


@pytest.fixture(scope="module")
def deals():
    return {shape: dealt(setting(*shape)) for shape in DEALS}


@pytest.mark.parametrize("shape", DEALS)
def test_hands_hold_different_classes(deals, shape):
    num_devices, num_classes, hand = shape
    hands, _ = deals[shape]
    assert hands.shape == (len(SEEDS), num_devices, hand)
    assert hands.min() >= 0 and hands.max() < num_classes
    assert (np.diff(np.sort(hands, axis=-1), axis=-1) > 0).all()


@pytest.mark.parametrize("shape", DEALS)
def test_hands_of_one_deck_share_no_class(deals, shape):
    _, num_classes, hand = shape
    per_deck = num_classes // hand
    hands, counts = deals[shape]
    for first in range(0, shape[0], per_deck):
        deck = np.sort(hands[:, first : first + per_deck].reshape(len(SEEDS), -1), axis=-1)
        assert (np.diff(deck, axis=-1) > 0).all()
    # So no class is held by more devices than there are decks.
    assert (counts > 0).sum(axis=1).max() <= partition.num_decks(setting(*shape))


@pytest.mark.parametrize("shape", DEALS)
def test_every_class_is_used_equally_often_over_the_runs(deals, shape):
    num_devices, num_classes, hand = shape
    use = (deals[shape][1] > 0).sum(axis=1)  # [runs, L]
    # Five standard errors of the mean over runs, from what one deck does: a class is in it or not.
    share = num_devices * hand / num_classes
    error = np.sqrt(num_devices * hand / num_classes / len(SEEDS))
    assert np.abs(use.mean(axis=0) - share).max() <= 5 * error
    assert (use.sum(axis=1) == num_devices * hand).all()


@pytest.mark.parametrize("shape", DEALS)
def test_every_device_has_its_points(deals, shape):
    _, _, hand = shape
    hands, counts = deals[shape]
    assert (counts.sum(axis=-1) == 10 * hand + 1).all()
    held = np.take_along_axis(counts, hands, axis=-1)
    # 10 k + 1 points: one more of the first class of the hand.
    assert (held == 10 + (np.arange(hand) == 0)).all()


def test_990_points_of_4_classes_are_248_248_247_247():
    config = setting(2, 11, 4, points=990)
    counts = np.asarray(partition.hand_counts(np.array([[7, 0, 10, 3], [1, 2, 3, 4]]), config))
    expected = np.zeros((2, 11), int)
    expected[0, [7, 0, 10, 3]] = expected[1, [1, 2, 3, 4]] = [248, 248, 247, 247]
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("shape", DEALS)
def test_no_run_asks_for_more_than_the_bound(deals, shape):
    counts = deals[shape][1]
    assert counts.sum(axis=1).max() <= partition.most_points_asked(setting(*shape))


def test_seeds_deal_differently(deals):
    hands = deals[(25, 10, 4)][0].reshape(len(SEEDS), -1)
    assert len(np.unique(hands, axis=0)) == len(SEEDS)


# --- the other partitions ---

OTHERS = ["dirichlet", "shards", "iid"]


def other(name, **fields):
    # 7 devices x 20 points of 3 classes: 140 points, 47 of the first two classes and 46 of the last.
    return Config(partition=name, num_devices=7, num_classes=3, points_per_device=20, shards_per_device=4, **fields)


def counts_of(config, seeds=SEEDS):
    draw = jax.jit(jax.vmap(lambda seed, config: partition.class_counts(run_key(seed), config), (0, None)))
    return np.asarray(draw(seeds, jax.tree.map(jnp.asarray, config)))


@pytest.fixture(scope="module")
def others():
    return {name: counts_of(other(name)) for name in OTHERS}


@pytest.mark.parametrize("name", OTHERS)
def test_all_points_of_the_pool_are_dealt(others, name):
    counts = others[name]
    assert counts.dtype == np.int32 and counts.min() >= 0
    assert (counts.sum(axis=1) == [47, 47, 46]).all()
    assert partition.most_points_asked(other(name)) == 47


@pytest.mark.parametrize("name", ["shards", "iid"])
def test_sizes_are_equal(others, name):
    assert (others[name].sum(axis=-1) == 20).all()


@pytest.mark.parametrize("name", OTHERS)
def test_seeds_deal_other_points(others, name):
    assert len(np.unique(others[name].reshape(len(SEEDS), -1), axis=0)) == len(SEEDS)


@pytest.mark.parametrize("name", OTHERS)
def test_devices_are_alike_on_average(others, name):
    counts = others[name]
    mean, error = counts.mean(axis=0), counts.std(axis=0, ddof=1) / np.sqrt(len(SEEDS))
    assert (np.abs(mean - np.array([47, 47, 46]) / 7) <= 5 * error).all()


def test_shards_are_pieces_of_the_sorted_list(others):
    # 28 shards of 5 points: the tenth has two of class 0 and three of class 1, the nineteenth four and one.
    for counts in others["shards"]:
        mixed = [tuple(row % 5) for row in counts if (row % 5).any()]
        assert all(sum(row) % 5 == 0 for row in mixed)
        assert sum((row % 5 > 0).sum() for row in counts) <= 4


def test_one_shard_a_device_and_as_many_shards_as_classes_give_one_class_each():
    config = Config(partition="shards", num_devices=5, num_classes=5, points_per_device=6, shards_per_device=1)
    for counts in counts_of(config, np.arange(5)):
        np.testing.assert_array_equal(np.sort(counts, axis=-1)[:, -1], 6)
        assert len(set(counts.argmax(axis=-1))) == 5


def test_iid_counts_are_hypergeometric(others):
    # 20 of 140 points, 47 of them of the class: variance n K/N (1 - K/N) (N - n)/(N - 1).
    counts = others["iid"][..., 0]
    expected = 20 * 47 / 140 * (1 - 47 / 140) * 120 / 139
    assert abs(counts.var() / expected - 1) < 5 * np.sqrt(2 / counts.size)


@pytest.mark.parametrize("concentration", [0.1, 0.5, 10.0])
def test_dirichlet_shares_have_the_moments_of_the_distribution(concentration):
    # A large pool, so that rounding does not show: share mean 1/N, variance (1/N)(1 - 1/N)/(N alpha + 1).
    config = Config(
        partition="dirichlet", num_devices=5, num_classes=4, points_per_device=4000, concentration=concentration
    )
    share = counts_of(config, np.arange(400)) / partition.pool_sizes(config)
    variance = 0.2 * 0.8 / (5 * concentration + 1)
    # 400 runs x 4 classes x 5 shares that sum to 1: no fewer than 1,600 independent numbers.
    np.testing.assert_allclose(share.mean(axis=(0, 2)), 0.2, atol=5 * np.sqrt(variance / 1600))
    kurtosis_error = 5 * ((share - 0.2) ** 2).std() / np.sqrt(1600)
    assert abs(((share - 0.2) ** 2).mean() - variance) < kurtosis_error


def test_dirichlet_at_the_ends():
    alone = counts_of(other("dirichlet", concentration=1e-4))
    assert (np.sort(alone, axis=1)[:, -1] >= [46, 46, 45]).mean() > 0.98
    even = counts_of(other("dirichlet", concentration=1e7))
    assert np.abs(even - np.array([47, 47, 46]) / 7).max() <= 1.01


def test_concentration_is_traced():
    traces = []

    @jax.jit
    def draw(config):
        traces.append(1)
        return partition.class_counts(run_key(0), config)

    for value in (0.1, 1.0, 10.0):
        draw(jax.tree.map(jnp.asarray, other("dirichlet", concentration=value)))
    assert len(traces) == 1


def test_settings_that_do_not_fit_a_partition_are_refused():
    with pytest.raises(ValueError, match="shards_per_device must be a divisor of points_per_device, 50; got 3"):
        validate(Config(partition="shards", points_per_device=50, shards_per_device=3))
    with pytest.raises(ValueError, match="concentration must be positive; got 0"):
        validate(Config(partition="dirichlet", concentration=0))
    with pytest.raises(ValueError, match="classes_per_device must be at most the 11 classes; got 12"):
        validate(Config(classes_per_device=12))
    # Where no hands are dealt, their size does not matter.
    validate(Config(partition="iid", classes_per_device=12, points_per_device=3, shards_per_device=7))
