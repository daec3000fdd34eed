"""Describes and configures the machine: cores, memory, devices, and the cache of compiled programs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import math
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

from d2djax.storage import files

_PACKAGES = ("d2djax", "jax", "jaxlib", "flax", "optax", "numpy", "xarray", "zarr")


def num_cores() -> int:
    """Returns how many cores this process may use, at least 1: its affinity, limited by a container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(allowed, _share_of_cores())))


CGROUPS = Path("/sys/fs/cgroup")


def _share_of_cores() -> float:
    """Returns the CPU quota of this process in cores, the minimum over its control group and all parents."""
    shares = [math.inf]
    for folder in _control_groups():
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            try:
                quota, period = " ".join((folder / name).read_text() for name in names).split()
                # "max", or -1 in older kernels, means no limit.
                shares += [int(quota) / int(period)] * (quota != "max" and int(quota) > 0)
            except (OSError, ValueError):
                continue
    return min(shares)


def _control_groups() -> list[Path]:
    """Returns the folders of the visible control groups of this process."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = [CGROUPS, CGROUPS / "cpu"]
    for _, names, place in (line.split(":", 2) for line in lines):
        if not names or "cpu" in names.split(","):
            base = CGROUPS / "cpu" if names else CGROUPS
            inside = Path(place.lstrip("/"))
            found += [base / one for one in (inside, *inside.parents)]
    return list(dict.fromkeys(found))


def memory_bytes() -> int:
    """Returns the memory of the machine in bytes; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def available_memory() -> int:
    """Returns the memory that this process can still allocate, in bytes; 0 if the system does not report it."""
    found = [memory_bytes()]
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    # The limit of a container.
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)


def accelerator_memory() -> int:
    """Returns the memory of one accelerator that JAX may use, in bytes; 0 on a CPU."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 0)


def most_memory_used() -> int:
    """Returns the peak memory in bytes: of the fullest accelerator, else of this process; 0 if unknown."""
    used = [(device.memory_stats() or {}).get("peak_bytes_in_use", 0) for device in jax.local_devices()]
    if max(used) or not hasattr(resource, "getrusage"):
        return max(used)
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def use_all_cores() -> None:
    """Makes each core a JAX device, so that runs are spread over all cores of a machine without a GPU.

    Call it before the first JAX operation; later, or if `JAX_NUM_CPU_DEVICES` is set, it has no effect.
    """
    if "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    try:
        jax.config.update("jax_num_cpu_devices", num_cores())
    except RuntimeError:
        # JAX has already started with fixed devices; one device computes the same results.
        return


def start() -> None:
    """Starts JAX on its devices.

    Raises:
        ValueError: the machine has no device of the kind that `JAX_PLATFORMS` names.
    """
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        asked = os.environ.get("JAX_PLATFORMS")
        # JAX gives no message if a requested GPU does not exist.
        why = str(error).partition("\n")[0] or "this machine has no such device"
        raise ValueError(f"JAX_PLATFORMS={asked}: {why}" if asked else f"JAX does not start: {why}") from error


def join_processes(coordinator: str = "", count: int = 0, number: int = -1) -> None:
    """Joins several processes that run one program, as on a TPU pod or on several nodes of a cluster.

    Call it before the first JAX operation. On Slurm, Open MPI and TPU pods, JAX detects omitted arguments.

    Args:
        coordinator: `host:port` of the first process; empty: detected.
        count: total number of processes; 0: detected.
        number: index of this process, from 0; -1: detected.
    """
    given: dict[str, Any] = {}
    if coordinator:
        # By default the first process listens on all interfaces.
        given |= {"coordinator_address": coordinator, "coordinator_bind_address": coordinator}
    if count:
        given |= {"num_processes": count}
    if number >= 0:
        given |= {"process_id": number}
    use_all_cores()
    jax.distributed.initialize(**given)


def use_compilation_cache() -> Path | None:
    """Caches compiled programs on disk, so that a second start does not compile them again.

    The folder is `JAX_COMPILATION_CACHE_DIR`, or one for this jaxlib and this processor under
    `$XDG_CACHE_HOME` or `~/.cache`. `D2DJAX_CACHE=0` disables the cache; macOS has none.

    Returns:
        The folder, or None if the cache is off.
    """
    base = files.cache_folder()
    if base is None or sys.platform == "darwin":
        return None
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    # A program compiled for another processor may crash; different nodes may share one home folder.
    processor = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    folder = base / "xla" / f"{importlib.metadata.version('jaxlib')}-{processor}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    return folder


def _processor() -> str:
    """Returns name and instruction sets of the processor, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def device_names() -> list[str]:
    """Returns the name of each local device, such as "NVIDIA H100" or "cpu"."""
    return [device.device_kind for device in jax.local_devices()]


def silent_fallback() -> str | None:
    """Returns one line if the machine has a GPU or TPU that JAX does not use; otherwise None."""
    if jax.default_backend() != "cpu":
        return None
    if Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists():
        install = "run pip install '.[cuda12]' or '.[cuda13]' in the clone"
        return f"this machine has an NVIDIA GPU, but JAX runs on the CPU: {install}"
    if Path("/dev/accel0").exists():
        return "this machine has a TPU, but JAX runs on the CPU: run pip install '.[tpu]' in the clone"
    return None


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed packages that results depend on, by name."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit() -> str | None:
    """Returns the commit of the package's checkout, with "+" if files changed; None outside a checkout."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def describe() -> dict[str, Any]:
    """Returns versions, devices, cores and memory (GiB) for the manifest and for `d2djax info`."""
    return {
        "versions": versions(),
        "backend": jax.default_backend(),
        "devices": device_names(),
        "cores": num_cores(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "system": platform.platform(),
        "git_commit": git_commit(),
        "jax_threefry_partitionable": bool(jax.config.values["jax_threefry_partitionable"]),
    }
