"""A fresh process that calls `d2djax.run` once and says how long it took, and how long of that it compiled.

`python -m benchmarks.start_up '{"num_steps": 20}'` takes settings of a `Config` and prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import jax

import d2djax
from d2djax import machine

# What JAX tells of a program: traced, lowered, compiled (or read from the cache).
EVENTS = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")


def union(spans: list[tuple[float, float]]) -> float:
    """Length of what intervals cover together; a function that is traced inside another one counts once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def main(settings: dict[str, object]) -> dict[str, float]:
    """One run as users call it, of the given settings.

    Args:
        settings: fields of the config.

    Returns:
        Seconds of the call, and those in it that went into tracing, lowering and compiling; by name.
    """
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in EVENTS}

    def note(event: str, seconds: float, **about: object) -> None:
        # An event is told when it ends.
        end, name = time.perf_counter(), event.rsplit("/", 1)[-1]
        if name in spans:
            spans[name].append((end - seconds, end))

    machine.use_all_cores()
    machine.use_compilation_cache()
    jax.monitoring.register_event_duration_secs_listener(note)
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    config = d2djax.Config(**known)
    start = time.perf_counter()
    d2djax.run(config, seeds=1, progress=False)
    seconds = time.perf_counter() - start
    every = [span for some in spans.values() for span in some]
    return {"call": seconds, "compiling": union(every), "XLA": union(spans["backend_compile_duration"])}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
