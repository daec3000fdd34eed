"""Energy of a whole run, by hand-worked numbers: three devices on a line, 100 m and 200 m apart."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray

from d2djax import energy
from d2djax.analysis import statistics
from d2djax.config import Config

POSITION = np.array([[0.0, 0.0], [100.0, 0.0], [300.0, 0.0]], np.float32)
# Mean over the pairs: (100 + 200 + 300) / 3.
MEAN_DISTANCE = 200.0
FIXED = Config(power_mode="fixed", rate=2.0, bandwidth=5e5)
CONTROLLED = replace(FIXED, power_mode="power_control", path_loss_exponent=2.0, max_outage=0.5)


def controlled_power(distance):
    """(2^2 - 1) sigma^2 d^2 / (beta0 ln 2), W."""
    return 3 * 3.981072e-15 * distance**2 / (1e-3 * np.log(2))


def test_mean_distance():
    assert float(energy.mean_distance(POSITION)) == pytest.approx(MEAN_DISTANCE)


@pytest.mark.parametrize(
    "config, near, far", [(FIXED, 0.01, 0.01), (CONTROLLED, controlled_power(100), controlled_power(300))]
)
def test_exchange_counts_what_is_sent_over_each_link(config, near, far):
    # Device 0 takes 5 points from 1 (100 m), device 2 takes 7 from 0 (300 m), device 1 takes none from itself.
    links, sent = np.array([1, 1, 0]), np.array([5, 0, 7])
    got = energy.exchange_energy(POSITION, links, sent, 1000.0, config)
    # b / (r W): 1000 bits a point at 2 bit/s/Hz over 500 kHz take 1 ms.
    assert float(got) == pytest.approx(1e-3 * (5 * near + 7 * far), rel=1e-5)


def test_no_link_takes_no_energy():
    assert float(energy.exchange_energy(POSITION, np.arange(3), np.zeros(3), 1000.0, CONTROLLED)) == 0.0


@pytest.mark.parametrize("config, power", [(FIXED, 0.25), (CONTROLLED, controlled_power(600))])
def test_uploads_go_three_mean_distances_far(config, power):
    # 1,000 parameters of 32 bits take 32 ms; the server stands 3 x 200 m away; one of three devices straggles.
    got = energy.upload_energy(POSITION, 1000, replace(config, num_stragglers=1))
    assert float(got) == pytest.approx(2 * 0.032 * power, rel=1e-5)


@pytest.mark.parametrize("config, power", [(FIXED, 0.01), (CONTROLLED, controlled_power(200))])
def test_control_messages_of_every_exchange(config, power):
    # V, Q and the reward: 2 x 4 + 1 numbers of 32 bits from each of 3 devices are 864 bits, 0.864 ms.
    got = energy.control_energy(POSITION, np.array([0, 1, 10]), 4, config)
    np.testing.assert_allclose(got, np.array([0, 1, 10]) * 0.864e-3 * power, rtol=1e-5)


def test_circuit_and_receive_power_add():
    config = replace(FIXED, circuit_power=0.5, receive_power=0.125, amplifier_efficiency=0.5)
    got = energy.exchange_energy(POSITION, np.array([1, 1, 2]), np.array([1, 0, 0]), 1000.0, config)
    assert float(got) == pytest.approx(1e-3 * (0.01 / 0.5 + 0.5 + 0.125), rel=1e-5)


def results(scheme):
    config = {"config": {"scheme": scheme, "aggregation_interval": 10, "num_steps": 30}}
    return xarray.Dataset(
        {
            "accuracy": (("run", "policy", "round"), [[[0.9, 0.1, 0.5, 0.4], [0.9, 0.5, 0.6, 0.7]]]),
            "exchange_energy": (("run", "policy"), [[0.0, 3.0]]),
            "control_energy": (("run", "policy"), [[0.0, 0.5]]),
            "upload_energy": ("run", [2.0]),
            "upload_bits": ("run", [800]),
        },
        coords={"policy": ["none", "rl"], "round": [0, 10, 20, 30]},
        attrs={"manifest": json.dumps(config)},
    )


def test_costs_to_a_target():
    # none reaches 0.5 after two aggregations of 2 J, rl after one, 3 J of exchange and .5 J of messages; none never
    # reaches 0.6.
    found = results("fedavg")
    easy, hard = statistics.cost_to_accuracy(found, 0.5), statistics.cost_to_accuracy(found, 0.6)
    np.testing.assert_allclose(easy["energy"], [[4.0, 5.5]])
    np.testing.assert_allclose(easy["aggregations"], [[2, 1]])
    np.testing.assert_allclose(easy["uplink"], [[1600, 800]])
    np.testing.assert_allclose(hard["energy"], [[np.inf, 7.5]])
    np.testing.assert_allclose(hard["steps"], [[np.inf, 20]])
    np.testing.assert_allclose(hard["uplink"], [[np.inf, 1600]])


def test_parts_of_the_energy_are_told_apart():
    costs = statistics.cost_to_accuracy(results("fedavg"), 0.5)
    for name, values in {"exchange": [0, 3], "messages": [0, 0.5], "uploads": [4, 2]}.items():
        np.testing.assert_allclose(costs[name], [values], err_msg=name)
        assert costs[name].attrs["units"] == "J"


@pytest.mark.parametrize("scheme, uploads", [("fedavg", 6.0), ("fedsgd", 60.0)])
def test_a_target_never_reached_counts_with_all_training(scheme, uploads):
    least = statistics.least_cost(results(scheme), 0.6)
    np.testing.assert_allclose(least["energy"].sel(policy="none"), [uploads])
    np.testing.assert_allclose(least["steps"], [[30, 20]])
    np.testing.assert_array_equal(least["reached"], [[0, 1]])


def test_costs_of_what_diverged_are_unknown():
    found = results("fedavg").assign(status=(("run", "policy"), np.array([[0, 1]], np.int8)))
    for costs in (statistics.cost_to_accuracy(found, 0.5), statistics.least_cost(found, 0.5)):
        for name, one in costs.data_vars.items():
            assert np.isfinite(one.sel(policy="none")).all(), name
        assert np.isnan(costs[["steps", "energy", "uplink"]].sel(policy="rl").to_array()).all()
    # Without a target nobody reaches it, nor fails to.
    own = statistics.final_accuracy(found).sel(policy="rl", drop=True)
    assert np.isnan(statistics.least_cost(found, own).to_array()).all()


def test_several_targets_and_one_for_each_run():
    found = results("fedavg")
    targets = xarray.DataArray([0.5, 0.6], dims="target", coords={"target": [0.5, 0.6]})
    many = statistics.cost_to_accuracy(found, targets)
    assert many["energy"].dims == ("run", "policy", "target")
    np.testing.assert_allclose(many["energy"], [[[4.0, np.inf], [5.5, 7.5]]])
    own = found["accuracy"].sel(policy="none").isel(round=-1, drop=True)
    np.testing.assert_allclose(statistics.cost_to_accuracy(found, own)["steps"], [[20, 10]])


def test_fedsgd_uploads_at_every_step():
    found = statistics.cost_to_accuracy(results("fedsgd"), 0.5)
    np.testing.assert_allclose(found["energy"], [[40.0, 23.5]])
    np.testing.assert_allclose(found["uplink"], [[16000, 8000]])


def test_uploads_of_nothing_never_reach_a_target():
    found = results("fedavg").assign(upload_bits=("run", [0]), upload_energy=("run", [0.0]))
    hard = statistics.cost_to_accuracy(found, 0.9)
    assert np.isinf(hard["uplink"]).all() and np.isinf(hard["energy"]).all()


def test_ratio_is_geometric_and_leaves_out_what_is_never_reached():
    values = xarray.DataArray(
        [[2.0, 1.0], [8.0, 1.0], [4.0, np.inf], [np.inf, np.inf]],
        dims=("run", "policy"),
        coords={"policy": ["none", "rl"]},
    )
    # Ratios 1/2 and 1/8: geometric mean 1/4; Student's t of one degree of freedom times log(2) is wide.
    one = statistics.ratio_to(values).sel(policy="rl")
    ratio, low, high = (float(one[name]) for name in ("mean", "low", "high"))
    assert ratio == pytest.approx(0.25) and one["seeds"] == 2
    assert low == pytest.approx(0.25 / 2**12.7062, rel=1e-4) and high == pytest.approx(0.25 * 2**12.7062, rel=1e-4)
    # Axes of a sweep stay.
    many = statistics.ratio_to(xarray.concat([values, values * 2], "target"))
    np.testing.assert_allclose(many["mean"].sel(policy="rl"), [0.25, 0.25])
