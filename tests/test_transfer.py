from fractions import Fraction
from itertools import chain

import jax
import numpy as np
import oracle
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from strategies import indices, outages, quarters

from d2djax import transfer
from d2djax.config import Config
from d2djax.messages import Exchange, exchange
from d2djax.points import assign
from d2djax.rng import run_key
from d2djax.supply import held_out_sizes

NUM_DEVICES, NUM_CLASSES, PER_DEVICE = 5, 3, 40
EXPECTED, SAMPLED = Config(delivery="expected"), Config(delivery="sampled")


def real_exchange(seed, points, counts, thresholds, trust, links, outage):
    """The exchange, and for each way of delivery what arrives and who holds what."""
    moved = exchange(counts, thresholds, trust, links, outage)
    key = run_key(seed)
    received = [transfer.whole_points(key, moved, outage, links, config) for config in (EXPECTED, SAMPLED)]
    return moved, [(whole, transfer.transfer(points, counts, links, whole)) for whole in received]


exchanged = jax.jit(real_exchange)
moved_over = jax.jit(transfer.transfer)
pooled = jax.jit(transfer.pool, static_argnums=2)
whole = jax.jit(transfer.whole_points, static_argnames="config")

NUM_POINTS = NUM_DEVICES * PER_DEVICE
# Device and class of each point as one number, sorted: as `points.assign` lists them; devices of any size.
all_cells = arrays(np.int32, (NUM_POINTS,), elements=st.integers(0, NUM_DEVICES * NUM_CLASSES - 1)).map(np.sort)
seeds = st.integers(0, 2**31 - 1)
all_links = indices((NUM_DEVICES,), NUM_DEVICES)
trusts = arrays(bool, (NUM_DEVICES, NUM_DEVICES, NUM_CLASSES)).map(
    lambda x: x | np.eye(NUM_DEVICES, dtype=bool)[:, :, None]
)
all_thresholds = quarters((NUM_DEVICES, NUM_CLASSES), PER_DEVICE)
cases = st.tuples(seeds, all_cells, all_thresholds, trusts, all_links, outages((NUM_DEVICES, NUM_DEVICES)))


def numbers(seed):
    """Numbers of the devices' points: any different ones, far from 0, 1, 2, ..."""
    return np.random.default_rng(seed).permutation(5 * NUM_POINTS)[:NUM_POINTS].astype(np.int32)


def counts_of(cell):
    return np.bincount(cell, minlength=NUM_DEVICES * NUM_CLASSES).reshape(NUM_DEVICES, -1).astype(np.int32)


def as_case(case):
    """Arguments of `real_exchange`."""
    seed, cell, *rest = case
    return seed, numbers(seed), counts_of(cell), *rest


def stretches(holding):
    """The points of each device."""
    points, start, size = (np.asarray(part) for part in (holding.points, holding.start, holding.size))
    return [points[first : first + length] for first, length in zip(start, size, strict=True)]


def check_holding(holding, points, cell, links, received):
    """Every point in exactly one place, and each where it belongs."""
    assert sorted(np.asarray(holding.points)) == sorted(points)
    np.testing.assert_array_equal(np.asarray(holding.start), np.cumsum(holding.size) - holding.size)
    device_of, label = cell // NUM_CLASSES, cell % NUM_CLASSES
    owner = dict(zip(points.tolist(), device_of.tolist(), strict=True))
    class_of = dict(zip(points.tolist(), label.tolist(), strict=True))
    before = [label[device_of == device] for device in range(NUM_DEVICES)]
    found = np.zeros(received.shape, int)
    for device, stretch in enumerate(stretches(holding)):
        foreign = [number for number in stretch.tolist() if owner[number] != device]
        # What comes from elsewhere comes from the transmitter, in the classes that were received.
        assert all(owner[number] == links[device] for number in foreign)
        np.testing.assert_array_equal(
            np.bincount([class_of[number] for number in foreign], minlength=NUM_CLASSES),
            received[device] * (links[device] != device),
        )
        found[device] = np.bincount([class_of[number] for number in stretch.tolist()], minlength=NUM_CLASSES)
    np.testing.assert_array_equal(found, oracle.transfer(before, links, received, NUM_CLASSES))
    np.testing.assert_array_equal(found.sum(axis=1), holding.size)


