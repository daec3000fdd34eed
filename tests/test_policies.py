"""The policies of the field: one step by hand, whole runs against plain loops, and bandits with known bounds."""

import math
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from test_discovery import as_oracle, draws

import d2djax
from d2djax import check_policy
from d2djax.discovery import learn
from d2djax.policies import BUILT_IN
from d2djax.policies.check import SMALL
from d2djax.policies.commit import Commit
from d2djax.policies.epsilon_greedy import EpsilonGreedy
from d2djax.policies.exp3 import EXP3
from d2djax.policies.experience import Range
from d2djax.policies.exponential import exponential
from d2djax.policies.gumbel import BoltzmannGumbel
from d2djax.policies.thompson import Thompson
from d2djax.policies.ucb import UCB1
from d2djax.rng import Stream, at, quick_uniform, run_key

BANDITS = {
    "epsilon_greedy": (EpsilonGreedy(), EpsilonGreedy(0.5)),
    "ucb": (UCB1(), UCB1(0.2)),
    "thompson": (Thompson(), Thompson(0.2)),
    "gumbel": (BoltzmannGumbel(), BoltzmannGumbel(0.1)),
    "exp3": (EXP3(), EXP3(0.9)),
    "commit": (Commit(), Commit(2)),
}
KEYS = jax.random.split(jax.random.key(0), 20_000)


def known(num_devices, num_states=1):
    return SimpleNamespace(num_states=num_states, num_devices=num_devices)


def after(rule, *episodes, num_devices=2):
    """The memory after episodes in the only state: links and rewards of all devices."""
    memory = rule.init(jax.random.key(0), known(num_devices), None)
    for links, reward in episodes:
        told = SimpleNamespace(reward=jnp.asarray(reward, jnp.float32))
        memory = rule.update(memory, jnp.int32(0), jnp.asarray(links, jnp.int32), told)
    return memory


def weights(rule, memory):
    return rule.weights(jax.random.key(0), memory, jnp.int32(0))


def shares(rule, memory):
    """Shares of the links over many keys, which have a standard deviation of at most 0.0036."""
    return np.mean(jax.vmap(lambda key: rule.weights(key, memory, jnp.int32(0)))(KEYS), axis=0)


# Device 0 gets 4 and 2 over link 1, then 1 from itself; device 1 gets 5, 1 and 3 over link 0, and never tries
# itself.
EPISODES = [([1, 0], [4.0, 5.0]), ([1, 0], [2.0, 1.0]), ([0, 0], [1.0, 3.0])]


def test_policies_of_the_package_are_tested():
    learns = {name for name, one in BUILT_IN.items() if one.learns and one.information == "own"}
    assert set(BANDITS) == learns - {"rl"}
    for name, (rule, _) in BANDITS.items():
        assert BUILT_IN[name].rule(None, 5, None) == rule and rule.information == "own"


@pytest.mark.parametrize("name", [name for name in BANDITS if name != "commit"])
def test_all_links_are_equally_good_at_first(name):
    rule = BANDITS[name][0]
    found = shares(rule, rule.init(jax.random.key(0), known(4), None))
    np.testing.assert_allclose(found / found.sum(-1, keepdims=True), np.full((4, 4), 0.25), atol=0.015)


def test_worked_epsilon_greedy():
    # Device 0: means 1 and 3. Device 1: the untried link is the best. A tenth is split evenly.
    np.testing.assert_allclose(weights(EpsilonGreedy(0.1), after(EpsilonGreedy(), *EPISODES)), 2 * [[0.05, 0.95]])
    # A tie: both links have the mean 2.
    tied = after(EpsilonGreedy(), ([0, 1], [2.0, 0.0]), ([1, 0], [2.0, 1.0]))
    np.testing.assert_allclose(weights(EpsilonGreedy(0.1), tied), [[0.5, 0.5], [0.95, 0.05]])


