"""The wireless channel (Section II-A.1): where devices stand, what power arrives, how often a link fails."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.checks import check_values, is_not_negative
from d2djax.config import Config
from d2djax.rng import Stream, at, normal_numbers, uniform_integer, uniform_numbers


def _fold(position: Array, size: Array | float) -> Array:
    """Reflects coordinates at the borders of the field, so that all lie in [0, size]."""
    return size - jnp.abs(size - jnp.mod(position, 2.0 * size))


def place(key: Array, config: Config) -> Array:
    """Stands the devices in hot spots (a Thomas process), reflected at the borders of the field.

    Args:
        key: key of the run.
        config: `num_devices` N, `num_hotspots`, `hotspot_spread` in m, `field_size` in m.

    Returns:
        [N, 2] float32, metres.
    """
    spot_key, choice_key, offset_key = (at(key, Stream.POSITION, step) for step in range(3))
    spots = uniform_numbers(spot_key, (config.num_hotspots, 2)) * config.field_size
    choice = uniform_integer(choice_key, (config.num_devices,), config.num_hotspots)
    offset = config.hotspot_spread * normal_numbers(offset_key, (config.num_devices, 2))
    return _fold(spots[choice] + offset, config.field_size)


def distances(position: Array) -> Array:
    """Distance between each pair of devices.

    Args:
        position: [..., N, 2] float, metres.

    Returns:
        [..., N, N] float, metres; never under 1 m, where the path loss is defined.
    """
    difference = position[..., :, None, :] - position[..., None, :, :]
    return jnp.maximum(jnp.sqrt(jnp.sum(difference**2, axis=-1)), 1.0)


def path_power(distance: Array, config: Config) -> Array:
    """Mean received power `W = P_tx beta0 (d / 1 m)^-a`.

    Args:
        distance: [...] float, metres.
        config: `transmit_power` in W, `reference_gain`, `path_loss_exponent`.

    Returns:
        [...] float, W.
    """
    return config.transmit_power * config.reference_gain * distance ** (-config.path_loss_exponent)


def _still(key: Array, position: Array, config: Config) -> Array:
    return jnp.broadcast_to(position, (config.num_states, *position.shape))


def _walking(key: Array, position: Array, config: Config) -> Array:
    """One snapshot per state of a random walk from the first places, reflected at the borders of the field."""
    step = normal_numbers(at(key, Stream.CHANNEL), (config.num_states, *position.shape))
    walk = jnp.cumsum(config.mobility_step * step.at[0].set(0.0), axis=0)
    return _fold(position[None] + walk, config.field_size)


def _shadowing(key: Array, num_devices: int, config: Config) -> Array:
    """[S, N, N] gains: one reciprocal log-normal draw per state and pair of devices."""
    decibel = normal_numbers(at(key, Stream.CHANNEL), (config.num_states, num_devices, num_devices))
    device = jnp.arange(num_devices)
    first, last = jnp.minimum(device[:, None], device), jnp.maximum(device[:, None], device)
    # One draw of a pair, wherever it is needed; the sum of a triangle and its mirror image makes each twice.
    decibel = jnp.where(first == last, 0.0, decibel[:, first, last])
    return 10.0 ** (config.shadowing_std * decibel / 10.0)


def _no_shadowing(key: Array, num_devices: int, config: Config) -> Array:
    return jnp.ones((config.num_states, 1, 1))


# Channel model: (places in each state, gains in each state).
_MODELS = {"shadowing": (_still, _shadowing), "mobility": (_walking, _no_shadowing)}


def places(key: Array, position: Array, config: Config) -> Array:
    """Where the devices are in each state: where they stand, or snapshots of moving devices.

    Args:
        key: key of the run.
        position: [N, 2] float, metres, the places in state 0.
        config: `channel_model`, `num_states` S.

    Returns:
        [S, N, 2] float32, metres.
    """
    return _MODELS[config.channel_model][0](key, position, config)


def received_power(key: Array, position: Array, config: Config) -> Array:
    """Power at each receiver from each transmitter in every channel state, reciprocal.

    Args:
        key: key of the run.
        position: [N, 2] float, metres, the places in state 0.
        config: `channel_model` picks shadowing draws or snapshots of moving devices.

    Returns:
        `W`, [S, N, N] float32, W; row = receiver, column = transmitter.
    """
    gain = _MODELS[config.channel_model][1](key, position.shape[0], config)
    return path_power(distances(places(key, position, config)), config) * gain


def outage_probability(rss: Array, rate: Array | float, noise_power: Array | float) -> Array:
    """Probability that a transmission is lost, eq. 1: `P_D = 1 - exp(-(2^r - 1) sigma^2 / W)`.

    Args:
        rss: `W`, [..., N, N] float, W; row = receiver, column = transmitter.
        rate: `r`, bit/s/Hz.
        noise_power: `sigma^2`, W.

    Returns:
        [..., N, N] float in [0, 1]; exactly 1 where no power arrives, exactly 0 on the diagonal.

    Raises:
        ValueError: the last two axes are not square, or outside `jit` a value is negative or no number.
    """
    rss = jnp.asarray(rss)
    if rss.ndim < 2 or rss.shape[-1] != rss.shape[-2]:
        raise ValueError(f"rss must be [..., N, N]; got shape {rss.shape}")
    check_values("rss", rss, "0 or more, in watts", is_not_negative)
    check_values("rate", rate, "0 or more", is_not_negative)
    check_values("noise_power", noise_power, "0 or more, in watts", is_not_negative)
    heard = rss > 0
    # Noise over power, not power over noise: powers near 1e-15 W would lose digits when squared or inverted.
    ratio = (2.0**rate - 1.0) * (noise_power / jnp.where(heard, rss, 1.0))
    outage = jnp.where(heard, -jnp.expm1(-ratio), 1.0)
    return jnp.where(jnp.eye(rss.shape[-1], dtype=bool), 0.0, outage)


def draw_state(key: Array, episode: Array, config: Config) -> Array:
    """What chance says about the channel state of an episode: stay, or the state to go to.

    Args:
        key: key of the run.
        episode: [] int32, number of the episode; the draw belongs to it.
        config: `num_states` S and `stay_probability`.

    Returns:
        [] int32: a state, uniform over 0..S-1, or -1 to stay, with `stay_probability`; never in episode 0,
        before which there is no state.
    """
    stay, fresh = jax.random.uniform(at(key, Stream.STATE, episode), (2,))
    drawn = jnp.minimum((fresh * config.num_states).astype(jnp.int32), config.num_states - 1)
    return jnp.where((stay < config.stay_probability) & (episode > 0), -1, drawn)
