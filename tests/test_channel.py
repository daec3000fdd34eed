import json
from dataclasses import fields, replace
from typing import Literal, get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import powers

import d2djax
from d2djax import GivenNetwork, channel, make_network, validation
from d2djax.config import Config
from d2djax.networks import fit, fixed_by
from d2djax.settings import ChannelName

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


# --- a model of one's own ---


def line_of_sight(key, places, config):
    """Free space below 60 m, and the path loss of the config beyond."""
    distance = channel.distances(places)
    free = config.transmit_power * config.reference_gain * distance**-2.0
    return jnp.where(distance < 60.0, free, channel.path_power(distance, config))


def mirrored(key, position, config):
    """Every second state shows the devices at the other side of the field."""
    is_other = jnp.arange(config.num_states)[:, None, None] % 2 == 1
    return jnp.where(is_other, config.field_size - position, position)


@pytest.fixture
def add(monkeypatch):
    """`add(name, model)` does what a new line of the table and its name in `settings.ChannelName` do."""

    def one(name, model):
        monkeypatch.setitem(channel.MODELS, name, model)
        hints = get_type_hints(Config) | {"channel_model": Literal[tuple(channel.MODELS)]}
        monkeypatch.setattr(validation, "_hints", lambda: hints)

    return one


def test_every_channel_model_has_a_name_and_settings_that_exist():
    assert set(get_args(ChannelName)) == set(channel.MODELS)
    assert channel.model_settings() <= {item.name for item in fields(Config)}
    with pytest.raises(ValueError, match=r"^channel_model must be one of shadowing, mobility; got 'fog'$"):
        channel.model_of(Config(channel_model="fog"))


def test_a_line_of_the_table_adds_a_channel_model(add, tiny_config, tiny_dataset):
    add("line_of_sight", channel.ChannelModel(line_of_sight))
    config = replace(tiny_config, channel_model="line_of_sight", policies=("nearest",), hotspot_spread=60.0)
    found = d2djax.run(config, 8, data=tiny_dataset, training=False, progress=False)
    # Nothing reads the numbers of the other models, so they are no part of what the results are of.
    kept = json.loads(found.attrs["manifest"])["config"]
    assert kept["channel_model"] == "line_of_sight" and not {"shadowing_std", "mobility_step"} & set(kept)
    near = []
    for run in range(8):
        one = found.isel(run=run).sel(policy="nearest")
        position, device = one["position"].values.astype(float), np.arange(config.num_devices)
        distance = np.maximum(np.linalg.norm(position[:, None] - position[None], axis=-1), 1.0)
        loss = np.where(distance < 60, 1e-3 * distance**-2.0, 1e-3 * distance**-config.path_loss_exponent)
        outage = 1 - np.exp(-config.noise_power / (config.transmit_power * loss))
        for state in range(config.num_states):
            links = one["links"].values[state]
            used = links != device
            near.extend(distance[device, links][used] < 60)
            expected = outage[device, links][used].sum() / max(1, used.sum())
            np.testing.assert_allclose(one["graph_outage"][state], expected, rtol=1e-4)
    assert any(near) and not all(near)


def test_a_model_that_stands_still_takes_gains_and_one_that_moves_does_not(add, tiny_config):
    gain, position = np.full((3, 6, 6), 1e-9), np.full((6, 2), 500.0)
    add("line_of_sight", channel.ChannelModel(line_of_sight))
    add("mirrored", channel.ChannelModel(line_of_sight, mirrored))
    still = replace(tiny_config, channel_model="line_of_sight")
    moving = replace(tiny_config, channel_model="mirrored")
    assert validation.validate(moving) == moving
    parts = {"gain": gain, "position": position}
    fit(still, GivenNetwork(**parts))
    fit(still, GivenNetwork(position=position))
    refusal = "channel_model must be shadowing or line_of_sight, as devices cannot move if gain is given; "
    for call in (lambda: fit(moving, GivenNetwork(gain=gain)), lambda: make_network(None, moving, gain=gain)):
        with pytest.raises(ValueError, match=f"^{refusal}got mirrored$"):
            call()
    with pytest.raises(ValueError, match=r"^position must be in \[0, 400\], the field in which devices move"):
        fit(moving, GivenNetwork(position=position))
    # Where devices move, the field's borders count although the first places are given.
    assert "field_size" in fixed_by(GivenNetwork(position=position), still)
    assert "field_size" not in fixed_by(GivenNetwork(position=position), moving)


def test_power_or_places_of_another_shape_are_refused(add):
    config = Config(num_states=3, channel_model="wrong")
    position = np.zeros((4, 2), np.float32)
    add("wrong", channel.ChannelModel(lambda key, places, config: line_of_sight(key, places[:1], config)))
    with pytest.raises(ValueError, match=r"^power of channel_model wrong must be \[S, N, N\] = \[3, 4, 4\]; got"):
        channel.received_power(None, position, config)
    add("wrong", channel.ChannelModel(line_of_sight, lambda key, position, config: position))
    with pytest.raises(ValueError, match=r"^places of channel_model wrong must be \[S, N, 2\] = \[3, 4, 2\]; got"):
        channel.received_power(None, position, config)