def test_worked_ucb():
    memory = after(UCB1(), *EPISODES)
    # Device 0, with rewards from 1 to 4: 1 + 3 sqrt(2 ln 3 / 1) = 5.447 and 3 + 3 sqrt(2 ln 3 / 2) = 6.144; with
    # the factor 2, 9.893 and 9.289. Device 1: the untried link.
    np.testing.assert_array_equal(weights(UCB1(), memory), [[0, 1], [0, 1]])
    np.testing.assert_array_equal(weights(UCB1(2.0), memory), [[1, 0], [0, 1]])
    # The width at which the indices are equal: 2 = w 3 sqrt(2 ln 3) (1 - 1 / sqrt 2).
    equal = 2 / (3 * math.sqrt(2 * math.log(3)) * (1 - math.sqrt(0.5)))
    np.testing.assert_array_equal(weights(UCB1(0.999 * equal), memory)[0], [0, 1])
    np.testing.assert_array_equal(weights(UCB1(1.001 * equal), memory)[0], [1, 0])


def test_worked_thompson():
    found = shares(Thompson(), after(Thompson(), *EPISODES))
    # Device 0: with one try more at 1, the smallest reward, means (1 + 1) / 2 = 1 and (6 + 1) / 3 = 2.333,
    # variances 3^2 / 2 and 3^2 / 3: link 1 with Phi(1.3333 / sqrt 7.5) = 0.68682. Device 1: means (9 + 1) / 4 = 2.5
    # and 1, variances 4^2 / 4 and 4^2: link 0 with Phi(1.5 / sqrt 20) = 0.63134.
    np.testing.assert_allclose(found, [[0.31318, 0.68682], [0.63134, 0.36866]], atol=0.015)
    np.testing.assert_array_equal(shares(Thompson(0.0), after(Thompson(), *EPISODES)), [[0, 1], [1, 0]])


def test_worked_gumbel():
    # One more reward of 2 for device 0 from itself: means 1.5 and 3 of two tries each, so the noise has the scale
    # 0.5 (4 - 1) / sqrt 2 = 1.06066, and link 1 is asked with 1 / (1 + exp(-1.5 / 1.06066)) = 0.80443.
    memory = after(BoltzmannGumbel(), *EPISODES, ([0, 0], [2.0, 3.0]))
    np.testing.assert_allclose(shares(BoltzmannGumbel(), memory), [[0.19557, 0.80443], [0, 1]], atol=0.015)
    # With unequal tries, 1 and 2: scales 1.5 and 1.06066, means 1 and 3. P(1 + 1.5 Z < 3 + 1.06066 Z') by sums.
    z = (np.arange(200_000) + 0.5) / 200_000
    below = np.exp(-np.exp(-(3 + 1.06066 * -np.log(-np.log(z)) - 1) / 1.5)).mean()
    found = shares(BoltzmannGumbel(), after(BoltzmannGumbel(), *EPISODES))
    np.testing.assert_allclose(found, [[1 - below, below], [0, 1]], atol=0.015)


def test_worked_exp3():
    rule = EXP3(0.5)
    # All rewards are equal, so there is no range yet.
    np.testing.assert_allclose(weights(rule, after(rule, EPISODES[0])), np.full((2, 2), 0.5))
    # Rewards 4 and 2 of device 0 are 1 and 0 of its range: G = 1 / 0.5 = 2, w = exp(0.5 2 / 2) = 1.64872, and
    # p = 0.5 1.64872 / 2.64872 + 0.25 = 0.56123. The same for link 0 of device 1.
    found = weights(rule, after(rule, *EPISODES[:2]))
    np.testing.assert_allclose(found, [[0.43877, 0.56123], [0.56123, 0.43877]], atol=1e-5)
    # Device 0: 1 is the smallest now, so 2 is 1/3: G(1) = 2 + 1/3 / 0.5 = 2.66667, G(0) = 0, w = exp(0.66667) and
    # p = 0.5 1.94773 / 2.94773 + 0.25 = 0.58038. Device 1: 3 is 1/2: G(0) = 2 + 0.5 / 0.56123 = 2.89090,
    # p = 0.5 2.06004 / 3.06004 + 0.25 = 0.58660.
    found = weights(rule, after(rule, *EPISODES))
    np.testing.assert_allclose(found, [[0.41962, 0.58038], [0.58660, 0.41340]], atol=1e-5)


