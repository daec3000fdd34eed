"""Clusters of devices that reach each other reliably (Section II-A.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from d2djax.checks import check_values, is_finite, is_share


def _follow(distance: Array, owner: Array, before: Array, last: Array) -> tuple[Array, Array, Array, Array]:
    """A step of the nearest-neighbour chain: from a cluster to its closest, until two are each other's closest.

    Such a pair joins, whatever else there is: what others become by joining is no closer to either of the two.
    With ties, too, which device numbers decide: a cluster is named by its smallest device, a union by one of its
    parts. The mergers are those of a search for the closest pair of all, in O(N) steps of O(N).

    Args:
        distance: [N, N], between clusters, infinite where they may not join. Of a pair's two entries the larger one
            counts, the other may be older: no distance gets smaller.
        owner: [N] int32, the cluster of each device.
        before: [N] int32, the cluster before each one of the chain; itself for the first one.
        last: [] int32, the end of the chain. All clusters before the first one of the chain are done.

    Returns:
        The same afterwards.
    """
    device = jnp.arange(owner.size, dtype=owner.dtype)
    now = lambda one: jnp.maximum(distance[one], distance[:, one])  # noqa: E731
    row = jnp.where((owner == device) & (owner[last] == last), now(last), jnp.inf)
    nearest = jnp.argmin(row).astype(owner.dtype)
    is_alone, is_pair = row[nearest] == jnp.inf, nearest == before[last]
    # To join a cluster with itself changes nothing.
    other = jnp.where(is_pair & ~is_alone, nearest, last)
    first, second = jnp.minimum(last, other), jnp.maximum(last, other)
    # Complete linkage: the distance to a union is the larger of the distances to its parts.
    joined = jnp.where(device == second, jnp.inf, jnp.maximum(row, now(other)))
    # What is alone is first of its chain. Of a pair that is all of the chain, the first one names the union.
    end = jnp.where(is_alone, last + 1, jnp.where(is_pair, before[nearest], nearest))
    its_before = jnp.where(is_alone, end, jnp.where(is_pair, before[end], last))
    return (
        distance.at[first].set(joined),
        jnp.where(owner == second, first, owner),
        before.at[end].set(its_before),
        end,
    )


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
        ValueError: `outage` has another number of axes or is not square, or outside `jit` a value is not in [0, 1].
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
    # Two that are too far apart never join, nor does what they have joined.
    may_join = (worst <= alpha) & (device[:, None] != device)
    distance = jnp.where(may_join, worst, jnp.inf)
    carry = (distance, device, device, jnp.int32(0))
    owner = jax.lax.while_loop(lambda carry: carry[3] < num_devices, lambda carry: _follow(*carry), carry)[1]
    # The label: how many clusters have a smaller first device.
    return jnp.sum((owner == device) & (device < owner[:, None]), axis=1, dtype=jnp.int32)
