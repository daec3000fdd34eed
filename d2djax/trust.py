"""Trust: which classes each device may send to each other device (Section II-A.3)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.config import Config
from d2djax.rng import Stream, at, uniform_numbers


def draw_trust(key: Array, config: Config) -> Array:
    """Draws the trust matrices of eq. 3, independently for each owner, receiver and class.

    The probability is `trust_probability`, or `sensitive_trust_probability` for `num_sensitive_classes` classes
    that are drawn per run. Trust need not be mutual; each device trusts itself.

    Args:
        key: key of the run.
        config: `num_devices` N, `num_classes` L, `num_sensitive_classes` and the two probabilities.

    Returns:
        `T`, [N, N, L] bool; `trust[i, j, l]`: device i may send class l to device j.
    """
    num_devices, num_classes = config.num_devices, config.num_classes
    rank = jnp.argsort(uniform_numbers(at(key, Stream.TRUST, 0), (num_classes,)))
    probability = jnp.where(
        rank < config.num_sensitive_classes, config.sensitive_trust_probability, config.trust_probability
    )
    uniform = uniform_numbers(at(key, Stream.TRUST, 1), (num_devices, num_devices, num_classes))
    return (uniform < probability[None, None, :]) | np.eye(num_devices, dtype=bool)[:, :, None]
