"""Policies that hear the offers, and those that see everything: `offers`, `informed`, `matching` and `exact`."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from scipy.optimize import linear_sum_assignment
from test_discovery import as_oracle, draws

import d2djax
from d2djax import check_policy
from d2djax.config import score_fraction
from d2djax.discovery import best_links, learn
from d2djax.energy import control_energy
from d2djax.episode import prepare
from d2djax.information import known_of
from d2djax.network import Network, make_network
from d2djax.policies import BUILT_IN, candidates_of, check
from d2djax.policies.exact import exact
from d2djax.policies.informed import Informed
from d2djax.policies.matching import assign, capacity, matching
from d2djax.policies.offers import offers, predicted
from d2djax.rng import run_key
from d2djax.validation import validate

# Three devices hold 40 points of one or two of four classes and need 8 of a class, 3 classes, and .9 of 8 to score.
SMALL = validate(
    d2djax.Config(
        dataset="fashion_mnist",
        num_devices=3,
        num_classes=4,
        num_states=2,
        classes_per_device=2,
        points_per_device=40,
        threshold=8.0,
        min_classes=3,
    )
)
COUNTS = [[20, 20, 0, 0], [0, 20, 20, 0], [0, 0, 20, 20]]


@pytest.fixture(scope="module")
def hand():
    """A network by hand: device 0 trusts nobody with its class 1, and links of device 2 to 0 fail in state 1."""
    outage = np.full((2, 3, 3), 0.05, np.float32)
    outage[0, 0, 2] = 0.06
    outage[1, 0, 2] = 0.5
    outage[:, 2, 1] = 0.07
    outage[:, np.arange(3), np.arange(3)] = 0.0
    trust = np.ones((3, 3, 4), bool)
    trust[0, 1, 0] = trust[0, 2, 0] = False
    return Network(
        position=np.zeros((3, 2), np.float32),
        rss=np.ones((2, 3, 3), np.float32),
        outage=outage,
        trust=trust,
        counts=np.array(COUNTS, np.int32),
        thresholds=np.full((3, 4), 8.0, np.float32),
        cluster=np.zeros(3, np.int32),
        budget=np.full(3, 300.0, np.float32),
    )


# --- offers ---


def test_offers_by_hand(hand):
    # From 1, device 0 would get class 2: three classes, 3 - 2 x .05. From 2, both that it lacks: 4 - 2 x .06, but
    # in state 1 half of them is lost, which leaves it two classes, below the least number. Device 1 gets nothing
    # that it lacks and may have from 0, and class 3 from 2. Device 2 gets class 1, and more reliably from 0.
    np.testing.assert_array_equal(offers(run_key(0), hand, SMALL), [[2, 2, 0], [1, 2, 0]])


def test_a_device_that_no_link_helps_keeps_itself(hand):
    nobody = replace(hand, trust=np.broadcast_to(np.eye(3, dtype=bool)[..., None], (3, 3, 4)))
    np.testing.assert_array_equal(offers(run_key(0), nobody, SMALL), [[0, 1, 2]] * 2)


def plain_offers(network, config):
    """[S, N], device by device and class by class."""
    num_states, num_devices, _ = network.outage.shape
    needed = network.thresholds * (1.0 - config.max_outage)
    found = np.zeros((num_states, num_devices), int)
    for s, i in np.ndindex(found.shape):
        worth = []
        for j in range(num_devices):
            number, outage = 0, network.outage[s, i, j]
            for c, (own, other) in enumerate(zip(network.counts[i], network.counts[j], strict=True)):
                spare = max(other - network.thresholds[j, c], 0.0) * (network.trust[j, i, c] and i != j)
                asked = max(min(spare, network.thresholds[i, c] - own), 0.0)
                number += own + (1.0 - outage) * asked >= needed[i, c] * (1.0 - 1e-5)
            score = number if number >= config.min_classes else 0
            worth.append(config.alpha_diversity * score - config.alpha_outage * outage)
        found[s, i] = np.argmax(worth)
    return found


def test_offers_are_a_plain_loop(tiny_networks, tiny_config):
    assert score_fraction(tiny_config) == 1.0 - tiny_config.max_outage
    several = jax.tree.map(lambda leaf: leaf[:8], tiny_networks)
    found = jax.jit(jax.vmap(lambda network: offers(run_key(0), network, tiny_config)))(several)
    for run in range(8):
        network = jax.tree.map(lambda leaf, run=run: leaf[run], several)
        np.testing.assert_array_equal(found[run], plain_offers(network, tiny_config))


def test_what_it_costs_to_hear_the_offers():
    config = replace(SMALL, policies=("uniform", "offers"))
    candidates = candidates_of(config, {})
    assert [one.num_exchanges(config) for one in candidates.values()] == [1, 1]
    assert [one.num_offers(config) for one in candidates.values()] == [0, 2]
    # V, Q and the reward are 2 x 4 + 1 numbers, and each of two further offers is 4 numbers.
    position = jnp.array([[0.0, 0.0], [100.0, 0.0], [0.0, 50.0]])
    first, second = control_energy(position, jnp.ones(2), 4, config, jnp.array([0, 2]))
    assert float(second / first) == pytest.approx(1 + 2 * 4 / 9)
    assert first == control_energy(position, 1, 4, config)


def test_own_policies_that_hear_the_offers_pay_too():
    rule = {level: type("Rule", (), {"information": level, "weights": None})() for level in ("own", "heard", "all")}
    found = candidates_of(replace(SMALL, policies=("rl",)), rule | {"graph": lambda key, network, config: None})
    assert [name for name, one in found.items() if one.hears] == ["heard"]
    assert [name for name, one in BUILT_IN.items() if one.hears] == ["offers", "informed"]


# --- exact ---

FOUR = replace(SMALL, num_devices=4)


def test_exact_is_the_best_of_all_graphs():
    make = jax.jit(lambda seed: make_network(run_key(seed), FOUR))
    found = jax.jit(exact)
    for run in range(3):
        network = make(run)
        links = np.asarray(found(run_key(run), network, FOUR))
        plain, settings = as_oracle(network, FOUR)
        for state in range(FOUR.num_states):
            _, best = oracle.best_response_exhaustive(plain, state, settings)
            # Sums of four rewards in single precision may rank two graphs that are worth the same differently.
            assert oracle.total_reward_of(plain, state, links[state], settings) == pytest.approx(best, rel=1e-6)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wanted:
    """A reward that only one graph has."""

    links: Any

    def __call__(self, network, state, links, exchange, config):
        value = jnp.where(jnp.all(links == self.links[state]), 1.0, 0.0) * jnp.ones(links.size)
        return d2djax.Rewards(value, value, value, jnp.zeros(links.size))


def test_exact_finds_any_graph_in_any_block(tiny_networks, tiny_config):
    # Six devices are 46,656 graphs in 36 blocks: the first and the last graph, and one between.
    wanted = np.array([[0] * 6, [5] * 6, [3, 1, 4, 1, 5, 2]])
    network = jax.tree.map(lambda leaf: leaf[0], tiny_networks)
    find = jax.jit(lambda wanted: exact(run_key(0), network, tiny_config, Wanted(wanted)))
    np.testing.assert_array_equal(find(wanted), wanted)


def test_exact_refuses_many_devices(hand):
    with pytest.raises(ValueError, match="num_devices must be at most 7 with the policy 'exact'; got 8"):
        d2djax.run(d2djax.Config(num_devices=8, policies=("rl", "exact")), training=False)
    many = SimpleNamespace(outage=np.zeros((2, 8, 8)))
    with pytest.raises(ValueError, match="num_devices must be at most 7 to compare all graphs; got 8"):
        exact(run_key(0), many, SMALL)


# --- informed ---


def told(reward):
    return SimpleNamespace(reward=jnp.array(reward, jnp.float32))


def test_informed_by_hand(hand):
    # Ten episodes a state. In state 0, device 0 predicts 0 without a link, 3 - 2 x .05 from 1 and 4 - 2 x .06 from
    # 2; the global reward starts at a quarter of its bound, 4 + .001 x 300, which counts half.
    rule, config = Informed(), replace(SMALL, num_episodes=20, record_every=20)
    memory = rule.init(run_key(0), known_of(prepare(hand, config), "heard"), config)
    start = np.array([0.0, 2.9, 3.88]) + 0.5 * 0.25 * 4.3
    np.testing.assert_allclose(memory.value[0, 0], start, rtol=1e-6)
    np.testing.assert_allclose(rule.weights(run_key(0), memory, 0)[0], np.exp(start - start[2]), rtol=1e-5)
    np.testing.assert_array_equal(best_links(rule, run_key(0), memory, 2)[0], offers(run_key(0), hand, config))
    # The prediction counts as one try: the steps are 1/2, 1/3, 1/4, and from then on 1/5.
    value = start[2]
    for step, reward in zip((1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 5), (2.0, 1.0, 0.0, 4.0, 2.0), strict=True):
        memory = rule.update(memory, jnp.int32(0), jnp.array([2, 1, 1]), told([reward, 0.0, 0.0]))
        value += step * (reward - value)
    np.testing.assert_allclose(memory.value[0, 0], [start[0], start[1], value], rtol=1e-5)
    np.testing.assert_array_equal(memory.tries[:, 0], [[1, 1, 6], [1, 1, 1]])
    np.testing.assert_array_equal(memory.episodes, [5, 0])
    # Half of the episodes have passed in state 0 and none in state 1: sqrt(1 x .1) and 1.
    for state, temperature in ((0, 0.1**0.5), (1, 1.0)):
        values = np.asarray(memory.value[state, 0])
        expected = np.exp((values - values.max()) / temperature)
        np.testing.assert_allclose(rule.weights(run_key(0), memory, state)[0], expected, rtol=1e-5)
    # What it was promised from 1 is more than what it got from 2.
    assert best_links(rule, run_key(0), memory, 2)[0][0, 0] == 1


def plain_informed(network, config, rule):
    """The policy in loops of NumPy, from the package's draws: values and tries, [S, N, N]."""
    num_states, num_devices, _ = network.outage.shape
    plain, settings = as_oracle(network, config)
    bound = network.counts.shape[1] * config.alpha_diversity + config.alpha_budget * config.cluster_budget
    value = np.asarray(predicted(known_of(prepare(network, config), "heard"), config), float)
    value = value + config.gamma * rule.optimism * bound
    tries, episodes = np.ones(value.shape), np.zeros(num_states)
    for _, fresh, *uniform in np.asarray(draws(run_key(0), config), float):
        state = int(fresh * num_states)
        passed = min(episodes[state] * num_states / config.num_episodes, 1.0)
        temperature = rule.hot * (rule.cold / rule.hot) ** passed
        links = []
        for i in range(num_devices):
            weight = np.exp((value[state, i] - value[state, i].max()) / temperature)
            links.append(oracle.draw(uniform[i], weight / weight.sum()))
        reward, _ = oracle.outcome(plain, state, links, settings)
        for i, j in enumerate(links):
            tries[state, i, j] += 1
            step = max(1 / tries[state, i, j], rule.step)
            value[state, i, j] += step * (reward[i] - value[state, i, j])
        episodes[state] += 1
    return value, tries


