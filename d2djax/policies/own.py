"""Policies and graphs from outside the package, as runs use them: each fault is one line that names the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.checks import check_in_order, cut, in_one_line, shown


def _call(where: str, function: Callable, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise ValueError(f"{where}: {in_one_line(error)}") from error


def _shapes(tree: Any) -> list[str]:
    """Name, type and shape of each part of a memory."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}".strip() for path, leaf in leaves]


def fault_of_update(before: Any, after: Any) -> str | None:
    """What is wrong with the memory after an update: it must have the parts, shapes and types of the one before."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        return f"update must return memory of the structure of init; got {cut(str(jax.tree.structure(after)))}"
    pairs = zip(_shapes(before), _shapes(after), strict=True)
    different = [f"{old} becomes {new}" for old, new in pairs if old != new]
    if different:
        return f"update must keep the shape and type of every part of the memory; {'; '.join(different)}"
    return None


def _links(where: str, found: Any, shape: Sequence[int]) -> Array:
    """Links that code from outside gave, [S, N] int32."""
    kind = getattr(found, "dtype", None)
    if kind is None or kind.kind not in "iu" or found.shape != tuple(shape):
        what = f"{kind}{list(found.shape)}" if hasattr(found, "shape") else shown(found)
        raise ValueError(f"{where} must give links, whole numbers [S, N] = {list(shape)}; got {what}")
    # Before they are made numbers of 32 bits, which others may become a device as.
    check_in_order(f"links of {where}", found, shape[1], "devices")
    return jnp.asarray(found, jnp.int32)


@dataclass(frozen=True)
class OwnGraph:
    """A function of one's own that gives a graph, `(key, network, config) -> links`.

    Attributes:
        name: of the policy.
        function: the function.
    """

    name: str
    function: Callable

    def __call__(self, key: Array, network: Any, config: Any) -> Array:
        """[S, N] int32: its links."""
        where, (num_states, num_devices) = f"policies[{self.name!r}]", network.outage.shape[:2]
        # A graph that does not depend on the network has its numbers here, before anything compiles.
        with jax.ensure_compile_time_eval():
            found = _call(where, self.function, key, network, config)
            return _links(where, found, (num_states, num_devices))


@dataclass(frozen=True)
class OwnPolicy:
    """A policy of one's own that learns, see `d2djax.discovery.learn`.

    Attributes:
        name: of the policy.
        policy: the policy.
        sizes: numbers of states and of devices, (S, N).
    """

    name: str
    policy: Any
    sizes: tuple[int, int]

    def _call(self, part: str, *arguments: Any) -> Any:
        return _call(f"policies[{self.name!r}].{part}", getattr(self.policy, part), *arguments)

    @property
    def information(self) -> str:
        """What the devices are told."""
        return _call(f"policies[{self.name!r}].information", getattr, self.policy, "information")

    @property
    def best(self) -> Callable[[Any], Array]:
        """Links [S, N] of a memory, if the policy says its own."""
        _ = self.policy.best
        return lambda memory: _links(f"policies[{self.name!r}].best", self._call("best", memory), self.sizes)

    def init(self, key: Array, known: Any, config: Any) -> Any:
        """The memory before the first episode, made of arrays."""
        return jax.tree.map(jnp.asarray, self._call("init", key, known, config))

    def weights(self, key: Array, memory: Any, state: Array) -> Array:
        """[N, N] float32; rows that are no weights, as they are negative, all 0 or not finite, are 0."""
        found, num_devices = self._call("weights", key, memory, state), self.sizes[1]
        if getattr(found, "shape", None) != (num_devices, num_devices):
            what = list(found.shape) if hasattr(found, "shape") else shown(found)
            raise ValueError(f"policies[{self.name!r}].weights must be [N, N] = {[num_devices] * 2}; got {what}")
        weight = jnp.asarray(found, jnp.float32)
        is_right = jnp.isfinite(jnp.sum(weight, axis=-1)) & jnp.all(weight >= 0, axis=-1)
        # Such a row draws no link at all, which the learning curves tell.
        return jnp.where(is_right[:, None], weight, 0.0)

    def update(self, memory: Any, state: Array, links: Array, feedback: Any) -> Any:
        """The memory after an episode."""
        after = jax.tree.map(jnp.asarray, self._call("update", memory, state, links, feedback))
        if fault := fault_of_update(memory, after):
            raise ValueError(f"policies[{self.name!r}].{fault}")
        return after


def check_graphs(candidates: Mapping[str, Any], seeds: np.ndarray, links: np.ndarray) -> None:
    """Checks that all links lead to devices, where JAX would take others without a word.

    Args:
        candidates: the policies by name, in their order.
        seeds: [U] int, seed of each run.
        links: [U, M, S, N] int32, the graph of each policy in each state.

    Raises:
        ValueError: one does not; it names the policy and the first place.
    """
    num_devices = links.shape[-1]
    broken = (links < 0) | (links >= num_devices)
    if broken.any():
        run, policy, state, device = (int(place) for place in np.argwhere(broken)[0])
        raise ValueError(
            f"policies[{list(candidates)[policy]!r}] must give links in 0..{num_devices - 1}, numbers of devices; "
            f"got {links[run, policy, state, device]} for device {device} in state {state} of seed {seeds[run]}"
        )
