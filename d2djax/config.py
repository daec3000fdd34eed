"""Every setting of a run in one record: static fields fix the program, all others are traced numbers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jax
import numpy as np


def static(default: Any) -> Any:
    """Declares a field that is part of the compiled program, not of its data."""
    return field(default=default, metadata={"static": True})


DatasetName = Literal["radioml", "fashion_mnist", "cifar10"]
Method = Literal["none", "uniform", "rl", "nearest", "best_response", "pooled"]

# What Section IV-A sets for each data set: classes, points a device, the model; and a step size that suits it.
PRESETS: dict[str, dict[str, Any]] = {
    "radioml": {"num_classes": 11, "points_per_device": 990, "model": "radio_cnn", "learning_rate": 0.2},
    "fashion_mnist": {"num_classes": 10, "points_per_device": 1200, "model": "mlp", "learning_rate": 0.05},
    "cifar10": {"num_classes": 10, "points_per_device": 1200, "model": "mlp", "learning_rate": 0.05},
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of one run; symbols as in the paper.

    Fields marked static fix a shape or pick code: each combination of them is one compiled program.
    All others are leaves of the pytree, so `vmap` over them is a sweep and no new number recompiles.

    Attributes:
        dataset: Data set that the devices hold. Static.
        data_dir: Folder of the data set; none: the usual places, or made in process (radioml). Static.
        min_snr: Lowest signal-to-noise ratio of the radio windows, dB; without effect on images. Static.
        methods: Ways to choose the graph that are compared in each run. Static.
        num_devices: `N`, devices. Static.
        num_classes: `L`, classes; 0: those of the data set. Static.
        num_states: `S`, channel states. Static.
        field_size: Side of the square field, m.
        num_hotspots: Hot spots around which the devices stand. Static.
        hotspot_spread: Standard deviation of a device's distance to its hot spot along each axis, m.
        channel_model: One shadowing draw per state, or one snapshot of moving devices per state. Static.
        shadowing_deviation: Standard deviation of the log-normal shadowing, dB.
        mobility_step: Standard deviation of a device's move between two snapshots along each axis, m.
        transmit_power: `P_tx`, W.
        reference_gain: `beta0`, path gain at 1 m.
        path_loss_exponent: `a`, how fast the power falls with distance.
        noise_power: `sigma^2`, W (-174 dBm/Hz over 1 MHz).
        rate: `r`, bit/s/Hz.
        stay_probability: Probability that the channel keeps its state from one episode to the next.
        reliability_threshold: `alpha_D`, largest outage inside a cluster.
        cluster_budget: `B`, points that each cluster may request over links from outside it.
        trust_probability: Probability that a device trusts another with a class.
        num_sensitive_classes: Classes, drawn per run, that are trusted with `sensitive_trust_probability`.
        sensitive_trust_probability: Probability that a device trusts another with a sensitive class.
        classes_per_device: Classes that each device starts with. Static.
        points_per_device: Points that each device starts with; 0: as many as in the paper. Static.
        test_fraction: Share of each class that is held out for testing. Static.
        threshold: `c_i[l]`, points of a class that make it count, the same for all devices and classes.
        min_classes: `L-hat`, classes that every device should hold.
        score_fraction: Share of the threshold that counts in the score f; none: `1 - alpha_D`.
        num_episodes: `E`, episodes of policy training. Static.
        record_every: Episodes over which each recorded point of the history is averaged. Static.
        temperature: Divides the values in the softmax of eq. 7; 1 is the paper.
        initial_value: Value of an untried link; none: an upper bound of the reward. 0 is the literal reading.
        alpha_diversity: `alpha_1`, weight of the score f.
        alpha_outage: `alpha_2`, weight of the outage of the chosen link.
        alpha_budget: `alpha_3`, weight of a data point above or below the cluster's budget.
        gamma: Weight of the global reward.
        deployment: The learned graph is the greedy one, or a sample of the policy. Static.
        delivery: Whole points that arrive: expected number rounded down, or a binomial draw. Static.
        best_response_restarts: Starting graphs of the centralised best response. Static.
        best_response_sweeps: Passes over all devices from each starting graph. Static.
        model: Network that is trained; auto: that of the data set. Static.
        num_steps: `T`, local training steps. Static.
        aggregation_interval: `tau_a`, local steps between two aggregations. Static.
        evaluate_every: Aggregations between two evaluations of the global model. Static.
        batch_size: Points in a minibatch. Static.
        learning_rate: Step size of local SGD; none: 0.05 for images, 0.2 for radio windows.
    """

    dataset: DatasetName = static("radioml")
    data_dir: str | None = static(None)
    min_snr: int = static(0)
    methods: tuple[Method, ...] = static(("none", "uniform", "rl"))

    num_devices: int = static(25)
    num_classes: int = static(0)
    num_states: int = static(10)
    field_size: float = 400.0
    num_hotspots: int = static(5)
    hotspot_spread: float = 45.0
    channel_model: Literal["shadowing", "mobility"] = static("shadowing")
    shadowing_deviation: float = 4.0
    mobility_step: float = 20.0
    transmit_power: float = 0.01
    reference_gain: float = 1e-3
    path_loss_exponent: float = 3.75
    noise_power: float = 3.981072e-15
    rate: float = 1.0
    stay_probability: float = 0.0
    reliability_threshold: float = 0.1
    cluster_budget: float = 300.0
    trust_probability: float = 0.75
    num_sensitive_classes: int = 0
    sensitive_trust_probability: float = 0.2

    classes_per_device: int = static(4)
    points_per_device: int = static(0)
    test_fraction: float = static(0.2)
    threshold: float = 60.0
    min_classes: int = 6
    score_fraction: float | None = None

    num_episodes: int = static(4000)
    record_every: int = static(40)
    temperature: float = 1.0
    initial_value: float | None = None
    alpha_diversity: float = 1.0
    alpha_outage: float = 2.0
    alpha_budget: float = 0.001
    gamma: float = 0.5
    deployment: Literal["greedy", "sampled"] = static("greedy")
    delivery: Literal["expected", "sampled"] = static("expected")
    best_response_restarts: int = static(16)
    best_response_sweeps: int = static(6)

    model: str = static("auto")
    num_steps: int = static(500)
    aggregation_interval: int = static(50)
    evaluate_every: int = static(1)
    batch_size: int = static(32)
    learning_rate: float | None = None


