from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from d2djax import partition, points, supply
from d2djax.config import Config
from d2djax.data.types import Dataset
from d2djax.rng import run_key
from d2djax.validation import validate

SEEDS = np.arange(60)


def test_arrange_sorts_by_class_and_keeps_every_point(tiny_dataset, tiny_config):
    arranged = points.arrange(tiny_dataset, tiny_config)
    assert arranged.sizes == (200, 180, 210, 190, 220)
    np.testing.assert_array_equal(arranged.y, partition.labels(arranged.sizes))
    assert arranged.x.dtype == np.uint8 and arranged.y.dtype == np.int32
    order = np.concatenate([np.flatnonzero(tiny_dataset.y == label) for label in range(5)])
    np.testing.assert_array_equal(arranged.x, tiny_dataset.x[order])


def test_class_without_points_is_refused(tiny_config):
    dataset = Dataset(np.zeros((3, 1), np.uint8), np.array([4, 0, 4], np.int32), tuple("abcde"), "few", "")
    with pytest.raises(ValueError, match="training points of class 'a'; 1 are available"):
        points.arrange(dataset, tiny_config)


def test_images_are_standardised_over_all_bytes(tiny_dataset, tiny_config):
    arranged = points.arrange(tiny_dataset, tiny_config)
    numbers = np.arange(len(tiny_dataset.y)).reshape(-1, 10)
    x = np.asarray(points.inputs(arranged, numbers))
    assert x.dtype == np.float32 and x.shape == (*numbers.shape, *tiny_dataset.x.shape[1:])
    # A signed byte would turn everything past 127 negative.
    flat = np.asarray(arranged.x, float)
    np.testing.assert_allclose(x.reshape(flat.shape), (flat - flat.mean()) / flat.std(), atol=1e-5)


def test_other_inputs_pass_as_they_are(tiny_dataset, tiny_config):
    x = tiny_dataset.x.astype(np.float32) - 300
    dataset = Dataset(x, tiny_dataset.y, tiny_dataset.class_names, "floats", "")
    arranged = points.arrange(dataset, tiny_config)
    np.testing.assert_array_equal(points.inputs(arranged, np.arange(len(x))), arranged.x)


def test_images_of_one_grey_give_zeros(tiny_dataset, tiny_config):
    dataset = Dataset(np.full_like(tiny_dataset.x, 7), tiny_dataset.y, tiny_dataset.class_names, "grey", "")
    arranged = points.arrange(dataset, tiny_config)
    np.testing.assert_array_equal(points.inputs(arranged, np.arange(5)), 0)


def test_data_of_another_number_of_classes_is_refused(tiny_dataset, tiny_config):
    with pytest.raises(ValueError, match="num_classes must be 5, the classes of tiny; got 7"):
        points.arrange(tiny_dataset, replace(tiny_config, num_classes=7))


SIZES = (200, 180, 210, 190, 222)
LABELS = np.repeat(np.arange(5), SIZES)


@pytest.fixture(scope="module")
def shares(tiny_config):
    """Counts, held-out points, training points and the points of each device, of 60 runs."""

    def one(seed):
        key = run_key(seed)
        counts = partition.class_counts(key, tiny_config)
        test, train = points.split(key, SIZES, tiny_config)
        given_out = points.assign(train, counts, SIZES, tiny_config).reshape(tiny_config.num_devices, -1)
        return counts, test, train, given_out

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(SEEDS))


def test_split_is_disjoint_and_covers_everything(shares):
    _, test, train, _ = shares
    everything = np.sort(np.concatenate([test, train], axis=1), axis=1)
    assert (everything == np.arange(len(LABELS))).all()


def test_split_holds_out_a_fifth_of_each_class(shares):
    _, test, train, _ = shares
    for run in range(len(SEEDS)):
        # 222 / 5 = 44.4, rounded.
        np.testing.assert_array_equal(np.bincount(LABELS[test[run]]), [40, 36, 42, 38, 44])
        np.testing.assert_array_equal(np.bincount(LABELS[train[run]]), [160, 144, 168, 152, 178])


def test_split_is_sorted_by_class_and_shuffled_within(shares):
    _, test, train, _ = shares
    for part in (test, train):
        assert (np.diff(LABELS[part], axis=1) >= 0).all()
        assert len(np.unique(part, axis=0)) == len(SEEDS)
        # Within a class half of the neighbours go down; a sorted list has none that does.
        falls = np.mean(np.diff(part, axis=1) < 0)
        assert 0.45 < falls < 0.55


def test_every_point_is_held_out_equally_often(shares):
    held_out = np.bincount(shares[1].reshape(-1), minlength=len(LABELS)) / len(SEEDS)
    # Five standard deviations of 60 draws of one in five, and none is always in or out.
    assert np.abs(held_out - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / len(SEEDS))
    first, second = (held_out[LABELS == 0][half] for half in (slice(100), slice(100, 200)))
    assert abs(first.mean() - second.mean()) < 5 * np.sqrt(2 * 0.2 * 0.8 / (100 * len(SEEDS)))


