"""Many runs of one function: as many at a time as fit in memory, spread over all devices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from d2djax.machine import memory_bytes
from d2djax.packing import abstract, pack, packed_shapes, unpack

Tree = Any
MEMORY_SHARE = 0.6
SECONDS_PER_CALL = 1.0
MOST_BLOCKS = 64
MOST_CALL_BYTES = 2**26
REPLICATED, SPLIT = PartitionSpec(), PartitionSpec("run")
# By program: the width that is left after it ran out of memory.
_most_width: dict[Any, int] = {}


@dataclass(frozen=True)
class Plan:
    """How runs are computed: `width` at the same time on each device, then the next, up to `slots` in one call.

    Attributes:
        program: the compiled program: shared arrays, items [devices * slots, ...] and blocks to compute on each
            device [devices], to results [devices * slots, ...].
        width: runs at the same time on each device.
        slots: runs in one call on each device, at most; a multiple of `width`.
        bytes: what one call takes on each device, from the compiled program: arguments, results and temporaries.
    """

    program: Callable[[Tree, Tree, Tree], Tree]
    width: int
    slots: int
    bytes: int

    def __str__(self) -> str:
        devices = make_mesh().size
        runs = f"{self.width} run{'s' if self.width > 1 else ''} at a time"
        return f"{runs} on {'each of ' if devices > 1 else ''}{devices} device{'s' if devices > 1 else ''}, " + (
            f"{self.bytes / 1e6:,.0f} MB each"
        )


def make_mesh() -> Mesh:
    """One axis, `run`, over all devices, also those of other processes that work on the same program."""
    # Explicit axes, the default of newer versions, refuse `vmap` inside a sharded program.
    return Mesh(np.array(jax.devices()), ("run",), axis_types=(AxisType.Auto,))


def share(tree: Tree) -> Tree:
    """Copies arrays to every device; what lies there already is not copied again."""
    return jax.device_put(tree, NamedSharding(make_mesh(), REPLICATED))


def _on_one_device(one: Callable, width: int, items: Tree, num_blocks: jax.Array) -> Tree:
    """Results of the first `num_blocks` blocks of `width` items; zeros in the places of all others."""

    def block(first: jax.Array) -> Tree:
        if width > 1:
            part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, width), items)
            return jax.vmap(one)(part)
        # A run of its own, not a batch of one: the same bits whatever else is in the call.
        return jax.tree.map(lambda leaf: leaf[None], one(jax.tree.map(lambda leaf: leaf[first], items)))

    def step(number: jax.Array, results: Tree) -> Tree:
        put = lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, number * width, 0)  # noqa: E731
        return jax.tree.map(put, results, block(number * width))

    slots = jax.tree.leaves(items)[0].shape[0]
    shapes = jax.eval_shape(block, jnp.int32(0))
    empty = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape[1:]), leaf.dtype), shapes)
    # The bound is traced: one program serves every number of runs, and none is computed to fill it up.
    return jax.lax.fori_loop(0, num_blocks[0], step, empty)


def _concrete(abstract: tuple[Any, tuple], sharding: NamedSharding | None) -> Tree:
    structure, leaves = abstract
    return structure.unflatten([jax.ShapeDtypeStruct(*leaf, sharding=sharding) for leaf in leaves])


def _compiler_options() -> dict[str, Any]:
    """Options of XLA, unless some are set: on a CPU its last level of optimisation doubles the time to compile.

    `python -m benchmarks --only end_to_end` shows both; what is computed takes no longer without it.
    """
    is_set = "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", "")
    return {} if is_set or jax.default_backend() != "cpu" else {"xla_backend_optimization_level": 2}


@lru_cache(maxsize=64)
def _jitted(function: Callable, static: Any) -> Callable[[Tree, Tree], Tree]:
    """The function of one run; an inner `jit` remembers what it traced, for shapes and for programs."""
    return jax.jit(lambda shared, item: function(shared, item, static))


def _result_of(function: Callable, static: Any, shared: tuple, item: tuple) -> Tree:
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), _concrete(item, None))
    return jax.eval_shape(_jitted(function, static), _concrete(shared, None), row)


def result_shapes(function: Callable, shared: Tree, items: Tree, static: Any = None) -> Tree:
    """Shape and kind of the result of one run, without computing or compiling; arguments as of `map_runs`."""
    return _result_of(function, static, abstract(shared), abstract(items, rows=1))


# Programs by what they compute; a sweep uses few, and one that is not in use any more may go.
@lru_cache(maxsize=64)
def _plan(function: Callable, static: Any, mesh: Mesh, shared: tuple, item: tuple, width: int) -> Plan:
    """Compiles a program for runs of one kind; `shared` and `item` (of one row) as `abstract` gives them."""
    inner = _jitted(function, static)
    result = _result_of(function, static, shared, item)
    row_bytes = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in item[1])
    row_bytes += sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result))
    blocks = int(np.clip(MOST_CALL_BYTES // (width * max(1, row_bytes)), 1, MOST_BLOCKS))
    # The runs are independent, so nothing needs checking across devices.
    specs = {"in_specs": (REPLICATED, SPLIT, SPLIT), "out_specs": SPLIT, "check_vma": False}

    def runs(shared: Tree, items: Tree, num_blocks: jax.Array) -> Tree:
        return _on_one_device(lambda one: inner(shared, unpack(one, item)), width, items, num_blocks)

    whole, split = NamedSharding(mesh, REPLICATED), NamedSharding(mesh, SPLIT)
    counts = jax.ShapeDtypeStruct((mesh.size,), np.int32, sharding=split)
    rows = [jax.ShapeDtypeStruct(*one, sharding=split) for one in packed_shapes(item, mesh.size * width * blocks)]
    arguments = (_concrete(shared, whole), rows, counts)
    program = jax.jit(jax.shard_map(runs, mesh=mesh, **specs)).lower(*arguments).compile(_compiler_options())
    sizes = program.memory_analysis()
    parts = (sizes.argument_size_in_bytes, sizes.output_size_in_bytes, sizes.temp_size_in_bytes) if sizes else ()
    return Plan(program, width, width * blocks, sum(parts))


def programs_compiled() -> int:
    """Programs that this process has compiled for `map_runs` so far."""
    return _plan.cache_info().misses


def memory_limit() -> int:
    """Bytes that the runs in flight on one device may take together."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    limit = statistics.get("bytes_limit") or memory_bytes() // len(jax.local_devices())
    return int(MEMORY_SHARE * limit)


