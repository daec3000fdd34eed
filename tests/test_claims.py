"""Claims of Section IV-B on hand-made results."""

import json

import numpy as np
import pytest
import xarray

from d2djax import statistics
from d2djax.claims import claims_of, energy_to_end_of_none
from d2djax.tables import claims_table

POLICIES = ["none", "uniform", "rl"]


def results(accuracy, **changes):
    """Results of runs with the given accuracy, [.., run, policy, round]."""
    axes = changes.pop("axes", {})
    accuracy = np.asarray(accuracy, float)
    runs, rounds = accuracy.shape[-3], accuracy.shape[-1]
    config = {"scheme": "fedavg", "aggregation_interval": 10}
    one = np.ones((*(len(values) for values in axes.values()), runs, 3))
    values = {
        "status": ((*axes, "run", "policy"), one.astype(np.int8) * 0),
        "accuracy": ((*axes, "run", "policy", "round"), accuracy),
        "exchange_energy": ((*axes, "run", "policy"), one * [0.0, 1.0, 2.0]),
        "points_moved": ((*axes, "run", "policy"), one * [0.0, 30.0, 90.0]),
        "upload_energy": ((*axes, "run"), one[..., 0] * 10.0),
        "upload_bits": ((*axes, "run"), one[..., 0] * 100.0),
    } | changes.pop("values", {})
    about = {"config": config | changes, "data": {"name": "mine"}}
    coordinates = {"policy": POLICIES, "round": 10 * np.arange(1, rounds + 1), "run": np.arange(runs)} | axes
    return xarray.Dataset(values, coordinates, {"manifest": json.dumps(about)})


def by_text(claims):
    return {claim.text: claim for claim in claims}


def test_bootstrap_of_known_samples():
    mean, low, high = statistics.bootstrap(np.arange(1.0, 101.0))
    # The standard error of the mean of 1 .. 100 is 2.887 with the population's deviation.
    assert mean == 50.5
    np.testing.assert_allclose([low, high], [50.5 - 1.96 * 2.887, 50.5 + 1.96 * 2.887], atol=0.25)
    assert statistics.bootstrap(np.arange(1.0, 101.0)) == (mean, low, high), "the same at every call"


def test_bootstrap_at_the_edges():
    assert statistics.bootstrap(np.full(5, 2.0)) == (2.0, 2.0, 2.0)
    mean, low, high = statistics.bootstrap(np.array([3.0]))
    assert mean == 3.0 and np.isnan([low, high]).all()
    assert np.isnan(statistics.bootstrap(np.array([]))).all()


# Six seeds, two rounds: rl is above none by .2, .3 and .4 in the mean over the rounds.
CURVES = [
    [[0.1, 0.3], [0.2, 0.2], [0.3, 0.5]],
    [[0.1, 0.3], [0.3, 0.3], [0.4, 0.6]],
    [[0.1, 0.3], [0.9, 0.9], [0.5, 0.7]],
] * 2


def test_learning():
    found = by_text(claims_of(results(CURVES)))
    claim = found["mine, fedavg: rl learns better than none"]
    assert claim.verdict == "holds" and claim.seeds == 6
    np.testing.assert_allclose(claim.mean, 0.3, rtol=1e-9)
    assert 0.2 <= claim.low <= 0.3 <= claim.high <= 0.4
    assert claim.measured.startswith("mean accuracy of all rounds +0.3000 (")
    assert claim.measured.endswith("; in 6 of 6 seeds")
    assert found["mine, fedavg: rl learns better than uniform"].verdict == "not shown"


def test_a_claim_that_does_not_hold():
    backwards = np.asarray(CURVES)[:, ::-1]
    found = by_text(claims_of(results(backwards)))
    assert found["mine, fedavg: rl learns better than none"].verdict == "does not hold"


@pytest.mark.parametrize("seeds", [1, 4])
def test_few_seeds_show_nothing(seeds):
    assert {claim.verdict for claim in claims_of(results(CURVES[:seeds]))} == {"too few seeds"}