def test_informed_is_a_plain_loop(tiny_networks, tiny_config):
    network, rule = jax.tree.map(lambda leaf: leaf[1], tiny_networks), Informed()
    got = jax.jit(lambda: learn(rule, run_key(0), network, tiny_config))()
    value, tries = plain_informed(network, tiny_config, rule)
    np.testing.assert_array_equal(got.memory.tries, tries)
    np.testing.assert_allclose(got.memory.value, value, rtol=1e-4, atol=1e-4)
    chosen = np.take_along_axis(value, np.asarray(got.links)[..., None], axis=-1)[..., 0]
    assert (chosen >= value.max(axis=-1) - 1e-4).all()


def test_informed_has_no_faults():
    assert check_policy(Informed(), replace(check.SMALL, num_episodes=50, record_every=50)) == []


# --- matching ---


def test_capacity_by_hand():
    counts = np.array([[40, 24, 0], [12, 15, 9], [16, 8, 7], [800, 0, 0]])
    # A surplus of 32 and 16 serves four and two whole requests of 8, one of 4, 7 and 1 none, and one of 8 one. At
    # most three other devices can ask.
    np.testing.assert_array_equal(capacity(counts, np.full((4, 3), 8.0)), [2, 0, 1, 3])


def test_assignment_is_that_of_scipy():
    rng, num_rows, num_columns = np.random.default_rng(0), 6, 5
    solve = jax.jit(assign)
    for number in range(40):
        cost = rng.normal(size=(num_rows, num_columns)).round(number % 4).astype(np.float32)
        cost[rng.random(cost.shape) < 0.3] = np.inf
        limits = rng.integers(0, 4, num_columns)
        # Of the last column there is always enough.
        cost[:, -1], limits[-1] = 5.0 + rng.random(num_rows), num_rows
        found = np.asarray(solve(cost, limits))
        assert (np.bincount(found, minlength=num_columns) <= limits).all()
        repeated = np.where(np.isfinite(cost), cost, 1e6).repeat(limits, axis=1)
        best = repeated[linear_sum_assignment(repeated)].sum()
        assert cost[np.arange(num_rows), found].sum() == pytest.approx(best, abs=1e-4)