def test_commit_probes_each_link_once_without_conflicts():
    rule, num_devices = Commit(), 5
    episodes = []
    for probe in range(num_devices):
        found = np.asarray(weights(rule, after(rule, *episodes, num_devices=num_devices)))
        links = found.argmax(1)
        # Every transmitter is asked by exactly one device, and the last probe tries no link.
        np.testing.assert_array_equal(found.sum(0), 1)
        np.testing.assert_array_equal(found.sum(1), 1)
        assert (links == np.arange(num_devices)).all() == (probe == num_devices - 1)
        # Device i likes link (2 i) mod 5 best.
        episodes.append((links, -np.abs(links - 2 * np.arange(num_devices) % num_devices)))
    memory = after(rule, *episodes, num_devices=num_devices)
    np.testing.assert_array_equal(memory.experience.buffer.tries, 1)
    np.testing.assert_array_equal(weights(rule, memory).argmax(1), [0, 2, 4, 1, 3])
    np.testing.assert_array_equal(rule.best(memory), [[0, 2, 4, 1, 3]])
    # With two rounds, the first probe comes again.
    np.testing.assert_array_equal(weights(Commit(2), memory).argmax(1), episodes[0][0])
    # Another key, another order.
    others = {tuple(np.asarray(rule.init(jax.random.key(key), known(5), None).place)) for key in range(8)}
    assert len(others) > 4


def test_worked_exponential():
    network = SimpleNamespace(outage=np.zeros((4, 5, 5)))
    # Hops 1, 2, 4 below 5, then 1 again.
    expected = [[1, 2, 3, 4, 0], [2, 3, 4, 0, 1], [4, 0, 1, 2, 3], [1, 2, 3, 4, 0]]
    found = exponential(None, network, None)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == jnp.int32
    two = exponential(None, SimpleNamespace(outage=np.zeros((2, 2, 2))), None)
    np.testing.assert_array_equal(two, [[1, 0], [1, 0]])


def test_quick_numbers_are_uniform_and_independent():
    keys = jax.vmap(lambda step: at(run_key(7), Stream.RULE, step))(jnp.arange(4000))
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: quick_uniform(key, (5, 5))))(keys), float)
    assert drawn.min() > 0 and drawn.max() < 1
    # 100,000 numbers in 100 bins: chi-squared with 99 degrees of freedom has a standard deviation of 14.
    counts = np.histogram(drawn, 100, (0, 1))[0]
    assert abs(np.sum((counts - 1000) ** 2) / 1000 - 99) < 4.5 * 14
    # Entries of a step, and of steps that follow each other: standard deviations of 1 / sqrt 4000.
    flat = drawn.reshape(4000, 25)
    within = np.corrcoef(flat.T) - np.eye(25)
    between = np.corrcoef(flat[1:].T, flat[:-1].T)[:25, 25:]
    assert max(abs(within).max(), abs(between).max()) < 4.5 / np.sqrt(4000)
    # The ends of the range give finite noise.
    ends = np.float32([2.0**-24, 1 - 2.0**-24])
    assert np.isfinite(jax.lax.erf_inv(2 * ends - 1)).all() and np.isfinite(np.log(-np.log(ends))).all()


@pytest.mark.parametrize("name", BANDITS)
def test_they_have_no_faults(name):
    assert check_policy(BANDITS[name][0], replace(SMALL, num_episodes=50, record_every=50)) == []


# --- whole runs ---


@pytest.fixture(scope="module")
def network(tiny_networks):
    return jax.tree.map(lambda leaf: leaf[3], tiny_networks)


@pytest.fixture(scope="module")
def learned(network, tiny_config):
    """`learned(rule)`: what a rule learns in a run, and how many programs were compiled for it."""
    traces, programs = SimpleQueue(), {}

    def learned(rule):
        def run(rule):
            traces.put(rule)
            return learn(rule, run_key(3), network, tiny_config)

        # One function per class: JAX may take dataclasses with fields of the same names for one type.
        program = programs.setdefault(type(rule), jax.jit(run))
        before = traces.qsize()
        return program(jax.tree.map(jnp.asarray, rule)), traces.qsize() - before

    return learned