def test_no_point_goes_to_two_devices_and_none_is_held_out(shares):
    _, _, train, given_out = shares
    for run in range(len(SEEDS)):
        flat = given_out[run].reshape(-1)
        assert len(np.unique(flat)) == flat.size
        assert np.isin(flat, train[run]).all()


def test_every_device_gets_exactly_its_counts_sorted_by_class(shares):
    counts, _, _, given_out = shares
    label = LABELS[given_out]  # [runs, N, P]
    assert (np.diff(label, axis=-1) >= 0).all()
    got = (label[..., None] == np.arange(5)).sum(axis=-2)
    np.testing.assert_array_equal(got, counts)


def test_points_of_a_device_are_a_random_part_of_the_class(shares):
    # All devices together hold each training point equally often, first or last in the data set.
    held = np.bincount(shares[3].reshape(-1), minlength=len(LABELS))
    first, second = held[:100].mean(), held[100:200].mean()
    assert abs(first - second) / len(SEEDS) < 5 * np.sqrt(2 * 0.25 / (100 * len(SEEDS)))


assigned = jax.jit(points.assign, static_argnums=2)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31 - 1), arrays(np.int32, (24,), elements=st.integers(0, 11)))
def test_any_counts_that_the_supply_allows_are_served(seed, cell):
    # 4 devices with 6 points of 3 classes on average; a cell is a device and a class. Of 30 points of a class
    # 24 remain for training, enough for all.
    config = Config(num_devices=4, num_classes=3, points_per_device=6)
    cell = np.sort(cell)
    counts = np.bincount(cell, minlength=12).reshape(4, 3).astype(np.int32)
    train = np.random.default_rng(seed).permutation(90).astype(np.int32)[:72]
    given_out = np.asarray(assigned(train, counts, (30, 30, 30), config))
    assert len(np.unique(given_out)) == given_out.size
    # Places 0-23 of the training points are of class 0, 24-47 of class 1, 48-71 of class 2.
    place = np.argsort(train)[np.searchsorted(np.sort(train), given_out)]
    np.testing.assert_array_equal(place // 24, cell % 3)


def test_supply_error_names_class_asked_and_available(tiny_config):
    # 6 devices with 2 of 5 classes in three decks: at most 3 x 20 = 60 points of a class.
    names = ("ankle boot", "bag", "coat", "dress", "shirt")
    supply.check_supply(np.array([75, 75, 75, 75, 75]), names, tiny_config)
    with pytest.raises(ValueError, match=r"points_per_device=40 .* 60 .* 'dress'; 59 are available"):
        supply.check_supply(np.array([75, 75, 75, 74, 75]), names, tiny_config)
    with pytest.raises(ValueError, match=r"'ankle boot'; 0 are available"):
        supply.check_supply(np.array([0, 75, 75, 75, 75]), names, tiny_config)


# What the radio data have: every even SNR from -20 to 18 dB.
SNRS = range(-20, 20, 2)


def check_windows(config):
    """The radio data made for a config have points enough for it."""
    num_snrs = sum(snr >= config.min_snr for snr in SNRS)
    sizes = np.full(config.num_classes, num_snrs * supply.options_of(config)["windows_per_key"])
    supply.check_supply(sizes, ("name",) * config.num_classes, config)


radio_settings = st.builds(
    lambda hand, extra, **fields: validate(
        Config(classes_per_device=hand, points_per_device=hand + extra, **fields)
    ),
    hand=st.integers(1, 11),
    extra=st.integers(0, 2000),
    num_devices=st.integers(2, 80),
    min_snr=st.integers(-15, 9).map(lambda half: 2 * half),
    test_fraction=st.floats(0.01, 0.95),
)


@given(radio_settings)
def test_windows_made_suffice(config):
    check_windows(config)


def test_windows_made_suffice_for_the_defaults():
    check_windows(validate(Config()))
    check_windows(validate(Config(num_devices=50, min_snr=18)))


@pytest.mark.parametrize("min_snr", [-19, -1, 1, 9, 17])
def test_windows_made_suffice_when_the_least_snr_lies_between_two(min_snr):
    # 17 dB leaves the 18 dB windows alone, not two kinds of windows.
    check_windows(validate(Config(min_snr=min_snr)))


def test_windows_made_are_not_many_more_than_asked():
    config = validate(Config())
    asked = partition.most_points_asked(config)
    made = len([snr for snr in SNRS if snr >= 0]) * supply.options_of(config)["windows_per_key"]
    assert asked <= 0.8 * made + 1 <= asked + 12
