import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import d2djax
from d2djax.running import many_runs, packing, programs


def new_function():
    """A function of one run that no other test has compiled, and what it was traced for."""
    # Not a list: what a function holds is part of the key of its program.
    traces = SimpleQueue()

    def one(shared, item, static):
        traces.put(static)
        spread = jnp.sin(item["x"] * shared).sum()
        return {"sum": spread + (static or 0), "number": item["number"], "all": jnp.outer(item["x"], shared)}

    return one, traces


SHARED = np.linspace(0.1, 3, 7, dtype=np.float32)


def items(size):
    x = np.random.default_rng(0).normal(size=(size, 7)).astype(np.float32)
    return {"x": x, "number": np.arange(size, dtype=np.int32)}


def check(found, given):
    np.testing.assert_array_equal(found["number"], given["number"])
    np.testing.assert_allclose(found["sum"], np.sin(given["x"] * SHARED).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["all"], given["x"][:, :, None] * SHARED)


def test_every_number_of_runs_has_the_same_program_and_bits(monkeypatch):
    monkeypatch.setattr(programs, "MOST_BLOCKS", 4)
    one, traces = new_function()
    before, whole = programs.num_compiled(), many_runs.map_runs(one, SHARED, items(23))
    check(whole, items(23))
    # For the shapes of the results, and for the program.
    assert traces.qsize() <= 2
    while not traces.empty():
        traces.get()
    for size in (1, 2, 4, 5):
        done = []
        few = jax.tree.map(lambda leaf, size=size: leaf[:size], items(23))
        found = many_runs.map_runs(one, SHARED, few, advance=done.append)
        assert sum(done) == size and max(done) <= 4 * jax.device_count()
        for name, values in found.items():
            assert isinstance(values, np.ndarray)
            np.testing.assert_array_equal(values, whole[name][:size])
    assert programs.num_compiled() == before + 1 and traces.empty()


@pytest.mark.parametrize("seconds, longest", [(0.0, 1), (1e6, 4)])
def test_length_of_calls_changes_nothing(monkeypatch, seconds, longest):
    monkeypatch.setattr(many_runs, "SECONDS_PER_CALL", seconds)
    monkeypatch.setattr(programs, "MOST_BLOCKS", 4)
    calls, given = [], items(9)
    found = many_runs.map_runs(new_function()[0], SHARED, given, advance=calls.append)
    check(found, given)
    assert calls[0] == jax.device_count() and max(calls) <= longest * jax.device_count()
    if jax.device_count() == 1:
        assert calls == ([1] * 9 if longest == 1 else [1, 4, 4])


def test_results_of_all_shapes_and_dtypes_are_restored():
    results = {
        "number": np.arange(3, dtype=np.float32),
        "flag": np.array([True, False, True]),
        "matrix": np.arange(24, dtype=np.float32).reshape(3, 2, 4),
        "nothing": np.zeros((3, 0, 2), np.int32),
        "links": np.arange(6, dtype=np.int32).reshape(3, 2),
        "absent": None,
    }
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), results)
    packed = [np.asarray(rows) for rows in packing.pack_results(results)]
    assert [(rows.shape, rows.dtype) for rows in packed] == packing.result_rows(shapes, 3)
    assert len(packed) == 3
    found = packing.unpack_results(packed, shapes)
    jax.tree.map(np.testing.assert_array_equal, found, results)
    assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, results)


@pytest.mark.parametrize("width, size", [(1, 5), (3, 7), (3, 2), (8, 5), (4, 8)])
def test_widths(width, size):
    plans = []
    given = items(size)
    check(many_runs.map_runs(new_function()[0], SHARED, given, width=width, announce=plans.append), given)
    assert [plan.width for plan in plans] == [width] and plans[0].slots % width == 0


@pytest.mark.parametrize("width", [0, -1])
def test_width_must_be_positive(width):
    with pytest.raises(ValueError, match=f"width must be at least 1; got {width}"):
        many_runs.map_runs(new_function()[0], SHARED, items(2), width=width)


def test_static_is_part_of_the_program():
    one, traces = new_function()
    first, second = (many_runs.map_runs(one, SHARED, items(2), static) for static in (0, 1))
    np.testing.assert_allclose(second["sum"], first["sum"] + 1, rtol=1e-6)
    traced = [traces.get() for _ in range(traces.qsize())]
    assert traced == sorted(traced) and set(traced) == {0, 1}


def test_shapes_without_compiling():
    one, _ = new_function()
    before = programs.num_compiled()
    shapes = programs.result_shapes(programs.program_of(one, SHARED, items(3), None))
    assert (shapes["sum"].shape, shapes["all"].shape, shapes["number"].dtype) == ((), (7, 7), np.int32)
    assert programs.num_compiled() == before


def test_a_program_left_out_compiles_later():
    program = programs.program_of(new_function()[0], SHARED, items(3), None)
    programs.start(program, None)
    programs.cancel()
    programs.cancel()
    assert programs.compiled(program, 1).width == 1


