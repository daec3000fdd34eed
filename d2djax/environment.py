"""Graph discovery as a multi-agent environment of the kind that JaxMARL's algorithms train on (Section III)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from d2djax.channel import draw_state
from d2djax.checks import check_count, shown
from d2djax.config import Config, complete
from d2djax.episode import Prepared, exchange_and_reward, prepare, try_reward
from d2djax.information import known_of
from d2djax.networks import fit, network_of_run, only
from d2djax.recipe import Recipe
from d2djax.validation import validate

# The information levels at which an agent's observation is one vector of its own quantities.
LEVELS = ("own", "heard")
# Far above every observed number, which has no limit of its own.
MOST = 1e9


@dataclass(frozen=True)
class Discrete:
    """The actions of an agent: the whole numbers 0 to n - 1.

    Attributes:
        n: number of actions.
        shape: `()`.
        dtype: int32.
    """

    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32

    def sample(self, key: Array) -> Array:
        """Draws an action uniformly, [] int32."""
        return jax.random.randint(key, self.shape, 0, self.n, self.dtype)

    def contains(self, action: Array) -> Array:
        """Whether an action is one of the numbers, [] bool."""
        return (action >= 0) & (action < self.n)


@dataclass(frozen=True)
class Box:
    """The observations of an agent: vectors of numbers in a range.

    Attributes:
        low: smallest number.
        high: largest number.
        shape: shape of an observation.
        dtype: float32.
    """

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any = jnp.float32

    def sample(self, key: Array) -> Array:
        """Draws an observation uniformly."""
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def contains(self, observation: Array) -> Array:
        """Whether all numbers of an observation are in the range, [] bool."""
        return jnp.all((observation >= self.low) & (observation <= self.high))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """The state of an environment.

    Attributes:
        key: key of the run, from which its network and its channel states are drawn.
        prepared: the network, with what is the same in all steps.
        channel: [] int32, channel state of the coming step.
        step: [] int32, number of steps taken.
        done: [] bool, whether the environment has ended.
    """

    key: Array
    prepared: Prepared
    channel: Array
    step: Array
    done: Array


@dataclass(frozen=True)
class Environment:
    """Graph discovery as a multi-agent environment: in each step, each device chooses its transmitter.

    It has the methods of JaxMARL's `MultiAgentEnv`, without depending on that package: agents are `agent_0` to
    `agent_{N-1}`, and actions, observations, rewards and ends are dictionaries by agent. A step is an episode of
    the paper: the devices exchange data over the chosen links (Algorithm 1), each receives its total reward `R`,
    and the channel moves to its next state. All functions are pure, so they can be jitted and vmapped.

    `reset(run_key(seed))` draws the network and the channel states that `d2djax.run` uses for this seed, so that an
    algorithm trained here can be compared with policies trained there.

    # Ours: no paper has this environment.

    Attributes:
        config: settings of the network, the channel and the reward; those of training are not read.
        num_steps: steps until an environment ends and is reset.
        information: what an agent observes. `own`: the outages of its links in the current channel state [N], its
            points of each class and their thresholds [L] each, and the label of its cluster as one of [N] numbers
            that is 1. `heard`: also what each other device offers to it, [N L]. Points are divided by
            `points_per_device`.
        recipe: its network and reward are used; it has no other parts.
        discrete: makes the actions of an agent from their number; such as `jaxmarl.environments.spaces.Discrete`,
            since JaxMARL's Q-learning accepts only its own classes.
        box: makes the observations of an agent from the smallest and the largest number and the shape, likewise.

    Raises:
        ValueError: an argument is out of range; one line names it.

    Example:
        >>> devices = Environment(Config(num_devices=4, classes_per_device=2), num_steps=10)
        >>> observations, state = devices.reset(jax.random.key(0))
        >>> actions = {agent: devices.action_space(agent).sample(jax.random.key(1)) for agent in devices.agents}
        >>> observations, state, rewards, dones, _ = devices.step(jax.random.key(2), state, actions)
        >>> sorted(rewards), int(state.step), bool(dones["__all__"])
        (['agent_0', 'agent_1', 'agent_2', 'agent_3'], 1, False)
    """

    config: Config = field(default_factory=Config)
    num_steps: int = 100
    information: str = "own"
    recipe: Recipe = field(default_factory=Recipe)
    discrete: Callable[[int], Any] = Discrete
    box: Callable[[float, float, tuple[int, ...]], Any] = Box

    def __post_init__(self) -> None:
        """Checks the arguments, and completes the config."""
        if not isinstance(self.config, Config):
            raise ValueError(f"config must be a Config, such as Config(num_devices=10); got {shown(self.config)}")
        if not isinstance(self.recipe, Recipe):
            raise ValueError(f"recipe must be a Recipe, such as Recipe(reward=mine); got {shown(self.recipe)}")
        check_count("num_steps", self.num_steps)
        if self.information not in LEVELS:
            raise ValueError(f"information must be one of {', '.join(LEVELS)}; got {shown(self.information)}")
        recipe = self.recipe
        unused = {
            "model": recipe.model is not None,
            "client": recipe.client is not optax.sgd,
            "server": recipe.server is not None,
            "policies": bool(recipe.policies),
        }
        if any(unused.values()):
            name = next(name for name, is_there in unused.items() if is_there)
            raise ValueError(f"recipe.{name} must not be given, since an environment uses only network and reward")
        config = self.config if recipe.network is None else fit(self.config, recipe.network)
        # The only way to set a field of a frozen dataclass; nothing has read the field yet.
        object.__setattr__(self, "config", validate(config))
        if recipe.has_reward:
            try_reward(recipe.reward, jax.eval_shape(self._network, jax.random.key(0)), self.config)

    @property
    def num_agents(self) -> int:
        """N."""
        return self.config.num_devices

    @property
    def agents(self) -> list[str]:
        """The names of the agents, in the order of the devices."""
        return [f"agent_{number}" for number in range(self.num_agents)]

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """All agents are of one class."""
        return {"device": self.agents}

    @property
    def name(self) -> str:
        """The name of the environment."""
        return "d2djax"

    @property
    def observation_spaces(self) -> dict[str, Any]:
        """The observations of each agent; see `information`."""
        devices, classes = self.num_agents, complete(self.config).num_classes
        size = 2 * (devices + classes) + devices * classes * (self.information == "heard")
        return dict.fromkeys(self.agents, self.box(0.0, MOST, (size,)))

    @property
    def action_spaces(self) -> dict[str, Any]:
        """The actions of each agent: the number of its transmitter, its own one for no link."""
        return dict.fromkeys(self.agents, self.discrete(self.num_agents))

    def observation_space(self, agent: str) -> Any:
        """The observations of an agent.

        Args:
            agent: one of `agents`.
        """
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """The actions of an agent.

        Args:
            agent: one of `agents`.
        """
        return self.action_spaces[agent]

    def get_avail_actions(self, state: State) -> dict[str, Array]:
        """The available actions of each agent, [N] bool: always all of them.

        Args:
            state: unused.
        """
        return dict.fromkeys(self.agents, jnp.ones(self.num_agents, bool))

    def _network(self, key: Array) -> Any:
        return network_of_run(only(self.recipe.network), key, self.config)

    def get_obs(self, state: State) -> dict[str, Array]:
        """The observations of a state.

        Args:
            state: of the environment.

        Returns:
            A vector of float32 for each agent; see `information`.
        """
        known, devices = known_of(state.prepared, self.information), self.num_agents
        points = jnp.float32(self.config.points_per_device)
        parts = [
            known.outage[:, state.channel],
            known.counts / points,
            known.thresholds / points,
            jax.nn.one_hot(known.cluster, devices),
        ]
        if self.information == "heard":
            parts.append(known.offers.reshape(devices, -1) / points)
        return self._by_agent(jnp.concatenate(parts, axis=1).astype(jnp.float32))

    def _by_agent(self, rows: Array) -> dict[str, Array]:
        return {agent: rows[number] for number, agent in enumerate(self.agents)}

    def reset(self, key: Array) -> tuple[dict[str, Array], State]:
        """Draws a network and its first channel state.

        Args:
            key: any key of JAX; `d2djax.rng.run_key(seed)` gives the network of a run of `d2djax.run`.

        Returns:
            The observations, and the state.
        """
        channel = draw_state(key, jnp.int32(0), self.config)
        prepared = prepare(self._network(key), self.config)
        state = State(key, prepared, channel, jnp.int32(0), jnp.bool_(False))
        return self.get_obs(state), state

    def step(
        self, key: Array, state: State, actions: Mapping[str, Array], reset_state: State | None = None
    ) -> tuple[dict[str, Array], State, dict[str, Array], dict[str, Array], dict[str, Array]]:
        """Takes one step, and resets an environment that has ended.

        Args:
            key: key of the reset; a step itself draws nothing but the next channel state, from the key of the run.
            state: the state.
            actions: the transmitter of each agent, [] or [1] integer.
            reset_state: the state after the end; None: of a new network, from `reset`.

        Returns:
            Observations, state, rewards, ends and further numbers; see `step_env`.
        """
        after, new, rewards, dones, infos = self.step_env(key, state, actions)
        fresh, restarted = self.reset(key) if reset_state is None else (self.get_obs(reset_state), reset_state)
        choose = lambda one, other: jax.tree.map(lambda *leaves: jnp.where(dones["__all__"], *leaves), one, other)  # noqa: E731
        return choose(fresh, after), choose(restarted, new), rewards, dones, infos

    def step_env(
        self, key: Array, state: State, actions: Mapping[str, Array]
    ) -> tuple[dict[str, Array], State, dict[str, Array], dict[str, Array], dict[str, Array]]:
        """Takes one step: the devices exchange data over the chosen links, and the channel moves on.

        Args:
            key: unused.
            state: the state.
            actions: the transmitter of each agent, [] or [1] integer.

        Returns:
            The observations; the state; the total reward `R` of each agent; whether it has ended, with the entry
            `__all__`; and two numbers of each agent, [N]: `num_classes`, classes at or above the score threshold,
            and `outage` of its link.
        """
        links = jnp.stack([jnp.asarray(actions[agent], jnp.int32).reshape(()) for agent in self.agents])
        _, outcome = exchange_and_reward(state.prepared, state.channel, links, self.config, self.recipe.reward)
        step = state.step + 1
        drawn = draw_state(state.key, step, self.config)
        done = step >= self.num_steps
        new = State(state.key, state.prepared, jnp.where(drawn < 0, state.channel, drawn), step, done)
        dones = dict.fromkeys([*self.agents, "__all__"], done)
        infos = {"num_classes": outcome.num_classes, "outage": outcome.outage}
        return self.get_obs(new), new, self._by_agent(outcome.rewards.total), dones, infos
