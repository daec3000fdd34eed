"""Rewards from outside the package: learning, best response and values with them, and their faults."""

import json
import re
import sys
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import d2djax
from d2djax import PaperReward, Recipe, Rewards
from d2djax.analysis import plots
from d2djax.analysis.tables import above_bound, summary_table
from d2djax.channel import draw_state
from d2djax.cli import commands
from d2djax.config import complete, score_fraction
from d2djax.discovery import discover, summarise
from d2djax.episode import exchange_and_reward, prepare
from d2djax.rng import Stream, at, run_key
from d2djax.running import programs
from d2djax.running.progress import plural
from d2djax.running.repeat import read
from d2djax.running.results import BOUND, own_reward
from d2djax.running.results import read as read_results
from d2djax.searching import searches


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Paid:
    """The paper's reward less a price for each point that a device sends, and for unequal numbers of points."""

    price: Any = 0.05
    fairness: Any = 0.5

    def __call__(self, network, state, links, exchange, config):
        found = PaperReward()(network, state, links, exchange, config)
        sent = jnp.zeros(links.size).at[links].add(exchange.transmitted.sum(-1))
        held = exchange.counts.sum(-1)
        unequal = jnp.abs(held - held.mean()) / held.mean()
        return replace(found, total=found.total - self.price * sent - self.fairness * unequal)

    def upper_bound(self, config):
        return PaperReward().upper_bound(config)


def by_hand(network, state, links, exchange, config):
    """The paper's reward, written as a user would write it."""
    number = links.size
    reached = (exchange.counts >= score_fraction(config) * network.thresholds * (1 - 1e-5)).sum(-1)
    score = jnp.where(reached >= config.min_classes, reached, 0).astype(jnp.float32)
    local = config.alpha_diversity * score - config.alpha_outage * network.outage[state, jnp.arange(number), links]
    outside = (network.cluster[links] != network.cluster) * exchange.requested.sum(-1)
    inter = jnp.zeros(number).at[network.cluster].add(outside)
    every = (local.mean() + config.alpha_budget * (network.budget - inter))[network.cluster]
    return Rewards(local, every, local + config.gamma * every, inter)


@pytest.fixture(scope="module")
def options(tiny_dataset):
    return {"data": tiny_dataset, "training": False, "progress": False}


@pytest.fixture(scope="module")
def config(tiny_config):
    return replace(tiny_config, policies=("uniform", "rl", "best_response"), best_response_restarts=2)


@pytest.fixture(scope="module")
def found(config, options):
    return d2djax.run(config, 2, recipe=Recipe(reward=Paid()), **options)


@pytest.fixture(scope="module")
def papers(config, options):
    return d2djax.run(config, 2, **options)


@pytest.fixture(scope="module")
def network(tiny_networks):
    return jax.tree.map(lambda leaf: leaf[0], tiny_networks)


# --- what is computed ---


def totals(network, state, links, config, price, fairness):
    """The total rewards of `Paid` in plain loops, [N]."""
    parts = {name: np.asarray(getattr(network, name)) for name in ("counts", "thresholds", "trust", "cluster")}
    parts |= {name: np.asarray(getattr(network, name), float) for name in ("outage", "budget")}
    weights = ("min_classes", "alpha_diversity", "alpha_outage", "alpha_budget", "gamma")
    settings = {name: getattr(config, name) for name in weights} | {"score_fraction": score_fraction(config)}
    paper = oracle.rewards_of(parts, state, links, settings)["total"]
    moved = oracle.exchange(
        *(parts[name] for name in ("counts", "thresholds", "trust")), links, parts["outage"][state]
    )
    found, held = [], [float(sum(row)) for row in moved["counts"]]
    mean = sum(held) / len(held)
    for device, total in enumerate(paper):
        sent = sum(
            float(sum(moved["transmitted"][receiver]))
            for receiver, transmitter in enumerate(links)
            if transmitter == device
        )
        found.append(float(total) - price * sent - fairness * abs(held[device] - mean) / mean)
    return np.array(found)


