"""`matching`: assigns receivers to transmitters that can serve them, for the largest predicted rewards."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.config import Config, complete
from d2djax.episode import prepare
from d2djax.information import known_of
from d2djax.network import Network
from d2djax.policies.offers import predicted


def capacity(counts: Array, thresholds: Array) -> Array:
    """How many receivers each transmitter can serve: the least `floor((D - c) / c)` over the classes it can serve.

    A receiver requests at most c of a class. A class with less surplus than c serves no whole request and counts in
    no minimum.

    Args:
        counts: `D`, [N, L] int or float.
        thresholds: `c`, [N, L] float, positive.

    Returns:
        [N] int32, at most N - 1; 0 for a device that can serve no class.
    """
    num_devices = counts.shape[0]
    requests = jnp.floor((counts - thresholds) / thresholds)
    least = jnp.min(jnp.where(requests >= 1, requests, jnp.inf), axis=-1)
    return jnp.where(jnp.isfinite(least), jnp.minimum(least, num_devices - 1), 0).astype(jnp.int32)


def assign(cost: Array, capacity: Array) -> Array:
    """Assigns each row to a column, at most `capacity` rows to each, with the least summed cost.

    Kuhn's Hungarian method (1955) in the form of Jonker and Volgenant (1987): row by row, it takes the shortest
    path of alternating changes to a free place, with prices u of the rows and v of the places that keep all reduced
    costs `cost - u - v` at 0 or more. Each column is repeated, as one place for each row that it may take.

    Args:
        cost: [R, C] float; infinite where a row cannot have a column. Some assignment must have a finite cost.
        capacity: [C] int, most rows of each column.

    Returns:
        [R] int32, the column of each row.
    """
    num_rows, num_columns = cost.shape
    # Places in the order of the columns, R for each, and one more, from which every path starts.
    column, copy = np.divmod(np.arange(num_columns * num_rows, dtype=np.int32), num_rows)
    start = column.size
    is_there = copy < capacity[column]
    free = jnp.full(start + 1, num_rows, jnp.int32)

    def add(row: Array, held: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        owner, u, v = held
        owner = owner.at[start].set(row)

        def grow(path: tuple[Any, ...]) -> tuple[Any, ...]:
            place, distance, before, is_passed, u, v = path
            is_passed = is_passed.at[place].set(True)
            last = owner[place]
            reduced = jnp.where(is_there, cost[last, column], jnp.inf) - u[last] - v[:start]
            is_shorter = (reduced < distance) & ~is_passed[:start]
            distance = jnp.where(is_shorter, reduced, distance)
            before = jnp.where(is_shorter, place, before)
            left = jnp.where(is_passed[:start], jnp.inf, distance)
            nearest = jnp.argmin(left).astype(jnp.int32)
            step = left[nearest]
            # Only passed places have owners whose prices change; all others add 0 to the spare row.
            u = u.at[jnp.where(is_passed, owner, num_rows)].add(jnp.where(is_passed, step, 0.0))
            v = jnp.where(is_passed, v - step, v)
            distance = jnp.where(is_passed[:start], distance, distance - step)
            return nearest, distance, before, is_passed, u, v

        nothing = jnp.full(start, jnp.inf, cost.dtype), jnp.full(start, start, jnp.int32)
        path = jnp.int32(start), *nothing, jnp.zeros(start + 1, bool), u, v
        place, _, before, _, u, v = jax.lax.while_loop(lambda path: owner[path[0]] < num_rows, grow, path)

        def shift(change: tuple[Array, Array]) -> tuple[Array, Array]:
            place, owner = change
            return before[place], owner.at[place].set(owner[before[place]])

        _, owner = jax.lax.while_loop(lambda change: change[0] != start, shift, (place, owner))
        return owner, u, v

    prices = jnp.zeros(num_rows + 1, cost.dtype), jnp.zeros(start + 1, cost.dtype)
    owner, _, _ = jax.lax.fori_loop(0, num_rows, add, (free, *prices))
    # The spare entry takes the places that stay free.
    return jnp.zeros(num_rows + 1, jnp.int32).at[owner[:start]].set(column)[:num_rows]


def matching(key: Array, network: Network, config: Config) -> Array:
    """The assignment of receivers to transmitters of largest summed predicted reward, in each state.

    Ours: a transmitter j serves at most `capacity` receivers, and each of these gets what it would get alone (see
    `offers.predicted`); a device without a link gets the reward of its own points. It uses information that no
    device of the paper has. It counts any two receivers of a transmitter as competitors, even if they request
    different classes.

    Args:
        key: unused.
        network: the network.
        config: the weights of the reward, `min_classes` and `score_fraction`.

    Returns:
        `links`, [S, N] int32: the transmitter of each device in each state.
    """
    config = complete(config)
    known = known_of(prepare(network, config), "all")
    value = predicted(known, config)
    num_devices = known.num_devices
    # A link to itself takes no place of another device.
    itself = jnp.arange(num_devices, dtype=jnp.int32)
    alone = jnp.where(itself[:, None] == itself, -value, jnp.inf)
    linked = jnp.where(itself[:, None] == itself, jnp.inf, -value)
    limits = jnp.concatenate([capacity(known.counts, known.thresholds), jnp.ones(num_devices, jnp.int32)])
    cost = jnp.concatenate([linked, alone], axis=-1)
    return jax.lax.map(lambda one: assign(one, limits) % num_devices, cost)
