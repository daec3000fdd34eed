"""Message passing over the chosen links (Section III-B, Algorithm 1): offers, requests and transfers."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_links, check_shape, check_values, is_not_negative, is_share


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Exchange:
    """One exchange of data; row i is receiver i. All fields are [N, L] float32, expected numbers of points.

    Attributes:
        available: `V`, what the transmitter of i offers to i, eq. 8.
        requested: `Q`, what i requests, eq. 9.
        transmitted: `U`, what the transmitter sends to i, eq. 10.
        received: `D-tilde`, what i receives in expectation.
        counts: `D-hat`, what i holds after the exchange, eq. 11.
    """

    available: Array
    requested: Array
    transmitted: Array
    received: Array
    counts: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Offers:
    """Offers and requests of all pairs of devices, which do not depend on the links or the episode.

    Attributes:
        surplus: `max(D - c, 0)`, [N, L] float32, points that each device can spare of each class.
        available: `V`, [N, N, L] float32, row = receiver, column = transmitter.
        requested: `Q`, [N, N, L] float32, likewise; zeros on the diagonal, since a self link moves nothing.
    """

    surplus: Array
    available: Array
    requested: Array


def offers(counts: Array, thresholds: Array, trust: Array) -> Offers:
    """Offers and requests of all pairs, eq. 8, 9: `V = T_j[i] max(D_j - c_j, 0)`, `Q = clip(min(V, c_i - D_i), 0)`.

    Args:
        counts: `D`, [N, L] int or float.
        thresholds: `c`, [N, L] float.
        trust: `T`, [N, N, L] bool, owner first.

    Returns:
        The offers.
    """
    counts, thresholds = jnp.asarray(counts, jnp.float32), jnp.asarray(thresholds, jnp.float32)
    trusted = jnp.swapaxes(jnp.asarray(trust), 0, 1) & ~np.eye(counts.shape[0], dtype=bool)[:, :, None]
    # Deviation: eq. 8 lacks the clamp; a transmitter below its threshold would offer a negative number.
    surplus = jnp.maximum(counts - thresholds, 0.0)
    available = jnp.where(trusted, surplus[None], 0.0)
    requested = jnp.maximum(jnp.minimum(available, (thresholds - counts)[:, None]), 0.0)
    return Offers(surplus, available, requested)


def deliver(counts: Array, offered: Offers, links: Array, outage: Array) -> Exchange:
    """Moves data over the chosen links, eq. 10 and 11, with `j = links[i]`.

    If the requests of a class exceed the transmitter's surplus, it shares the surplus in proportion to them. A
    share `1 - P_D` of what is sent arrives; the rest stays with the transmitter, so no point is lost or copied.

    Args:
        counts: `D`, [N, L] int or float.
        offered: the offers and requests of all pairs, from `offers`.
        links: [N] int32, `links[i] = j`: i receives from j.
        outage: `P_D(i, links[i])`, [N] float.

    Returns:
        The exchange, fields [N, L] float32.
    """
    counts, receiver = jnp.asarray(counts, jnp.float32), jnp.arange(links.shape[0])
    requested = offered.requested[receiver, links]
    demand = jnp.zeros_like(counts).at[links].add(requested)
    # Deviation: eq. 10 uses an undefined symbol R; the requests Q must be meant.
    share = jnp.where(demand > offered.surplus, offered.surplus / jnp.where(demand > 0, demand, 1.0), 1.0)
    transmitted = requested * share[links]
    received = (1.0 - outage)[:, None] * transmitted
    sent = jnp.zeros_like(counts).at[links].add(received)
    available = offered.available[receiver, links]
    return Exchange(available, requested, transmitted, received, counts + received - sent)


def exchange(counts: Array, thresholds: Array, trust: Array, links: Array, outage: Array) -> Exchange:
    """Algorithm 1 for all receivers at once: `offers`, then `deliver` over the chosen links.

    Args:
        counts: `D`, [N, L] int or float.
        thresholds: `c`, [N, L] float.
        trust: `T`, [N, N, L] bool, owner first.
        links: [N] int32, `links[i] = j`: i receives from j; a self link moves no points.
        outage: `P_D`, [N, N] float of one state, receiver first.

    Returns:
        The exchange, fields [N, L] float32.

    Raises:
        ValueError: shapes do not agree, or outside `jit` a value is out of range.
    """
    counts, thresholds, trust = jnp.asarray(counts), jnp.asarray(thresholds), jnp.asarray(trust)
    links, outage = jnp.asarray(links), jnp.asarray(outage)
    if counts.ndim != 2:
        raise ValueError(f"counts must be [N, L]; got shape {list(counts.shape)}")
    num_devices, num_classes = counts.shape
    check_shape("thresholds", thresholds, (num_devices, num_classes), "[N, L]")
    check_shape("trust", trust, (num_devices, num_devices, num_classes), "[N, N, L]")
    check_shape("outage", outage, (num_devices, num_devices), "[N, N]")
    check_links(links, num_devices)
    check_values("counts", counts, "0 or more", is_not_negative)
    check_values("thresholds", thresholds, "0 or more", is_not_negative)
    check_values("trust", trust, "true or false", lambda values: (values == 0) | (values == 1))
    check_values("outage", outage, "in [0, 1]", is_share)
    trust = trust.astype(bool)
    return deliver(counts, offers(counts, thresholds, trust), links, outage[jnp.arange(num_devices), links])
