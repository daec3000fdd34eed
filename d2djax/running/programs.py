"""Compiles one program for many runs of one function, in the background."""

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
from d2djax.running.packing import abstract, pack_results, packed_shapes, result_rows, unpack

Tree = Any
MOST_BLOCKS = 64
MOST_CALL_BYTES = 2**26
REPLICATED, SPLIT = PartitionSpec(), PartitionSpec("run")


@dataclass(frozen=True)
class Compiled:
    """A compiled program. One call computes up to `slots` runs on each device, `width` at a time.

    Attributes:
        call: maps shared arrays, items [devices * slots, ...] and the number of blocks of each device [devices] to
            the arrays [devices * slots, K] of `packing.pack_results`.
        width: concurrent runs on each device.
        slots: maximum number of runs in one call on each device; a multiple of `width`.
        bytes: memory of one call on each device, as the compiler reports it: arguments, results and temporaries.
    """

    call: Callable[[Tree, Tree, Tree], list[jax.Array]]
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
    """Makes a mesh with one axis, `run`, over the devices of all processes that run the same program."""
    # Explicit axes, the default of newer versions, do not allow `vmap` inside a sharded program.
    return Mesh(np.array(jax.devices()), ("run",), axis_types=(AxisType.Auto,))


@dataclass(frozen=True)
class Program:
    """Everything that identifies a program, except its width.

    Attributes:
        function: the function of one run, see `map_runs`.
        static: static value of the program, see `map_runs`.
        mesh: the devices.
        shared: result of `abstract` for the arrays that all runs read.
        item: result of `abstract` for the items, with one row.
        code: fingerprint of `function` and `static`, which changes if a function, a closure or a table changes.
    """

    function: Callable[[Tree, Tree, Any], Tree]
    static: Any
    mesh: Mesh
    shared: tuple[Any, tuple]
    item: tuple[Any, tuple]
    code: str


def program_of(function: Callable, shared: Tree, items: Tree, static: Any) -> Program:
    """Identifies the program that `map_runs` needs.

    Args:
        function: see `map_runs`.
        shared: see `map_runs`; only shapes and dtypes matter.
        items: see `map_runs`; only shapes and dtypes matter.
        static: see `map_runs`.
    """
    code = fingerprint((function, static))
    return Program(function, static, make_mesh(), abstract(shared), abstract(items, rows=1), code)


def _same_draws() -> AbstractContextManager[None]:
    """Makes a draw independent of its length, see `rng.draw_rounded_up`, whatever the settings of JAX are."""
    return jax.threefry_partitionable(True)


def _concrete(abstract: tuple[Any, tuple], sharding: NamedSharding | None) -> Tree:
    structure, leaves = abstract
    return structure.unflatten([jax.ShapeDtypeStruct(*leaf, sharding=sharding) for leaf in leaves])


@lru_cache(maxsize=64)
def _jitted(function: Callable, static: Any, code: str) -> Callable[[Tree, Tree], Tree]:
    """Jits the function of one run, so that `result_shapes` and `_lower` share one trace."""
    return jax.jit(lambda shared, item: function(shared, item, static))


@lru_cache(maxsize=64)
def result_shapes(program: Program) -> Tree:
    """Returns the shapes of the result of one run, without computing or compiling.

    Args:
        program: the program.

    Returns:
        Pytree of `jax.ShapeDtypeStruct`.
    """
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), _concrete(program.item, None))
    # The sharding is that of the program, so that both share one trace of the function.
    specs = {"in_specs": (REPLICATED, REPLICATED), "out_specs": REPLICATED, "check_vma": False}
    inside = jax.shard_map(_jitted(program.function, program.static, program.code), mesh=program.mesh, **specs)
    with _same_draws():
        return jax.eval_shape(inside, _concrete(program.shared, None), row)


