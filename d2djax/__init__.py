"""d2djax: reinforcement-learned device-to-device graphs for federated learning, in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2djax.axes import Choice, LogUniform, Uniform, random_points
    from d2djax.config import Config
    from d2djax.data import Dataset, load
    from d2djax.discovery import Discovery, discover
    from d2djax.federated import Recipe
    from d2djax.network import Network, make_network
    from d2djax.policies.check import check_policy
    from d2djax.policies.per_device import per_device
    from d2djax.runs import run
    from d2djax.simulation import Result, simulate
    from d2djax.sweeps import sweep
    from d2djax.validation import validate

__all__ = [
    "Choice",
    "Config",
    "Dataset",
    "Discovery",
    "LogUniform",
    "Network",
    "Recipe",
    "Result",
    "Uniform",
    "check_policy",
    "discover",
    "load",
    "make_network",
    "per_device",
    "random_points",
    "run",
    "simulate",
    "sweep",
    "validate",
]

# Where each of these names is. No file may be named like a function here: its import would hide the function.
_PLACES = {
    **dict.fromkeys(("Choice", "LogUniform", "Uniform", "random_points"), "axes"),
    **dict.fromkeys(("Dataset", "load"), "data"),
    **dict.fromkeys(("Discovery", "discover"), "discovery"),
    **dict.fromkeys(("Network", "make_network"), "network"),
    **{"check_policy": "policies.check", "per_device": "policies.per_device"},
    **dict.fromkeys(("Result", "simulate"), "simulation"),
    **{"Config": "config", "Recipe": "federated", "run": "runs", "sweep": "sweeps", "validate": "validation"},
}


def __getattr__(name: str) -> Any:
    """Imports a function, a class or a file of the package when it is first used: help does not wait for JAX."""
    if name in _PLACES:
        found = getattr(importlib.import_module(f"d2djax.{_PLACES[name]}"), name)
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
