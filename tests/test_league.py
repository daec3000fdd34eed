"""The comparison of all policies, and its figure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import d2djax
from d2djax.analysis import league
from d2djax.analysis.readout import numbers_of
from d2djax.analysis.studies import LEAGUE, REGIME_STUDIES, settings_of
from d2djax.policies import BUILT_IN
from d2djax.regimes import REGIMES


@pytest.fixture(scope="module")
def compared(tiny_config, tiny_dataset):
    config = replace(tiny_config, policies=("none", "uniform", "rl", "best_response"))
    return d2djax.run(config, 6, data=tiny_dataset, training=False, progress=False)


def test_standings_are_those_of_plain_loops(compared, monkeypatch):
    # So few episodes do not come near the best response.
    monkeypatch.setattr(league, "TARGET", 0.1)
    found = league.standings(compared)
    reward, curve = compared["graph_reward"], compared["discovery_reward"].sel(policy="rl")
    every = compared["episode"].values
    for run in range(6):
        best = np.mean(reward.sel(policy="best_response").values[run])
        for number, policy in enumerate(compared["policy"].values):
            share = np.mean(reward.values[run, number]) / best
            assert found["share"].sel(policy=policy).values[run] == pytest.approx(share, rel=1e-5)
        values = curve.values[run]
        reached = [episode for episode, value in zip(every, values, strict=True) if value >= 0.1 * best]
        between = every[1] - every[0]
        total = between * len(every)
        got = found.sel(policy="rl").isel(run=run)
        assert got["regret"] == pytest.approx(np.mean(best - values) * total, rel=1e-4)
        if reached:
            # A point of a curve stands at the end of its episodes: the first ends after `record_every`.
            assert got["episodes"] == reached[0]
            spent = compared["control_energy"].isel(run=run)
            exchange = float(spent.sel(policy="uniform"))
            assert float(spent.sel(policy="rl")) == pytest.approx((1 + total) * exchange, rel=1e-5)
            assert got["energy"] == pytest.approx((1 + reached[0]) * exchange, rel=1e-4)
        else:
            assert np.isnan(got["episodes"]) and np.isnan(got["energy"])
        assert np.isnan(found["regret"].sel(policy="uniform").values[run])
    assert found["episodes"].sel(policy="rl").notnull().any(), "no run tests when the target is reached"


def test_levels_and_regimes(compared):
    assert [league.level_of(name) for name in ("rl", "offers", "best_response", "mine")] == [
        "own",
        "heard",
        "all",
        "own",
    ]
    assert {one.information for one in BUILT_IN.values()} == {"own", "heard", "all"}
    assert league.regime_of(compared) is None
    for study, (name, settings) in zip(REGIME_STUDIES, REGIMES.items(), strict=True):
        config, axes = settings_of(study, "small")
        assert study.name == f"league_{name}" and not axes and config.policies == LEAGUE
        assert all(getattr(config, key) == value for key, value in settings.items())


def test_claims_compare_learning_with_what_does_not_learn(compared):
    (claim,) = league.claims(compared)
    assert "the best policy that learns (rl) is better than the best that does not (uniform)" in claim.text
    share = 100 * league.standings(compared)["share"]
    difference = (share.sel(policy="rl", drop=True) - share.sel(policy="uniform", drop=True)).values
    assert claim.mean == pytest.approx(difference.mean()) and claim.seeds == 6
    assert claim.verdict == ("holds" if claim.low > 0 else "does not hold" if claim.high < 0 else "not shown")


def test_the_figure_shows_the_standings(compared):
    figure = league.league(compared, compared)
    text = numbers_of(figure)
    mean = 100 * float(league.standings(compared)["share"].sel(policy="rl").mean())
    numbers = [
        float(part) for line in text.splitlines() for part in line.split(",") if part.replace(".", "", 1).isdigit()
    ]
    assert any(number == pytest.approx(mean, rel=1e-3) for number in numbers)
    assert "level own" in text and "level all" not in text.split("rl")[0]
