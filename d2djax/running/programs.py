"""One compiled program for many runs of one function, compiled while other work goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from d2djax.running.fingerprint import fingerprint
from d2djax.running.packing import abstract, packed_shapes, unpack

Tree = Any
MOST_BLOCKS = 64
MOST_CALL_BYTES = 2**26
REPLICATED, SPLIT = PartitionSpec(), PartitionSpec("run")


@dataclass(frozen=True)
class Compiled:
    """How runs are computed: `width` at the same time on each device, then the next, up to `slots` in one call.

    Attributes:
        call: the compiled program: shared arrays, items [devices * slots, ...] and blocks to compute on each
            device [devices], to results [devices * slots, ...].
        width: runs at the same time on each device.
        slots: runs in one call on each device, at most; a multiple of `width`.
        bytes: what one call takes on each device, from the compiled program: arguments, results and temporaries.
    """

    call: Callable[[Tree, Tree, Tree], Tree]
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


@dataclass(frozen=True)
class Program:
    """All that sets a program apart from others but its width.

    Attributes:
        function: of one run, as `map_runs` takes it.
        static: part of the program.
        mesh: the devices.
        shared: structure and shapes of what all runs read, as `abstract` gives them.
        item: those of the items, as if there were one.
        code: fingerprint of the function and of `static`: of a function that was replaced, or of another value in
            a closure or a table, there is another program.
    """

    function: Callable[[Tree, Tree, Any], Tree]
    static: Any
    mesh: Mesh
    shared: tuple[Any, tuple]
    item: tuple[Any, tuple]
    code: str


def program_of(function: Callable, shared: Tree, items: Tree, static: Any) -> Program:
    """The program that `map_runs` needs for these arguments; of arrays, shape and type are enough."""
    code = fingerprint((function, static))
    return Program(function, static, make_mesh(), abstract(shared), abstract(items, rows=1), code)


def _same_draws() -> AbstractContextManager[None]:
    """Random numbers as a list of any length has them, see `rng.draw_rounded_up`, whatever JAX is set to."""
    return jax.threefry_partitionable(True)


def _concrete(abstract: tuple[Any, tuple], sharding: NamedSharding | None) -> Tree:
    structure, leaves = abstract
    return structure.unflatten([jax.ShapeDtypeStruct(*leaf, sharding=sharding) for leaf in leaves])


@lru_cache(maxsize=64)
def _jitted(function: Callable, static: Any, code: str) -> Callable[[Tree, Tree], Tree]:
    """The function of one run; an inner `jit` remembers what it traced, for shapes and for programs."""
    return jax.jit(lambda shared, item: function(shared, item, static))


@lru_cache(maxsize=64)
def result_shapes(program: Program) -> Tree:
    """Shape and type of the result of one run, without computing or compiling."""
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), _concrete(program.item, None))
    # Sharded as in the program, so that one trace of the function serves both.
    specs = {"in_specs": (REPLICATED, REPLICATED), "out_specs": REPLICATED, "check_vma": False}
    inside = jax.shard_map(_jitted(program.function, program.static, program.code), mesh=program.mesh, **specs)
    with _same_draws():
        return jax.eval_shape(inside, _concrete(program.shared, None), row)


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


def _lower(program: Program, width: int) -> tuple[jax.stages.Lowered, int]:
    """The program before XLA compiles it, and its slots on each device."""
    if width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    inner, mesh, item = _jitted(program.function, program.static, program.code), program.mesh, program.item
    row_bytes = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in item[1])
    row_bytes += sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result_shapes(program)))
    slots = width * int(np.clip(MOST_CALL_BYTES // (width * max(1, row_bytes)), 1, MOST_BLOCKS))
    # The runs are independent, so nothing needs checking across devices.
    specs = {"in_specs": (REPLICATED, SPLIT, SPLIT), "out_specs": SPLIT, "check_vma": False}

    def runs(shared: Tree, items: Tree, num_blocks: jax.Array) -> Tree:
        return _on_one_device(lambda one: inner(shared, unpack(one, item)), width, items, num_blocks)

    whole, split = NamedSharding(mesh, REPLICATED), NamedSharding(mesh, SPLIT)
    counts = jax.ShapeDtypeStruct((mesh.size,), np.int32, sharding=split)
    rows = [jax.ShapeDtypeStruct(*one, sharding=split) for one in packed_shapes(item, mesh.size * slots)]
    mapped = jax.jit(jax.shard_map(runs, mesh=mesh, **specs))
    with _same_draws():
        return mapped.lower(_concrete(program.shared, whole), rows, counts), slots


def _compiler_options() -> dict[str, Any]:
    """Options of XLA, unless some are set: on a CPU without its last level of optimisation, which takes longer.

    `python -m benchmarks --only end_to_end` shows both; what is compiled runs no slower without it.
    """
    is_set = "xla_backend_optimization_level" in os.environ.get("XLA_FLAGS", "")
    return {} if is_set or jax.default_backend() != "cpu" else {"xla_backend_optimization_level": 2}


def _compile(lowered: jax.stages.Lowered, width: int, slots: int) -> Compiled:
    call = lowered.compile(_compiler_options())
    sizes = call.memory_analysis()
    parts = (sizes.argument_size_in_bytes, sizes.output_size_in_bytes, sizes.temp_size_in_bytes) if sizes else ()
    return Compiled(call, width, slots, sum(parts))


@cache
def _compilers() -> ThreadPoolExecutor:
    # All programs of a run at once; one by one where several processes have to compile them in the same order.
    return ThreadPoolExecutor(1 if jax.process_count() > 1 else 3, thread_name_prefix="compile")


# Programs by what they compute; a sweep uses few, and one that is not in use any more may go.
@lru_cache(maxsize=64)
def _started(program: Program, width: int) -> Future[Compiled]:
    # Traced here, where settings of JAX hold that are made for one thread; XLA works beside Python.
    lowered, slots = _lower(program, width)
    return _compilers().submit(_compile, lowered, width, slots)


def start(program: Program, width: int | None) -> None:
    """Begins to compile a program that will be needed soon; on a CPU alone.

    While it compiles, an accelerator tries out kernels on itself, which should not happen beside other work.
    """
    if jax.default_backend() == "cpu":
        _started(program, 1 if width is None else width)


def compiled(program: Program, width: int) -> Compiled:
    """The program of a width, compiled unless it has been before."""
    try:
        return _started(program, width).result()
    except Exception:
        # What failed for once, such as for memory, may be tried again.
        _started.cache_clear()
        raise


def cancel() -> None:
    """Leaves out what waits to be compiled, for a process that is about to end."""
    if _compilers.cache_info().currsize:
        _compilers().shutdown(wait=False, cancel_futures=True)
        _compilers.cache_clear()
        _started.cache_clear()


def num_compiled() -> int:
    """Programs that this process has compiled so far."""
    return _started.cache_info().misses
