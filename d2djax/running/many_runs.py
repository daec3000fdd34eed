"""Runs one function for many items, over all devices, with as many items at a time as fit in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from d2djax.running import programs
from d2djax.running.machine import accelerator_memory, memory_bytes
from d2djax.running.packing import pack, result_rows, unpack_results
from d2djax.running.programs import REPLICATED, SPLIT, Compiled, Program, make_mesh, program_of

Tree = Any
MEMORY_SHARE = 0.6
SECONDS_PER_CALL = 1.0
# The reduced width of each program that ran out of memory.
_most_width: dict[Program, int] = {}


def share(tree: Tree) -> Tree:
    """Copies a pytree of arrays to every device, except arrays that are already there."""
    return jax.device_put(tree, NamedSharding(make_mesh(), REPLICATED))


def memory_limit() -> int:
    """Returns the bytes that the concurrent runs of one device may use together."""
    limit = accelerator_memory() or memory_bytes() // len(jax.local_devices())
    return int(MEMORY_SHARE * limit)


def compile_to_fit(program: Program, size: int, width: int | None = None) -> Compiled:
    """Compiles the program of `map_runs`, unless it is already compiled.

    On a CPU, the width is 1: the cache of a core holds the models of one run, not of several. On an accelerator,
    where a single run leaves most of the device idle, it is the largest power of two that fits in memory, so that
    similar numbers of runs share a program.

    Args:
        program: the program to compile.
        size: number of items; only accelerators use it.
        width: concurrent runs on each device; None: as above.

    Returns:
        The compiled program.

    Raises:
        ValueError: `width` is under 1, or the program needs more memory than the machine has.
    """
    if width is None and jax.default_backend() != "cpu":
        one = programs.compiled(program, 1)
        share = -(-size // make_mesh().size)
        width = 2 ** int(np.log2(max(1, min(memory_limit() // max(1, one.bytes), share))))
    compiled = _compiled_that_fits(program, 1 if width is None else width)
    # A system that overcommits memory would kill the process during the work.
    if jax.default_backend() == "cpu" and compiled.bytes > (memory_bytes() or compiled.bytes):
        raise ValueError(
            f"a run needs {compiled.bytes / 2**30:,.1f} GiB of memory, and the machine has "
            f"{memory_bytes() / 2**30:,.1f} GiB; use fewer devices or points, or a smaller batch"
        )
    return compiled


def _compiled_that_fits(program: Program, width: int) -> Compiled:
    """Compiles with the given width, and halves it while compilation (autotuning) runs out of memory."""
    while True:
        width = min(width, _most_width.get(program, width))
        try:
            return programs.compiled(program, width)
        except jax.errors.JaxRuntimeError as error:
            _halve(program, width, error)


def _halve(program: Program, width: int, error: Exception) -> None:
    """Halves the width of a program after an out-of-memory error; raises any other error again."""
    if "RESOURCE_EXHAUSTED" not in str(error) or width == 1:
        raise error
    _most_width[program] = width // 2


def _spread(items: Tree, numbers: np.ndarray, compiled: Compiled, mesh: Mesh) -> tuple[Tree, jax.Array, np.ndarray]:
    """Distributes items over the slots of the devices.

    Returns:
        The items by slot, the number of blocks of each device, and the slots that hold a requested run.
    """
    per_device = -(-numbers.size // mesh.size)
    taken = np.clip(numbers.size - per_device * np.arange(mesh.size), 0, per_device)
    slot = np.arange(compiled.slots)
    # Slots without a run repeat an existing item: a block may compute it, but nothing reads the result.
    place = np.minimum(per_device * np.arange(mesh.size)[:, None] + slot, numbers.size - 1)
    wanted = np.flatnonzero((slot < taken[:, None]).ravel())
    split = NamedSharding(mesh, SPLIT)
    put = lambda rows: jax.make_array_from_callback(rows.shape, split, lambda part: rows[part])  # noqa: E731
    rows = numbers[place.ravel()]
    num_blocks = put((-(-taken // compiled.width)).astype(np.int32))
    return jax.tree.map(lambda leaf: put(leaf[rows]), items), num_blocks, wanted


def _fetch(found: Tree, wanted: np.ndarray, into: Tree) -> None:
    """Copies the requested rows of results from all devices to the host, in every process."""

    def fetch(leaf: jax.Array, rows: np.ndarray) -> None:
        if not leaf.is_fully_addressable:
            rows[: wanted.size] = np.asarray(multihost_utils.process_allgather(leaf, tiled=True))[wanted]
            return
        done = 0
        # Device by device, because a copy of the whole array would include the slots without a run.
        for shard in sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0):
            first = shard.index[0].start or 0
            own = wanted[(wanted >= first) & (wanted < first + shard.data.shape[0])] - first
            rows[done : done + own.size] = np.asarray(shard.data)[own]
            done += own.size

    jax.tree.map(fetch, found, into)


def _next_blocks(blocks: int, seconds: float, most: int) -> int:
    """Returns the blocks of the next call, for calls of about a second: little overhead, frequent progress."""
    wanted = int(np.clip(blocks * SECONDS_PER_CALL / max(seconds, 1e-9), 1, most))
    # Processes that run the same program must take the same runs.
    return wanted if jax.process_count() == 1 else int(multihost_utils.broadcast_one_to_all(np.int32(wanted)))


def map_runs(
    function: Callable[[Tree, Tree, Any], Tree],
    shared: Tree,
    items: Tree,
    static: Any = None,
    *,
    program: Program | None = None,
    width: int | None = None,
    advance: Callable[[int], None] = lambda done: None,
    announce: Callable[[Compiled], None] = lambda compiled: None,
) -> Tree:
    """Computes `function(shared, item, static)` for every item, over all devices.

    One compilation serves every number of runs. On a CPU, where each run is computed separately, its result is
    bitwise independent of the other runs, of their number and of the devices. When a device runs out of memory,
    the width is halved from then on.

    Args:
        function: a pure function of one run; the same object in every call, so that it compiles once.
        shared: pytree that all runs read.
        items: pytree of arrays [R, ...], one row per run.
        static: hashable value, part of the program.
        program: result of `program_of` for these four arguments, if known; computing it inspects all code.
        width: concurrent runs on each device; None: see `compile_to_fit`.
        advance: called on the host after each call of the program, with the number of runs just finished.
        announce: called with the compiled program before the first runs, and again if a smaller one replaces it.

    Returns:
        Pytree of NumPy arrays [R, ...].

    Raises:
        ValueError: `width` is under 1.
    """
    mesh, shared, items = make_mesh(), share(shared), jax.tree.map(np.asarray, items)
    program = program_of(function, shared, items, static) if program is None else program
    size, done, blocks, shapes = jax.tree.leaves(items)[0].shape[0], 0, 1, programs.result_shapes(program)
    results = [np.empty(*one) for one in result_rows(shapes, size)]
    packed, compiled = pack(items), compile_to_fit(program, size, width)
    announce(compiled)
    while done < size:
        numbers = np.arange(done, min(size, done + blocks * compiled.width * mesh.size))
        started = time.perf_counter()
        try:
            given, num_blocks, wanted = _spread(packed, numbers, compiled, mesh)
            found = compiled.call(shared, given, num_blocks)
            _fetch(found, wanted, [rows[numbers[0] :] for rows in results])
        except jax.errors.JaxRuntimeError as error:
            _halve(program, compiled.width, error)
            compiled, blocks = _compiled_that_fits(program, compiled.width), 1
            announce(compiled)
            continue
        # Free them before the next call.
        del given, found
        blocks = _next_blocks(blocks, time.perf_counter() - started, compiled.slots // compiled.width)
        done += numbers.size
        advance(numbers.size)
    return unpack_results(results, shapes)
