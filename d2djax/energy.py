"""Energy of wireless transmissions (Section IV-B), with fixed transmit power or with power control."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.channel import distances
from d2djax.checks import check_values, is_not_negative
from d2djax.config import Config

BITS_PER_NUMBER = 32


def _check_positive(**arguments: Any) -> None:
    for name, value in arguments.items():
        check_values(name, value, "positive", lambda values: np.isfinite(values) & (values > 0))


def controlled_power(
    distance: Array | float,
    *,
    rate: Array | float = Config.rate,
    noise_power: Array | float = Config.noise_power,
    reference_gain: Array | float = Config.reference_gain,
    path_loss_exponent: Array | float = Config.path_loss_exponent,
    outage: Array | float = Config.max_outage,
) -> Array:
    """Transmit power that keeps the outage at `eps`: `(2^r - 1) sigma^2 d^a / (beta0 (-ln(1 - eps)))`.

    Inverts `channel.path_power`, the mean power of the built-in channel models. A channel model with another path
    loss needs another inverse here.

    Args:
        distance: `d`, [...] float, metres.
        rate: `r`, bit/s/Hz.
        noise_power: `sigma^2`, W.
        reference_gain: `beta0`, path gain at 1 m.
        path_loss_exponent: `a`.
        outage: `eps`, in (0, 1).

    Returns:
        `P_tx`, [...] float32, W; 0 at distance 0.

    Raises:
        ValueError: outside `jit` a value is out of range.
    """
    check_values("distance", distance, "0 or more", is_not_negative)
    _check_positive(rate=rate, reference_gain=reference_gain)
    check_values("noise_power", noise_power, "0 or more", is_not_negative)
    check_values("path_loss_exponent", path_loss_exponent, "0 or more", is_not_negative)
    check_values("outage", outage, "inside (0, 1)", lambda values: (values > 0) & (values < 1))
    distance = jnp.asarray(distance, jnp.float32)
    needed = (2.0**rate - 1.0) * noise_power / (reference_gain * -jnp.log1p(-outage))
    return needed * distance**path_loss_exponent


def transmit_energy(
    bits: Array | float,
    distance: Array | float,
    *,
    transmit_power: Array | float | None = None,
    rate: Array | float = Config.rate,
    bandwidth: Array | float = Config.bandwidth,
    efficiency: Array | float = Config.amplifier_efficiency,
    circuit_power: Array | float = Config.circuit_power,
    noise_power: Array | float = Config.noise_power,
    reference_gain: Array | float = Config.reference_gain,
    path_loss_exponent: Array | float = Config.path_loss_exponent,
    outage: Array | float = Config.max_outage,
) -> Array:
    """Energy to send b bits: `E = T (P_tx / eta + P_c)` with `T = b / (r W)`; broadcasts.

    Args:
        bits: `b`, [...] float.
        distance: `d`, [...] float, metres; has no effect if `transmit_power` is given.
        transmit_power: `P_tx`, W, in mode `fixed` (10 mW for D2D, 250 mW for D2S); None: power control.
        rate: `r`, bit/s/Hz.
        bandwidth: `W`, Hz.
        efficiency: `eta` of the power amplifier, in (0, 1].
        circuit_power: `P_c`, W.
        noise_power: `sigma^2`, W.
        reference_gain: `beta0`.
        path_loss_exponent: `a`.
        outage: `eps`, in (0, 1), the outage under power control.

    Returns:
        [...] float32, joules; 0 for no bits.

    Raises:
        ValueError: outside `jit` a value is out of range.
    """
    for name, value in (("bits", bits), ("distance", distance), ("circuit_power", circuit_power)):
        check_values(name, value, "0 or more", is_not_negative)
    if transmit_power is not None:
        check_values("transmit_power", transmit_power, "0 or more", is_not_negative)
    _check_positive(rate=rate, bandwidth=bandwidth)
    check_values("efficiency", efficiency, "in (0, 1]", lambda values: (values > 0) & (values <= 1))
    bits, distance = jnp.asarray(bits, jnp.float32), jnp.asarray(distance, jnp.float32)
    if transmit_power is None:
        transmit_power = controlled_power(
            distance,
            rate=rate,
            noise_power=noise_power,
            reference_gain=reference_gain,
            path_loss_exponent=path_loss_exponent,
            outage=outage,
        )
    # A fixed power does not depend on the distance, but the result has the shape of both.
    power = jnp.asarray(transmit_power, jnp.float32) + jnp.zeros_like(distance)
    return bits / (rate * bandwidth) * (power / efficiency + circuit_power)


def receive_energy(
    bits: Array | float,
    *,
    receive_power: Array | float,
    rate: Array | float = Config.rate,
    bandwidth: Array | float = Config.bandwidth,
) -> Array:
    """Energy to receive b bits: `E = T P_rx` with `T = b / (r W)`.

    Args:
        bits: `b`, [...] float.
        receive_power: `P_rx`, W.
        rate: `r`, bit/s/Hz.
        bandwidth: `W`, Hz.

    Returns:
        [...] float32, joules.

    Raises:
        ValueError: outside `jit` a value is out of range.
    """
    check_values("bits", bits, "0 or more", is_not_negative)
    check_values("receive_power", receive_power, "0 or more", is_not_negative)
    _check_positive(rate=rate, bandwidth=bandwidth)
    return jnp.asarray(bits, jnp.float32) / (rate * bandwidth) * receive_power


def _link_energy(bits: Array, distance: Array, fixed_power: Array | float, config: Config) -> Array:
    """Energy of a transmission at both ends, joules, with the powers of the config; broadcasts."""
    is_fixed = config.power_mode == "fixed"
    sent = transmit_energy(
        bits,
        distance,
        transmit_power=fixed_power if is_fixed else None,
        rate=config.rate,
        bandwidth=config.bandwidth,
        efficiency=config.amplifier_efficiency,
        circuit_power=config.circuit_power,
        noise_power=config.noise_power,
        reference_gain=config.reference_gain,
        path_loss_exponent=config.path_loss_exponent,
        outage=config.max_outage,
    )
    heard = receive_energy(bits, receive_power=config.receive_power, rate=config.rate, bandwidth=config.bandwidth)
    return sent + heard


def mean_distance(position: Array) -> Array:
    """Mean distance over all pairs of distinct devices.

    Args:
        position: [..., N, 2] float, metres; N at least 2.

    Returns:
        [...] float, metres.
    """
    num_devices = position.shape[-2]
    between = jnp.where(np.eye(num_devices, dtype=bool), 0.0, distances(position))
    return jnp.sum(between, axis=(-2, -1)) / (num_devices * (num_devices - 1))


def exchange_energy(position: Array, links: Array, sent: Array, bits_per_point: float, config: Config) -> Array:
    """Energy of the exchange before training; counts all points sent, even those that are lost.

    Args:
        position: [N, 2] float, metres.
        links: [N] int32, transmitter of each receiver.
        sent: [N] int or float, points sent to each receiver.
        bits_per_point: see `points.bits_per_point`.
        config: `power_mode` and the powers.

    Returns:
        [] float32, joules; 0 without links.
    """
    distance = distances(position)[jnp.arange(links.shape[0]), links]
    return jnp.sum(_link_energy(sent * bits_per_point, distance, config.d2d_power, config))


def control_energy(
    position: Array, num_exchanges: Array | int, num_classes: int, config: Config, num_offers: Array | int = 0
) -> Array:
    """Energy of the control messages of exchanges: V, Q (L numbers each) and the local reward, per device.

    A device that hears further offers receives a V of L numbers for each of them.

    All messages count at the mean distance of two devices, since links change between episodes.

    Args:
        position: [N, 2] float, metres.
        num_exchanges: [...] number of exchanges on which all devices agree; see `Candidate.num_exchanges`.
        num_classes: `L`.
        config: `power_mode` and the powers.
        num_offers: [...] number of offers that each device hears besides; see `Candidate.num_offers`.

    Returns:
        [...] float32, joules.
    """
    numbers, distance = position.shape[0] * BITS_PER_NUMBER, mean_distance(position)
    exchange = _link_energy(jnp.float32(numbers * (2 * num_classes + 1)), distance, config.d2d_power, config)
    offer = _link_energy(jnp.float32(numbers * num_classes), distance, config.d2d_power, config)
    return num_exchanges * exchange + num_offers * offer


def uploads(num_devices: int, num_parameters: int, config: Config) -> tuple[Array | int, int]:
    """Number and size of the uploads of one aggregation; all devices except the stragglers upload.

    Args:
        num_devices: N.
        num_parameters: parameters of the model, 32 bits each.
        config: `num_stragglers`.

    Returns:
        `(number, bits)`: the number of uploads, and the bits of each.
    """
    return num_devices - config.num_stragglers, num_parameters * BITS_PER_NUMBER


def upload_energy(position: Array, num_parameters: int, config: Config) -> Array:
    """Energy of one aggregation: all devices except the stragglers upload a model, even those without points.

    Args:
        position: [..., N, 2] float, metres.
        num_parameters: parameters of the model, 32 bits each.
        config: `d2s_distance_ratio` (server distance over mean D2D distance), `num_stragglers` and the powers.

    Returns:
        [...] float32, joules.
    """
    distance = config.d2s_distance_ratio * mean_distance(position)
    number, bits = uploads(position.shape[-2], num_parameters, config)
    return number * _link_energy(jnp.float32(bits), distance, config.d2s_power, config)


def total_energy(exchange: Any, messages: Any, uploads: Any) -> Any:
    """The total energy of a run, as used in tables, figures, claims, reports and searches; broadcasts.

    Args:
        exchange: energy of the exchange before training, joules.
        messages: energy of all control messages, in discovery and for the exchange, joules.
        uploads: energy of the uploads of all aggregations so far, joules.

    Returns:
        The sum, joules.
    """
    return exchange + messages + uploads
