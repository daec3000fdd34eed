import jax
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import floats

from d2djax import channel, energy

energy_of = jax.jit(energy.transmit_energy)
power_of = jax.jit(energy.controlled_power)

# Easy numbers: an outage of 1 - 1/e needs a received power of exactly (2^r - 1) noise powers.
EASY = {
    "noise_power": 1e-14,
    "reference_gain": 1e-3,
    "path_loss_exponent": 2.0,
    "outage": 1 - 1 / np.e,
}
SHAPE = (4,)
radios = st.fixed_dictionaries(
    {
        "rate": st.floats(0.5, 4),
        "bandwidth": st.floats(1e4, 1e8),
        "efficiency": st.floats(0.1, 1),
        "circuit_power": st.floats(0, 0.5),
    }
)
channels = st.fixed_dictionaries(
    {
        "noise_power": st.floats(-160, -100).map(lambda dbm: 1e-3 * 10 ** (dbm / 10)),
        "reference_gain": st.floats(-50, -10).map(lambda decibels: 10 ** (decibels / 10)),
        "path_loss_exponent": st.floats(2, 4.5),
        "outage": st.floats(1e-4, 0.9),
    }
)
amounts, distances = floats(SHAPE, 0, 2.0**30), floats(SHAPE, 1, 2000)


@pytest.mark.parametrize(
    "bits, options, expected",
    [
        (1e6, {"transmit_power": 10e-3}, 0.01),  # one second at 10 mW
        (1e6, {"transmit_power": 250e-3}, 0.25),
        (1e6, {"transmit_power": 10e-3, "rate": 4.0}, 0.0025),
        (1e6, {"transmit_power": 10e-3, "bandwidth": 2e5}, 0.05),
        (2e6, {"transmit_power": 10e-3, "efficiency": 0.5, "circuit_power": 0.1}, 0.24),
        (0.0, {"transmit_power": 10e-3, "circuit_power": 0.1}, 0.0),
    ],
)
def test_worked_numbers_at_fixed_power(bits, options, expected):
    np.testing.assert_allclose(energy_of(bits, 80.0, **options), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "bits, distance, options, expected",
    [
        # 1e-14 W * (100 m)^2 / 1e-3 = 1e-7 W for two seconds.
        (2e6, 100.0, {"rate": 1.0}, 2e-7),
        # 2^3 - 1 = 7 times the power for a third of the time.
        (2e6, 100.0, {"rate": 3.0}, 14e-7 / 3),
        (2e6, 200.0, {"rate": 1.0}, 8e-7),
        (2e6, 100.0, {"rate": 1.0, "efficiency": 0.25, "circuit_power": 1e-7}, 10e-7),
        (2e6, 0.0, {"rate": 1.0, "circuit_power": 1e-7}, 2e-7),
        (0.0, 100.0, {"rate": 1.0, "circuit_power": 0.1}, 0.0),
    ],
)
def test_worked_numbers_under_power_control(bits, distance, options, expected):
    np.testing.assert_allclose(energy_of(bits, distance, **EASY, **options), expected, rtol=1e-5)


def test_defaults_are_those_of_the_channel_and_control_is_the_default_mode():
    # 10^-14.4 W * 100^3.75 / (1e-3 * -ln 0.9) = 1.19487 mW, for one second.
    got = energy_of(1e6, 100.0, outage=0.1)
    np.testing.assert_allclose(got, 1.194872e-3, rtol=1e-5)


def test_fixed_power_does_not_depend_on_distance():
    got = energy_of(1e6, np.array([1.0, 10.0, 1000.0]), transmit_power=10e-3)
    np.testing.assert_allclose(got, [0.01, 0.01, 0.01], rtol=1e-6)


@settings(deadline=None, max_examples=50)
@given(amounts, distances, st.floats(0, 1), radios)
def test_fixed_power_matches_oracle(bits, distance, power, radio):
    got = energy_of(bits, distance, transmit_power=power, **radio)
    expected = [
        oracle.transmit_energy(float(b), float(d), power=power, **radio)
        for b, d in zip(bits, distance, strict=True)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-35)


