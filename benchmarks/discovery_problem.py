"""The inputs and expected outputs of the discovery benchmark's contestants, and the check of each contestant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from d2djax import policy
from d2djax.config import Config, score_fraction
from d2djax.episode import exchange_and_reward, prepare
from d2djax.network import Network
from d2djax.reward import TOLERANCE, initial_value
from d2djax.rng import Stream, at

# The columns of a history, in the order of `d2djax.discovery.History`.
CURVES = ("reward", "diverse_share", "num_classes", "outage", "requested_inter", "over_budget", "entropy")
MISDRAWN_SHARE = 1e-3


@dataclass(frozen=True)
class Problem:
    """One network and the settings of its discovery as plain numbers and contiguous NumPy arrays.

    Attributes:
        outage: [S, N, N] float32.
        counts: [N, L] float32.
        thresholds: [N, L] float32.
        needed: [N, L] float32, counts that make a class count in the score.
        trust: [N, N, L] bool, owner first.
        cluster: [N] int32.
        budget: [N] float32, by cluster label.
        record_every: episodes in each row of the history.
        stay_probability: of the channel state.
        initial_value: value of an untried link.
        temperature: of the softmax.
        min_classes: `L-hat`.
        alpha_diversity: `alpha_1`.
        alpha_outage: `alpha_2`.
        alpha_budget: `alpha_3`.
        gamma: weight of the global reward.
    """

    outage: np.ndarray
    counts: np.ndarray
    thresholds: np.ndarray
    needed: np.ndarray
    trust: np.ndarray
    cluster: np.ndarray
    budget: np.ndarray
    record_every: int
    stay_probability: float
    initial_value: float
    temperature: float
    min_classes: int
    alpha_diversity: float
    alpha_outage: float
    alpha_budget: float
    gamma: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(S, N, L)."""
        return self.outage.shape[0], *self.counts.shape


@dataclass(frozen=True)
class Found:
    """The outcome of a discovery.

    Attributes:
        links: [E, N] int, the links drawn in each episode.
        greedy: [S, N] int, the best link of each device in each state.
        reward: [S, N, N], summed rewards.
        tries: [S, N, N].
        history: [E / record_every, 7], columns as in `CURVES`.
    """

    links: np.ndarray
    greedy: np.ndarray
    reward: np.ndarray
    tries: np.ndarray
    history: np.ndarray


def problem_of(network: Network, config: Config) -> Problem:
    """The same network and settings without JAX."""
    single = partial(np.ascontiguousarray, dtype=np.float32)
    thresholds = single(network.thresholds)
    same = ("record_every", "stay_probability", "temperature", "min_classes")
    weights = ("alpha_diversity", "alpha_outage", "alpha_budget", "gamma")
    return Problem(
        outage=single(network.outage),
        counts=single(network.counts),
        thresholds=thresholds,
        needed=single(thresholds * score_fraction(config) * (1.0 - TOLERANCE)),
        trust=np.ascontiguousarray(network.trust, bool),
        cluster=np.ascontiguousarray(network.cluster, np.int32),
        budget=single(network.budget),
        initial_value=float(initial_value(config, thresholds.shape[1])),
        **{name: getattr(config, name) for name in same + weights},
    )


def next_state(problem: Problem, state: int, draw: np.ndarray, episode: int) -> int:
    """Channel state of an episode from two uniform numbers: whether it stays, and the next state."""
    if episode > 0 and draw[0] < problem.stay_probability:
        return state
    return min(int(draw[1] * problem.outage.shape[0]), problem.outage.shape[0] - 1)


@partial(jax.jit, static_argnums=(1, 2))
def package_draws(key: jax.Array, num_episodes: int, num_devices: int) -> jax.Array:
    """The uniform numbers that d2djax draws, [E, 2 + N]: two for the channel state, one per device."""

    def draws(episode):
        state = jax.random.uniform(at(key, Stream.STATE, episode), (2,))
        return jnp.concatenate([state, jax.random.uniform(at(key, Stream.POLICY, episode), (num_devices,))])

    return jax.vmap(draws)(jnp.arange(num_episodes))


@jax.jit
def _replayed(network: Network, config: Config, states: jax.Array, uniform: jax.Array, links: jax.Array):
    """What d2djax computes for given links: the buffer, and how many links it would have drawn differently."""
    prepared = prepare(network, config)
    softmax = {"initial_value": initial_value(config, network.counts.shape[1]), "temperature": config.temperature}

    def episode(buffer, given):
        state, draw, played = given
        drawn = policy.sample(draw, policy.probabilities(buffer, state, **softmax))
        reward = exchange_and_reward(prepared, state, played, config)[1].rewards.total
        return policy.update(buffer, state, played, reward), jnp.sum(drawn != played)

    num_states, num_devices, _ = network.outage.shape
    return jax.lax.scan(episode, policy.empty_buffer(num_states, num_devices), (states, uniform, links))


def check(
    name: str,
    discover: Callable[[Problem, np.ndarray], Found],
    network: Network,
    config: Config,
    uniform: np.ndarray,
) -> None:
    """Runs a contestant and recomputes the draws and rewards of each of its episodes with d2djax.

    Single and double precision disagree where a draw falls between their probabilities, so a few draws may differ.
    The rewards are computed for the contestant's own links and may not differ.

    Raises:
        RuntimeError: it draws, rewards or counts differently from d2djax.
    """
    problem = problem_of(network, config)
    found = discover(problem, uniform)
    states, state = [], 0
    for episode, draw in enumerate(uniform):
        states.append(state := next_state(problem, state, draw, episode))
    arguments = (np.array(states, np.int32), uniform[:, 2:], found.links.astype(np.int32))
    buffer, misdrawn = _replayed(network, config, *arguments)
    share = float(jnp.sum(misdrawn)) / found.links.size
    if share > MISDRAWN_SHARE:
        raise RuntimeError(f"{name} draws {share:.2%} of the links differently from d2djax")
    if not np.array_equal(buffer.tries, found.tries):
        raise RuntimeError(f"{name} counts the tries differently from d2djax")
    if not np.allclose(buffer.reward, found.reward, rtol=1e-3, atol=1e-3):
        worst = np.max(np.abs(np.asarray(buffer.reward) - found.reward))
        raise RuntimeError(f"{name} sums rewards differently from d2djax, by up to {worst:g}")
