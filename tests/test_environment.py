"""The multi-agent environment: its interface, and that it is the simulator's own discovery, step by step."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import d2djax
from d2djax import policy
from d2djax.channel import draw_state
from d2djax.discovery import boltzmann, discover
from d2djax.environment import Environment
from d2djax.reward import PAPER
from d2djax.rng import Stream, at, run_key

SMALL = Environment(
    d2djax.validate(
        d2djax.Config(
            num_devices=5,
            num_states=2,
            dataset="cifar10",
            classes_per_device=2,
            points_per_device=60,
            threshold=5.0,
            min_classes=2,
            num_episodes=40,
            record_every=20,
        )
    ),
    num_steps=4,
)


def actions_of(environment, links):
    return {agent: links[number] for number, agent in enumerate(environment.agents)}


@pytest.fixture(scope="module")
def step():
    return jax.jit(SMALL.step)


def test_interface_is_that_of_a_multi_agent_environment(step):
    names = [f"agent_{number}" for number in range(5)]
    assert SMALL.num_agents == 5 and SMALL.agents == names and SMALL.agent_classes == {"device": names}
    observations, state = SMALL.reset(jax.random.key(0))
    assert list(observations) == names
    # Own outages [5], own points and thresholds [10] each, own cluster [5].
    for agent in names:
        assert SMALL.observation_space(agent).shape == observations[agent].shape == (30,)
        assert observations[agent].dtype == jnp.float32 and SMALL.observation_space(agent).contains(
            observations[agent]
        )
        assert SMALL.action_space(agent).n == 5 and SMALL.get_avail_actions(state)[agent].all()
        drawn = jax.vmap(SMALL.action_space(agent).sample)(jax.random.split(jax.random.key(1), 200))
        assert set(np.asarray(drawn).tolist()) == set(range(5)) and not SMALL.action_space(agent).contains(5)
    assert SMALL.observation_space("agent_0").contains(SMALL.observation_space("agent_0").sample(jax.random.key(2)))
    chosen = actions_of(SMALL, jnp.array([1, 2, 3, 4, 0]))
    _, after, rewards, dones, infos = step(jax.random.key(3), state, chosen)
    assert sorted(rewards) == names and sorted(dones) == sorted([*names, "__all__"])
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert all(value.shape == (5,) for value in infos.values())


def test_observations_are_what_a_device_knows():
    _, state = SMALL.reset(run_key(3))
    network, points = d2djax.make_network(run_key(3), SMALL.config), 60
    seen = SMALL.get_obs(state)
    for number, agent in enumerate(SMALL.agents):
        cluster = np.eye(5)[network.cluster[number]]
        parts = [
            network.outage[state.channel, number],
            network.counts[number] / points,
            network.thresholds[number] / points,
        ]
        np.testing.assert_allclose(seen[agent], np.concatenate([*parts, cluster]), rtol=1e-6)
    hears = Environment(SMALL.config, information="heard")
    heard = hears.get_obs(hears.reset(run_key(3))[1])
    surplus = np.maximum(np.asarray(network.counts) - np.asarray(network.thresholds), 0) / points
    for number, agent in enumerate(SMALL.agents):
        offered = np.array([surplus[j] * network.trust[j, number] * (j != number) for j in range(5)])
        np.testing.assert_allclose(heard[agent], np.concatenate([seen[agent], offered.ravel()]), rtol=1e-6)
        assert hears.observation_space(agent).shape == heard[agent].shape == (80,)


def test_the_paper_policy_earns_here_what_it_earns_in_a_run():
    # The environment's steps are the episodes of `discover` with the same key: network, channel states and rewards.
    config, key = SMALL.config, run_key(7)
    long = Environment(config, num_steps=100)
    rule = boltzmann(config, 10)
    found = discover(key, d2djax.make_network(key, config), config)
    _, state = jax.jit(long.reset)(key)

    def episode(carry, number):
        state, memory = carry
        uniform = jax.random.uniform(at(key, Stream.POLICY, number), (5,))
        links = policy.sample(uniform, rule.weights(key, memory, state.channel))
        _, after, rewards, _, _ = long.step(key, state, actions_of(long, links))
        told = type("Told", (), {"reward": jnp.stack(list(rewards.values()))})
        return (after, rule.update(memory, state.channel, links, told)), state.channel

    from d2djax.episode import prepare
    from d2djax.information import known_of

    known = known_of(prepare(d2djax.make_network(key, config), config), rule.information)
    start = (state, rule.init(key, known, config))
    (_, memory), channels = jax.jit(lambda start: jax.lax.scan(episode, start, jnp.arange(40)))(start)
    np.testing.assert_allclose(memory.buffer.reward, found.buffer.reward, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(memory.buffer.tries, found.buffer.tries)
    state = 0
    for number in range(40):
        drawn = int(draw_state(key, number, config))
        state = state if drawn < 0 else drawn
        assert channels[number] == state


def test_an_environment_that_ends_is_reset(step):
    _, state = SMALL.reset(run_key(0))
    chosen = actions_of(SMALL, jnp.zeros(5, jnp.int32))
    first = state.prepared.network
    for number in range(1, 5):
        observations, state, _, dones, _ = step(run_key(number), state, chosen)
        assert bool(dones["__all__"]) == (number == 4) and int(state.step) == number % 4
    fresh, restarted = SMALL.reset(run_key(4))
    # Compiled together with a step, the last bits of an outage may differ.
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), observations, fresh)
    np.testing.assert_allclose(state.prepared.network.position, restarted.prepared.network.position, rtol=1e-6)
    assert not np.array_equal(first.position, state.prepared.network.position)
    # Or to a given state.
    _, state = SMALL.reset(run_key(0))
    again = partial(jax.jit(SMALL.step), reset_state=state)
    now = state
    for _ in range(4):
        _, now, _, _, _ = again(run_key(9), now, chosen)
    np.testing.assert_array_equal(now.prepared.network.position, first.position)


def test_a_batch_with_keys_of_either_kind_and_actions_of_one_entry():
    # As JaxMARL's scripts call it: raw keys, actions [environments, 1], jitted with the environment static.
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    _, states = jax.vmap(SMALL.reset)(keys)
    links = jnp.array([[1, 2, 3, 4, 0], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
    batch = {agent: links[:, number, None] for number, agent in enumerate(SMALL.agents)}
    _, states, rewards, _, _ = jax.vmap(SMALL.step)(keys, states, batch)
    for run in range(3):
        typed = jax.random.wrap_key_data(keys[run])
        _, state = SMALL.reset(typed)
        alone = SMALL.step(typed, state, actions_of(SMALL, links[run]))[2]
        for agent in SMALL.agents:
            np.testing.assert_allclose(rewards[agent][run], alone[agent], rtol=1e-5, atol=1e-5)
    assert hash(SMALL) == hash(Environment(SMALL.config, num_steps=4))


def doubled(network, state, links, exchange, config):
    base = PAPER(network, state, links, exchange, config)
    return d2djax.Rewards(base.local, base.global_, 2 * base.total, base.requested_inter)


def test_a_network_and_a_reward_of_your_own(step):
    network = d2djax.make_network(run_key(5), SMALL.config)
    own = Environment(SMALL.config, recipe=d2djax.Recipe(network=network, reward=doubled))
    _, state = own.reset(run_key(8))
    np.testing.assert_array_equal(state.prepared.network.position, network.position)
    chosen = actions_of(SMALL, jnp.array([1, 0, 3, 2, 0]))
    rewards = own.step(run_key(1), state, chosen)[2]
    paper = SMALL.step(run_key(1), state, chosen)[2]
    for agent in own.agents:
        np.testing.assert_allclose(rewards[agent], 2 * paper[agent], rtol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"config": 3}, r"config must be a Config, such as Config\(num_devices=10\); got 3"),
        ({"num_steps": 0}, "num_steps must be"),
        ({"information": "all"}, "information must be one of own, heard; got 'all'"),
        ({"recipe": 3}, r"recipe must be a Recipe, such as Recipe\(reward=mine\); got 3"),
        ({"recipe": d2djax.Recipe(client=optax.adam)}, "recipe.client must not be given"),
        (
            {"recipe": d2djax.Recipe(policies={"mine": lambda key, network, config: None})},
            "recipe.policies must not",
        ),
        ({"recipe": d2djax.Recipe(reward=lambda *arguments: 3)}, "recipe.reward cannot be used"),
        ({"config": d2djax.Config(num_devices=1)}, "num_devices must be at least 2; got 1"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        Environment(**options)
    assert "\n" not in str(caught.value)
