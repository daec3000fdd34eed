"""Many runs of one function: as many at a time as fit in memory, spread over all devices."""

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
from d2djax.running.packing import pack
from d2djax.running.programs import REPLICATED, SPLIT, Compiled, Program, make_mesh, program_of

Tree = Any
MEMORY_SHARE = 0.6
SECONDS_PER_CALL = 1.0
# The width that is left after a program ran out of memory.
_most_width: dict[Program, int] = {}


def share(tree: Tree) -> Tree:
    """Copies arrays to every device; what lies there already is not copied again."""
    return jax.device_put(tree, NamedSharding(make_mesh(), REPLICATED))


def memory_limit() -> int:
    """Bytes that the runs in flight on one device may take together."""
    limit = accelerator_memory() or memory_bytes() // len(jax.local_devices())
    return int(MEMORY_SHARE * limit)


def compile_to_fit(program: Program, size: int, width: int | None = None) -> Compiled:
    """Compiles what `map_runs` runs, unless it has done so before.

    On a CPU one run at a time: a core's cache holds the models of one run, not of several. On an accelerator as
    many as fit in its memory, since a single run leaves most of it idle: the largest power of two, so that
    numbers of runs that differ a little share a program.

    Args:
        program: what is to be compiled.
        size: number of items; it matters on accelerators only.
        width: runs at the same time on each device; none: as above.

    Raises:
        ValueError: `width` is under 1, or the program takes more memory than the machine has.
    """
    if width is None and jax.default_backend() != "cpu":
        one = programs.compiled(program, 1)
        share = -(-size // make_mesh().size)
        width = 2 ** int(np.log2(max(1, min(memory_limit() // max(1, one.bytes), share))))
    compiled = _compiled_that_fits(program, 1 if width is None else width)
    # A system that promises more memory than it has would end the process in the middle.
    if jax.default_backend() == "cpu" and compiled.bytes > (memory_bytes() or compiled.bytes):
        raise ValueError(
            f"a run needs {compiled.bytes / 2**30:,.1f} GiB of memory, and the machine has "
            f"{memory_bytes() / 2**30:,.1f} GiB; fewer devices, points or a smaller batch need less"
        )
    return compiled


def _compiled_that_fits(program: Program, width: int) -> Compiled:
    """The program of a width; of half of it where compiling runs out of memory, as trials of kernels may do."""
    while True:
        width = min(width, _most_width.get(program, width))
        try:
            return programs.compiled(program, width)
        except jax.errors.JaxRuntimeError as error:
            _halve(program, width, error)


def _halve(program: Program, width: int, error: Exception) -> None:
    """Half as many runs at a time from now on, if it was memory that failed and there is a half."""
    if "RESOURCE_EXHAUSTED" not in str(error) or width == 1:
        raise error
    _most_width[program] = width // 2


def _spread(items: Tree, numbers: np.ndarray, compiled: Compiled, mesh: Mesh) -> tuple[Tree, jax.Array, np.ndarray]:
    """Items in the slots of the devices, blocks of each device, and the slots whose results are wanted."""
    per_device = -(-numbers.size // mesh.size)
    taken = np.clip(numbers.size - per_device * np.arange(mesh.size), 0, per_device)
    slot = np.arange(compiled.slots)
    # Places without a run get one that is there: a block may compute it, and nobody reads the result.
    place = np.minimum(per_device * np.arange(mesh.size)[:, None] + slot, numbers.size - 1)
    wanted = np.flatnonzero((slot < taken[:, None]).ravel())
    split = NamedSharding(mesh, SPLIT)
    put = lambda rows: jax.make_array_from_callback(rows.shape, split, lambda part: rows[part])  # noqa: E731
    rows = numbers[place.ravel()]
    num_blocks = put((-(-taken // compiled.width)).astype(np.int32))
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
    program: Program | None = None,
    width: int | None = None,
    advance: Callable[[int], None] = lambda done: None,
    announce: Callable[[Compiled], None] = lambda compiled: None,
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
        program: what `program_of` gives of these four, where it is known; it looks into all code that takes part.
        width: runs at the same time on each device; none: chosen to fit, see `compile_to_fit`.
        advance: called on the host after each call of the program with the number of runs done in it.
        announce: called with the compiled program before the first runs, and when a smaller one takes its place.

    Returns:
        Results as NumPy arrays with a leading axis of runs.

    Raises:
        ValueError: `width` is under 1.
    """
    mesh, shared, items = make_mesh(), share(shared), jax.tree.map(np.asarray, items)
    program = program_of(function, shared, items, static) if program is None else program
    size, done, blocks, results = jax.tree.leaves(items)[0].shape[0], 0, 1, None
    packed, compiled = pack(items), compile_to_fit(program, size, width)
    announce(compiled)
    while done < size:
        numbers = np.arange(done, min(size, done + blocks * compiled.width * mesh.size))
        started = time.perf_counter()
        try:
            given, num_blocks, wanted = _spread(packed, numbers, compiled, mesh)
            found = compiled.call(shared, given, num_blocks)
            if results is None:
                results = jax.tree.map(lambda leaf: np.empty((size, *leaf.shape[1:]), leaf.dtype), found)
            _fetch(found, wanted, jax.tree.map(lambda leaf, numbers=numbers: leaf[numbers[0] :], results))
        except jax.errors.JaxRuntimeError as error:
            _halve(program, compiled.width, error)
            compiled, blocks = _compiled_that_fits(program, compiled.width), 1
            announce(compiled)
            continue
        # Not kept beside those of the next call.
        del given, found
        blocks = _next_blocks(blocks, time.perf_counter() - started, compiled.slots // compiled.width)
        done += numbers.size
        advance(numbers.size)
    return results
