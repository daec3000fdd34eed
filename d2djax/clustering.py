"""Clusters of devices with reliable links to one another (Section II-A.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_values, is_finite, is_share


def _follow(distance: Array, owner: Array, before: Array, last: Array) -> tuple[Array, Array, Array, Array]:
    """One step of the nearest-neighbour chain: follows a cluster to its nearest one, or merges a mutual pair.

    A pair of mutual nearest neighbours merges at once: no other merger brings a cluster closer to either of them.
    This also holds with ties, which device numbers break: the smallest device names a cluster. The mergers equal
    those of a search for the globally closest pair, in O(N) steps of O(N).

    Args:
        distance: [N, N] float, between clusters, infinite where they must not merge. The larger of a pair's two
            entries is valid, the other may be outdated: distances never decrease.
        owner: [N] int32, the cluster of each device.
        before: [N] int32, the predecessor of each cluster in the chain; the first one is its own predecessor.
        last: [] int32, the end of the chain. All clusters below the first one of the chain are final.

    Returns:
        The four arguments after the step.
    """
    device = jnp.arange(owner.size, dtype=owner.dtype)
    now = lambda one: jnp.maximum(distance[one], distance[:, one])  # noqa: E731
    row = jnp.where((owner == device) & (owner[last] == last), now(last), jnp.inf)
    nearest = jnp.argmin(row).astype(owner.dtype)
    is_alone, is_pair = row[nearest] == jnp.inf, nearest == before[last]
    # Merging a cluster with itself changes nothing.
    other = jnp.where(is_pair & ~is_alone, nearest, last)
    first, second = jnp.minimum(last, other), jnp.maximum(last, other)
    # Complete linkage: the distance to a union is the larger of the distances to its parts.
    joined = jnp.where(device == second, jnp.inf, jnp.maximum(row, now(other)))
    # An isolated cluster starts its chain. If a pair is the whole chain, its first cluster names the union.
    end = jnp.where(is_alone, last + 1, jnp.where(is_pair, before[nearest], nearest))
    its_before = jnp.where(is_alone, end, jnp.where(is_pair, before[end], last))
    return (
        distance.at[first].set(joined),
        jnp.where(owner == second, first, owner),
        before.at[end].set(its_before),
        end,
    )


def reliable_clusters(outage: Array, alpha: Array | float) -> Array:
    """Partitions devices so that the outage of any pair in a cluster is at most `alpha_D` (Section II-A.2).

    Complete-linkage clustering by the worst outage of each pair, over both directions and all states, cut at
    `alpha_D`. Among equal distances, the pair with the smallest device numbers merges first.

    Args:
        outage: `P_D`, [S, N, N] or [N, N] float in [0, 1].
        alpha: `alpha_D`, [] float.

    Returns:
        [N] int32, labels 0..K-1, in the order of the smallest device of each cluster.

    Raises:
        ValueError: `outage` has another shape, or outside `jit` a value is not in [0, 1] or `alpha` is not finite.
    """
    outage = jnp.asarray(outage)
    if outage.ndim not in (2, 3) or outage.shape[-1] != outage.shape[-2]:
        raise ValueError(f"outage must be [S, N, N] or [N, N]; got shape {outage.shape}")
    check_values("outage", outage, "in [0, 1]", is_share)
    check_values("alpha", alpha, "finite", is_finite)
    num_devices = outage.shape[-1]
    worst = jnp.max(outage, axis=0) if outage.ndim == 3 else outage
    worst = jnp.maximum(worst, worst.T)
    device = jnp.arange(num_devices, dtype=jnp.int32)
    # Two devices above the limit never end up in one cluster.
    may_join = (worst <= alpha) & ~np.eye(num_devices, dtype=bool)
    distance = jnp.where(may_join, worst, jnp.inf)
    carry = (distance, device, device, jnp.int32(0))
    owner = jax.lax.while_loop(lambda carry: carry[3] < num_devices, lambda carry: _follow(*carry), carry)[1]
    # A cluster's label is the number of clusters with a smaller first device.
    return jnp.sum((owner == device) & (device < owner[:, None]), axis=1, dtype=jnp.int32)
