"""A process with a given number of CPU devices that computes runs on request, one line of JSON each way.

JAX fixes the number of devices when it starts, so each number needs its own process.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.federated_numpy import Setting, make_problem
from benchmarks.federated_package import one_run, share
from d2djax.config import Config, as_numbers
from d2djax.discovery import discover
from d2djax.network import make_network
from d2djax.rng import run_key
from d2djax.running import many_runs
from d2djax.running.many_runs import map_runs
from d2djax.validation import validate


def _discovery(config: Config, seed: jax.Array, static: None) -> Any:
    key = run_key(seed)
    found = discover(key, make_network(key, config), config)
    return found.links, found.buffer, found.history


def digests(results: Any) -> list[str]:
    """One number for all bits of each run's results."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(results)]
    return [
        hashlib.sha256(b"".join(leaf[run].tobytes() for leaf in leaves)).hexdigest()
        for run in range(len(leaves[0]))
    ]


def works(episodes: int, setting: Setting, rounds: int) -> dict[str, Callable[[int], Any]]:
    """The available work: functions from a number of runs to their results."""
    config = Config(num_devices=25, num_classes=10, num_episodes=episodes, record_every=episodes // 2)
    training = many_runs.share(share(make_problem(setting), rounds))
    seeds = partial(np.arange, dtype=np.int32)
    return {
        "discovery": lambda runs: map_runs(_discovery, as_numbers(validate(config)), seeds(runs)),
        "training": lambda runs: map_runs(one_run, training, seeds(runs)),
    }


def main(sizes: dict[str, Any]) -> None:
    """Answers until the input ends; the first line gives the number of devices and the compile time."""
    known = works(sizes["episodes"], Setting(**sizes["setting"]), sizes["rounds"])
    compiling = {}
    for name, work in known.items():
        times = [time.perf_counter()]
        for _ in range(2):
            work(1)
            times.append(time.perf_counter())
        # The first call compiles; the second does not.
        compiling[name] = max(0.0, times[1] - times[0] - (times[2] - times[1]))
    print(json.dumps({"devices": len(jax.devices()), "compiling": compiling}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        wall, used = time.perf_counter(), time.process_time()
        results = known[asked["work"]](asked["runs"])
        cores = (time.process_time() - used) / (time.perf_counter() - wall)
        print(json.dumps({"digests": digests(results) if asked["digests"] else [], "cores": cores}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