def plain_loop(network, key, config, price, fairness):
    """What the paper's policy learns from `Paid`, one episode at a time."""
    num_states, num_devices, _ = network.outage.shape
    most = config.alpha_diversity * network.counts.shape[1]
    start = most + config.gamma * (most + config.alpha_budget * config.cluster_budget)
    reward, tries, state = *np.zeros((2, num_states, num_devices, num_devices)), 0
    for episode in range(config.num_episodes):
        drawn = int(draw_state(key, episode, config))
        state = state if drawn < 0 else drawn
        likely = oracle.policy_probabilities(reward, tries, state, start, config.temperature)
        uniform = np.asarray(jax.random.uniform(at(key, Stream.POLICY, episode), (num_devices,)), float)
        links = [int(np.sum(np.cumsum(row) <= u * row.sum())) for row, u in zip(likely, uniform, strict=True)]
        earned = totals(network, state, links, config, price, fairness)
        reward, tries = oracle.update(reward, tries, state, links, earned)
    return reward, tries


def test_discovery_by_a_reward_of_ones_own_is_the_plain_loop(network, tiny_config):
    config = complete(tiny_config)
    got = jax.jit(lambda: discover(run_key(0), network, config, Paid(0.05, 0.5)))()
    reward, tries = plain_loop(network, run_key(0), config, 0.05, 0.5)
    np.testing.assert_array_equal(got.buffer.tries, tries)
    np.testing.assert_allclose(got.buffer.reward, reward, rtol=1e-4, atol=1e-4)


def test_graphs_are_valued_by_it_and_by_the_papers_formula(found, network, config):
    one = found.sel(run=0)
    names = ("alpha_diversity", "alpha_outage", "alpha_budget", "gamma")
    reference = replace(config, **dict(zip(names, config.reference_weights, strict=True)))
    for policy in found["policy"].values:
        for state in range(config.num_states):
            links = one["links"].sel(policy=policy)[state].values
            for name, weighed, own in (
                ("graph_reward", config, (0.05, 0.5)),
                ("graph_reference_reward", reference, (0.0, 0.0)),
            ):
                expected = totals(network, state, links, weighed, *own).mean()
                got = one[name].sel(policy=policy)[state].item()
                assert got == pytest.approx(expected, rel=1e-4), (policy, state, name)


def test_best_response_ascends_it(found, papers, network, config):
    # No device alone improves the sum; the graphs that are best for the paper's reward are others.
    for state in range(config.num_states):
        links = found["links"].sel(run=0, policy="best_response")[state].values
        reached = totals(network, state, links, config, 0.05, 0.5).sum()
        for device in range(len(links)):
            for transmitter in range(len(links)):
                other = np.where(np.arange(len(links)) == device, transmitter, links)
                assert totals(network, state, other, config, 0.05, 0.5).sum() <= reached + 1e-4
    assert (found["links"] != papers["links"]).sel(policy="best_response").any()
    np.testing.assert_array_equal(found["links"].sel(policy="uniform"), papers["links"].sel(policy="uniform"))


def test_the_papers_reward_is_the_default(papers, config, options):
    before = programs.num_compiled()
    again = d2djax.run(config, 2, recipe=Recipe(reward=PaperReward()), **options)
    assert programs.num_compiled() == before
    for name in papers.data_vars:
        np.testing.assert_array_equal(again[name], papers[name], err_msg=str(name))


def test_the_papers_reward_by_hand_finds_the_same_graphs(papers, config, options):
    # From the start that the paper's reward would give.
    given = replace(config, initial_value=PaperReward().upper_bound(config), policies=("rl", "best_response"))
    again = d2djax.run(given, 2, recipe=Recipe(reward=by_hand), **options)
    papers = papers.sel(policy=["rl", "best_response"])
    np.testing.assert_array_equal(again["links"], papers["links"])
    for name in ("graph_reward", "graph_local_reward", "graph_over_budget", "discovery_reward"):
        np.testing.assert_allclose(again[name], papers[name], rtol=1e-5, err_msg=name)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Careless(PaperReward):
    """Its total is the paper's, and nothing else is."""

    def __call__(self, network, state, links, exchange, config):
        found = PaperReward()(network, state, links, exchange, config)
        nothing = jnp.zeros_like(found.total)
        return Rewards(nothing, nothing, found.total, nothing)