@pytest.mark.parametrize("name", BANDITS)
def test_another_number_compiles_nothing(learned, name):
    first, _ = learned(BANDITS[name][0])
    second, compiled = learned(BANDITS[name][1])
    # The number counts.
    assert compiled == 0 and (first.history.reward != second.history.reward).any()


@pytest.mark.slow
def test_a_run_compares_them_by_name(learned, tiny_config, tiny_dataset):
    config = replace(tiny_config, policies=("uniform", "exponential", *BANDITS))
    found = d2djax.run(config, [3], data=tiny_dataset, training=False, progress=False).isel(run=0)
    assert (found["status"] == 0).all()
    np.testing.assert_array_equal(found["links"].sel(policy="exponential")[0], [1, 2, 3, 4, 5, 0])
    np.testing.assert_array_equal(found["links"].sel(policy="exponential")[2], [4, 5, 0, 1, 2, 3])
    for name, (rule, _) in BANDITS.items():
        alone, beside = learned(rule)[0], found.sel(policy=name)
        np.testing.assert_array_equal(beside["links"], alone.links, err_msg=name)
        np.testing.assert_allclose(beside["discovery_reward"], alone.history.reward, rtol=2e-6, err_msg=name)


class PlainUCB:
    """UCB1 of one device in plain numbers, with the range of the device's rewards."""

    def __init__(self, num_states, num_links):
        self.earned = [[[] for _ in range(num_links)] for _ in range(num_states)]

    def probabilities(self, state):
        rewards = [reward for links in self.earned for link in links for reward in link]
        unit = max(rewards) - min(rewards) if rewards else 0.0
        times = sum(map(len, self.earned[state]))
        bounds = [
            sum(link) / len(link) + unit * math.sqrt(2 * math.log(times) / len(link)) if link else math.inf
            for link in self.earned[state]
        ]
        return [(bound == max(bounds)) / bounds.count(max(bounds)) for bound in bounds]

    def take(self, state, link, reward):
        self.earned[state][link].append(reward)


class PlainEXP3:
    """EXP3 of one device in plain numbers, which remembers all its rewards and probabilities."""

    explore = 0.1

    def __init__(self, num_states, num_links):
        self.past, self.num_links = [[] for _ in range(num_states)], num_links

    def probabilities(self, state):
        rewards = [reward for past in self.past for _, reward, _ in past]
        gains = [0.0] * self.num_links
        for link, reward, probability in self.past[state]:
            if max(rewards) > min(rewards):
                gains[link] += (reward - min(rewards)) / (max(rewards) - min(rewards)) / probability
        weight = [math.exp(self.explore / self.num_links * (gain - max(gains))) for gain in gains]
        return [(1 - self.explore) * one / sum(weight) + self.explore / self.num_links for one in weight]

    def take(self, state, link, reward):
        self.past[state].append((link, reward, self.probabilities(state)[link]))


def plain_curves(kind, network, key, config):
    """Links of all episodes, and the curves, of devices that learn by a plain rule."""
    network, settings = as_oracle(network, config)
    num_states, num_devices, _ = network["outage"].shape
    devices = [kind(num_states, num_devices) for _ in range(num_devices)]
    found, state = [], 0
    for episode, (_, fresh, *uniform) in enumerate(np.asarray(draws(key, config), float)):
        state = int(fresh * num_states)
        rows = [device.probabilities(state) for device in devices]
        links = [oracle.draw(*pair) for pair in zip(uniform, rows, strict=True)]
        gained, scalars = oracle.outcome(network, state, links, settings)
        for device, link, reward in zip(devices, links, gained, strict=True):
            device.take(state, link, reward)
        entropy = oracle.entropy([device.probabilities(state) for device in devices])
        found.append(scalars | {"entropy": entropy, "episode": episode})
    blocks = [found[first : first + config.record_every] for first in range(0, len(found), config.record_every)]
    curves = {name: [np.mean([one[name] for one in block]) for block in blocks] for name in found[0]}
    return curves | {"entropy": [block[-1]["entropy"] for block in blocks]}