def _kind(function: Callable, shared: Tree, items: Tree, static: Any) -> tuple:
    """All that sets the programs of a call of `map_runs` apart from others but their width."""
    return function, static, make_mesh(), abstract(shared), abstract(items, rows=1)


def make_plan(
    function: Callable, shared: Tree, items: Tree, static: Any = None, *, width: int | None = None
) -> Plan:
    """Compiles what `map_runs` runs, unless it has done so before.

    On a CPU one run at a time: a core's cache holds the models of one run, not of several. On an accelerator as
    many as fit in its memory, since a single run leaves most of it idle: the largest power of two, so that
    numbers of runs that differ a little share a program.

    Args:
        function: see `map_runs`, as all others.
        shared: see there.
        items: see there; their number matters on accelerators only.
        static: see there.
        width: runs at the same time on each device; none: as above.

    Raises:
        ValueError: `width` is under 1.
    """
    if width is not None and width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    kind = _kind(function, shared, items, static)
    if width is None and jax.default_backend() != "cpu":
        one = _plan(*kind, 1)
        share = -(-jax.tree.leaves(items)[0].shape[0] // make_mesh().size)
        width = 2 ** int(np.log2(max(1, min(memory_limit() // max(1, one.bytes), share))))
    return _plan_that_fits(kind, width or 1)


def _plan_that_fits(kind: tuple, width: int) -> Plan:
    """The program of a width; of half of it where compiling runs out of memory, as trials of kernels may do."""
    while True:
        width = min(width, _most_width.get(kind, width))
        try:
            return _plan(*kind, width)
        except jax.errors.JaxRuntimeError as error:
            _halve(kind, width, error)


def _halve(kind: tuple, width: int, error: Exception) -> None:
    """Half as many runs at a time from now on, if it was memory that failed and there is a half."""
    if "RESOURCE_EXHAUSTED" not in str(error) or width == 1:
        raise error
    _most_width[kind] = width // 2


def _spread(items: Tree, numbers: np.ndarray, plan: Plan, mesh: Mesh) -> tuple[Tree, jax.Array, np.ndarray]:
    """Items in the slots of the devices, blocks of each device, and the slots whose results are wanted."""
    per_device = -(-numbers.size // mesh.size)
    taken = np.clip(numbers.size - per_device * np.arange(mesh.size), 0, per_device)
    slot = np.arange(plan.slots)
    # Places without a run get one that is there: a block may compute it, and nobody reads the result.
    place = np.minimum(per_device * np.arange(mesh.size)[:, None] + slot, numbers.size - 1)
    wanted = np.flatnonzero((slot < taken[:, None]).ravel())
    split = NamedSharding(mesh, SPLIT)
    put = lambda rows: jax.make_array_from_callback(rows.shape, split, lambda part: rows[part])  # noqa: E731
    rows = numbers[place.ravel()]
    num_blocks = put((-(-taken // plan.width)).astype(np.int32))
    return jax.tree.map(lambda leaf: put(leaf[rows]), items), num_blocks, wanted


def _fetch(found: Tree, wanted: np.ndarray, into: Tree) -> None:
    """Copies the wanted rows of results from all devices; with several processes, in every one of them."""

    def fetch(leaf: jax.Array, rows: np.ndarray) -> None:
        if not leaf.is_fully_addressable:
            rows[: wanted.size] = np.asarray(multihost_utils.process_allgather(leaf, tiled=True))[wanted]
            return
        done = 0
        # Device by device: a whole array would be put together from all slots, also those without a run.
        for shard in sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0):
            first = shard.index[0].start or 0
            own = wanted[(wanted >= first) & (wanted < first + shard.data.shape[0])] - first
            rows[done : done + own.size] = np.asarray(shard.data)[own]
            done += own.size

    jax.tree.map(fetch, found, into)


def _next_blocks(blocks: int, seconds: float, most: int) -> int:
    """Blocks of the next call, so that calls take a second: long enough not to count, short enough to watch."""
    wanted = int(np.clip(blocks * SECONDS_PER_CALL / max(seconds, 1e-9), 1, most))
    # Processes that work on the same program take the same runs.
    return wanted if jax.process_count() == 1 else int(multihost_utils.broadcast_one_to_all(np.int32(wanted)))


def map_runs(
    function: Callable[[Tree, Tree, Any], Tree],
    shared: Tree,
    items: Tree,
    static: Any = None,
    *,
    width: int | None = None,
    advance: Callable[[int], None] = lambda done: None,
    announce: Callable[[Plan], None] = lambda plan: None,
) -> Tree:
    """Computes `function(shared, item, static)` for every item, over all devices.

    One compilation serves every number of runs. On a CPU, where a run is computed by itself, its result does not
    depend on the others, on their number or on the devices, to the last bit. A device that runs out of memory
    takes half as many runs at the same time from then on.

    Args:
        function: a pure function, the same object in every call so that it compiles once.
        shared: pytree that all runs read.
        items: pytree with a leading axis, one entry per run.
        static: hashable, part of the program.
        width: runs at the same time on each device; none: chosen to fit, see `make_plan`.
        advance: called on the host after each call of the program with the number of runs done in it.
        announce: called with the plan before the first runs, and when a smaller one takes its place.

    Returns:
        Results as NumPy arrays with a leading axis of runs.

    Raises:
        ValueError: `width` is under 1.
    """
    mesh, shared, items = make_mesh(), share(shared), jax.tree.map(np.asarray, items)
    packed, plan = pack(items), make_plan(function, shared, items, static, width=width)
    announce(plan)
    size, done, blocks, results = jax.tree.leaves(items)[0].shape[0], 0, 1, None
    while done < size:
        numbers = np.arange(done, min(size, done + blocks * plan.width * mesh.size))
        started = time.perf_counter()
        try:
            part, num_blocks, wanted = _spread(packed, numbers, plan, mesh)
            found = plan.program(shared, part, num_blocks)
            if results is None:
                results = jax.tree.map(lambda leaf: np.empty((size, *leaf.shape[1:]), leaf.dtype), found)
            _fetch(found, wanted, jax.tree.map(lambda leaf, numbers=numbers: leaf[numbers[0] :], results))
        except jax.errors.JaxRuntimeError as error:
            _halve(_kind(function, shared, items, static), plan.width, error)
            plan, blocks = make_plan(function, shared, items, static, width=plan.width), 1
            announce(plan)
            continue
        # Not kept beside those of the next call.
        del part, found
        blocks = _next_blocks(blocks, time.perf_counter() - started, plan.slots // plan.width)
        done += numbers.size
        advance(numbers.size)
    return results
