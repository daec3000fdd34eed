import jax
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import powers

from d2djax import channel
from d2djax.config import Config

outage_of = jax.jit(channel.outage_probability)

# The specification's defaults: 10 mW, -30 dB at 1 m, exponent 3.75, -174 dBm/Hz over 1 MHz, 1 bit/s/Hz.
NOISE_POWER = 1e-3 * 10**-17.4 * 1e6
SHAPE = (3, 5, 5)

rates = st.floats(0.5, 4)
noises = st.floats(-160, -90).map(lambda dbm: 1e-3 * 10 ** (dbm / 10))


def pair(power):
    """Two devices that hear each other with `power`."""
    return np.array([[0, power], [power, 0]])


@pytest.mark.parametrize(
    "distance, printed", [(50, "0.001"), (100, "0.013"), (150, "0.056"), (200, "0.16"), (300, "0.54")]
)
def test_default_channel_gives_the_five_known_outages(distance, printed):
    config = Config()
    powers = [10e-3 * 1e-3 * distance**-3.75, float(channel.path_power(np.float32(distance), config))]
    for power, noise_power in zip(powers, [NOISE_POWER, config.noise_power], strict=True):
        outage = float(outage_of(pair(power), config.rate, noise_power)[0, 1])
        assert f"{outage:.{len(printed) - 2}f}" == printed


@pytest.mark.parametrize(
    "power, rate, noise_power, expected",
    [
        (2e-12, 1.0, 2e-12, 0.6321205588),  # 1 - 1/e
        (6e-12, 2.0, 2e-12, 0.6321205588),  # 2^2 - 1 = 3 noise powers are needed, 3 are there
        (2e-12, 2.0, 2e-12, 0.9502129316),  # 1 - e^-3
        (2e-12, 0.5, 2e-12, 0.3391403890),  # 1 - exp(1 - sqrt 2)
        (1e-9, 1.0, 1e-13, 9.999500017e-5),  # 1 - exp(-1e-4)
    ],
)
def test_worked_numbers(power, rate, noise_power, expected):
    outage = outage_of(pair(power), rate, noise_power)
    np.testing.assert_allclose(outage, [[0, expected], [expected, 0]], rtol=2e-6)


@pytest.mark.parametrize("ratio", [1e-7, 1e-9, 1e-12])
def test_tiny_outages_keep_their_digits(ratio):
    # 1 - exp(-1e-7) is 1.19e-7 in single precision.
    outage = outage_of(pair(1e-6), 1.0, ratio * 1e-6)
    np.testing.assert_allclose(outage[0, 1], ratio, rtol=1e-6)


def test_no_power_is_certain_outage():
    outage = np.asarray(outage_of(np.zeros((3, 3)), 1.0, NOISE_POWER))
    assert (outage == 1 - np.eye(3)).all()


@pytest.mark.parametrize("own", [0.0, 1e-9, np.inf])
def test_diagonal_is_zero_whatever_a_device_hears_of_itself(own):
    rss = np.full((3, 3), 1e-13)
    np.fill_diagonal(rss, own)
    outage = np.asarray(outage_of(rss, 1.0, NOISE_POWER))
    assert (np.diag(outage) == 0).all()
    np.testing.assert_allclose(outage, oracle.outage_probability(rss, 1.0, NOISE_POWER), rtol=1e-5)


def test_receiver_is_the_first_axis():
    rss = np.array([[0, 1e-12], [4e-12, 0]])
    outage = outage_of(rss, 1.0, 1e-12)
    np.testing.assert_allclose(outage, [[0, 0.6321205588], [0.2211992169, 0]], rtol=1e-5)


@settings(deadline=None, max_examples=50)
@given(powers(SHAPE), rates, noises)
def test_matches_oracle_in_every_batch_entry(rss, rate, noise_power):
    outage = outage_of(rss, rate, noise_power)
    assert outage.shape == SHAPE
    expected = [oracle.outage_probability(state, rate, noise_power) for state in rss]
    # 1e-37: below that single precision has no normal numbers.
    np.testing.assert_allclose(outage, expected, rtol=1e-5, atol=1e-37)


@settings(deadline=None, max_examples=50)
@given(powers(SHAPE), rates, noises)
def test_is_a_probability(rss, rate, noise_power):
    outage = np.asarray(outage_of(rss, rate, noise_power))
    assert ((outage >= 0) & (outage <= 1)).all()
    assert (np.diagonal(outage, axis1=-2, axis2=-1) == 0).all()


@settings(deadline=None, max_examples=50)
@given(powers(SHAPE), rates, noises, st.floats(1.001, 1000))
def test_monotone_in_power_rate_and_noise(rss, rate, noise_power, factor):
    outage = np.asarray(outage_of(rss, rate, noise_power))
    ulps = 2.4e-7  # two steps of single precision at 1, where outages saturate
    assert (np.asarray(outage_of(rss * factor, rate, noise_power)) <= outage + ulps).all()
    assert (np.asarray(outage_of(rss, rate * factor, noise_power)) >= outage - ulps).all()
    assert (np.asarray(outage_of(rss, rate, noise_power * factor)) >= outage - ulps).all()


def test_more_power_is_strictly_better():
    rss = np.zeros((5, 5))
    rss[0, 1:] = [1e-15, 1e-14, 1e-13, 1e-12]
    assert (np.diff(np.asarray(outage_of(rss, 1.0, NOISE_POWER))[0, 1:]) < 0).all()


def test_vmap_equals_leading_axis():
    rss = 10 ** np.random.default_rng(0).uniform(-15, -10, SHAPE)
    mapped = jax.vmap(channel.outage_probability, in_axes=(0, None, None))(rss, 1.0, NOISE_POWER)
    np.testing.assert_allclose(mapped, outage_of(rss, 1.0, NOISE_POWER), rtol=1e-6)


def test_works_outside_jit_and_in_jit_alike():
    rss = 10 ** np.random.default_rng(1).uniform(-15, -10, SHAPE)
    eager = channel.outage_probability(rss, 1.0, NOISE_POWER)
    np.testing.assert_allclose(eager, outage_of(rss, 1.0, NOISE_POWER), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3)])
def test_power_that_is_not_square_is_refused(shape):
    with pytest.raises(ValueError, match=r"rss must be \[\.\.\., N, N\]"):
        channel.outage_probability(np.ones(shape), 1.0, NOISE_POWER)