@settings(deadline=None, max_examples=50)
@given(amounts, distances, radios, channels)
def test_power_control_matches_oracle(bits, distance, radio, channel):
    got = energy_of(bits, distance, **radio, **channel)
    names = {"reference_gain": "path_gain", "path_loss_exponent": "path_exponent"}
    same = {names.get(name, name): value for name, value in channel.items()}
    expected = [
        oracle.transmit_energy(float(b), float(d), **radio, **same) for b, d in zip(bits, distance, strict=True)
    ]
    # A power of the distance costs single precision a digit.
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-35)


@settings(deadline=None, max_examples=40)
@given(distances, st.floats(0.5, 4), channels)
def test_controlled_power_gives_the_wanted_outage(distance, rate, channel_options):
    power = np.asarray(power_of(distance, rate=rate, **channel_options), float)
    gain = channel_options["reference_gain"] * distance.astype(float) ** -channel_options["path_loss_exponent"]
    rss = (power * gain)[:, None, None] * (1 - np.eye(2))
    noise_power, wanted = channel_options["noise_power"], channel_options["outage"]
    outage = channel.outage_probability(rss, rate, noise_power)
    np.testing.assert_allclose(outage[:, 0, 1], np.full(SHAPE, wanted), rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(amounts, amounts, distances, radios, channels)
def test_energy_is_additive_in_bits(first, second, distance, radio, channel):
    options = radio | channel
    whole = energy_of(first + second, distance, **options)
    parts = np.asarray(energy_of(first, distance, **options)) + np.asarray(energy_of(second, distance, **options))
    np.testing.assert_allclose(whole, parts, rtol=1e-5, atol=1e-35)


def test_tiny_outages_keep_their_digits():
    # 1 - 1e-7 is 1 - 1.19e-7 in single precision, so log(1 - eps) would be off by a fifth.
    got = power_of(100.0, rate=1.0, **(EASY | {"outage": 1e-7}))
    np.testing.assert_allclose(got, 1.0, rtol=1e-5)


def test_bits_and_distances_broadcast():
    bits, distance = np.array([[1e6], [2e6], [0.0]]), np.array([[100.0, 200.0]])
    expected = [[1e-7, 4e-7], [2e-7, 8e-7], [0, 0]]
    np.testing.assert_allclose(energy_of(bits, distance, rate=1.0, **EASY), expected, rtol=1e-5)
    fixed = energy_of(bits, distance, transmit_power=10e-3)
    np.testing.assert_allclose(fixed, [[0.01, 0.01], [0.02, 0.02], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(energy.transmit_energy(1e6, distance, rate=1.0, **EASY), expected[:1], rtol=1e-5)


def test_powers_broadcast():
    got = energy.transmit_energy(1e6, 80.0, transmit_power=np.array([10e-3, 250e-3]))
    np.testing.assert_allclose(got, [0.01, 0.25], rtol=1e-6)


def test_receive_energy():
    # Half a second for 1 Mbit at 2 bit/s/Hz over 1 MHz.
    got = energy.receive_energy(np.array([0.0, 1e6]), receive_power=0.2, rate=2.0, bandwidth=1e6)
    np.testing.assert_allclose(got, [0, 0.1], rtol=1e-6)


def test_vmap_over_runs():
    options = {"rate": np.float32([1, 2]), "circuit_power": np.float32([0, 0.1])}
    bits, distance = np.float32([[1e6, 2e6], [3e6, 0]]), np.float32([[50, 100], [150, 200]])
    got = jax.vmap(lambda b, d, o: energy.transmit_energy(b, d, **o, **EASY))(bits, distance, options)
    for run in range(2):
        one = {name: values[run] for name, values in options.items()}
        expected = energy.transmit_energy(bits[run], distance[run], **one, **EASY)
        np.testing.assert_allclose(got[run], expected, rtol=1e-5)
