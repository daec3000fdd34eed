"""The config as JAX has it: static fields fix the program, others are traced; what is left to the data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from d2djax.data import SOURCES
from d2djax.settings import Config as Config
from d2djax.settings import DatasetName as DatasetName
from d2djax.settings import PolicyName as PolicyName

jax.tree_util.register_dataclass(Config)

# What Section IV-A sets for each data set: classes, points a device, the model; and a step size that suits it.
PRESETS: dict[str, dict[str, Any]] = {name: source.preset for name, source in SOURCES.items()}


def complete(config: Config, name: str | None = None) -> Config:
    """Fills the settings that were left to the data set (Section IV-A); a second call changes nothing.

    Args:
        config: any config.
        name: of the data set; none: the one that the config names. Data of one's own set nothing.
    """
    preset = PRESETS.get(config.dataset if name is None else name, {})
    # `is` first: the learning rate may be traced, and a traced number cannot be compared here.
    unset = {name for name in preset if getattr(config, name) is None}
    unset |= {name for name in preset if name != "learning_rate" and getattr(config, name) in (0, "auto")}
    missing = {name: preset[name] for name in unset}
    return dataclasses.replace(config, **missing)


def score_fraction(config: Config) -> Any:
    """Share of a threshold that counts in the score; `1 - alpha_D` is what a link inside a cluster delivers.

    Args:
        config: `score_fraction` and `max_outage`.

    Returns:
        [] float in (0, 1].
    """
    return 1.0 - config.max_outage if config.score_fraction is None else config.score_fraction


# Numbers that training reads, all of them, and numbers that the search for a graph reads but not the network: what
# differs in numbers that a stage does not read is not computed again in it.
TRAINING_NUMBERS = frozenset({"learning_rate", "server_learning_rate", "proximal_weight", "num_stragglers"})
GRAPH_NUMBERS = frozenset(
    {
        *("min_classes", "score_fraction", "stay_probability"),
        *("temperature", "initial_value", "alpha_diversity", "alpha_outage", "alpha_budget", "gamma"),
        "reference_weights",
        *("bandwidth", "d2d_power", "d2s_power", "amplifier_efficiency", "circuit_power", "receive_power"),
        # The energy of the uploads, which is reckoned with the graphs, is that of all who take part.
        *("d2s_distance_ratio", "num_stragglers"),
    }
)


def numbers_of(config: Config) -> list[str]:
    """Names of the fields that are traced.

    Args:
        config: any config.

    Returns:
        The names, in the order of the fields.
    """
    return [item.name for item in dataclasses.fields(config) if not item.metadata.get("static")]


def stack_configs(configs: Sequence[Config]) -> Config:
    """One config whose numbers have a leading axis, one entry for each of several with equal static fields.

    Args:
        configs: configs with equal static fields.

    Returns:
        A config whose numbers are arrays [C], int32 or float32.
    """

    def stacked(*values: Any) -> np.ndarray:
        return np.array(values, np.int32 if all(isinstance(value, int) for value in values) else np.float32)

    return jax.tree.map(stacked, *configs)


def as_numbers(config: Config) -> Config:
    """Turns the numbers of a config into arrays, so that no new value compiles anew.

    Args:
        config: any config.

    Returns:
        The config with arrays [] in the place of numbers.
    """
    return jax.tree.map(jnp.asarray, config)
