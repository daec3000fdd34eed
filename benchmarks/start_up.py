"""A fresh process calls `d2djax.run` twice and says how long each took; what the first takes more is compiling.

The data are read before: reading them takes longer the first time too, for reasons of its own.
`python -m benchmarks.start_up '{"num_steps": 20}'` takes settings of a `Config` and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import jax

import d2djax
from d2djax.running import machine
from d2djax.supply import load_dataset

# What JAX tells when XLA has compiled a program or read it from the cache.
EVENT = "/jax/core/compile/backend_compile_duration"


def union(spans: list[tuple[float, float]]) -> float:
    """Length of what intervals cover together; programs that compile at the same time count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main(settings: dict[str, object]) -> dict[str, float]:
    """Two runs as users call them, of the given settings.

    Args:
        settings: fields of the config.

    Returns:
        By name: seconds of the first call and of the second, and those of the first in which XLA compiled.
    """
    spans: list[tuple[float, float]] = []

    def note(event: str, seconds: float, **about: object) -> None:
        # An event is told when it ends.
        if event == EVENT:
            spans.append((time.perf_counter() - seconds, time.perf_counter()))

    machine.use_all_cores()
    machine.use_compilation_cache()
    jax.monitoring.register_event_duration_secs_listener(note)
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    config = d2djax.validate(d2djax.Config(**known))
    data, times = load_dataset(config), [time.perf_counter()]
    for _ in range(2):
        d2djax.run(config, seeds=1, data=data, progress=False)
        times.append(time.perf_counter())
    return {"first": times[1] - times[0], "second": times[2] - times[1], "XLA": union(spans)}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
