"""Message passing over the chosen links (Section III-B, Algorithm 1): what is offered, asked, sent, received."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Exchange:
    """One exchange of data, row i for receiver i; points, real numbers.

    Attributes:
        available: `V`, [N, L], what the transmitter of i offers to i, eq. 8.
        requested: `Q`, [N, L], what i asks for, eq. 9.
        transmitted: `U`, [N, L], what the transmitter sends to i, eq. 10.
        received: `D-tilde`, [N, L], what i expects to receive.
        counts: `D-hat`, [N, L], what i holds afterwards, eq. 11.
    """

    available: Array
    requested: Array
    transmitted: Array
    received: Array
    counts: Array


def exchange(counts: Array, thresholds: Array, trust: Array, links: Array, outage: Array) -> Exchange:
    """Moves data over the links, Algorithm 1 for all receivers at once, with `j = links[i]`.

    `V = T_j[i] max(D_j - c_j, 0)`, `Q = clip(min(V, c_i - D_i), 0)`; a transmitter whose requests of a
    class exceed its surplus shares it in proportion to them; `(1 - P_D)` of what is sent arrives, the rest
    stays with the transmitter, so no point is lost or copied. A self link moves nothing.

    Args:
        counts: `D`, [N, L] int or float.
        thresholds: `c`, [N, L] float.
        trust: `T`, [N, N, L] bool, owner first.
        links: [N] int32, `links[i] = j`: i receives from j.
        outage: `P_D`, [N, N] float of one state, receiver first.

    Returns:
        The exchange, fields [N, L] float32.

    Raises:
        ValueError: shapes do not agree.
    """
    counts, thresholds = jnp.asarray(counts, jnp.float32), jnp.asarray(thresholds, jnp.float32)
    trust, links, outage = jnp.asarray(trust), jnp.asarray(links), jnp.asarray(outage)
    num_devices, num_classes = counts.shape
    if thresholds.shape != counts.shape or trust.shape != (num_devices, num_devices, num_classes):
        raise ValueError(
            f"counts and thresholds must be [N, L] and trust [N, N, L]; got {counts.shape}, "
            f"{thresholds.shape} and {trust.shape}"
        )
    if links.shape != (num_devices,) or outage.shape != (num_devices, num_devices):
        raise ValueError(f"links must be [N] and outage [N, N]; got {links.shape} and {outage.shape}")
    receiver = jnp.arange(num_devices)
    is_linked = (links != receiver)[:, None]
    # Deviation: eq. 8 lacks the clamp; a transmitter short of a class would offer less than nothing of it.
    surplus = jnp.maximum(counts - thresholds, 0.0)
    offered = surplus[links]
    available = jnp.where(trust[links, receiver] & is_linked, offered, 0.0)
    requested = jnp.maximum(jnp.minimum(available, thresholds - counts), 0.0)
    demand = jnp.zeros_like(counts).at[links].add(requested)[links]
    # Deviation: eq. 10 compares a symbol R that is defined nowhere; the requests Q are meant.
    share = jnp.where(demand > offered, offered / jnp.where(demand > 0, demand, 1.0), 1.0)
    transmitted = requested * share
    received = (1.0 - outage[receiver, links])[:, None] * transmitted
    sent = jnp.zeros_like(counts).at[links].add(received)
    return Exchange(available, requested, transmitted, received, counts + received - sent)
