"""Absurd sizes are refused in one line before anything is made."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import d2djax
from d2djax.config import Config, stack_configs
from d2djax.running import machine, many_runs, memory, programs, runs
from d2djax.searching.searches import search
from d2djax.validation import validate

HOST = 8 * 2**30


@pytest.fixture
def host(monkeypatch):
    """A machine with 8 GiB, on which nothing is read, made or compiled."""

    def fail(*arguments, **options):
        raise AssertionError("something was made")

    monkeypatch.setattr(memory, "available_memory", lambda: HOST)
    monkeypatch.setattr(memory, "accelerator_memory", lambda: 0)
    for module, name in ((runs, "load_dataset"), (runs, "arrange"), (programs, "start"), (programs, "compiled")):
        monkeypatch.setattr(module, name, fail)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"num_devices": 2**31 - 1},
            "num_devices must be smaller: all devices would hold 2,126,008,8",
        ),
        ({"num_devices": 2000000}, "num_devices=2000000 and num_states=10 need 745,058.1 GiB .* for the channels"),
        ({"num_states": 2**31 - 1}, "num_devices=25 and num_states=2147483647 need .* for the channels between"),
        ({"num_hotspots": 2**31 - 1, "num_states": 1}, "num_hotspots=2147483647 needs .* for the hot spots"),
        ({"batch_size": 10**8}, "num_devices=25 and batch_size=100000000 and aggregation_interval=50 need .* the"),
        ({"batch_size": 10**8, "num_devices": 2, "aggregation_interval": 1}, "batch_size=100000000 needs .* for a"),
        ({"batch_size": 10**8, "scheme": "fedsgd"}, "num_devices=25 and batch_size=100000000 need .* minibatches"),
        ({"points_per_device": 2**31 - 1}, "points_per_device must be smaller: all devices would hold 53,687,091"),
        ({"points_per_device": 5 * 10**7}, "num_devices=25 and points_per_device=50000000 need .* radio windows"),
        ({"num_episodes": 2**31 - 8, "record_every": 2}, "num_episodes=2147483640 and record_every=2 need .* the"),
        (
            {"num_episodes": 2**30, "record_every": 2**30},
            "record_every=1073741824 and num_devices=25 need",
        ),
        (
            {"policies": ("best_response",), "best_response_restarts": 2**31 - 1},
            "best_response_restarts=2147",
        ),
        ({"num_classes": 10**8, "dataset": "cifar10"}, "num_devices=25 and num_classes=100000000 need .* may send"),
    ],
)
def test_absurd_sizes_are_refused_before_anything_is_made(host, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        d2djax.run(Config(**changes), seeds=2, progress=False)
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_results_of_many_runs_must_fit_too(host, tmp_path):
    line = (
        r"16,777,216 runs need .* GiB of memory for the results of all runs, of at least .* in total; 8.0 GiB are"
    )
    with pytest.raises(ValueError, match=line):
        d2djax.run(Config(), seeds=2**24, progress=False)
    with pytest.raises(ValueError, match=r"4,000,000 runs need .* results"):
        search(Config(), {"gamma": d2djax.Uniform(0, 1)}, trials=4000, batch=1000, seeds=4000, out=tmp_path / "s")
    with pytest.raises(ValueError, match="num_devices=300000 and num_states=10 need"):
        d2djax.sweep(Config(), {"num_devices": [10, 300000]}, out=tmp_path / "w", training=False)
    assert not (tmp_path / "w").exists()


def test_models_of_all_devices_count(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: HOST)
    monkeypatch.setattr(memory, "accelerator_memory", lambda: 0)
    config, check = validate(Config()), memory.check_memory
    check(config, (2, 128), trains=True, num_parameters=10**6)
    with pytest.raises(ValueError, match=r"num_devices=25 and model=radio_cnn need 93\.1 GiB"):
        check(config, (2, 128), trains=True, num_parameters=10**9)
    check(config, (2, 128), trains=False, num_parameters=10**9)
    # An accelerator has a memory of its own; that of the host is for results.
    monkeypatch.setattr(memory, "accelerator_memory", lambda: 10**5)
    with pytest.raises(ValueError, match=r"num_devices=25 and num_states=10 need .*; 0\.0 GiB are available"):
        check(config, (2, 128), trains=False)
    # An unknown size refuses nothing.
    for name in ("available_memory", "accelerator_memory"):
        monkeypatch.setattr(memory, name, lambda: 0)
    check(replace(config, batch_size=10**8), (2, 128), trains=True)


def test_the_estimate_is_what_runs_take_at_least(tiny_config, tiny_dataset):
    # Larger than the rest of a program, but never run.
    config = replace(tiny_config, num_devices=300, num_states=7, points_per_device=2, classes_per_device=1)
    setup = runs.set_up(config, tiny_dataset, None)
    shapes = []
    found, learning = runs.result_shapes(setup, stack_configs([setup.config] * 3), {}, each=shapes.append)
    there = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves((found, learning)))
    (results,) = memory._of_results(setup.config, 3, True)
    assert 0.7 * there < results.bytes <= there
    network = sum(np.prod(shape) * kind.itemsize for shape, kind in shapes[1].item[1])
    assert sum(need.bytes for need in memory._of_graphs(setup.config)) < 4 * network


def test_a_program_larger_than_the_machine_is_refused(monkeypatch):
    monkeypatch.setattr(many_runs, "memory_bytes", lambda: 2**20)
    kind = programs.program_of(lambda shared, item, static: item["x"] + 1, None, {"x": np.zeros((4, 2**18))}, None)
    if jax.default_backend() == "cpu":
        with pytest.raises(
            ValueError, match=r"a run needs .* GiB of memory, and the machine has 0.0 GiB; use fewer"
        ):
            many_runs.compile_to_fit(kind, 4)


def test_available_memory():
    assert 0 < machine.available_memory() <= machine.memory_bytes()
