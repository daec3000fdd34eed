"""Clusters of devices that reach each other reliably (Section II-A.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def _merge(distance: Array, owner: Array, alpha: Array | float) -> tuple[Array, Array]:
    """Joins the closest two clusters if they are within `alpha`; a cluster is named by its smallest device."""
    num_devices = owner.shape[0]
    closest = jnp.argmin(distance)
    first, second = jnp.divmod(closest, num_devices)
    first, second = jnp.minimum(first, second), jnp.maximum(first, second)
    near = distance[first, second] <= alpha
    # Complete linkage: the distance to a union is the larger of the distances to its parts.
    joined = jnp.maximum(distance[first], distance[second])
    index = jnp.arange(num_devices)
    keep, drop = index == first, index == second
    merged = jnp.where(keep[:, None], joined[None, :], jnp.where(keep[None, :], joined[:, None], distance))
    merged = jnp.where(drop[:, None] | drop[None, :], jnp.inf, merged)
    return jnp.where(near, merged, distance), jnp.where(near & (owner == second), first, owner)


def reliable_clusters(outage: Array, alpha: Array | float) -> Array:
    """Partitions devices so that no pair in a cluster ever fails more often than `alpha_D` (Section II-A.2).

    Complete-linkage agglomeration on the worst outage of each pair, over both directions and all states,
    cut at `alpha_D`. Of equal distances the pair with the smallest device numbers joins first.

    Args:
        outage: `P_D`, [S, N, N] or [N, N] float in [0, 1].
        alpha: `alpha_D`, [] float.

    Returns:
        [N] int32, labels 0..K-1 numbered by the smallest device of each cluster.

    Raises:
        ValueError: `outage` has another number of axes or is not square.
    """
    outage = jnp.asarray(outage)
    if outage.ndim not in (2, 3) or outage.shape[-1] != outage.shape[-2]:
        raise ValueError(f"outage must be [S, N, N] or [N, N]; got shape {outage.shape}")
    num_devices = outage.shape[-1]
    worst = jnp.max(outage, axis=0) if outage.ndim == 3 else outage
    worst = jnp.maximum(worst, worst.T)
    distance = jnp.where(jnp.eye(num_devices, dtype=bool), jnp.inf, worst)

    def step(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return _merge(carry[0], carry[1], alpha)

    _, owner = jax.lax.fori_loop(0, num_devices - 1, step, (distance, jnp.arange(num_devices)))
    device = jnp.arange(num_devices)
    # The label: how many clusters have a smaller first device.
    return jnp.sum((owner == device) & (device < owner[:, None]), axis=1, dtype=jnp.int32)
