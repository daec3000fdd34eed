import jax
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import exchanges

from d2djax import messages

exchanged = jax.jit(messages.exchange)
NUM_DEVICES, NUM_CLASSES = 5, 3
FIELDS = ("available", "requested", "transmitted", "received", "counts")
drawn = exchanges(NUM_DEVICES, NUM_CLASSES)
# Counts stay below 300, where single precision resolves 3e-5.
ATOL = 1e-4


def full_trust(num_devices, num_classes):
    return np.ones((num_devices, num_devices, num_classes), bool)


def as_arrays(exchange):
    return {name: np.asarray(getattr(exchange, name)) for name in FIELDS}


def check(got, **expected):
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(got, name), values, rtol=1e-6, atol=1e-5, err_msg=name)


def test_example_of_the_paper():
    # j = 0 has 20 points and keeps 10; devices 1 and 2 have none and want 10 each.
    counts, thresholds = np.array([[20.0], [0.0], [0.0]]), np.full((3, 1), 10.0)
    got = exchanged(counts, thresholds, full_trust(3, 1), np.array([0, 0, 0]), np.zeros((3, 3)))
    check(
        got,
        available=[[0], [10], [10]],
        requested=[[0], [10], [10]],
        transmitted=[[0], [5], [5]],
        received=[[0], [5], [5]],
        counts=[[10], [5], [5]],
    )


def test_worked_network():
    # Device 0 and 2 take from 1, device 1 takes from 0, two classes, every threshold 10.
    counts = np.array([[30.0, 0.0], [0.0, 20.0], [0.0, 0.0]])
    outage = np.array([[0, 0.2, 0.9], [0.1, 0, 0.9], [0.9, 0.4, 0]])
    got = exchanged(counts, np.full((3, 2), 10.0), full_trust(3, 2), np.array([1, 0, 1]), outage)
    check(
        got,
        available=[[0, 10], [20, 0], [0, 10]],
        requested=[[0, 10], [10, 0], [0, 10]],
        transmitted=[[0, 5], [10, 0], [0, 5]],
        received=[[0, 4], [9, 0], [0, 3]],
        counts=[[21, 4], [9, 13], [0, 3]],
    )


def test_unequal_demand_is_shared_in_proportion():
    # 12 points to spare; requests of 12 (cut to what is there), 6 and 6.
    counts = np.array([[20.0], [1.0], [10.0], [10.0]])
    thresholds = np.array([[8.0], [31.0], [16.0], [16.0]])
    got = exchanged(counts, thresholds, full_trust(4, 1), np.zeros(4, np.int32), np.zeros((4, 4)))
    check(got, requested=[[0], [12], [6], [6]], transmitted=[[0], [6], [3], [3]], counts=[[8], [7], [13], [13]])


def test_sharing_is_class_by_class():
    # Class 0 is over-asked, class 1 is not: its requests are met in full.
    counts = np.array([[20.0, 40.0], [0.0, 0.0], [0.0, 5.0]])
    got = exchanged(counts, np.full((3, 2), 10.0), full_trust(3, 2), np.zeros(3, int), np.zeros((3, 3)))
    check(got, requested=[[0, 0], [10, 10], [10, 5]], transmitted=[[0, 0], [5, 10], [5, 5]])


def test_demand_equal_to_what_can_be_spared_is_met():
    counts = np.array([[30.0], [0.0], [0.0]])
    got = exchanged(counts, np.full((3, 1), 10.0), full_trust(3, 1), np.zeros(3, int), np.zeros((3, 3)))
    check(got, transmitted=[[0], [10], [10]], counts=[[10], [10], [10]])


def test_transmitter_below_its_threshold_offers_nothing():
    # Without the clamp the offer would be -7 and so would the request.
    counts, thresholds = np.array([[3.0], [0.0]]), np.array([[10.0], [10.0]])
    got = exchanged(counts, thresholds, full_trust(2, 1), np.array([0, 0]), np.zeros((2, 2)))
    check(got, **{name: np.zeros((2, 1)) for name in FIELDS[:4]}, counts=counts)


