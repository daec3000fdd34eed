"""Who may send which class to whom (Section II-A.3)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from d2djax.config import Config
from d2djax.rng import Stream, at, uniform_numbers


def draw_trust(key: Array, config: Config) -> Array:
    """Draws the trust matrices of eq. 3, independently per owner, receiver and class.

    A class is trusted with `trust_probability`; `num_sensitive_classes` classes, drawn per run, only with
    `sensitive_trust_probability`. Trust need not be mutual; every device trusts itself.

    Args:
        key: key of the run.
        config: `num_devices` N, `num_classes` L and the two probabilities.

    Returns:
        `T`, [N, N, L] bool; `trust[i, j, l]`: device i may send class l to device j.
    """
    num_devices, num_classes = config.num_devices, config.num_classes
    rank = jnp.argsort(uniform_numbers(at(key, Stream.TRUST, 0), (num_classes,)))
    probability = jnp.where(
        rank < config.num_sensitive_classes, config.sensitive_trust_probability, config.trust_probability
    )
    uniform = uniform_numbers(at(key, Stream.TRUST, 1), (num_devices, num_devices, num_classes))
    return (uniform < probability[None, None, :]) | jnp.eye(num_devices, dtype=bool)[:, :, None]
