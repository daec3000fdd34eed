"""Sweeps in separate processes: other devices, shards, several controllers, kills at any moment."""

import json
import os
import random
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import d2djax
from d2djax.running import results

SWEEP = """
import json, os, sys
import numpy as np
import jax
import d2djax
from d2djax.running import machine, plan
from d2djax.data.types import Dataset
from pathlib import Path

given = json.loads(sys.argv[1])
arrays = np.load(given["data"])
config = d2djax.Config(**given["config"] | {"policies": tuple(given["config"]["policies"])})
data = Dataset(arrays["x"], arrays["y"], tuple("abcde"), "tiny", "file")
plan._most_runs = lambda *_: given["chunk"]
if given.get("processes"):
    machine.join_processes(*given["processes"])
for name, value in given["jax"].items():
    jax.config.update(name, value)

def sweep():
    shard = tuple(given["shard"]) if given.get("shard") else None
    return d2djax.sweep(config, given["axes"], given["seeds"], given["out"], data=data, training=given["training"],
                        shard=shard, progress=False)
"""

# Processes that start with everything imported, so that each takes a second; `given["kills"]` are delays, negative
# ones from the first chunk that is done, others from the start.
KILLED = """
import signal, time
import zarr

def chunks():
    try:
        return int((zarr.open_array(Path(given["out"]) / "results.zarr" / "done", mode="r")[...] == 1).sum()) // 2
    except FileNotFoundError:
        return 0

seen = []
for delay in (*given["kills"], None):
    before, pid = chunks(), os.fork()
    if pid == 0:
        sweep()
        os._exit(0)
    if delay is None:
        assert os.waitpid(pid, 0)[1] == 0
        break
    while delay < 0 and chunks() == before and os.waitpid(pid, os.WNOHANG) == (0, 0):
        time.sleep(0.005)
    time.sleep(abs(delay))
    reached = chunks()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # What was marked as done stays.
    assert chunks() >= reached >= before
    seen.append(chunks())
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def only_none(tiny_config):
    return replace(tiny_config, policies=("none",))


@pytest.fixture(scope="module")
def start(only_none, tiny_dataset, tmp_path_factory):
    """`start(out, ...)` starts a sweep in another process."""
    folder = tmp_path_factory.mktemp("shared")
    np.savez(folder / "data.npz", x=tiny_dataset.x, y=tiny_dataset.y)
    cache = {"jax_compilation_cache_dir": str(folder / "cache"), "jax_persistent_cache_min_compile_time_secs": 0}

    def process(out, script="sweep()", devices=1, **options):
        given = {
            "config": asdict(only_none),
            "axes": {"rate": [1.0, 1.5]},
            "seeds": 8,
            "chunk": 4,
            "training": False,
        }
        given |= {"data": str(folder / "data.npz"), "out": str(out), "jax": cache} | options
        environment = os.environ | {
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(Path(d2djax.__file__).parents[1]),
        }
        words = [sys.executable, "-c", SWEEP + script, json.dumps(given)]
        return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return process


def ended(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def same(out, expected):
    got, expected = (results.read(Path(one) / "results.zarr").load() for one in (out, expected))
    assert (got["done"] == 1).all()
    for name in {**expected.data_vars, **expected.coords}:
        np.testing.assert_array_equal(got[name].values, expected[name].values, err_msg=str(name))


@pytest.fixture(scope="module")
def whole(only_none, tiny_dataset, tmp_path_factory):
    """`whole(seeds, training)`: folder of the same sweep, computed in this process without a stop."""
    made = {}

    def compute(seeds=8, training=False):
        if (seeds, training) not in made:
            out = made[seeds, training] = tmp_path_factory.mktemp("whole")
            axes, options = {"rate": [1.0, 1.5]}, {"training": training, "progress": False}
            d2djax.sweep(only_none, axes, seeds, out, data=tiny_dataset, **options)
        return out if (out := made[seeds, training]) else None

    return compute


def test_four_devices_change_nothing(start, whole, tmp_path):
    ended(start(tmp_path, devices=4))
    same(tmp_path, whole())


def test_two_shards_started_together_are_one_sweep(start, whole, tmp_path):
    processes = [start(tmp_path, shard=(number, 2), chunk=1) for number in (1, 2)]
    expected = results.read(whole() / "results.zarr").load()
    looked = []
    # A concurrent reader finds a complete store, with all results that are marked as done.
    while any(process.poll() is None for process in processes):
        if (tmp_path / "results.zarr").exists():
            done = results.read(tmp_path / "results.zarr")["done"].values == 1
            found = results.read(tmp_path / "results.zarr").load()
            np.testing.assert_array_equal(found["counts"].values[done], expected["counts"].values[done])
            looked.append(done.mean())
        # Not the whole time: the shards need the cores.
        time.sleep(0.05)
    for process in processes:
        ended(process)
    same(tmp_path, whole())
    assert looked == sorted(looked)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["config.toml", "results.zarr"]


@pytest.mark.slow
def test_two_controllers_are_one_sweep(start, whole, tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    processes = [start(tmp_path, seeds=3, training=True, processes=(address, 2, number)) for number in (0, 1)]
    for process in processes:
        ended(process)
    same(tmp_path, whole(3, True))


def test_what_the_first_of_two_controllers_refuses_stops_both(start, whole, tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    processes = [start(whole(), training=True, processes=(address, 2, number)) for number in (0, 1)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert all(process.returncode for process in processes)
    assert "training: false there, true now" in errors[0]


def kill(start, whole, tmp_path, seeds, delays):
    seen = json.loads(ended(start(tmp_path, script=KILLED, seeds=seeds, chunk=2, kills=delays)))
    same(tmp_path, whole(seeds))
    assert len(seen) == len(delays) and 0 < seen[-1] < seeds
    # No half-written file remains.
    assert not list(tmp_path.rglob("*.partial"))
    return seen


@pytest.mark.slow
def test_kills_at_random_lose_nothing(start, whole, tmp_path):
    draw = random.Random(0)
    # Half of them from the start, which may hit the layout of the store, half between or within chunks.
    delays = [draw.uniform(0, 2) if number % 2 else -draw.uniform(0.001, 0.3) for number in range(8)]
    kill(start, whole, tmp_path, 140, delays)
