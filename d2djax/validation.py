"""The checks of a config, before anything compiles: kinds of values, ranges, and rules between fields."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from d2djax.config import Config, complete

RULES: dict[str, Callable[[Any], bool]] = {
    "positive": lambda value: value > 0,
    "0 or more": lambda value: value >= 0,
    "at least 1": lambda value: value >= 1,
    "at least 2": lambda value: value >= 2,
    "in [0, 1]": lambda value: 0 <= value <= 1,
    "in [0, 1)": lambda value: 0 <= value < 1,
    "in (0, 1]": lambda value: 0 < value <= 1,
    "inside (0, 1)": lambda value: 0 < value < 1,
}


def _plain(name: str, hint: Any, value: Any) -> Any:
    """A value as the plain Python type of its field, so that equal settings are equal, print and compile once.

    Raises:
        ValueError: it is not of the field's kind: a choice, a text, a whole number or a number of float32.
    """
    if get_origin(hint) is UnionType:
        if value is None:
            return None
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"{name} must be a tuple; got {value!r}")
        kinds = get_args(hint)
        if Ellipsis not in kinds and len(value) != len(kinds):
            raise ValueError(f"{name} must have {len(kinds)} entries; got {value!r}")
        return tuple(_plain(name, kinds[0], entry) for entry in value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}; got {value!r}")
        return value
    if hint is str:
        if not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"{name} must be a text; got {value!r}")
        return os.fspath(value)
    return _plain_number(name, hint, value)


def _plain_number(name: str, kind: type, value: Any) -> int | float:
    """A finite number that float32 can hold, whole if `kind` is int."""
    if isinstance(value, (bool, str)) or np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.number):
        raise ValueError(f"{name} must be a number; got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number; got {value!r}")
    if kind is int:
        if value != int(value) or abs(value) >= 2**31:
            raise ValueError(f"{name} must be a whole number below 2**31; got {value!r}")
        return int(value)
    limits = np.finfo(np.float32)
    if value != 0 and not limits.tiny <= abs(value) <= limits.max:
        raise ValueError(f"{name} must be a number that single precision holds; got {value!r}")
    return float(value)


def _rules_between(config: Config) -> list[tuple[str, bool, str]]:
    """(field, holds, rule) of every rule that ties one field to another."""
    num_rounds = config.num_steps // config.aggregation_interval
    classes, devices = f"at most the {config.num_classes} classes", f"at most the {config.num_devices} devices"
    by_partition = {
        "k_classes": [
            ("classes_per_device", config.classes_per_device <= config.num_classes, classes),
            (
                "points_per_device",
                config.points_per_device >= config.classes_per_device,
                "at least one point a class",
            ),
        ],
        "shards": [
            _divides("shards_per_device", config.shards_per_device, config.points_per_device, "points_per_device")
        ],
    }
    return [
        *by_partition.get(config.partition, []),
        ("min_classes", config.min_classes <= config.num_classes, classes),
        ("num_sensitive_classes", config.num_sensitive_classes <= config.num_classes, classes),
        ("num_stragglers", config.num_stragglers <= config.num_devices, devices),
        ("min_snr", config.min_snr <= 18, "at most 18 dB, the largest of the data set"),
        ("policies", len(config.policies) > 0, "at least one policy"),
        ("policies", len(set(config.policies)) == len(config.policies), "without repeats"),
        _divides("record_every", config.record_every, config.num_episodes, "num_episodes"),
        _divides("aggregation_interval", config.aggregation_interval, config.num_steps, "num_steps"),
        _divides("evaluate_every", config.evaluate_every, num_rounds, "the number of aggregations"),
    ]


def _divides(name: str, part: int, total: int, of: str) -> tuple[str, bool, str]:
    return name, total % part == 0, f"a divisor of {of}, {total}"


def validate(config: Config) -> Config:
    """Checks a config and returns it completed; call once, outside `jit`, before anything compiles.

    Returns:
        The config with the settings filled that were left to the data set.

    Raises:
        ValueError: one line that names the field, the rule and the value.
    """
    hints = get_type_hints(Config).items()
    config = complete(Config(**{name: _plain(name, hint, getattr(config, name)) for name, hint in hints}))
    for item in dataclasses.fields(config):
        rule, value = item.metadata.get("rule"), getattr(config, item.name)
        entries = value if isinstance(value, tuple) else (value,)
        if rule and value is not None and not all(map(RULES[rule], entries)):
            raise ValueError(f"{item.name} must be {rule}; got {value!r}")
    for name, holds, rule in _rules_between(config):
        if not holds:
            raise ValueError(f"{name} must be {rule}; got {getattr(config, name)!r}")
    return config