def _on_one_device(one: Callable, width: int, items: Tree, num_blocks: jax.Array, shapes: Tree) -> list[jax.Array]:
    """Computes the first `num_blocks` blocks of `width` items; the other rows of the packed results are zero."""

    def block(first: jax.Array) -> list[jax.Array]:
        if width > 1:
            part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, width), items)
            return pack_results(jax.vmap(one)(part))
        # A single run, not a batch of one: its bits do not depend on the rest of the call.
        run = one(jax.tree.map(lambda leaf: leaf[first], items))
        return pack_results(jax.tree.map(lambda leaf: leaf[None], run))

    def step(number: jax.Array, results: list[jax.Array]) -> list[jax.Array]:
        put = lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, number * width, 0)  # noqa: E731
        return jax.tree.map(put, results, block(number * width))

    slots = jax.tree.leaves(items)[0].shape[0]
    empty = [jnp.zeros(*one) for one in result_rows(shapes, slots)]
    # The bound is traced: one program serves every number of runs, without padding runs.
    return jax.lax.fori_loop(0, num_blocks[0], step, empty)


def _lower(program: Program, width: int) -> tuple[jax.stages.Lowered, int]:
    """Lowers the program for XLA; also returns its slots on each device."""
    if width < 1:
        raise ValueError(f"width must be at least 1; got {width}")
    inner, mesh, item = _jitted(program.function, program.static, program.code), program.mesh, program.item
    row_bytes = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in item[1])
    shapes = result_shapes(program)
    row_bytes += sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    slots = width * int(np.clip(MOST_CALL_BYTES // (width * max(1, row_bytes)), 1, MOST_BLOCKS))
    # The runs are independent, so no check across devices is needed.
    specs = {"in_specs": (REPLICATED, SPLIT, SPLIT), "out_specs": SPLIT, "check_vma": False}

    def runs(shared: Tree, items: Tree, num_blocks: jax.Array) -> list[jax.Array]:
        return _on_one_device(lambda one: inner(shared, unpack(one, item)), width, items, num_blocks, shapes)

    whole, split = NamedSharding(mesh, REPLICATED), NamedSharding(mesh, SPLIT)
    counts = jax.ShapeDtypeStruct((mesh.size,), np.int32, sharding=split)
    rows = [jax.ShapeDtypeStruct(*one, sharding=split) for one in packed_shapes(item, mesh.size * slots)]
    mapped = jax.jit(jax.shard_map(runs, mesh=mesh, **specs))
    with _same_draws():
        return mapped.lower(_concrete(program.shared, whole), rows, counts), slots


def _compiler_options() -> dict[str, Any]:
    """Returns the options of XLA: optimisation level 2 on a CPU, unless the user sets a level.

    Level 3 compiles more slowly, and its programs are no faster (`python -m benchmarks --only end_to_end`).
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
    # A run compiles all programs at once. Several processes must compile in the same order, one by one.
    return ThreadPoolExecutor(1 if jax.process_count() > 1 else 3, thread_name_prefix="compile")


# A sweep uses few programs, so the least recently used one can be dropped.
@lru_cache(maxsize=64)
def _started(program: Program, width: int) -> Future[Compiled]:
    # Tracing needs the thread-local settings of JAX, so it happens here; XLA compiles in another thread.
    lowered, slots = _lower(program, width)
    return _compilers().submit(_compile, lowered, width, slots)


def start(program: Program, width: int | None) -> None:
    """Starts to compile a program in the background, on a CPU only.

    Compilation for an accelerator times kernels on it, which should not overlap with other work.

    Args:
        program: the program.
        width: concurrent runs on each device; None: 1.
    """
    if jax.default_backend() == "cpu":
        _started(program, 1 if width is None else width)


def compiled(program: Program, width: int) -> Compiled:
    """Returns the compiled program for a width; compiles it unless it is already compiled.

    Args:
        program: the program.
        width: concurrent runs on each device, at least 1.

    Raises:
        ValueError: `width` is under 1.
    """
    try:
        return _started(program, width).result()
    except Exception:
        # Compilation that failed, for example for lack of memory, can be tried again.
        _started.cache_clear()
        raise


def cancel() -> None:
    """Cancels pending compilations, for a process that is about to end."""
    if _compilers.cache_info().currsize:
        _compilers().shutdown(wait=False, cancel_futures=True)
        _compilers.cache_clear()
        _started.cache_clear()


def num_compiled() -> int:
    """Returns how many programs this process has compiled so far."""
    return _started.cache_info().misses