def test_receiver_that_has_enough_asks_for_nothing():
    counts = np.array([[50.0], [11.0]])
    got = exchanged(counts, np.full((2, 1), 10.0), full_trust(2, 1), np.array([0, 0]), np.zeros((2, 2)))
    check(got, available=[[0], [40]], requested=np.zeros((2, 1)), counts=counts)


def test_what_arrives_is_not_passed_on():
    # A chain 0 -> 1 -> 2: device 1 can send only what it had before.
    counts = np.array([[30.0], [0.0], [0.0]])
    links = np.array([0, 0, 1])
    got = exchanged(counts, np.full((3, 1), 10.0), full_trust(3, 1), links, np.zeros((3, 3)))
    check(got, received=[[0], [10], [0]], counts=[[20], [10], [0]])


def test_trust_is_that_of_the_owner():
    # The owner 0 trusts 1 with class 1 only; that 1 trusts 0 with both is of no account.
    trust = full_trust(2, 2)
    trust[0, 1, 0] = False
    counts = np.array([[30.0, 30.0], [0.0, 0.0]])
    got = exchanged(counts, np.full((2, 2), 10.0), trust, np.array([0, 0]), np.zeros((2, 2)))
    check(got, available=[[0, 0], [0, 20]], received=[[0, 0], [0, 10]], counts=[[30, 20], [0, 10]])


def test_outage_is_that_of_receiver_then_transmitter():
    outage = np.array([[0, 0.75], [0.25, 0]])
    counts = np.array([[30.0], [0.0]])
    got = exchanged(counts, np.full((2, 1), 8.0), full_trust(2, 1), np.array([0, 0]), outage)
    check(got, received=[[0], [6]], counts=[[24], [6]])


def test_lost_points_stay_at_the_transmitter():
    counts = np.array([[20.0], [0.0]])
    outage = 1.0 - np.eye(2)
    got = exchanged(counts, np.full((2, 1), 10.0), full_trust(2, 1), np.array([0, 0]), outage)
    check(got, transmitted=[[0], [10]], received=[[0], [0]], counts=counts)


def test_two_devices_can_swap():
    counts = np.array([[20.0, 0.0], [0.0, 20.0]])
    got = exchanged(counts, np.full((2, 2), 10.0), full_trust(2, 2), np.array([1, 0]), np.zeros((2, 2)))
    check(got, counts=np.full((2, 2), 10.0))


@settings(deadline=None, max_examples=60)
@given(drawn)
def test_matches_oracle(arguments):
    got = as_arrays(exchanged(*arguments))
    for name, expected in oracle.exchange(*arguments).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=ATOL, err_msg=name)


@settings(deadline=None, max_examples=60)
@given(drawn)
def test_no_point_is_made_or_lost(arguments):
    got = as_arrays(exchanged(*arguments))
    np.testing.assert_allclose(got["counts"].sum(axis=0), arguments[0].sum(axis=0), rtol=1e-6, atol=ATOL)


@settings(deadline=None, max_examples=60)
@given(drawn)
def test_each_step_moves_no_more_than_the_one_before(arguments):
    counts, thresholds, _, links, _ = arguments
    got = as_arrays(exchanged(*arguments))
    assert all((got[name] >= 0).all() for name in FIELDS[:4])
    assert (got["requested"] <= got["available"]).all()
    assert (got["requested"] <= np.maximum(thresholds - counts, 0)).all()
    assert (got["transmitted"] <= got["requested"] + ATOL).all()
    assert (got["received"] <= got["transmitted"]).all()
    spare = np.maximum(counts - thresholds, 0)
    for j in range(NUM_DEVICES):
        assert (got["transmitted"][links == j].sum(axis=0) <= spare[j] + ATOL).all()


@settings(deadline=None, max_examples=60)
@given(drawn)
def test_trust_is_never_violated(arguments):
    trust, links = arguments[2:4]
    got = as_arrays(exchanged(*arguments))
    allowed = np.array([trust[j, i] for i, j in enumerate(links)])
    assert all((got[name][~allowed] == 0).all() for name in FIELDS[:4])


@settings(deadline=None, max_examples=60)
@given(drawn)
def test_transmitter_keeps_its_threshold(arguments):
    counts, thresholds = arguments[:2]
    got = as_arrays(exchanged(*arguments))
    assert (got["counts"] >= np.minimum(counts, thresholds) - ATOL).all()


