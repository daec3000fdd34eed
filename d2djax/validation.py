"""Checks of a config before anything compiles: types, ranges, and rules between fields."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Collection
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax
import numpy as np

from d2djax.channel import unread_settings
from d2djax.checks import is_number, is_traced, shown
from d2djax.config import Config, complete, numbers_of

RULES: dict[str, Callable[[Any], bool]] = {
    "positive": lambda value: value > 0,
    "0 or more": lambda value: value >= 0,
    "at least 1": lambda value: value >= 1,
    "at least 2": lambda value: value >= 2,
}
_INTERVAL = re.compile(r"(?:in|inside) ([\[(])(.+), (.+)([\])])")
# The range of single precision, with a margin for results computed from these numbers.
_LEAST, _MOST = 1e-37, 1e37
# Largest transmit power, W: the energy of any message that fits into memory is then finite.
_MOST_POWER = 1e18


def keeps(rule: str, value: Any) -> bool:
    """Whether a number satisfies a rule: a key of `RULES`, or an interval such as "in [0, 1)".

    An open end must also hold after rounding to single precision, in which the number is used.

    Args:
        rule: the rule, in words.
        value: a Python number.
    """
    interval = _INTERVAL.fullmatch(rule)
    if interval is None:
        return RULES[rule](value)
    opening, low, high, closing = interval.groups()
    is_above = value >= float(low) and (opening == "[" or np.float32(value) > float(low))
    is_below = value <= float(high) and (closing == "]" or np.float32(value) < float(high))
    return bool(is_above and is_below)


def _plain(name: str, hint: Any, value: Any) -> Any:
    """Converts a value to the Python type of its field, so that equal settings compare equal and compile once.

    Raises:
        ValueError: the value is not of the field's type `hint`: a choice, a string, an integer or a float32 number.
    """
    if get_origin(hint) is UnionType:
        if value is None:
            return None
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"{name} must be a tuple; got {shown(value)}")
        kinds = get_args(hint)
        if Ellipsis not in kinds and len(value) != len(kinds):
            raise ValueError(f"{name} must have {len(kinds)} entries; got {shown(value)}")
        return tuple(_plain(name, kinds[0], entry) for entry in value)
    if get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}; got {shown(value)}")
        return value
    if hint is str:
        if not isinstance(value, (str, os.PathLike)):
            raise ValueError(f"{name} must be a string; got {shown(value)}")
        return os.fspath(value)
    return plain_number(name, hint, value)


def plain_number(name: str, kind: type, value: Any) -> int | float:
    """Converts a value to a finite Python number that float32 can hold, or an integer below 2**31.

    Args:
        name: of the setting, for the message.
        kind: `int` or `float`.
        value: anything.

    Raises:
        ValueError: the value is no such number.
    """
    if not is_number(value):
        raise ValueError(f"{name} must be a number; got {shown(value)}")
    # A Python number from here on, since JAX's compare in 32 bits.
    value = value if isinstance(value, int) else value.item() if hasattr(value, "item") else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number; got {shown(value)}")
    if kind is int:
        if value != int(value) or abs(value) >= 2**31:
            raise ValueError(f"{name} must be a whole number below 2**31; got {shown(value)}")
        return int(value)
    limits = np.finfo(np.float32)
    if value != 0 and not float(limits.tiny) <= abs(value) <= float(limits.max):
        raise ValueError(f"{name} must be a number that single precision holds; got {shown(value)}")
    return float(value)


def _rules_between(config: Config) -> list[tuple[str, bool, str]]:
    """`(field, holds, rule)` of each rule between fields."""
    num_rounds, points = (
        config.num_steps // config.aggregation_interval,
        config.num_devices * config.points_per_device,
    )
    larger = "num_devices" if config.num_devices > config.points_per_device else "points_per_device"
    classes, devices = f"at most the {config.num_classes} classes", f"at most the {config.num_devices} devices"
    by_partition = {
        "k_classes": [
            ("classes_per_device", config.classes_per_device <= config.num_classes, classes),
            (
                "points_per_device",
                config.points_per_device >= config.classes_per_device,
                "at least one point per class",
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
        (larger, points < 2**31, f"smaller: all devices would hold {points:,} points, which 32 bits cannot number"),
        ("min_snr", config.min_snr <= 18, "at most 18 dB, the largest of the data set"),
        ("policies", len(set(config.policies)) == len(config.policies), "without repeats"),
        _divides("record_every", config.record_every, config.num_episodes, "num_episodes"),
        _divides("aggregation_interval", config.aggregation_interval, config.num_steps, "num_steps"),
        _divides("evaluate_every", config.evaluate_every, num_rounds, "the number of aggregations"),
    ]


def _rules_of_the_channel(config: Config) -> list[tuple[str, bool, str]]:
    """Rules that keep powers and energies in the range of single precision; see `channel` and `energy`."""
    farthest = max(1.0, math.sqrt(2) * config.field_size)
    loss = config.path_loss_exponent * math.log10(farthest)
    heard = math.log10(config.transmit_power * config.reference_gain) - loss
    # Positions reflected into the field then keep four digits.
    by_field = f"at most 1,000 times field_size, {config.field_size:g}"
    rules = [
        ("hotspot_spread", config.hotspot_spread <= 1000 * config.field_size, by_field),
        (
            "mobility_step",
            "mobility_step" in unread_settings(config) or config.mobility_step <= 1000 * config.field_size,
            by_field,
        ),
        (
            "path_loss_exponent",
            heard >= math.log10(_LEAST),
            f"smaller: with field_size, transmit_power and reference_gain, 1e{heard:.0f} W would arrive across the "
            f"field, below {_LEAST:g} W, the least that single precision holds",
        ),
    ]
    if config.power_mode == "power_control":
        far = math.log10(farthest * max(1.0, config.d2s_distance_ratio)) * config.path_loss_exponent
        needed = (2.0**config.rate - 1.0) * config.noise_power / config.reference_gain
        sent = math.log10(needed / -math.log1p(-float(np.float32(config.max_outage)))) + far
        rules.append(
            (
                "path_loss_exponent",
                far <= math.log10(_MOST) and sent <= math.log10(_MOST_POWER),
                "smaller: with field_size, d2s_distance_ratio, rate, noise_power, reference_gain and "
                f"max_outage, reaching the server would take 1e{sent:.0f} W",
            )
        )
    return rules


def _rules_of_the_reward(config: Config) -> list[tuple[str, bool, str]]:
    """Rules that keep rewards and their sums over all episodes in the range of single precision."""
    # No device can request more points than all devices together have.
    points = config.cluster_budget + config.num_devices**2 * config.points_per_device

    def most(alpha_diversity: float, alpha_outage: float, alpha_budget: float, gamma: float) -> float:
        local = alpha_diversity * config.num_classes + alpha_outage
        # Weights below 1 may be applied after the sum, so they do not reduce this bound.
        return local + max(1.0, gamma) * (local + max(1.0, alpha_budget) * points)

    names = ("alpha_diversity", "alpha_outage", "alpha_budget", "gamma")
    weights = [getattr(config, name) for name in names]
    # A mean is computed as a sum first.
    sums = config.num_devices * config.num_episodes
    largest = max((*names, "cluster_budget"), key=lambda name: getattr(config, name))
    rule = f"smaller: the rewards of all devices and episodes would sum to more than {_MOST:g}"
    return [
        (largest, most(*weights) * sums <= _MOST, rule),
        ("reference_weights", most(*config.reference_weights) * sums <= _MOST, rule),
    ]


def _divides(name: str, part: int, total: int, of: str) -> tuple[str, bool, str]:
    return name, total % part == 0, f"a divisor of {of}, {total}"


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config)


def check_config(config: Any) -> None:
    """Checks that an argument is a `Config`.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(config, Config):
        raise ValueError(f"config must be a Config, such as Config(num_devices=10); got {shown(config)}")


