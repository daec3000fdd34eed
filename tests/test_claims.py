"""Claims of Section IV-B on hand-made results."""

import csv
import io
import json

import numpy as np
import pytest
import xarray

from d2djax.analysis import statistics
from d2djax.analysis.claims import claims_of
from d2djax.analysis.tables import above_bound, claims_table, diverged
from d2djax.running.results import BOUND, GRAPH

POLICIES = ["none", "uniform", "rl"]


def results(accuracy, **changes):
    """Results of runs with the given accuracy, [.., run, policy, round]."""
    axes = changes.pop("axes", {})
    accuracy = np.asarray(accuracy, float)
    runs, rounds = accuracy.shape[-3], accuracy.shape[-1]
    config = {"scheme": "fedavg", "aggregation_interval": 10, "num_steps": 10 * rounds}
    one = np.ones((*(len(values) for values in axes.values()), runs, 3))
    values = {
        "status": ((*axes, "run", "policy"), one.astype(np.int8) * 0),
        "accuracy": ((*axes, "run", "policy", "round"), accuracy),
        "exchange_energy": ((*axes, "run", "policy"), one * [0.0, 1.0, 2.0]),
        "control_energy": ((*axes, "run", "policy"), one * [0.0, 0.5, 3.0]),
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
    claim = found["mine, fedavg: rl learns better than uniform"]
    # Differences .2, .2 and -.3 twice: mean 1/30, variance .0667, (1.960 + .842)^2 x .0667 x 900 = 471.
    assert claim.verdict == "not shown"
    assert claim.measured.endswith("; in 4 of 6 seeds; about 471 seeds would decide (80 % power)")


def test_as_many_seeds_as_are_said_decide_in_four_of_five_repetitions():
    rng = np.random.default_rng(0)
    samples = rng.normal(0.3, 1.0, 40)
    samples += 0.3 - samples.mean()
    needed = int(statistics.seeds_to_decide(samples))
    assert needed == np.ceil(7.849 * samples.var(ddof=1) / 0.09)
    repeated = rng.normal(0.3, samples.std(ddof=1), (needed, 20_000))
    _, low, _ = statistics.interval(repeated)
    # Student's interval is a little wider than the normal one; the standard error of the share is .003.
    np.testing.assert_allclose((low > 0).mean(), 0.8, atol=0.02)
    assert statistics.seeds_to_decide(np.array([1.0, -1.0])) == np.inf
    # In any unit: the square of such a mean is 0 in double precision.
    for unit in (2.0**-700, 2.0**700):
        assert statistics.seeds_to_decide(unit * samples) == needed
    assert statistics.seeds_to_decide(np.array([1.0, -1.0, 1e-300])) == np.inf


def test_a_difference_that_nobody_could_find_is_said():
    level = [[[0.2, 0.3], [0.2, 0.3], [0.2, 0.3 + noise]] for noise in (-1, 1, -2, 2, -1, 1.000001)]
    (claim,) = (one for one in claims_of(results(level)) if one.text.endswith("rl learns better than none"))
    assert claim.measured.endswith("; more than 10,000 seeds would be needed to decide")


def test_a_claim_that_does_not_hold():
    backwards = np.asarray(CURVES)[:, ::-1]
    found = by_text(claims_of(results(backwards)))
    assert found["mine, fedavg: rl learns better than none"].verdict == "does not hold"


@pytest.mark.parametrize("seeds", [1, 4])
def test_few_seeds_show_nothing(seeds):
    assert {claim.verdict for claim in claims_of(results(CURVES[:seeds]))} == {"too few seeds"}


# `none` ends with .3 after 20 steps: 2 aggregations of 10 J. rl has it after the first: 2 J of exchange, 3 J of
# messages and 10 J. In the last seed uniform never gets there, and counts with all its training: 1.5 J and 20 J.
BENCHMARK = [[[0.1, 0.3], [0.2, 0.3], [0.3, 0.5]]] * 4 + [[[0.1, 0.3], [0.1, 0.1], [0.3, 0.5]]]


def test_energy():
    costs = statistics.cost_to_end_of_none(results(BENCHMARK))
    needed = costs["energy"].transpose("run", "policy").values
    np.testing.assert_allclose(needed, [[20, 21.5, 15]] * 5)
    np.testing.assert_array_equal(costs["reached"], [[1, 1, 1]] * 4 + [[1, 0, 1]])
    found = by_text(claims_of(results(BENCHMARK)))
    claim = found["mine: rl needs less energy than none"]
    assert (
        claim.measured == "energy of rl, none = 1: 0.75 (0.75 to 0.75); in 5 of 5 seeds"
        and claim.verdict == "holds"
    )
    assert found["mine: rl needs less energy than uniform"].measured == (
        "energy of rl, uniform = 1: 0.70 (0.70 to 0.70); in 5 of 5 seeds; "
        "never reached by uniform in 1 of the runs, which count with all of their training"
    )
    moved = found["mine: uniform moves fewer points than rl"]
    assert (moved.mean, moved.verdict) == (60.0, "holds")
    spent = found["mine: uniform spends less energy on the exchange than rl"]
    assert (spent.mean, spent.verdict) == (1.0, "holds")
    # 5 J against 1.5 J.
    spent = found["mine: uniform spends less energy on the exchange and its messages than rl"]
    assert (spent.mean, spent.verdict) == (3.5, "holds")


def test_bars_of_energy_have_the_interval_of_the_whole_bar():
    from d2djax.analysis import drawings, readout

    curves = [*BENCHMARK[:4], [[0.1, 0.3], [0.1, 0.1], [0.1, 0.5]]]
    figure = drawings.energy(results(curves))
    rows = list(csv.DictReader(io.StringIO(readout.numbers_of(figure))))
    (whole,) = (row for row in rows if row["series"] == "rl, in all" and row["x"] == "100%")
    # Four seeds of 15 J and one of 25 J: 17 J, and t(.975, 4) = 2.776 standard errors of sqrt(20 / 5) J.
    found = [float(whole[name]) for name in ("y", "low", "high")]
    np.testing.assert_allclose(found, [17, 17 - 2.776 * 2, 17 + 2.776 * 2], rtol=1e-3)
    bars = [row for row in rows if row["series"] == "rl, uploads" and row["x"] == "100%"]
    assert [float(row["high"]) for row in bars] == [17]


def test_energy_is_the_same_everywhere():
    """Table, picture, claim and search take one number: that of all training, where the target is never reached."""
    from d2djax.analysis import drawings, summary
    from d2djax.searching import objectives

    found = results(BENCHMARK)
    expected = {"none": 20.0, "uniform": 21.5, "rl": 15.0}
    costs = summary.costs(found)
    for policy, joules in expected.items():
        one = costs.sel(policy=policy)
        assert float(one["energy"]) == joules == float(one["exchange"] + one["messages"] + one["uploads"])
    assert costs["reached"].sel(policy="uniform") == 4 and costs["runs"].sel(policy="uniform") == 5
    assert costs["ratio"].sel(policy="uniform") == pytest.approx(21.5 / 20)
    (axes,) = drawings.energy(found).axes
    heights = {round(bar.get_y() + bar.get_height(), 6) for bar in axes.patches}
    assert set(expected.values()) <= heights
    # A search has no target: all training, 20 steps.
    for place, policy in enumerate(POLICIES):
        computed = {
            name: (
                tuple(str(dim) for dim in one.dims),
                one.isel(policy=[place]).values if "policy" in one.dims else one.values,
                {},
            )
            for name, one in found.data_vars.items()
        }
        values = objectives.values_of(computed, policy, ["energy"], np.full(5, 2))["energy"]
        np.testing.assert_allclose(values, [20, 21.5, 25][place])


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


def test_claims_of_a_sweep_say_over_which_points_they_are():
    lower = np.asarray(CURVES) - [[[0], [0], [0.1]]]
    claims = claims_of(results([[CURVES] * 2, [lower] * 2], axes={"gamma": [0.0, 1.0], "rate": [1.0, 2.0]}))
    assert claims and all("; means over 4 points (gamma, rate)" in one.measured for one in claims)
    assert not any("points (" in one.measured for one in claims_of(results(CURVES)))
    one = claims_of(results([CURVES], axes={"gamma": [0.0]}))
    assert not any("points (" in claim.measured for claim in one)


def test_claims_of_points_drawn_at_random():
    many = results([CURVES] * 3, axes={"point": [0, 1, 2]}).assign_coords(rate=("point", [1.0, 2.0, 3.0]))
    claims = claims_of(many)
    assert claims and all("; means over 3 points (rate)" in one.measured for one in claims)
    # What a claim is about is no axis of its mean.
    swept = results([[CURVES] * 2] * 3, axes={"gamma": [0.0, 1.0, 2.0], "num_stragglers": [0, 5]})
    (kept, _) = (one for one in claims_of(swept) if one.text.startswith("stragglers"))
    assert "; means over 3 points (gamma)" in kept.measured


def test_runs_that_are_not_done_do_not_count():
    done = {"done": ("run", np.array([1, 1, 0] * 2, np.int8))}
    claim = by_text(claims_of(results(CURVES, values=done)))["mine, fedavg: rl learns better than none"]
    assert claim.seeds == 4 and claim.mean == pytest.approx(0.25)
    assert claim.measured.endswith("; in 4 of 4 seeds; 2 of 6 runs do not count")


def test_diverged_runs_do_not_count():
    # Of numbers that are none, the accuracy of class 0 would beat the others.
    status = np.zeros((6, 3), np.int8)
    status[:5, 1] = 1
    status[0, 2] = 1
    diverged = results(CURVES).assign(status=(("run", "policy"), status))
    found = by_text(claims_of(diverged))
    claim = found["mine, fedavg: rl learns better than uniform"]
    assert claim.seeds == 1 and claim.verdict == "too few seeds"
    assert claim.measured.endswith("; in 0 of 1 seeds; 5 of 6 runs do not count")
    assert found["mine, fedavg: rl learns better than none"].seeds == 5
    # The target is that of none: without it nobody reaches anything.
    status[:, 0] = 1
    found = by_text(claims_of(diverged.assign(status=(("run", "policy"), status))))
    assert found["mine: rl needs less energy than none"].seeds == 0
    assert np.isnan(found["mine: rl needs less energy than uniform"].mean)


def test_policies_are_compared_at_the_same_points():
    # At the second point rl diverged; there none is at its best, which must not be held against rl.
    better = np.add(CURVES, [[[0.5], [0], [0]]])
    status = np.zeros((2, 6, 3), np.int8)
    status[1, :, 2] = 1
    values = {"status": (("gamma", "run", "policy"), status)}
    found = by_text(claims_of(results([CURVES, better], axes={"gamma": [0.0, 1.0]}, values=values)))
    assert found["mine, fedavg: rl learns better than none"].mean == pytest.approx(0.3)


def test_no_claims_without_rl():
    assert claims_of(results(CURVES).isel(policy=[0, 1])) == []


def test_table():
    assert claims_table(claims_of(results(CURVES))).row_count == len(claims_of(results(CURVES)))


def test_lines_about_a_selection():
    found = results(CURVES)
    found["status"][0] = [0, 0, GRAPH]
    found["status"][1] = [0, 0, BOUND]
    assert diverged(found) == [f"diverged: 1 of {len(CURVES)} runs"]
    assert diverged(found.sel(policy="rl")) == diverged(found)
    assert diverged(found.isel(run=0)) == ["diverged: 1 of 1 run"]
    assert diverged(found.isel(run=0).sel(policy="none")) == []
    (line,) = above_bound(found)
    assert line.startswith("in 1 run ")
    assert above_bound(found.sel(policy="rl")) == above_bound(found.isel(run=1)) == [line]
    assert above_bound(found.sel(policy="none", run=1)) == []