@settings(deadline=None, max_examples=30)
@given(drawn)
def test_self_links_move_nothing(arguments):
    counts, thresholds, trust, links, outage = arguments
    got = as_arrays(exchanged(*arguments))
    alone = links == np.arange(NUM_DEVICES)
    assert all((got[name][alone] == 0).all() for name in FIELDS[:4])
    nobody = as_arrays(exchanged(counts, thresholds, trust, np.arange(NUM_DEVICES, dtype=np.int32), outage))
    assert not any(nobody[name].any() for name in FIELDS[:4])
    np.testing.assert_array_equal(nobody["counts"], counts)


@settings(deadline=None, max_examples=30)
@given(drawn)
def test_perfect_links_deliver_all_and_dead_links_nothing(arguments):
    outage = arguments[-1]
    perfect = as_arrays(exchanged(*arguments[:-1], np.zeros_like(outage)))
    np.testing.assert_array_equal(perfect["received"], perfect["transmitted"])
    dead = as_arrays(exchanged(*arguments[:-1], np.ones_like(outage) - np.eye(NUM_DEVICES, dtype=np.float32)))
    assert not dead["received"].any()
    np.testing.assert_array_equal(dead["counts"], arguments[0])
    np.testing.assert_array_equal(dead["transmitted"], perfect["transmitted"])


@settings(deadline=None, max_examples=40)
@given(drawn, st.permutations(range(NUM_DEVICES)))
def test_permuting_devices_permutes_the_exchange(arguments, order):
    counts, thresholds, trust, links, outage = arguments
    order = np.array(order)
    new_name = np.argsort(order).astype(np.int32)
    permuted = as_arrays(
        exchanged(
            counts[order],
            thresholds[order],
            trust[order][:, order],
            new_name[links[order]],
            outage[order][:, order],
        )
    )
    for name, expected in as_arrays(exchanged(*arguments)).items():
        np.testing.assert_allclose(permuted[name], expected[order], rtol=1e-5, atol=ATOL, err_msg=name)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_numpy_numbers_of_any_kind_are_accepted(dtype):
    counts, thresholds = np.array([[20], [0], [0]], dtype), np.full((3, 1), 10, dtype)
    outage = np.array([[0, 0, 0], [0.5, 0, 0], [0.9, 0, 0]])
    got = messages.exchange(counts, thresholds, full_trust(3, 1), np.array([0, 0, 0]), outage)
    check(got, transmitted=[[0], [5], [5]], received=[[0], [2.5], [0.5]], counts=[[17], [2.5], [0.5]])


def test_vmap_over_networks():
    rng = np.random.default_rng(0)
    batch = (
        rng.integers(0, 60, (4, NUM_DEVICES, NUM_CLASSES)).astype(np.float32),
        rng.integers(0, 20, (4, NUM_DEVICES, NUM_CLASSES)).astype(np.float32),
        rng.random((4, NUM_DEVICES, NUM_DEVICES, NUM_CLASSES)) < 0.8,
        rng.integers(0, NUM_DEVICES, (4, NUM_DEVICES)).astype(np.int32),
        rng.random((4, NUM_DEVICES, NUM_DEVICES)).astype(np.float32) * ~np.eye(NUM_DEVICES, dtype=bool),
    )
    got = as_arrays(jax.jit(jax.vmap(messages.exchange))(*batch))
    for run in range(4):
        for name, expected in oracle.exchange(*[part[run] for part in batch]).items():
            np.testing.assert_allclose(got[name][run], expected, rtol=1e-5, atol=ATOL, err_msg=name)


@pytest.mark.parametrize(
    "name, shape", [("thresholds", (3, 2)), ("trust", (3, 1, 1)), ("links", (2,)), ("outage", (3, 2))]
)
def test_shapes_that_do_not_agree_are_refused(name, shape):
    shapes = {"counts": (3, 1), "thresholds": (3, 1), "trust": (3, 3, 1), "links": (3,), "outage": (3, 3)}
    arguments = {key: np.zeros(shape if key == name else usual) for key, usual in shapes.items()}
    with pytest.raises(ValueError, match=name):
        messages.exchange(**arguments)
