"""Energy of wireless transmissions (Section IV-B): fixed transmit power, or power controlled by distance."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def controlled_power(
    distance: Array | float,
    *,
    rate: Array | float = 1.0,
    noise_power: Array | float = 3.981072e-15,
    reference_gain: Array | float = 1e-3,
    path_loss_exponent: Array | float = 3.75,
    outage: Array | float = 0.1,
) -> Array:
    """Power that keeps the outage at `eps` over a distance: `(2^r - 1) sigma^2 d^a / (beta0 (-ln(1 - eps)))`.

    Args:
        distance: `d`, [...] float, metres.
        rate: `r`, bit/s/Hz.
        noise_power: `sigma^2`, W.
        reference_gain: `beta0`, path gain at 1 m.
        path_loss_exponent: `a`.
        outage: `eps`, in (0, 1).

    Returns:
        `P_tx`, [...] float32, W; 0 at distance 0.
    """
    distance = jnp.asarray(distance, jnp.float32)
    needed = (2.0**rate - 1.0) * noise_power / (reference_gain * -jnp.log1p(-outage))
    return needed * distance**path_loss_exponent


def transmit_energy(
    bits: Array | float,
    distance: Array | float,
    *,
    transmit_power: Array | float | None = None,
    rate: Array | float = 1.0,
    bandwidth: Array | float = 1e6,
    efficiency: Array | float = 1.0,
    circuit_power: Array | float = 0.0,
    noise_power: Array | float = 3.981072e-15,
    reference_gain: Array | float = 1e-3,
    path_loss_exponent: Array | float = 3.75,
    outage: Array | float = 0.1,
) -> Array:
    """Energy to send b bits: `E = T (P_tx / eta + P_c)` with `T = b / (r W)`; broadcasts.

    Args:
        bits: `b`, [...] float.
        distance: `d`, [...] float, metres; without effect when `transmit_power` is given.
        transmit_power: `P_tx`, W, mode `fixed` (10 mW for D2D, 250 mW for D2S); none: power control.
        rate: `r`, bit/s/Hz.
        bandwidth: `W`, Hz.
        efficiency: `eta` of the power amplifier, in (0, 1].
        circuit_power: `P_c`, W.
        noise_power: `sigma^2`, W.
        reference_gain: `beta0`.
        path_loss_exponent: `a`.
        outage: `eps`, in (0, 1), that power control keeps.

    Returns:
        [...] float32, joules; 0 for no bits.
    """
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
    rate: Array | float = 1.0,
    bandwidth: Array | float = 1e6,
) -> Array:
    """Energy to receive b bits: `E = T P_rx` with `T = b / (r W)`, joules."""
    return jnp.asarray(bits, jnp.float32) / (rate * bandwidth) * receive_power