def validate(config: Config) -> Config:
    """Checks a config and returns it completed; call once, outside `jit`, before anything compiles.

    Args:
        config: any config, with plain numbers.

    Returns:
        The config with plain Python values and the defaults of the data set; see `config.complete`.

    Raises:
        ValueError: a field breaks a rule; one line names the field, the rule and the value.
    """
    check_config(config)
    return _checked(config)


def check_settings(config: Config, ties: bool = True) -> None:
    """Checks a config as `validate` does, but skips traced numbers.

    Args:
        config: any config.
        ties: whether to check rules between fields too; a custom network has its own classes and points.

    Raises:
        ValueError: a field breaks a rule; one line names the field, the rule and the value.
    """
    check_config(config)
    unknown = {name for name in numbers_of(config) if any(map(is_traced, jax.tree.leaves(getattr(config, name))))}
    _checked(dataclasses.replace(config, **{name: getattr(Config, name) for name in unknown}), unknown, ties)


def _checked(config: Config, besides: Collection[str] = (), ties: bool = True) -> Config:
    """The completed config; checks the rules of all fields, without rules between fields for those in `besides`."""
    hints = _hints().items()
    config = complete(Config(**{name: _plain(name, hint, getattr(config, name)) for name, hint in hints}))
    for item in dataclasses.fields(config):
        rule, value = item.metadata.get("rule"), getattr(config, item.name)
        entries = value if isinstance(value, tuple) else (value,)
        if rule and value is not None and not all(keeps(rule, entry) for entry in entries):
            raise ValueError(f"{item.name} must be {rule}; got {value!r}")
    rules = _rules_between(config) if ties else []
    if ties and not besides:
        rules += _rules_of_the_channel(config) + _rules_of_the_reward(config)
    for name, holds, rule in rules:
        if not holds and name not in besides:
            raise ValueError(f"{name} must be {rule}; got {getattr(config, name)!r}")
    return config