def test_only_its_total_is_believed(network, tiny_config):
    config, links = complete(tiny_config), jnp.array([1, 0, 5, 2, 3, 0])

    @jax.jit
    def valued():
        prepared = prepare(network, config)
        outcomes = [
            exchange_and_reward(prepared, 1, links, config, reward)[1] for reward in (PaperReward(), Careless())
        ]
        return [summarise(outcome, links, network, config) for outcome in outcomes]

    one, other = valued()
    assert one["requested_inter"] > 0
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-6, err_msg=name)


def test_what_is_no_number_is_told(config, options):
    def seldom(network, state, links, exchange, config):
        found = PaperReward()(network, state, links, exchange, config)
        is_bad = (links == 2) & (jnp.arange(links.size) == 0)
        return replace(found, total=jnp.where(is_bad, jnp.nan, found.total))

    given = replace(config, initial_value=20.0, policies=("none", "rl", "best_response"))
    status = d2djax.run(given, 2, recipe=Recipe(reward=seldom), **options)["status"]
    assert (status.sel(policy="none") == 0).all() and (status.sel(policy=["rl", "best_response"]) == 2).all()


def test_a_bound_that_does_not_hold_is_told(found, config, options):
    """Of the devices that are paid for what they send, instead of paying."""
    assert (found["status"] == 0).all() and above_bound(found) == []
    before = programs.num_compiled()
    paid = d2djax.run(config, 2, recipe=Recipe(reward=Paid(price=-5.0)), **options)
    assert programs.num_compiled() == before
    assert paid["graph_reward"].max() > PaperReward().upper_bound(replace(complete(config), num_classes=5))
    status = paid["status"]
    assert (status.sel(policy="rl") == BOUND).all() and (status.drop_sel(policy="rl") == 0).all()
    (line,) = above_bound(paid)
    assert line.startswith(f"in 2 runs a mean reward is above the upper_bound of {__name__}.Paid")


def test_so_is_that_of_the_paper_where_a_network_has_other_budgets(config, options):
    rich = lambda key, config: replace(made := d2djax.make_network(key, config), budget=made.budget + 1e5)  # noqa: E731
    found = d2djax.run(config, 2, recipe=Recipe(network=rich), **options)
    assert (found["status"].sel(policy="rl") == BOUND).all()
    assert "above the upper_bound of the paper's reward" in above_bound(found)[0]


# --- its numbers ---


@pytest.fixture(scope="module")
def swept(config, found, options, tmp_path_factory):
    axes, out = {"reward.price": [0.0, 0.05], "gamma": [0.0, config.gamma]}, tmp_path_factory.mktemp("swept")
    before = programs.num_compiled()
    results = d2djax.sweep(config, axes, 2, out, recipe=Recipe(reward=Paid()), **options)
    return out, axes, results, programs.num_compiled() - before


def test_its_numbers_are_axes_and_compile_nothing(swept, found):
    _, _, results, compiled = swept
    # The programs are those of `found`.
    assert compiled == 0
    one = results.sel({"reward.price": 0.05}).isel(gamma=1)
    for name in ("links", "graph_reward", "discovery_reward"):
        np.testing.assert_array_equal(one[name], found[name], err_msg=name)
    moved = results["points_moved"].sel(policy="best_response").sum("run").isel(gamma=1)
    assert moved.sel({"reward.price": 0.05}) <= moved.sel({"reward.price": 0.0})
    assert (
        results["graph_reward"].isel({"reward.price": 0}) != results["graph_reward"].isel({"reward.price": 1})
    ).any()
    about = json.loads(results.attrs["manifest"])
    assert about["axes"]["reward.price"] == [0.0, 0.05]
    assert about["recipe"]["reward"]["name"] == f"{__name__}.Paid" and about["recipe"]["reward"]["numbers"] == {
        "fairness": 0.5
    }