def test_a_plan_says_what_it_is():
    plan = many_runs.compile_to_fit(programs.program_of(new_function()[0], SHARED, items(3), None), 3, width=2)
    assert str(plan).startswith("2 runs at a time on ") and str(plan).endswith("MB each")
    assert plan.bytes > 0


# --- memory ---


@pytest.fixture
def exhausted(monkeypatch):
    """`exhausted(fails)`: programs run out of memory where `fails(width, number of the call)`."""
    compiled = programs.compiled

    def start(fails, message="RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."):
        calls = []

        def limited(*arguments):
            real = compiled(*arguments)

            def call(*given):
                calls.append(real.width)
                if fails(real.width, len(calls)):
                    raise jax.errors.JaxRuntimeError(message)
                return real.call(*given)

            return dataclasses.replace(real, call=call)

        monkeypatch.setattr(programs, "compiled", limited)
        return calls

    return start


def test_out_of_memory_halves_the_width(exhausted):
    exhausted(lambda width, call: width > 1)
    plans, done, given = [], [], items(9)
    found = many_runs.map_runs(
        new_function()[0],
        SHARED,
        given,
        width=4,
        advance=done.append,
        announce=lambda plan: plans.append(plan.width),
    )
    check(found, given)
    assert plans == [4, 2, 1] and sum(done) == 9


def test_out_of_memory_once_in_the_middle_loses_nothing(exhausted, monkeypatch):
    monkeypatch.setattr(many_runs, "SECONDS_PER_CALL", 0.0)
    widths = exhausted(lambda width, call: call == 2)
    done, given = [], items(4 * jax.device_count() + 3)
    check(many_runs.map_runs(new_function()[0], SHARED, given, width=4, advance=done.append), given)
    assert widths[:3] == [4, 4, 2] and set(widths[2:]) == {2}
    assert sum(done) == len(given["number"])


def test_the_smaller_width_is_kept(exhausted):
    one, _ = new_function()
    exhausted(lambda width, call: width == 4)
    plans = []
    for _ in range(2):
        many_runs.map_runs(one, SHARED, items(9), width=4, announce=lambda plan: plans.append(plan.width))
    assert plans == [4, 2, 2]
    # Another program has its own.
    other = []
    many_runs.map_runs(new_function()[0], SHARED, items(9), width=2, announce=lambda plan: other.append(plan.width))
    assert other == [2]


def test_out_of_memory_while_compiling_halves_the_width(monkeypatch):
    compiled, tried = programs.compiled, []

    def limited(*arguments):
        tried.append(arguments[-1])
        if arguments[-1] > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying kernels.")
        return compiled(*arguments)

    monkeypatch.setattr(programs, "compiled", limited)
    plans, given = [], items(9)
    one = new_function()[0]
    for _ in range(2):
        check(
            many_runs.map_runs(one, SHARED, given, width=8, announce=lambda plan: plans.append(plan.width)), given
        )
    assert tried == [8, 4, 2, 2] and plans == [2, 2]


def test_one_run_that_does_not_fit_is_an_error(exhausted):
    calls = exhausted(lambda width, call: True)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        many_runs.map_runs(new_function()[0], SHARED, items(3), width=1)
    assert calls == [1]


def test_other_errors_are_not_taken_for_too_little_memory(exhausted):
    exhausted(lambda width, call: True, "INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        many_runs.map_runs(new_function()[0], SHARED, items(3), width=2)


# --- devices ---

DEVICES = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from d2djax.running import many_runs, programs
import jax, test_batch
programs.MOST_BLOCKS = 2
one, _ = test_batch.new_function()
whole = many_runs.map_runs(one, test_batch.SHARED, test_batch.items(21))
for size in (1, 2, 3, 4, 5, 8, 9):
    few = {name: values[:size] for name, values in test_batch.items(21).items()}
    done = []
    found = many_runs.map_runs(one, test_batch.SHARED, few, advance=done.append)
    assert sum(done) == size, (size, done)
    for name in found:
        np.testing.assert_array_equal(found[name], whole[name][:size])
test_batch.check(whole, test_batch.items(21))
assert programs.num_compiled() == 1
assert len(jax.devices()) == 4
given = test_batch.items(21)
for width in (2, 3):
    test_batch.check(many_runs.map_runs(one, test_batch.SHARED, given, width=width), given)
np.save(sys.argv[2], whole["sum"])
"""


def test_four_devices_equal_one(tmp_path):
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "4",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(d2djax.__file__).parents[1]),
    }
    given = [sys.executable, "-c", DEVICES, Path(__file__).parent, tmp_path / "sum.npy"]
    subprocess.run(given, env=environment, check=True, timeout=300)
    alone = many_runs.map_runs(new_function()[0], SHARED, items(21))
    np.testing.assert_array_equal(np.load(tmp_path / "sum.npy"), alone["sum"])