def test_energy():
    # `none` ends with .3 after 20 steps: 2 aggregations of 10 J. rl has it after the first: 2 J and 10 J. In the
    # last seed uniform never gets there, and counts with all its training: 1 J and 20 J.
    curves = [[[0.1, 0.3], [0.2, 0.3], [0.3, 0.5]]] * 4 + [[[0.1, 0.3], [0.1, 0.1], [0.3, 0.5]]]
    needed = energy_to_end_of_none(results(curves)).transpose("run", "policy").values
    np.testing.assert_allclose(needed, [[20, 21, 12]] * 5)
    found = by_text(claims_of(results(curves)))
    claim = found["mine: rl needs less energy than none"]
    assert (
        claim.measured == "energy of rl, none = 1: 0.60 (0.60 to 0.60); in 5 of 5 seeds"
        and claim.verdict == "holds"
    )
    moved = found["mine: uniform moves fewer points than rl"]
    assert (moved.mean, moved.verdict) == (60.0, "holds")
    spent = found["mine: uniform spends less energy on the exchange than rl"]
    assert (spent.mean, spent.verdict) == (1.0, "holds")


@pytest.mark.parametrize("axis, values", [("num_stragglers", [0, 5]), ("aggregation_interval", [10, 20])])
def test_resilience(axis, values):
    # From the first to the last value none loses .3, uniform .2 and rl .1 of the final accuracy.
    first = [[[0.5, 0.8], [0.5, 0.8], [0.5, 0.8]]] * 3
    last = [[[0.5, 0.5], [0.5, 0.6], [0.5, 0.7]]] * 3
    # The order of the points does not matter.
    found = claims_of(results([last, first], axes={axis: values[::-1]}))
    means = {claim.text.split()[-1]: claim.mean for claim in found if "cost rl less" in claim.text}
    assert means == pytest.approx({"none": 0.2, "uniform": 0.1})


def test_schemes_are_claimed_one_by_one():
    found = by_text(
        claims_of(results([CURVES, np.asarray(CURVES)[:, ::-1]], axes={"scheme": ["fedprox", "fedsgd"]}))
    )
    assert found["mine, fedprox: rl learns better than none"].verdict == "holds"
    assert found["mine, fedsgd: rl learns better than none"].verdict == "does not hold"


def test_reliability():
    names, states = ("outage", "requested_inter", "over_budget"), 2
    level = {"outage": [0, 0.4, 0.1], "requested_inter": [0, 50.0, 80.0], "over_budget": [0, 7.0, 7.0]}
    worth = {
        f"graph_{name}": (("run", "policy", "state"), np.tile(np.array(level[name])[:, None], (6, 1, states)))
        for name in names
    }
    found = by_text(claims_of(results(CURVES, values=worth)))
    assert found["links of rl are more reliable than those of uniform"].mean == pytest.approx(0.3)
    assert found["rl asks for fewer points between clusters than uniform"].verdict == "does not hold"
    assert found["rl asks for fewer points over the clusters' budgets than uniform"].verdict == "not shown"


def test_axes_that_no_claim_is_about_are_averaged():
    lower = np.asarray(CURVES) - [[[0], [0], [0.1]]]
    found = by_text(claims_of(results([CURVES, lower], axes={"gamma": [0.0, 1.0]})))
    assert found["mine, fedavg: rl learns better than none"].mean == pytest.approx(0.25)


def test_runs_that_are_not_done_do_not_count():
    done = {"done": ("run", np.array([1, 1, 0] * 2, np.int8))}
    claim = by_text(claims_of(results(CURVES, values=done)))["mine, fedavg: rl learns better than none"]
    assert claim.seeds == 4 and claim.mean == pytest.approx(0.25)


def test_no_claims_without_rl():
    assert claims_of(results(CURVES).isel(policy=[0, 1])) == []


def test_table():
    assert claims_table(claims_of(results(CURVES))).row_count == len(claims_of(results(CURVES)))
