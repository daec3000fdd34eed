"""d2djax: reinforcement-learned device-to-device graphs for federated learning, in JAX."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2djax.config import Config
    from d2djax.data import Dataset, load
    from d2djax.discovery import Discovery, discover
    from d2djax.environment import Environment
    from d2djax.network import Network, make_network
    from d2djax.networks import GivenNetwork
    from d2djax.points import arrange
    from d2djax.policies.check import check_policy
    from d2djax.policies.per_device import per_device
    from d2djax.recipe import Recipe
    from d2djax.regimes import preset
    from d2djax.reward import PaperReward, Rewards
    from d2djax.running.axes import Choice, LogUniform, Uniform, random_points
    from d2djax.running.machine import use_all_cores, use_compilation_cache
    from d2djax.running.network_files import load_network
    from d2djax.running.results import read, save
    from d2djax.running.runs import run
    from d2djax.running.sweeps import sweep
    from d2djax.searching.searches import search
    from d2djax.simulation import Result, simulate
    from d2djax.validation import validate

    __version__: str

__all__ = [
    "Choice",
    "Config",
    "Dataset",
    "Discovery",
    "Environment",
    "GivenNetwork",
    "LogUniform",
    "Network",
    "PaperReward",
    "Recipe",
    "Result",
    "Rewards",
    "Uniform",
    "arrange",
    "check_policy",
    "discover",
    "load",
    "load_network",
    "make_network",
    "per_device",
    "preset",
    "random_points",
    "read",
    "run",
    "save",
    "search",
    "simulate",
    "sweep",
    "use_all_cores",
    "use_compilation_cache",
    "validate",
]

# The module of each of these names. No file may have the name of a function here: its import would hide it.
_PLACES = {
    "config": ("Config",),
    "validation": ("validate",),
    "data": ("Dataset", "load"),
    "network": ("Network", "make_network"),
    "networks": ("GivenNetwork",),
    "points": ("arrange",),
    "reward": ("PaperReward", "Rewards"),
    "discovery": ("Discovery", "discover"),
    "policies.check": ("check_policy",),
    "policies.per_device": ("per_device",),
    "recipe": ("Recipe",),
    "regimes": ("preset",),
    "simulation": ("Result", "simulate"),
    "environment": ("Environment",),
    "running.network_files": ("load_network",),
    "running.machine": ("use_all_cores", "use_compilation_cache"),
    "running.results": ("read", "save"),
    "running.runs": ("run",),
    "running.axes": ("Choice", "LogUniform", "Uniform", "random_points"),
    "running.sweeps": ("sweep",),
    "searching.searches": ("search",),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a name or a module on first use, so that `--help` does not wait for JAX."""
    if name == "__version__":
        # Read from the installed package, so that only pyproject.toml states it.
        try:
            return importlib.metadata.version("d2djax")
        except importlib.metadata.PackageNotFoundError:
            raise AttributeError("d2djax is not installed, so it has no version: uv pip install -e .") from None
    if name in _PLACE_OF:
        found = getattr(importlib.import_module(f"d2djax.{_PLACE_OF[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"d2djax.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"d2djax.{name}":
                raise
    raise AttributeError(f"module 'd2djax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
