"""The one-peer exponential graph: hops of powers of two, without learning."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array


def exponential(key: Array, network: Any, config: Any) -> Array:
    """Each device asks the device that is a power of two further on; the hop changes with the channel state.

    In state s, device i asks device `(i + 2^(s mod K)) mod N`, with `K = ceil(log2 N)` hops 1, 2, 4, ... below N.
    Each device is asked by exactly one other. Source: Assran, Loizou, Ballas and Rabbat, 2019, "Stochastic Gradient
    Push for Distributed Deep Learning", ICML, Appendix A; Ying, Yuan, Chen, Hu, Pan and Yin, 2021, "Exponential
    Graph is Provably Efficient for Decentralized Deep Training", NeurIPS, for which the hop changes with the
    iteration.

    # Ours: the channel state takes the place of the iteration, since a policy has one graph per state.

    Args:
        key: unused.
        network: only its sizes are read.
        config: unused.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state; with one device, no link.
    """
    num_states, num_devices, _ = network.outage.shape
    num_hops = max(1, (num_devices - 1).bit_length())
    hop = 2 ** (jnp.arange(num_states, dtype=jnp.int32) % num_hops)
    return (jnp.arange(num_devices, dtype=jnp.int32) + hop[:, None]) % num_devices