def complete(config: Config) -> Config:
    """Fills the settings that were left to the data set (Section IV-A); a second call changes nothing."""
    preset = PRESETS[config.dataset]
    # `is` first: the learning rate may be traced, and a traced number cannot be compared here.
    unset = {name for name in preset if getattr(config, name) is None}
    unset |= {name for name in preset if name != "learning_rate" and getattr(config, name) in (0, "auto")}
    missing = {name: preset[name] for name in unset}
    return dataclasses.replace(config, **missing)


def score_fraction(config: Config) -> Any:
    """Share of a threshold that counts in the score; `1 - alpha_D` is what a link inside a cluster delivers."""
    return 1.0 - config.reliability_threshold if config.score_fraction is None else config.score_fraction


def initial_value(config: Config, num_classes: int) -> Any:
    """Value of an untried link: by default `alpha_1 L + gamma (alpha_1 L + alpha_3 B)`, which no reward exceeds."""
    if config.initial_value is not None:
        return config.initial_value
    most = config.alpha_diversity * num_classes
    return most + config.gamma * (most + config.alpha_budget * config.cluster_budget)


def _check_kind(name: str, hint: Any, value: Any) -> None:
    """Raises `ValueError` unless a value is of its field's kind: a choice, a finite or a whole number."""
    hint = next((part for part in get_args(hint) if get_origin(hint) is UnionType and part is not NoneType), hint)
    if value is None:
        return
    if get_origin(hint) is tuple:
        for entry in value:
            _check_kind(name, get_args(hint)[0], entry)
    elif get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}; got {value!r}")
    elif hint in (int, float):
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value)):
            raise ValueError(f"{name} must be a finite number; got {value!r}")
        if hint is int and value != int(value):
            raise ValueError(f"{name} must be a whole number; got {value!r}")


