"""The wireless channel (Section II-A.1): positions of devices, received power, outage probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_shape, check_values, is_not_negative, shown
from d2djax.config import Config
from d2djax.rng import Stream, at, normal_numbers, uniform_integer, uniform_numbers


def _fold(position: Array, size: Array | float) -> Array:
    """Reflects coordinates at the borders of the field into [0, size]."""
    return size - jnp.abs(size - jnp.mod(position, 2.0 * size))


def place(key: Array, config: Config) -> Array:
    """Draws device positions around hot spots (a Thomas process), reflected at the borders of the field.

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
        [..., N, N] float, metres; at least 1 m, the reference distance of the path loss.
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


@dataclass(frozen=True)
class ChannelModel:
    """A channel model: the received power in each state, and whether devices move between states.

    To add a model, add a record to `MODELS`, its name to `settings.ChannelName`, and its parameters to
    `settings.Config`. All other files use the record only. Both functions are traced.

    With `power_mode="power_control"`, energies come from `energy.controlled_power`, which inverts `path_power`. A
    model in which the mean power depends differently on the distance needs another inverse there; without one,
    only the energies of `power_mode="fixed"` are right.

    Attributes:
        power: `(key, places, config) -> W`: from the positions in each state, [S, N, 2] float, metres, to [S, N, N]
            float, W; row = receiver, column = transmitter. The diagonal is not read.
        places: `(key, position, config) -> places`: from the positions in state 0, [N, 2] float, metres, to those
            in each state, [S, N, 2], all inside the field. None: the devices do not move.
        settings: the settings that only this model reads.
    """

    power: Callable[[Array, Array, Config], Array]
    places: Callable[[Array, Array, Config], Array] | None = None
    settings: frozenset[str] = frozenset()

    @property
    def moves(self) -> bool:
        """Whether devices move between states; then neither gains nor a whole network can be given."""
        return self.places is not None


def _walking(key: Array, position: Array, config: Config) -> Array:
    """Snapshots of a random walk, one per state, from `position`; reflected at the borders of the field."""
    step = normal_numbers(at(key, Stream.CHANNEL), (config.num_states, *position.shape))
    walk = jnp.cumsum(config.mobility_step * step.at[0].set(0.0), axis=0)
    return _fold(position[None] + walk, config.field_size)


def _shadowed(key: Array, places: Array, config: Config) -> Array:
    """Path power times a log-normal factor, drawn once per state and unordered pair of devices."""
    num_devices = places.shape[1]
    decibel = normal_numbers(at(key, Stream.CHANNEL), (config.num_states, num_devices, num_devices))
    device = jnp.arange(num_devices)
    first, last = jnp.minimum(device[:, None], device), jnp.maximum(device[:, None], device)
    # Indexing uses one draw for both directions; adding a triangle to its transpose would draw each twice.
    decibel = jnp.where(first == last, 0.0, decibel[:, first, last])
    return path_power(distances(places), config) * 10.0 ** (config.shadowing_std * decibel / 10.0)


def _unshadowed(key: Array, places: Array, config: Config) -> Array:
    return path_power(distances(places), config)


# The keys are those of `settings.ChannelName`.
MODELS: dict[str, ChannelModel] = {
    "shadowing": ChannelModel(_shadowed, settings=frozenset({"shadowing_std"})),
    "mobility": ChannelModel(_unshadowed, _walking, settings=frozenset({"mobility_step"})),
}


def model_of(config: Config) -> ChannelModel:
    """The channel model of a config.

    Args:
        config: `channel_model`; it need not be validated.

    Raises:
        ValueError: no model has that name.
    """
    name = config.channel_model
    if not isinstance(name, str) or name not in MODELS:
        raise ValueError(f"channel_model must be one of {', '.join(MODELS)}; got {shown(name)}")
    return MODELS[name]


def model_settings() -> frozenset[str]:
    """Names of the settings that only some channel model reads."""
    return frozenset[str]().union(*(model.settings for model in MODELS.values()))


def unread_settings(config: Config) -> frozenset[str]:
    """Names of the settings that only channel models other than that of `config` read."""
    return model_settings() - model_of(config).settings


def places(key: Array, position: Array, config: Config) -> Array:
    """Positions of the devices in each state: constant, or snapshots of moving devices.

    Args:
        key: key of the run.
        position: [N, 2] float, metres, in state 0.
        config: `channel_model`, `num_states` S.

    Returns:
        [S, N, 2] float32, metres.

    Raises:
        ValueError: the channel model returns another shape.
    """
    model, shape = model_of(config), (config.num_states, *position.shape)
    if model.places is None:
        return jnp.broadcast_to(position, shape)
    found = model.places(key, position, config)
    check_shape(f"places of channel_model {config.channel_model}", found, shape, "[S, N, 2]")
    return found


def received_power(key: Array, position: Array, config: Config) -> Array:
    """Mean received power of each link in each channel state; both built-in models are reciprocal.

    Args:
        key: key of the run.
        position: [N, 2] float, metres, in state 0.
        config: `channel_model` and the settings of that model.

    Returns:
        `W`, [S, N, N] float32, W; row = receiver, column = transmitter.

    Raises:
        ValueError: the channel model returns another shape.
    """
    found = model_of(config).power(key, places(key, position, config), config)
    num_devices = position.shape[0]
    shape = (config.num_states, num_devices, num_devices)
    check_shape(f"power of channel_model {config.channel_model}", found, shape, "[S, N, N]")
    return found


def outage_probability(rss: Array, rate: Array | float, noise_power: Array | float) -> Array:
    """Probability that a transmission is lost, eq. 1: `P_D = 1 - exp(-(2^r - 1) sigma^2 / W)`.

    Args:
        rss: `W`, [..., N, N] float, W; row = receiver, column = transmitter.
        rate: `r`, bit/s/Hz.
        noise_power: `sigma^2`, W.

    Returns:
        [..., N, N] float in [0, 1]; exactly 1 where the power is 0, exactly 0 on the diagonal.

    Raises:
        ValueError: the last two axes are not square, or outside `jit` a value is negative or not finite.
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
    return jnp.where(np.eye(rss.shape[-1], dtype=bool), 0.0, outage)


def draw_state(key: Array, episode: Array, config: Config) -> Array:
    """Draws one episode's state transition.

    Args:
        key: key of the run.
        episode: [] int32, number of the episode, the address of the draw.
        config: `num_states` S and `stay_probability`.

    Returns:
        [] int32: -1 (stay) with `stay_probability`, otherwise a state uniform over 0..S-1. Episode 0 never stays,
        since no state precedes it.
    """
    stay, fresh = jax.random.uniform(at(key, Stream.STATE, episode), (2,))
    drawn = jnp.minimum((fresh * config.num_states).astype(jnp.int32), config.num_states - 1)
    return jnp.where((stay < config.stay_probability) & (episode > 0), -1, drawn)