def test_an_interrupted_sweep_goes_on_and_knows_the_code(swept, config, options, tmp_path, monkeypatch, stopping):
    out, axes, results, _ = swept
    with stopping(1), pytest.raises(KeyboardInterrupt):
        d2djax.sweep(config, axes, 2, tmp_path, recipe=Recipe(reward=Paid()), **options)
    assert 0 < read_results(tmp_path / "results.zarr")["done"].sum() < 8
    again = d2djax.sweep(config, axes, 2, tmp_path, recipe=Recipe(reward=Paid()), **options)
    for name in results.data_vars:
        np.testing.assert_array_equal(again[name], results[name], err_msg=str(name))
    with pytest.raises(
        ValueError, match=r"results of another sweep \(recipe.reward.numbers.fairness: 0.5 there, 0.7 now"
    ):
        d2djax.sweep(config, axes, 2, out, recipe=Recipe(reward=Paid(fairness=0.7)), **options)
    with pytest.raises(ValueError, match=r"recipe.reward.name: \"\w+.Paid\" there, \"\w+.Lower\" now"):
        d2djax.sweep(config, axes | {"reward.price": [0.0]}, 2, out, recipe=Recipe(reward=Lower()), **options)
    monkeypatch.setattr(Paid, "__call__", lambda self, *arguments: PaperReward()(*arguments))
    with pytest.raises(ValueError, match=r"results of another sweep \(recipe.reward.hash"):
        d2djax.sweep(config, axes, 2, out, recipe=Recipe(reward=Paid()), **options)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lower(Paid):
    """Another reward of the same numbers."""


def test_its_numbers_are_sought(config, tmp_path, options):
    ranges = {"reward.price": d2djax.Uniform(0, 0.1)}
    given = {"policy": "rl", "recipe": Recipe(reward=Paid()), "progress": False, "data": options["data"]}
    study = searches.search(config, ranges, ["reward"], 2, 2, tmp_path, batch=2, **given)
    assert not any("above_bound" in trial.user_attrs for trial in study.trials)
    assert "above_bound" not in searches.trials_of(study)
    best = study.best_trial
    recipe = Recipe(reward=Paid(best.params["reward.price"]))
    again = d2djax.run(replace(config, policies=("rl",)), 2, recipe=recipe, **options)
    assert again["graph_reference_reward"].mean().item() == pytest.approx(best.value, rel=1e-6)
    changed = {**given, "recipe": Recipe(reward=Lower())}
    with pytest.raises(ValueError, match=r"recipe.reward.name: \"\w+.Paid\" there, \"\w+.Lower\" now"):
        searches.search(config, ranges, ["reward"], 2, 2, tmp_path, batch=2, **changed)
    points = d2djax.random_points(ranges, 3, own=recipe.numbered)
    assert all(0 <= point["reward.price"] <= 0.1 for point in points)


def test_a_search_says_that_its_bound_does_not_hold(config, tmp_path, options, capsys):
    ranges = {"reward.price": d2djax.Choice((-5.0, 0.05))}
    given = {"policy": "rl", "recipe": Recipe(reward=Paid()), "progress": True, "data": options["data"]}
    for seeds in (2, 3):
        # The third seed is computed alone, and joins the two that are there.
        study = searches.search(config, ranges, ["reward"], 6, seeds, tmp_path, batch=6, **given)
        above = [trial.user_attrs.get("above_bound") for trial in study.trials]
        assert above == [{-5.0: seeds, 0.05: None}[trial.params["reward.price"]] for trial in study.trials]
        paid = sum(one is not None for one in above)
        assert 0 < paid < 6
        line = f"in {seeds * paid} runs of {plural(paid, 'trial')} a mean reward is above the upper_bound of "
        line += (
            f"{__name__}.Paid: the initial value of untried links is too low, so policies try too few of them; "
            "see `above_bound`"
        )
        assert capsys.readouterr().err.splitlines()[-1] == line
        assert [one or 0 for one in above] == read_results(tmp_path / "results.zarr")["above_bound"].values.tolist()
        commands.main(["results", str(tmp_path)])
        assert capsys.readouterr().out.splitlines()[-1] == line
    papers = {"recipe": {"reward": {"name": "d2djax.reward.PaperReward"}}}
    assert searches._reward_of(papers) == searches._reward_of({}) == "the paper's reward"


