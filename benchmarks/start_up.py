"""Times two calls of `d2djax.run` in a fresh process; the extra time of the first call is compilation.

The data are read beforehand, since their first read is also slower, for other reasons.
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

# The event that JAX reports when XLA has compiled a program or read it from the cache.
EVENT = "/jax/core/compile/backend_compile_duration"


def union(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals; programs that compile at the same time count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main(settings: dict[str, object]) -> dict[str, float]:
    """Two runs of the given settings, called as users call them.

    Args:
        settings: fields of the config.

    Returns:
        By name: seconds of the first and second call, and the seconds of the first in which XLA compiled.
    """
    spans: list[tuple[float, float]] = []

    def note(event: str, seconds: float, **about: object) -> None:
        # JAX reports an event when it ends.
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
