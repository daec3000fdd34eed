"""d2djax: reinforcement-learned device-to-device graphs for federated learning, in JAX."""

from d2djax.axes import Choice, LogUniform, Uniform, random_points
from d2djax.config import Config
from d2djax.data import Dataset, load
from d2djax.discovery import Discovery, discover
from d2djax.federated import Recipe
from d2djax.network import Network, make_network
from d2djax.runs import run
from d2djax.simulation import Result, simulate
from d2djax.sweep import sweep
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
    "discover",
    "load",
    "make_network",
    "random_points",
    "run",
    "simulate",
    "sweep",
    "validate",
]