def test_any_setting_that_it_reads_counts(config, options, tmp_path):
    def by_rate(network, state, links, exchange, config):
        found = PaperReward()(network, state, links, exchange, config)
        return replace(found, total=config.learning_rate * found.total + 0.0 * config.num_steps)

    given = replace(config, policies=("uniform",), learning_rate=1.0)
    recipe = Recipe(reward=by_rate)
    swept = d2djax.sweep(given, {"learning_rate": [1.0, 2.0]}, 1, tmp_path, recipe=recipe, **options)
    one, two = (swept["graph_reward"].sel(learning_rate=rate) for rate in (1.0, 2.0))
    np.testing.assert_allclose(2 * one, two, rtol=1e-6)
    with pytest.raises(ValueError, match=r"results of another sweep \(config.num_steps: 8 there, 16 now"):
        d2djax.sweep(replace(given, num_steps=16), {"learning_rate": [1.0]}, 1, tmp_path, recipe=recipe, **options)


# --- where it is named ---


def test_it_is_named_where_its_values_are(found, papers, swept):
    name = f"{__name__}.Paid"
    for results in (found, swept[2]):
        assert own_reward(results) == name
        assert results["discovery_reward"].attrs["long_name"].endswith(f"during discovery, {name}")
        assert "reward" not in results["graph_reference_reward"].attrs
    assert f"devices learn with {name}" in str(summary_table(found).title)
    assert f"by {name}" in plots.reward_curve(found).axes[0].get_ylabel()
    assert own_reward(papers) is None and "learn with" not in str(summary_table(papers).title)
    assert plots.reward_curve(papers).axes[0].get_ylabel() == "mean total reward of the devices"


def test_a_manifest_of_a_reward_from_python_is_not_repeated(found, papers, tmp_path):
    about = json.loads(found.attrs["manifest"])
    about["data"]["name"] = about["config"]["dataset"]
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="the recipe was given in Python"):
        read(str(tmp_path / "manifest.json"))
    about["recipe"] = json.loads(papers.attrs["manifest"])["recipe"]
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    assert read(str(tmp_path / "manifest.json"))[0]["command"] == "run"


# --- on the command line ---

MINE = """
from dataclasses import dataclass, replace

import jax

import d2djax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    scale: float = 2.0

    def __call__(self, network, state, links, exchange, config):
        found = d2djax.PaperReward()(network, state, links, exchange, config)
        return replace(found, total=self.scale * found.total)


recipe = d2djax.Recipe(reward=Scaled())
"""
SMALL = [
    *("--num-devices", "5", "--num-states", "2", "--num-episodes", "40", "--record-every", "20"),
    *("--policies", "uniform", "--seeds", "2", "--no-training"),
]


@pytest.fixture
def mine(recipe_file):
    return recipe_file("mine_with_reward", MINE)


def test_a_recipe_file_carries_it(mine, tmp_path, capsys):
    first, again = tmp_path / "first", tmp_path / "again"
    commands.main(["sweep", "--recipe", str(mine), *SMALL, "--axis", "reward.scale=1,3", "--out", str(first)])
    commands.main(["results", str(first)])
    assert "devices learn with mine_with_reward.Scaled" in " ".join(capsys.readouterr().out.split())
    commands.main(["sweep", "--config", str(first / "config.toml"), "--out", str(again)])
    one, two = (read_results(out / "results.zarr") for out in (first, again))
    reward = one["graph_reward"].sel(policy="uniform")
    np.testing.assert_allclose(3 * reward.sel({"reward.scale": 1}), reward.sel({"reward.scale": 3}), rtol=1e-6)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name], err_msg=str(name))
    # A wrong one, and another line: exit code 2, one line, nothing written.
    for text, more, message in (
        ("total=3.0)", str(tmp_path / "wrong"), "cannot be used: ValueError: the reward's total must be"),
        ("total=self.scale + found.total)", str(first), "holds the results of another sweep (recipe.reward.hash"),
    ):
        mine.write_text(MINE.replace("total=self.scale * found.total)", text))
        del sys.modules[mine.stem]
        with pytest.raises(SystemExit) as caught:
            commands.main(["sweep", "--config", str(first / "config.toml"), "--out", more])
        assert caught.value.code == 2 and message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "wrong").exists()