def test_matching_by_hand(hand):
    # Each device has 12 points to spare of its classes, enough for one other. From 2, device 0 would get 3.88 and 1
    # would get 2.9; but 2.9 for each of them and for 2 is more than 3.88 for 0, nothing for 1, and 2.9 for 2.
    np.testing.assert_array_equal(matching(run_key(0), hand, SMALL), [[1, 2, 0], [1, 2, 0]])
    # With plenty, each takes what is best for itself.
    rich = replace(hand, counts=100 * hand.counts)
    np.testing.assert_array_equal(matching(run_key(0), rich, SMALL), offers(run_key(0), rich, SMALL))
    poor = replace(hand, counts=hand.counts // 2)
    np.testing.assert_array_equal(matching(run_key(0), poor, SMALL), [[0, 1, 2]] * 2)


def test_policies_in_a_run(tiny_config, tiny_dataset):
    names = ("offers", "matching", "exact", "informed")
    config = replace(tiny_config, policies=names)
    found = d2djax.run(config, 2, data=tiny_dataset, training=False, progress=False)
    assert (found["status"] == 0).all()
    worth = found["graph_reward"].mean("state")
    assert (worth.sel(policy="exact") >= worth.max("policy") - 1e-5).all()
    learns = found["discovery_reward"].notnull().all(["run", "episode"])
    assert learns.values.tolist() == [False, False, False, True]
    # Each of six devices hears five offers of five numbers; an exchange is eleven numbers.
    messages = found["control_energy"].mean("run")
    for name, number in zip(names, (1 + 25 / 11, 1, 1, 61 + 25 / 11), strict=True):
        expected = number * messages.sel(policy="exact")
        assert messages.sel(policy=name).item() == pytest.approx(expected.item(), rel=1e-5)
