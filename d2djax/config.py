"""The config as a JAX pytree with static and traced fields, and the default settings of each data set."""

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

# Defaults of each data set: classes, points per device and model of Section IV-A, and a suitable step size.
PRESETS: dict[str, dict[str, Any]] = {name: source.preset for name, source in SOURCES.items()}


def complete(config: Config, name: str | None = None) -> Config:
    """Fills unset settings with the defaults of the data set (Section IV-A); idempotent.

    Args:
        config: any config.
        name: of the data set; None: the one that the config names. Custom data has no defaults.

    Returns:
        The config; settings without a default stay unset.
    """
    preset = PRESETS.get(config.dataset if name is None else name, {})
    # `is` first: the learning rate may be traced, and a traced number cannot be compared here.
    unset = {name for name in preset if getattr(config, name) is None}
    unset |= {name for name in preset if name != "learning_rate" and getattr(config, name) in (0, "auto")}
    missing = {name: preset[name] for name in unset}
    return dataclasses.replace(config, **missing)


def score_fraction(config: Config) -> Any:
    """Fraction of a threshold that the score requires; if unset `1 - alpha_D`, what a reliable link delivers.

    Args:
        config: `score_fraction` and `max_outage`.

    Returns:
        [] float in (0, 1].
    """
    return 1.0 - config.max_outage if config.score_fraction is None else config.score_fraction


# The numbers that training reads, and those that discovery reads but network generation does not. A stage is reused
# between configs that differ only in numbers that it does not read.
TRAINING_NUMBERS = frozenset({"learning_rate", "server_learning_rate", "proximal_weight", "num_stragglers"})
GRAPH_NUMBERS = frozenset(
    {
        *("min_classes", "score_fraction", "stay_probability"),
        *("temperature", "initial_value", "alpha_diversity", "alpha_outage", "alpha_budget", "gamma"),
        "reference_weights",
        *("bandwidth", "d2d_power", "d2s_power", "amplifier_efficiency", "circuit_power", "receive_power"),
        # The upload energy, computed with the graphs, is that of all participants.
        *("d2s_distance_ratio", "num_stragglers"),
    }
)


def numbers_of(config: Config) -> list[str]:
    """Names of the traced fields.

    Args:
        config: any config.

    Returns:
        The names, in the order of the fields.
    """
    return [item.name for item in dataclasses.fields(config) if not item.metadata.get("static")]


def stack_configs(configs: Sequence[Config]) -> Config:
    """Stacks the numbers of several configs along a leading axis.

    Args:
        configs: C configs with equal static fields.

    Returns:
        A config whose numbers are arrays [C]: int32 if all entries are Python integers, otherwise float32.
    """

    def stacked(*values: Any) -> np.ndarray:
        return np.array(values, np.int32 if all(isinstance(value, int) for value in values) else np.float32)

    return jax.tree.map(stacked, *configs)


def as_numbers(config: Config) -> Config:
    """Turns the numbers of a config into arrays, so that a new value does not recompile.

    Args:
        config: any config.

    Returns:
        The config with arrays of shape [] instead of numbers.
    """
    return jax.tree.map(jnp.asarray, config)