# --- what is refused ---


def changed(**parts):
    """A reward with other fields."""
    return lambda *arguments: replace(PaperReward()(*arguments), **parts)


@pytest.mark.parametrize(
    "reward, message",
    [
        (Paid, "recipe.reward must be an object, such as Paid(); got the class itself"),
        (3, "recipe.reward must be a function (network, state, links, exchange, config), or a frozen dataclass"),
        (dataclass(frozen=True)(type("Bare", (Paid,), {}))(), "@jax.tree_util.register_dataclass"),
        (Paid("high"), "recipe.reward must consist of numbers and arrays; got 'high'"),
        (Paid(np.inf), "recipe.reward.price must be a finite number"),
    ],
)
def test_what_is_no_reward_is_refused(reward, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        Recipe(reward=reward)
    assert "\n" not in str(caught.value)


def test_its_name_is_free_for_its_numbers():
    with pytest.raises(ValueError, match=re.escape("policies['reward'] must have another name")):
        Recipe(policies={"reward": lambda key, network, config: None})


@pytest.mark.parametrize(
    "reward, message",
    [
        (changed(total=jnp.zeros(5)), "the reward's total must be [N] = [6]; got shape [5]"),
        (changed(local=0.0), "the reward's local must be an array of float; got 0.0"),
        (changed(global_=jnp.zeros(6, int)), "the reward's global_ must be an array of float; got int32"),
        (lambda *arguments: PaperReward()(*arguments).total, "the reward must return d2djax.Rewards; got"),
        (lambda network, links: None, "TypeError"),
        (lambda *arguments: 1 / 0, "ZeroDivisionError: division by zero (test_own_reward.py, line "),
        (
            lambda n, state, *rest: PaperReward()(n, state, *rest) if state > 0 else None,
            "TracerBoolConversionError",
        ),
        (
            by_hand,
            "initial_value must be given: recipe.reward has no upper_bound(config), from which rl would start",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line_and_writes_nothing(config, options, tmp_path, reward, message):
    before = programs.num_compiled()
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        d2djax.sweep(config, {"gamma": [0.0, 1.0]}, 1, tmp_path, recipe=Recipe(reward=reward), **options)
    assert "\n" not in str(caught.value) and str(caught.value).count("recipe.reward") == 1
    assert programs.num_compiled() == before and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "bound, message",
    [
        (np.zeros(3), "upper_bound must be one number, [] = []; got shape [3]"),
        (None, "upper_bound must be numbers; got None"),
        ("much", "upper_bound must be numbers; got 'much'"),
        (np.inf, "upper_bound must be finite; got inf"),
        (np.nan, "upper_bound must be finite; got nan"),
    ],
)
def test_bounds_that_are_no_number_are_refused(config, options, bound, message):
    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Odd(Paid):
        def upper_bound(self, config):
            return bound

    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        d2djax.run(config, 1, recipe=Recipe(reward=Odd()), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "axes, message",
    [
        ({"reward.prize": [1.0]}, "did you mean 'reward.price'"),
        ({"reward.price": ["high"]}, "reward.price must be a number; got 'high'"),
        ({"reward.price": [1.0, 1.0]}, "must not repeat a value"),
    ],
)
def test_what_is_no_number_of_it_is_refused(config, tmp_path, axes, message, options):
    with pytest.raises(ValueError, match=message):
        d2djax.sweep(config, axes, 1, tmp_path, recipe=Recipe(reward=Paid()), **options)
    with pytest.raises(ValueError, match="must be a setting"):
        d2djax.sweep(config, {"reward.price": [1.0]}, 1, tmp_path, **options)
    assert not any(tmp_path.iterdir())
