"""Wraps custom policies and graph functions so that each fault raises one line that names the policy."""

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
    """Name, type and shape of each leaf of a memory, as text."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [f"{jax.tree_util.keystr(path)} {leaf.dtype}{list(leaf.shape)}".strip() for path, leaf in leaves]


def fault_of_update(before: Any, after: Any) -> str | None:
    """Compares the memory before and after an update, which must keep its structure, shapes and types.

    Args:
        before: pytree of arrays, or of their shapes and types.
        after: likewise.

    Returns:
        The rule and what breaks it, in words, or None.
    """
    if jax.tree.structure(before) != jax.tree.structure(after):
        return f"update must return memory with the structure of init; got {cut(str(jax.tree.structure(after)))}"
    pairs = zip(_shapes(before), _shapes(after), strict=True)
    different = [f"{old} becomes {new}" for old, new in pairs if old != new]
    if different:
        return f"update must keep the shape and type of every part of the memory; {'; '.join(different)}"
    return None


def checked_links(where: str, found: Any, shape: Sequence[int]) -> Array:
    """Checks links from custom code, and converts them.

    Args:
        where: what returned the links, for messages.
        found: anything.
        shape: `(S, N)`.

    Returns:
        [S, N] int32.

    Raises:
        ValueError: they are no whole numbers [S, N], or outside `jit` no device numbers.
    """
    kind = getattr(found, "dtype", None)
    if kind is None or kind.kind not in "iu" or found.shape != tuple(shape):
        what = f"{kind}{list(found.shape)}" if hasattr(found, "shape") else shown(found)
        raise ValueError(f"{where} must return links, whole numbers [S, N] = {list(shape)}; got {what}")
    # Checked before the conversion to 32 bits, which could wrap an invalid number to a valid device.
    check_in_order(f"links of {where}", found, shape[1], "devices")
    return jnp.asarray(found, jnp.int32)


@dataclass(frozen=True)
class OwnGraph:
    """A custom function that returns a graph.

    Attributes:
        name: of the policy, for messages.
        function: `(key, network, config) -> links`, [S, N] integers.
    """

    name: str
    function: Callable

    def __call__(self, key: Array, network: Any, config: Any) -> Array:
        """[S, N] int32, the function's links; raises ValueError if it fails or returns anything else."""
        where, (num_states, num_devices) = f"policies[{self.name!r}]", network.outage.shape[:2]
        # A graph that does not depend on the network is checked here, before anything compiles.
        with jax.ensure_compile_time_eval():
            found = _call(where, self.function, key, network, config)
            return checked_links(where, found, (num_states, num_devices))


@dataclass(frozen=True)
class OwnPolicy:
    """A custom policy that learns; see `d2djax.discovery.learn` for the interface.

    Attributes:
        name: of the policy, for messages.
        policy: the custom policy.
        sizes: `(S, N)`, numbers of channel states and devices.
    """

    name: str
    policy: Any
    sizes: tuple[int, int]

    def _call(self, part: str, *arguments: Any) -> Any:
        return _call(f"policies[{self.name!r}].{part}", getattr(self.policy, part), *arguments)

    @property
    def information(self) -> str:
        """The information level of the policy; see `d2djax.information`."""
        return _call(f"policies[{self.name!r}].information", getattr, self.policy, "information")

    @property
    def best(self) -> Callable[[Any], Array]:
        """`(memory) -> links`, [S, N] int32, if the policy has `best`; otherwise raises AttributeError."""
        _ = self.policy.best
        return lambda memory: checked_links(f"policies[{self.name!r}].best", self._call("best", memory), self.sizes)

    def init(self, key: Array, known: Any, config: Any) -> Any:
        """The memory before the first episode.

        Args:
            key: PRNG key of the policy's draws.
            known: see `d2djax.information.known_of`.
            config: settings of the run.

        Returns:
            The policy's memory, its leaves converted to arrays.

        Raises:
            ValueError: the policy fails.
        """
        return jax.tree.map(jnp.asarray, self._call("init", key, known, config))

    def weights(self, key: Array, memory: Any, state: Array) -> Array:
        """The weights of the policy, checked.

        Args:
            key: PRNG key of the policy's draws.
            memory: the current memory.
            state: [] int32, channel state.

        Returns:
            [N, N] float32; rows with a negative entry or a sum that is not finite are set to 0.

        Raises:
            ValueError: the policy fails or returns another shape.
        """
        found, num_devices = self._call("weights", key, memory, state), self.sizes[1]
        if getattr(found, "shape", None) != (num_devices, num_devices):
            what = list(found.shape) if hasattr(found, "shape") else shown(found)
            raise ValueError(f"policies[{self.name!r}].weights must be [N, N] = {[num_devices] * 2}; got {what}")
        weight = jnp.asarray(found, jnp.float32)
        is_right = jnp.isfinite(jnp.sum(weight, axis=-1)) & jnp.all(weight >= 0, axis=-1)
        # A row of zeros draws no link, which the learning curves show.
        return jnp.where(is_right[:, None], weight, 0.0)

    def update(self, memory: Any, state: Array, links: Array, feedback: Any) -> Any:
        """The memory after an episode, checked.

        Args:
            memory: the memory before the episode.
            state: [] int32, channel state.
            links: [N] int32, transmitter of each device.
            feedback: see `d2djax.information.feedback_of`.

        Raises:
            ValueError: the policy fails, or changes the structure, a shape or a type of the memory.
        """
        after = jax.tree.map(jnp.asarray, self._call("update", memory, state, links, feedback))
        if fault := fault_of_update(memory, after):
            raise ValueError(f"policies[{self.name!r}].{fault}")
        return after


def check_graphs(candidates: Mapping[str, Any], seeds: np.ndarray, links: np.ndarray) -> None:
    """Checks that all links are device numbers; JAX would clip others silently.

    Args:
        candidates: the M policies by name, in the order of the results.
        seeds: [U] int, seed of each run.
        links: [U, M, S, N] int32, the graph of each policy in each state.

    Raises:
        ValueError: a link is no device number; names the policy and the first such link.
    """
    num_devices = links.shape[-1]
    broken = (links < 0) | (links >= num_devices)
    if broken.any():
        run, policy, state, device = (int(place) for place in np.argwhere(broken)[0])
        raise ValueError(
            f"policies[{list(candidates)[policy]!r}] must return links in 0..{num_devices - 1}, device numbers; "
            f"got {links[run, policy, state, device]} for device {device} in state {state} of seed {seeds[run]}"
        )
