"""Many runs of one function: chunks that fit in memory, spread over all local devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from d2djax.machine import memory_bytes

Tree = Any
MEMORY_SHARE = 0.6


def make_mesh() -> Mesh:
    """One axis, `run`, over all local devices."""
    # Explicit axes, the default of newer versions, refuse `vmap` inside a sharded program.
    devices = np.array(jax.local_devices())
    return Mesh(devices, ("run",), axis_types=(AxisType.Auto,))


@partial(jax.jit, static_argnames=("function", "static", "width", "mesh"))
def _program(shared: Tree, items: Tree, *, function: Callable, static: Any, width: int, mesh: Mesh) -> Tree:
    """Applies `function` to every item, `width` at a time on each device."""

    def on_one_device(shared: Tree, items: Tree) -> Tree:
        one = lambda item: function(shared, item, static)  # noqa: E731
        return jax.lax.map(one, items, batch_size=width if width > 1 else None)

    replicated, split = PartitionSpec(), PartitionSpec("run")
    # The runs are independent, so nothing needs checking across devices.
    sharded = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(replicated, split), out_specs=split, check_vma=False
    )
    return sharded(shared, items)


def memory_limit() -> int:
    """Bytes that the runs in flight on one device may take together."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    limit = statistics.get("bytes_limit") or memory_bytes() // len(jax.local_devices())
    return int(MEMORY_SHARE * limit)


def bytes_per_run(function: Callable, shared: Tree, items: Tree, static: Any) -> int:
    """Bytes that one run takes while it is computed, from the program compiled for a single run."""
    item = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), items)
    analysis = jax.jit(function, static_argnums=2).lower(shared, item, static).compile().memory_analysis()
    return max(1, analysis.temp_size_in_bytes + analysis.output_size_in_bytes) if analysis else 2**28


def choose_width(function: Callable, shared: Tree, items: Tree, static: Any) -> int:
    """Runs that one device computes at the same time.

    On a CPU one: a core's cache holds the models of one run, not of several. On an accelerator as many as
    fit in its memory, since a single run leaves most of it idle.
    """
    if jax.default_backend() == "cpu":
        return 1
    size = jax.tree.leaves(items)[0].shape[0]
    fitting = memory_limit() // bytes_per_run(function, shared, items, static)
    return int(max(1, min(fitting, -(-size // len(jax.local_devices())))))


def map_runs(
    function: Callable[[Tree, Tree, Any], Tree],
    shared: Tree,
    items: Tree,
    static: Any = None,
    *,
    width: int | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> Tree:
    """Computes `function(shared, item, static)` for every item, in chunks over all local devices.

    One compilation serves all chunks: the last one is filled up with copies of the last item.

    Args:
        function: a pure function, the same object in every call so that it compiles once.
        shared: pytree that all runs read.
        items: pytree with a leading axis, one entry per run.
        static: hashable, part of the program.
        width: runs at the same time on each device; none: chosen to fit.
        advance: called on the host after each chunk with the number of runs done in it.

    Returns:
        Results as NumPy arrays with a leading axis of runs.

    Raises:
        ValueError: `width` is under 1.
    """
    if width is not None and width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    mesh = make_mesh()
    items = jax.tree.map(np.asarray, items)
    size = jax.tree.leaves(items)[0].shape[0]
    width = choose_width(function, shared, items, static) if width is None else width
    chunk = width * mesh.size
    shared = jax.device_put(shared, NamedSharding(mesh, PartitionSpec()))
    split = NamedSharding(mesh, PartitionSpec("run"))
    results = []
    for first in range(0, size, chunk):
        numbers = np.minimum(np.arange(first, first + chunk), size - 1)
        part = jax.tree.map(lambda leaf, numbers=numbers: jax.device_put(leaf[numbers], split), items)
        done = min(chunk, size - first)
        result = _program(shared, part, function=function, static=static, width=width, mesh=mesh)
        results.append(jax.tree.map(lambda leaf, done=done: np.asarray(leaf)[:done], result))
        advance(done)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *results)


def as_numbers(config: Tree) -> Tree:
    """Turns the numeric leaves of a config into arrays, so that no new value compiles anew."""
    return jax.tree.map(jnp.asarray, config)
