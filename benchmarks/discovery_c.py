"""Discovery for one network on one core in C: compiles discovery.c and calls it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.discovery_problem import CURVES, Found, Problem

COMPILER = "gcc"
FLAGS = ("-O3", "-march=native")
# Allows the compiler to reorder sums and use glibc's vectorised exponential.
FAST_FLAGS = (*FLAGS, "-ffast-math")

_SIZES = ("num_states", "num_devices", "num_classes", "num_clusters", "num_episodes", "record_every", "min_classes")
_WEIGHTS = ("stay_probability", "initial_value", "temperature", "alpha_diversity", "alpha_outage", "alpha_budget")
_ARRAYS = ("outage", "counts", "thresholds", "needed", "budget", "cluster", "trust")
_FOUND = ("links", "greedy", "reward", "tries", "history")


class _Problem(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_int) for name in _SIZES]
        + [(name, ctypes.c_float) for name in (*_WEIGHTS, "gamma")]
        + [(name, ctypes.c_void_p) for name in _ARRAYS]
    )


class _Found(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in _FOUND]


def missing() -> str:
    """Why this baseline cannot run; empty if it can."""
    return "" if shutil.which(COMPILER) else f"no {COMPILER} on this machine"


@cache
def _library(flags: tuple[str, ...]) -> ctypes.CDLL:
    """discovery.c compiled with these flags; a loaded library outlives its file."""
    source = Path(__file__).with_name("discovery.c")
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder) / "discovery.o", Path(folder) / "discovery.so"
        subprocess.run([COMPILER, *flags, "-fPIC", "-c", str(source), "-o", str(code)], check=True, timeout=120)
        # Linked without the flags: with -ffast-math, loading the library would flush subnormal numbers to zero
        # in the whole process, including d2djax.
        subprocess.run([COMPILER, "-shared", str(code), "-o", str(library), "-lm"], check=True, timeout=120)
        return ctypes.CDLL(str(library))


def discover(problem: Problem, uniform: np.ndarray, flags: tuple[str, ...] = FLAGS) -> Found:
    """All episodes of section III; `uniform` [E, 2 + N] float32 moves the channel and draws the links."""
    num_states, num_devices, num_classes = problem.sizes
    uniform = np.ascontiguousarray(uniform, np.float32)
    shape, num_episodes = problem.outage.shape, len(uniform)
    found = Found(
        links=np.empty((num_episodes, num_devices), np.int32),
        greedy=np.empty((num_states, num_devices), np.int32),
        reward=np.zeros(shape, np.float32),
        tries=np.zeros(shape, np.float32),
        history=np.empty((num_episodes // problem.record_every, len(CURVES)), np.float32),
    )
    sizes = (num_states, num_devices, num_classes, int(problem.cluster.max()) + 1, num_episodes)
    weights = (getattr(problem, name) for name in ("record_every", "min_classes", *_WEIGHTS, "gamma"))
    arrays = (getattr(problem, name).ctypes.data for name in _ARRAYS)
    given = _Problem(*sizes, *weights, *arrays)
    filled = _Found(*(getattr(found, name).ctypes.data for name in _FOUND))
    _library(flags).discover(ctypes.byref(given), ctypes.c_void_p(uniform.ctypes.data), ctypes.byref(filled))
    return found