@pytest.mark.parametrize("rule, plain", [(UCB1(), PlainUCB), (EXP3(), PlainEXP3)])
def test_curves_are_those_of_plain_loops(learned, network, tiny_config, rule, plain):
    curves = plain_curves(plain, network, run_key(3), tiny_config)
    history = learned(rule)[0].history
    for name, curve in vars(history).items():
        np.testing.assert_allclose(curve, curves[name], rtol=1e-4, atol=1e-5, err_msg=name)


# --- bandits whose rewards do not depend on other devices ---

MEANS, TIMES = np.array([0.9, 0.6, 0.5, 0.4, 0.3]), 2000


@pytest.fixture(scope="module")
def tables():
    """Rewards 0 or 1 of all devices, [T, N, N], and uniform numbers, [T, N]."""
    rng = np.random.default_rng(0)
    return (rng.random((TIMES, 5, 5)) < MEANS).astype(np.float32), rng.random((TIMES, 5)).astype(np.float32)


def played(rule, rewards, uniform):
    """Links and probabilities of all times, [T, N] and [T, N, N], of devices that each play a bandit of its own."""
    device = jnp.arange(5)

    def step(memory, drawn):
        table, uniform = drawn
        weight = rule.weights(jax.random.key(0), memory, 0)
        share = weight / weight.sum(-1, keepdims=True)
        links = jnp.minimum((jnp.cumsum(share, axis=-1) <= uniform[:, None]).sum(-1), 4)
        return rule.update(memory, 0, links, SimpleNamespace(reward=table[device, links])), (links, share)

    # Rewards in [0, 1], as in the literature.
    memory = replace(rule.init(jax.random.key(0), known(5), None), seen=Range(jnp.zeros(5), jnp.ones(5)))
    _, (links, share) = jax.jit(partial(jax.lax.scan, step))(memory, (rewards, uniform))
    return np.asarray(links), np.asarray(share)


def test_ucb_on_a_bandit(tables):
    links, share = played(UCB1(), *tables)
    earned = np.take_along_axis(tables[0], links[:, :, None], 2)[..., 0]
    for device in range(5):
        total, tries = np.zeros(5), np.zeros(5)
        for time in range(TIMES):
            if time < 5:
                # Each link once.
                assert tries[links[time, device]] == 0
            else:
                index = total / tries + np.sqrt(2 * np.log(time) / tries)
                # Single precision may settle near ties otherwise.
                assert index[links[time, device]] > index.max() - 1e-5
            total[links[time, device]] += earned[time, device]
            tries[links[time, device]] += 1
        # Theorem 1 of the source bounds the expected number of tries of each worse link.
        assert (tries[1:] <= 8 * np.log(TIMES) / (MEANS[0] - MEANS[1:]) ** 2 + 1 + np.pi**2 / 3).all()
        assert tries[0] > 0.6 * TIMES
    assert ((share > 0).sum(-1) >= 1).all()


def test_exp3_on_a_bandit(tables):
    explore = 0.1
    links, share = played(EXP3(explore), *tables)
    earned = np.take_along_axis(tables[0], links[:, :, None], 2)[..., 0]
    for device in range(5):
        weight, expected = np.ones(5), np.zeros((TIMES, 5))
        for time, link in enumerate(links[:, device]):
            expected[time] = (1 - explore) * weight / weight.sum() + explore / 5
            weight[link] *= np.exp(explore / 5 * earned[time, device] / expected[time, link])
        np.testing.assert_allclose(share[:, device], expected, rtol=2e-3)
    # Theorem 3.1 of the source bounds the expected regret against the best link; random links have twice as much.
    best = tables[0].sum(0)[:, 0]
    regret = (best - earned.sum(0)).mean()
    bound = (np.e - 1) * explore * best.mean() + 5 * np.log(5) / explore
    assert regret <= bound < 0.6 * TIMES * (MEANS[0] - MEANS.mean())
