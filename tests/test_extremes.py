"""Extreme settings: refused in one line, or every number finite and that of the formulas in double precision."""

from dataclasses import fields, replace
from functools import partial

import jax
import numpy as np
import pytest

from d2djax.config import Config, numbers_of, stack_configs
from d2djax.network import make_network
from d2djax.rng import run_key
from d2djax.running.results import variables
from d2djax.running.runs import set_up
from d2djax.simulation import find_graphs
from d2djax.validation import keeps, validate

SINGLE = np.finfo(np.float32)
SIZES = (-20, -12, -6, -3, -1, 0, 1, 1.8, 3, 6, 9, 12, 30)
VALUES = (
    0.0,
    float(SINGLE.tiny),
    *(10.0**size for size in SIZES),
    float(SINGLE.max),
    0.5,
    0.99,
    0.9999999,
    1 - 1e-9,
)


def accepted(config, **changes):
    try:
        return validate(replace(config, **changes))
    except ValueError as error:
        assert len(str(error)) < 300 and "\n" not in str(error)
        return None


def as_field(config, name, value):
    """A value of a setting's kind."""
    if name == "reference_weights":
        return (value,) * 4
    return int(value) if isinstance(getattr(config, name), int) and value < 2**31 else value


def extremes(config):
    """Configs that are accepted: each number by itself at its extremes, then some at once."""
    rng, names = np.random.default_rng(0), numbers_of(config)
    single = {
        name: [as_field(config, name, sign * value) for value in VALUES for sign in (1, -1) if value or sign > 0]
        for name in names
    }
    single = {
        name: [value for value in values if accepted(config, **{name: value})] for name, values in single.items()
    }
    found = [accepted(config, **{name: value}) for name, values in single.items() for value in values]
    for _ in range(600):
        some = [str(name) for name in rng.choice(names, rng.integers(2, 8), replace=False)]
        found.append(accepted(config, **{name: single[name][rng.integers(len(single[name]))] for name in some}))
    return [one for one in found if one is not None]


@pytest.fixture(scope="module")
def base(tiny_config):
    numbers = {"score_fraction": 0.9, "initial_value": 1.0, "learning_rate": 0.1, "server_learning_rate": 1.0}
    return replace(tiny_config, policies=("rl", "pooled"), num_episodes=6, record_every=3, **numbers)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"channel_model": "mobility"}, {"power_mode": "fixed", "partition": "dirichlet", "delivery": "sampled"}],
    ids=["power control", "fixed power"],
)
def test_what_is_accepted_has_finite_and_right_numbers(base, tiny_dataset, changes):
    base = validate(replace(base, **changes))
    setup = set_up(base, tiny_dataset, None)
    sizes, candidates = setup.sizes, setup.candidates
    configs = extremes(base)
    assert len(configs) > 700

    def of(config):
        return find_graphs(run_key(0), make_network(run_key(0), config), config, sizes, candidates)

    graphs = jax.tree.map(np.asarray, jax.jit(partial(jax.lax.map, of))(stack_configs(configs)))
    found = variables(base, candidates, graphs, None, sizes.num_parameters)
    for number in np.flatnonzero(found["status"][1].any(axis=1)):
        raise AssertionError(f"{found['status'][1][number]} of {changed(base, configs[number])}")
    uploads, outages = found["upload_energy"][1], graphs.network.outage
    for number, config in enumerate(configs):
        place = np.float64(graphs.place[number])
        away = np.maximum(np.sqrt(((place[:, None] - place) ** 2).sum(-1)), 1.0)
        expected = upload_energy(config, away[~np.eye(len(place), dtype=bool)].mean(), sizes.num_parameters)
        np.testing.assert_allclose(uploads[number], expected, 5e-3, 1e-36, err_msg=str(changed(base, config)))
        if config.channel_model == "mobility":
            state = graphs.state[number]
            np.testing.assert_allclose(
                outages[number, state], outage(config, away), 5e-3, 1e-6, err_msg=str(changed(base, config))
            )


def changed(base, config):
    return {
        item.name: getattr(config, item.name)
        for item in fields(Config)
        if getattr(config, item.name) != getattr(base, item.name)
    }


def outage(config, away):
    """Eq. 1 in double precision without shadowing."""
    heard = config.transmit_power * config.reference_gain * away**-config.path_loss_exponent
    found = -np.expm1(-np.expm1(config.rate * np.log(2)) * config.noise_power / heard)
    return np.where(np.eye(len(away), dtype=bool), 0, found)


def upload_energy(config, away, num_parameters):
    """Section IV-B in double precision."""
    alpha = np.float64(np.float32(config.max_outage))
    needed = np.expm1(config.rate * np.log(2)) * config.noise_power / (config.reference_gain * -np.log1p(-alpha))
    power = needed * (config.d2s_distance_ratio * away) ** config.path_loss_exponent
    if config.power_mode == "fixed":
        power = config.d2s_power
    seconds = 32 * num_parameters / (config.rate * config.bandwidth)
    at_both = power / config.amplifier_efficiency + config.circuit_power + config.receive_power
    return (config.num_devices - config.num_stragglers) * seconds * at_both


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"rate": 128.0}, r"rate must be in \[0.001, 64\]; got 128"),
        ({"rate": 1e-10}, r"rate must be in \[0.001, 64\]; got 1e-10"),
        ({"max_outage": 1 - 1e-9}, r"max_outage must be in \[1e-12, 1\); got 0.999999999"),
        ({"stay_probability": 1 - 1e-9}, r"stay_probability must be in \[0, 1\); got 0.999999999"),
        ({"reference_gain": 1e30}, r"reference_gain must be in \[1e-12, 1e3\]"),
        ({"threshold": 1e-37}, r"threshold must be in \[0.001, 1e9\]; got 1e-37"),
        ({"hotspot_spread": 1e38}, "hotspot_spread must be at most 1,000 times field_size, 400; got 1e.38"),
        (
            {"field_size": 1e7},
            "path_loss_exponent must be smaller: .* reaching the server would take 1e18 W; got",
        ),
        (
            {"path_loss_exponent": 10, "field_size": 1e5},
            "path_loss_exponent must be smaller: .* would arrive across the field",
        ),
        ({"gamma": 1e37}, r"gamma must be smaller: the rewards of all devices and episodes would sum to more than"),
        ({"cluster_budget": 1e38, "gamma": 10}, "cluster_budget must be smaller: the rewards of all devices"),
        ({"reference_weights": (1e30, 0, 0, 1e30)}, "reference_weights must be smaller: the rewards of all"),
    ],
)
def test_what_cannot_give_finite_numbers_is_refused(tiny_config, changes, message):
    with pytest.raises(ValueError, match=message):
        validate(replace(tiny_config, **changes))


def test_rules():
    assert keeps("in [0, 1)", 0) and keeps("in [0, 1)", 0.5) and not keeps("in [0, 1)", 1)
    assert keeps("in (0, 1e7]", 1e7) and not keeps("in (0, 1e7]", 0) and not keeps("in (0, 1e7]", 1.1e7)
    # An open end is left out in single precision too; a closed one is not moved by its rounding.
    assert not keeps("inside (0, 1)", 1 - 1e-9) and not keeps("inside (0, 1)", 1e-60)
    assert keeps("in [1e-12, 1)", 1e-12) and float(np.float32(1e-12)) < 1e-12
    for item in fields(Config):
        rule = item.metadata.get("rule")
        assert not rule or keeps(rule, 10**12) in (True, False)
