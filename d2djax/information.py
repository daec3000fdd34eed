"""Information levels: a policy sees only its device's quantities, also what the device hears, or everything."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from d2djax.episode import Outcome, Prepared
from d2djax.messages import Exchange

# Ours: the paper's policy needs only its own reward. Policies that see more may do better, so a comparison must
# state their information levels. Each level includes the previous one.
LEVELS = ("own", "heard", "all")

# The entries that each level adds; a policy does not get any others.
KNOWN = {
    "own": ("device", "outage", "counts", "thresholds", "cluster"),
    "heard": ("offers",),
    "all": ("network",),
}
FEEDBACK = {
    "own": ("reward",),
    "heard": ("available", "requested", "transmitted", "received"),
    "all": ("exchange", "outcome"),
}


@jax.tree_util.register_pytree_node_class
class Told:
    """What a policy gets at its information level, as attributes; reading any other entry raises AttributeError.

    Attributes:
        level: `own`, `heard` or `all`.
        entries: arrays, or pytrees of them, by name.
        sizes: static integers, by name.
    """

    def __init__(self, level: str, entries: dict[str, Any], sizes: dict[str, int] | None = None) -> None:
        self.level, self.entries, self.sizes = level, entries, sizes or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("level", "entries", "sizes"):
            raise AttributeError(name)
        for found in (self.entries, self.sizes):
            if name in found:
                return found[name]
        levels = [level for table in (KNOWN, FEEDBACK) for level, names in table.items() if name in names]
        has = f"level {levels[0]!r} has it" if levels else f"it sees {', '.join((*self.entries, *self.sizes))}"
        raise AttributeError(f"{name!r} is not visible to a policy with information={self.level!r}; {has}")

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Flattens to the arrays and the static rest, for JAX."""
        return tuple(self.entries.values()), (self.level, tuple(self.entries), tuple(self.sizes.items()))

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Any, ...], arrays: tuple[Any, ...]) -> Told:
        """Rebuilds from the static part and the arrays, for JAX."""
        level, names, sizes = fixed
        return cls(level, dict(zip(names, arrays, strict=True)), dict(sizes))


def allowed(table: dict[str, tuple[str, ...]], level: str) -> list[str]:
    """The names of all entries at a level.

    Args:
        table: `KNOWN` or `FEEDBACK`.
        level: `own`, `heard` or `all`.

    Returns:
        Names, those of lower levels first.
    """
    return [name for one in LEVELS[: LEVELS.index(level) + 1] for name in table[one]]


def known_of(prepared: Prepared, level: str) -> Told:
    """What the devices know before the first episode.

    Args:
        prepared: the network, from `prepare`.
        level: `own`, `heard` or `all`.

    Returns:
        For `own`: `device` [N] int32, its number; `outage` [N, S, N] float32, its row of P_D in every state;
        `counts` and `thresholds` [N, L]; `cluster` [N] int32; and the sizes `num_devices`, `num_states`,
        `num_classes`. For `heard` also `offers` [N, N, L] float32: V, what each other device (column) offers to the
        device (row). For `all` also `network`.
    """
    network = prepared.network
    num_states, num_devices, _ = network.outage.shape
    entries = {
        "device": jnp.arange(num_devices, dtype=jnp.int32),
        "outage": jnp.swapaxes(network.outage, 0, 1),
        "counts": network.counts,
        "thresholds": network.thresholds,
        "cluster": network.cluster,
        "offers": prepared.offers.available,
        "network": network,
    }
    sizes = {"num_devices": num_devices, "num_states": num_states, "num_classes": network.counts.shape[-1]}
    return Told(level, {name: entries[name] for name in allowed(KNOWN, level)}, sizes)


def feedback_of(moved: Exchange, outcome: Outcome, level: str) -> Told:
    """The feedback that the devices receive after an episode.

    Args:
        moved: the exchange of the episode.
        outcome: the outcome of the episode.
        level: `own`, `heard` or `all`.

    Returns:
        For `own`: `reward` [N] float32, each device's total reward R. For `heard` also `available` V, `requested`
        Q, `transmitted` U and `received`, each [N, L] float32, of each device's link. For `all` also
        `exchange` and `outcome`.
    """
    entries: dict[str, Any] = {
        "reward": outcome.rewards.total,
        "available": moved.available,
        "requested": moved.requested,
        "transmitted": moved.transmitted,
        "received": moved.received,
        "exchange": moved,
        "outcome": outcome,
    }
    return Told(level, {name: entries[name] for name in allowed(FEEDBACK, level)})