_POSITIVE = (
    "field_size",
    "transmit_power",
    "reference_gain",
    "path_loss_exponent",
    "noise_power",
    "rate",
    "temperature",
    "threshold",
    "learning_rate",
)
_NOT_NEGATIVE = (
    "hotspot_spread",
    "shadowing_deviation",
    "mobility_step",
    "cluster_budget",
    "num_sensitive_classes",
    "min_classes",
    "alpha_diversity",
    "alpha_outage",
    "alpha_budget",
    "gamma",
)
_PROBABILITY = ("stay_probability", "trust_probability", "sensitive_trust_probability")
_COUNT = (
    "num_states",
    "num_hotspots",
    "num_classes",
    "classes_per_device",
    "points_per_device",
    "num_episodes",
    "record_every",
    "best_response_restarts",
    "best_response_sweeps",
    "num_steps",
    "aggregation_interval",
    "evaluate_every",
    "batch_size",
)


def _rules(config: Config) -> list[tuple[str, bool, str]]:
    """(field, holds, rule) of every rule, with a number where a number belongs."""

    def get(name: str) -> Any:
        return getattr(config, name)

    rules = [(name, get(name) > 0, "positive") for name in _POSITIVE]
    rules += [(name, get(name) >= 0, "0 or more") for name in _NOT_NEGATIVE]
    rules += [(name, 0 <= get(name) <= 1, "in [0, 1]") for name in _PROBABILITY]
    rules += [(name, get(name) >= 1, "at least 1") for name in _COUNT]
    rules += [
        ("num_devices", config.num_devices >= 2, "at least 2"),
        ("reliability_threshold", 0 < config.reliability_threshold < 1, "inside (0, 1)"),
        ("test_fraction", 0 < config.test_fraction < 1, "inside (0, 1)"),
        ("score_fraction", 0 < score_fraction(config) <= 1, "in (0, 1]"),
        (
            "classes_per_device",
            get("classes_per_device") <= get("num_classes"),
            f"at most the {get('num_classes')} classes",
        ),
        (
            "min_classes",
            get("min_classes") <= get("num_classes"),
            f"at most the {get('num_classes')} classes",
        ),
        (
            "points_per_device",
            get("points_per_device") >= get("classes_per_device"),
            "at least one point a class",
        ),
        ("min_snr", get("min_snr") <= 18, "at most 18 dB, the largest of the data set"),
        ("methods", len(config.methods) > 0, "at least one method"),
        ("methods", len(set(config.methods)) == len(config.methods), "without repeats"),
    ]
    num_rounds = config.num_steps // max(config.aggregation_interval, 1)
    for part, total, of in (
        ("record_every", config.num_episodes, "num_episodes"),
        ("aggregation_interval", config.num_steps, "num_steps"),
        ("evaluate_every", num_rounds, "the number of aggregations"),
    ):
        rules.append((part, total % max(get(part), 1) == 0, f"a divisor of {of}, {total}"))
    return rules


def validate(config: Config) -> Config:
    """Checks a config and returns it completed; call once, outside `jit`, before anything compiles.

    Returns:
        The config with the settings filled that were left to the data set.

    Raises:
        ValueError: one line that names the field, the rule and the value.
    """
    for name, hint in get_type_hints(Config).items():
        _check_kind(name, hint, getattr(config, name))
    config = complete(config)
    for name, holds, rule in _rules(config):
        if not holds:
            raise ValueError(f"{name} must be {rule}; got {getattr(config, name)!r}")
    return config