def exact_transmitted(counts, thresholds, trust, links):
    """`U` in exact fractions; counts are whole and thresholds quarters."""
    counts = [[Fraction(int(n)) for n in row] for row in counts]
    thresholds = [[Fraction(float(c)) for c in row] for row in thresholds]
    ask = {}
    for i, j in enumerate(links):
        for c in range(NUM_CLASSES):
            offer = max(counts[j][c] - thresholds[j][c], Fraction(0)) if j != i and trust[j, i, c] else 0
            ask[i, c] = max(min(offer, thresholds[i][c] - counts[i][c]), Fraction(0))
    sent = {}
    for i, j in enumerate(links):
        for c in range(NUM_CLASSES):
            spare = max(counts[j][c] - thresholds[j][c], Fraction(0))
            demand = sum(ask[k, c] for k in range(NUM_DEVICES) if links[k] == j)
            sent[i, c] = ask[i, c] if demand <= spare else ask[i, c] / demand * spare
    return np.array([[sent[i, c] for c in range(NUM_CLASSES)] for i in range(NUM_DEVICES)], dtype=object)


def floors(fractions):
    return np.array([[int(x // 1) for x in row] for row in fractions])


@settings(deadline=None, max_examples=60)
@given(cases)
def test_every_point_ends_where_it_belongs(case):
    arguments, cell, links = as_case(case), case[1], case[4]
    _, deliveries = exchanged(*arguments)
    for received, holding in deliveries:
        check_holding(holding, arguments[1], cell, links, np.asarray(received))


@settings(deadline=None, max_examples=60)
@given(seeds, all_cells, all_links, arrays(np.int32, (NUM_DEVICES, NUM_CLASSES), elements=st.integers(0, 40)))
def test_any_whole_points_can_be_moved(seed, cell, links, wanted):
    # Not only what an exchange asks for: up to all that a transmitter has, in rings and chains too.
    counts, points = counts_of(cell), numbers(seed)
    left, received = counts.copy(), np.zeros_like(wanted)
    for device, transmitter in enumerate(links):
        if transmitter != device:
            received[device] = np.minimum(wanted[device], left[transmitter])
            left[transmitter] -= received[device]
    check_holding(moved_over(points, counts, links, received), points, cell, links, received)


def test_a_ring_in_which_everyone_gives_all():
    # Devices of unequal size, the third without a point.
    cell = np.sort(np.arange(NUM_POINTS) * 7 % 6 + 9 * (np.arange(NUM_POINTS) % 2)).astype(np.int32)
    points, counts = numbers(0), counts_of(cell)
    assert counts.sum(axis=1)[2] == 0
    links = np.roll(np.arange(NUM_DEVICES, dtype=np.int32), 1)
    holding = moved_over(points, counts, links, counts[links])
    for device, stretch in enumerate(stretches(holding)):
        np.testing.assert_array_equal(stretch, points[cell // NUM_CLASSES == links[device]])


def test_worked_transfer():
    # Device 0 gives its first three points of class 1: two to device 1, the next one to device 2.
    points = np.arange(12, dtype=np.int32) + 100
    counts = np.array([[1, 3], [4, 0], [2, 2]], np.int32)
    received = np.array([[0, 0], [0, 2], [0, 1]], np.int32)
    holding = moved_over(points, counts, np.array([0, 0, 0]), received)
    np.testing.assert_array_equal(holding.size, [1, 6, 5])
    np.testing.assert_array_equal(holding.start, [0, 1, 7])
    np.testing.assert_array_equal(holding.points, [100, 101, 102, 104, 105, 106, 107, 103, 108, 109, 110, 111])


@settings(deadline=None, max_examples=80)
@given(cases)
def test_deliveries_keep_the_bounds_of_the_exchange(case):
    arguments = as_case(case)
    _, _, counts, thresholds, trust, links, outage = arguments
    sent = exact_transmitted(counts, thresholds, trust, links)
    _, deliveries = exchanged(*arguments)
    for received, _ in deliveries:
        received = np.asarray(received)
        assert received.dtype == np.int32
        assert (received >= 0).all()
        assert (received <= floors(sent)).all()
        after = counts + received
        np.subtract.at(after, links, received)
        assert (after >= np.minimum(counts, thresholds)).all()
        np.testing.assert_array_equal(after.sum(axis=0), counts.sum(axis=0))
        # A link that always fails brings nothing.
        assert not received[outage[np.arange(NUM_DEVICES), links] == 1].any()


@settings(deadline=None, max_examples=60)
@given(cases)
def test_links_that_never_fail_deliver_all_whole_points(case):
    arguments = (*as_case(case)[:-1], np.zeros((NUM_DEVICES, NUM_DEVICES), np.float32))
    _, _, counts, thresholds, trust, links, _ = arguments
    expected = floors(exact_transmitted(counts, thresholds, trust, links))
    for received, _ in exchanged(*arguments)[1]:
        np.testing.assert_array_equal(received, expected)


@settings(deadline=None, max_examples=60)
@given(cases)
def test_expected_delivery_is_the_expectation_rounded_down(case):
    arguments = as_case(case)
    _, _, counts, thresholds, trust, links, outage = arguments
    success = [1 - Fraction(float(outage[i, j])) for i, j in enumerate(links)]
    mean = exact_transmitted(counts, thresholds, trust, links) * np.array(success, dtype=object)[:, None]
    received = np.asarray(exchanged(*arguments)[1][0][0])
    # Within two millionths below a whole number single precision cannot tell, and it may be either.
    nearly = floors(mean * (1 + Fraction(2, 10**6)))
    assert (received >= floors(mean)).all()
    assert (received <= nearly).all()


def test_quotients_that_are_whole_are_not_rounded_down():
    # 26 of the 44 points asked of a transmitter with 22 to spare are 13, not 12.999999. And all the others:
    # two receivers ask for first and second, more than the spare points; one class for each triple.
    first, second, spare = (part.reshape(-1) for part in np.mgrid[1:61, 1:61, 1:61])
    real = (np.maximum(first, second) <= spare) & (first + second > spare)
    first, second, spare = first[real], second[real], spare[real]
    counts = np.stack([60 + spare, 60 - first, 60 - second])
    links, perfect = np.zeros(3, np.int32), np.zeros((3, 3), np.float32)
    trust = np.ones((3, 3, len(spare)), bool)
    moved = jax.jit(exchange)(counts, np.full(counts.shape, 60), trust, links, perfect)
    received = np.asarray(whole(run_key(0), moved, perfect, links, EXPECTED))
    np.testing.assert_array_equal(received[1], first * spare // (first + second))
    np.testing.assert_array_equal(received[2], second * spare // (first + second))


def test_26_of_44_times_22_is_13():
    links, perfect = np.zeros(3, np.int32), np.zeros((3, 3), np.float32)
    share = np.float32(26) / np.float32(44) * np.float32(22)
    for real, expected in ((share, 13), (np.float32(12.999999), 13), (np.float32(13), 13), (np.float32(12.99), 12)):
        moved = as_sent(np.array([[0], [real], [0]], np.float32), np.zeros(3))
        np.testing.assert_array_equal(whole(run_key(0), moved, perfect, links, EXPECTED), [[0], [expected], [0]])


def as_sent(transmitted, outage):
    """An exchange of which only what is sent and what is expected to arrive matter; `outage` [N] of the links."""
    received = np.float32(1 - outage[:, None]) * transmitted
    return Exchange(transmitted, transmitted, transmitted, received.astype(np.float32), transmitted)


@pytest.mark.parametrize(
    "outage, sent, expected", [(1e-5, 5, 4), (0.0, 5, 5), (0.25, 8, 6), (0.5, 5, 2), (1, 5, 0)]
)
def test_points_lost_on_the_way_are_not_rounded_up(outage, sent, expected):
    links = np.array([1, 1, 2], np.int32)
    matrix = np.zeros((3, 3), np.float32)
    matrix[0, 1] = outage
    moved = as_sent(np.array([[sent], [0], [0]], np.float32), matrix[np.arange(3), links])
    np.testing.assert_array_equal(whole(run_key(0), moved, matrix, links, EXPECTED), [[expected], [0], [0]])


@pytest.fixture(scope="module")
def draws():
    """4,000 sampled deliveries of 20, 7.5 and 1 point, over links that fail with .3, .01 and .9."""
    links = np.array([1, 2, 0], np.int32)
    matrix = np.zeros((3, 3), np.float32)
    matrix[np.arange(3), links] = [0.3, 0.01, 0.9]
    sent = np.tile(np.array([[20, 7.5, 1]], np.float32), (3, 1))
    moved = as_sent(sent, matrix[np.arange(3), links])

    @jax.jit
    def draw(seeds, *arguments):
        return jax.vmap(lambda seed: transfer.whole_points(run_key(seed), *arguments, SAMPLED))(seeds)

    return np.asarray(draw(np.arange(4000), moved, matrix, links))


@pytest.mark.parametrize("row, success", [(0, 0.7), (1, 0.99), (2, 0.1)])
@pytest.mark.parametrize("column, trials", [(0, 20), (1, 7), (2, 1)])
def test_sampled_delivery_is_binomial(draws, row, success, column, trials):
    drawn = draws[:, row, column]
    assert drawn.min() >= 0 and drawn.max() <= trials
    expected = stats.binom.pmf(np.arange(trials + 1), trials, success) * len(drawn)
    observed = np.bincount(drawn, minlength=trials + 1)
    # Outcomes that are rarer than ten in all count as one.
    rare = expected < 10
    expected, observed = (np.append(x[~rare], x[rare].sum()) for x in (expected, observed))
    error = np.sqrt(np.maximum(expected * (1 - expected / len(drawn)), 1))
    assert (np.abs(observed - expected) <= 5 * error).all()


def test_sampled_deliveries_are_independent(draws):
    flat = draws.reshape(len(draws), -1).astype(float)
    between = np.corrcoef(flat.T)[np.triu_indices(9, 1)]
    assert np.abs(between).max() < 5 / np.sqrt(len(draws))
    assert len(np.unique(draws, axis=0)) > 100


# Points that do not fill their list: each device holds as many as it likes.
RAGGED = Config(num_devices=NUM_DEVICES, num_classes=NUM_CLASSES)
SUPPLY, PLACES = (50, 40, 60), 100


def deal_and_move(key, train, counts, links, received):
    """Points dealt by counts, those over the links moved, and all dealt anew, in a list that has room for more."""
    dealt = assign(train, counts, SUPPLY, RAGGED, PLACES)
    return dealt, transfer.transfer(dealt, counts, links, received), transfer.pool(key, dealt, NUM_DEVICES, False)


ragged = jax.jit(deal_and_move)


@settings(deadline=None, max_examples=40)
@given(seeds, arrays(np.int32, (NUM_DEVICES, NUM_CLASSES), elements=st.integers(0, 6)), all_links)
@example(0, np.zeros((NUM_DEVICES, NUM_CLASSES), np.int32), np.zeros(NUM_DEVICES, np.int32))
def test_counts_of_any_sum_are_dealt_moved_and_pooled(seed, counts, links):
    rng = np.random.default_rng(seed)
    left = np.array(SUPPLY) - held_out_sizes(np.array(SUPPLY), RAGGED)
    classes = np.split(rng.permutation(left.sum()).astype(np.int32), np.cumsum(left)[:-1])
    rest, received = counts.copy(), np.zeros_like(counts)
    for device, transmitter in enumerate(links):
        if transmitter != device:
            received[device] = rng.integers(0, rest[transmitter] + 1)
            rest[transmitter] -= received[device]
    dealt, moved, anew = ragged(run_key(seed), np.concatenate(classes), counts, links, received)
    # One device after the other takes the next points of each class, then gives the first ones that it has.
    taken, hands = np.zeros(NUM_CLASSES, int), []
    for row in counts:
        hands.append([classes[c][taken[c] : taken[c] + row[c]].tolist() for c in range(NUM_CLASSES)])
        taken += row
    in_order = [number for hand in hands for of_class in hand for number in of_class]
    np.testing.assert_array_equal(dealt, in_order + [-1] * (PLACES - len(in_order)))
    gifts = [
        [[hands[j][c].pop(0) for _ in range(received[i, c])] for c in range(NUM_CLASSES)]
        for i, j in enumerate(links)
    ]
    for device, stretch in enumerate(stretches(moved)):
        assert sorted(stretch) == sorted(chain(*hands[device], *gifts[device]))
    assert sorted(np.concatenate(stretches(anew))) == sorted(in_order)
    assert max(anew.size) - min(anew.size) <= 1
    for holding in (moved, anew):
        np.testing.assert_array_equal(holding.start, np.cumsum(holding.size) - holding.size)


def test_a_new_deal_does_not_depend_on_how_many_places_there_are():
    points = np.append(numbers(2)[:37], np.full(20, -1, np.int32))
    short, long = (transfer.pool(run_key(5), points[:size], NUM_DEVICES, False) for size in (40, 57))
    np.testing.assert_array_equal(short.points[:37], long.points[:37])
    np.testing.assert_array_equal(short.size, [8, 8, 7, 7, 7])
    assert (np.asarray(long.points[37:]) == -1).all()


def test_pool_deals_what_does_not_go_evenly_as_equally_as_it_goes():
    holding = transfer.pool(run_key(3), np.arange(13, dtype=np.int32), NUM_DEVICES)
    np.testing.assert_array_equal(holding.size, [3, 3, 3, 2, 2])
    np.testing.assert_array_equal(holding.start, [0, 3, 6, 9, 11])
    assert sorted(np.asarray(holding.points)) == list(range(13))


def test_pool_deals_all_points_in_equal_numbers():
    points = numbers(1)
    holding = pooled(run_key(0), points, NUM_DEVICES)
    assert sorted(np.asarray(holding.points)) == sorted(points)
    np.testing.assert_array_equal(holding.size, np.full(NUM_DEVICES, PER_DEVICE))
    np.testing.assert_array_equal(holding.start, PER_DEVICE * np.arange(NUM_DEVICES))


def test_pool_is_a_new_deal_for_every_seed():
    points = np.arange(NUM_POINTS, dtype=np.int32)
    deal = jax.jit(jax.vmap(lambda seed: transfer.pool(run_key(seed), points, NUM_DEVICES).points))
    dealt = np.asarray(deal(np.arange(200)))
    assert len(np.unique(dealt, axis=0)) == 200
    # Each device gets a fifth of what each other held.
    origin = dealt.reshape(200, NUM_DEVICES, PER_DEVICE) // PER_DEVICE
    for device in range(NUM_DEVICES):
        share = np.array([(origin[:, device] == other).mean() for other in range(NUM_DEVICES)])
        assert np.abs(share - 0.2).max() < 5 * np.sqrt(0.16 / (200 * PER_DEVICE))


def test_vmap_equals_one_by_one():
    rng = np.random.default_rng(0)
    cell = np.sort(rng.integers(0, NUM_DEVICES * NUM_CLASSES, (4, NUM_POINTS)), axis=-1)
    shape = (4, NUM_DEVICES, NUM_DEVICES)
    batch = (
        np.arange(4),
        np.stack([numbers(seed) for seed in range(4)]),
        np.stack([counts_of(one) for one in cell]),
        rng.integers(0, 160, (4, NUM_DEVICES, NUM_CLASSES)).astype(np.float32) / 4,
        rng.random((*shape, NUM_CLASSES)) < 0.8,
        rng.integers(0, NUM_DEVICES, (4, NUM_DEVICES)).astype(np.int32),
        rng.random(shape).astype(np.float32) * ~np.eye(NUM_DEVICES, dtype=bool),
    )

    def expected_delivery(seed, points, counts, thresholds, trust, links, outage):
        moved = exchange(counts, thresholds, trust, links, outage)
        received = transfer.whole_points(run_key(seed), moved, outage, links, EXPECTED)
        return received, transfer.transfer(points, counts, links, received)

    # The sampled delivery runs under vmap in `draws`.
    together = jax.jit(jax.vmap(expected_delivery))(*batch)
    assert np.asarray(together[0]).any(axis=(1, 2)).all()
    for run in range(4):
        single = exchanged(*[part[run] for part in batch])[1][0]
        among = jax.tree.map(lambda leaf, run=run: leaf[run], together)
        jax.tree.map(np.testing.assert_array_equal, among, single)
