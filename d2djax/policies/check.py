"""Checks a custom policy on small networks before it is used in a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.config import Config
from d2djax.discovery import learn
from d2djax.episode import exchange_and_reward, prepare
from d2djax.information import LEVELS, feedback_of, known_of
from d2djax.network import Network, make_network
from d2djax.parts import as_declared, check_part, numbers_of
from d2djax.policies.own import checked_links, fault_of_update
from d2djax.rng import run_key
from d2djax.validation import validate

SMALL = Config(num_devices=5, num_states=2, num_episodes=1000, record_every=1000)
TOLERANCE = 1e-4


def check_policy(policy: Any, config: Config | None = None) -> list[str]:
    """Runs a policy on small networks and describes each fault.

    Args:
        policy: a policy for all devices; wrap one that is written for a single device in `per_device`.
        config: the settings of the test runs; None: five devices, two channel states, 1,000 episodes.

    Returns:
        One line for each fault; empty if the policy passes all checks.
    """
    found = _interface(policy)
    if found:
        return found
    trial = _Trial(as_declared(policy), validate(SMALL if config is None else config))
    for check in (_fixed_point, _weights, _batch, _numbering, _compiles_once, _finite, _best):
        try:
            fault = check(trial)
        except Exception as error:
            name = type(error).__name__
            fault = f"{check.__name__[1:]}: {name}: {(str(error).splitlines() or ['no message'])[0]}"
        if fault:
            found.append(fault)
            if check in (_fixed_point, _weights):
                # All further faults would follow from this one.
                break
    return found


def _interface(policy: Any) -> list[str]:
    missing = [name for name in ("init", "weights", "update") if not callable(getattr(policy, name, None))]
    if missing:
        return [f"the policy lacks {', '.join(missing)}"]
    level = getattr(policy, "information", None)
    if level not in LEVELS:
        return [f"information must be one of {', '.join(LEVELS)}; got {level!r}"]
    try:
        check_part("the policy", policy)
    except ValueError as error:
        return [str(error)]
    return []


class _Trial:
    """A policy, a small network, and the programs of one episode, compiled once for all checks."""

    def __init__(self, policy: Any, config: Config) -> None:
        self.policy, self.config = policy, config
        self.network = jax.jit(make_network)(run_key(0), config)
        self.step = jax.jit(lambda *arguments: _step(policy, config, *arguments))
        self.weights = jax.jit(policy.weights)

    def start(self, network: Network, key: Array | None = None) -> Any:
        """Memory before the first episode."""
        known = known_of(prepare(network, self.config), self.policy.information)
        return self.policy.init(jax.random.key(1) if key is None else key, known, self.config)

    def episodes(self, count: int = 12) -> list[tuple[Any, ...]]:
        """Arguments of `update` in a few episodes with random links: memory, state, links, feedback."""
        rng, memory, found = np.random.default_rng(0), self.start(self.network), []
        for _ in range(count):
            links = jnp.asarray(rng.integers(self.config.num_devices, size=self.config.num_devices), jnp.int32)
            state = jnp.int32(rng.integers(self.config.num_states))
            after, told = self.step(self.network, memory, links, state)
            found.append((memory, state, links, told))
            memory = after
        return found


def _step(
    policy: Any, config: Config, network: Network, memory: Any, links: Array, state: Array
) -> tuple[Any, Any]:
    """Memory after an episode, and the feedback that the policy received."""
    told = feedback_of(*exchange_and_reward(prepare(network, config), state, links, config), policy.information)
    return policy.update(memory, state, links, told), told


def _fixed_point(trial: _Trial) -> str | None:
    num_devices = trial.config.num_devices
    links = jnp.zeros(num_devices, jnp.int32)
    start = jax.eval_shape(lambda: trial.start(trial.network))
    after = jax.eval_shape(
        lambda memory: _step(trial.policy, trial.config, trial.network, memory, links, jnp.int32(0))[0], start
    )
    if fault := fault_of_update(start, after):
        return fault
    shape = jax.eval_shape(trial.policy.weights, jax.random.key(0), start, jnp.int32(0)).shape
    if shape != (num_devices, num_devices):
        return f"weights must be [N, N] = {[num_devices] * 2}; got {list(shape)}"
    return None


def _fault_of(weight: Array) -> str | None:
    """Describes the first fault of weights [N, N], or returns None."""
    values = np.asarray(weight)
    if np.isnan(values).any():
        return "weights must be numbers; some are NaN"
    if (values < 0).any():
        return f"weights must be 0 or more; got {values.min():.3g}"
    if (values.sum(axis=-1) <= 0).any() or np.isinf(values).any():
        return "each row of weights must have a finite sum above 0; some row does not"
    return None


def _weights(trial: _Trial) -> str | None:
    for memory, *_ in trial.episodes():
        for state in range(trial.config.num_states):
            fault = _fault_of(trial.weights(jax.random.key(2), memory, jnp.int32(state)))
            if fault:
                return f"{fault} within the first episodes"
    return None


def _batch(trial: _Trial) -> str | None:
    def one(memory: Any, *others: Any) -> tuple[Array, Any]:
        weight = trial.policy.weights(jax.random.key(3), memory, jnp.int32(0))
        return weight / weight.sum(axis=-1, keepdims=True), trial.policy.update(memory, *others)

    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    episodes = trial.episodes()[-3:]
    apart = jax.tree.map(stack, *(one(*episode) for episode in episodes))
    together = jax.vmap(one)(*jax.tree.map(stack, *episodes))
    for name, alone, beside in zip(("weights", "update"), apart, together, strict=True):
        close = lambda first, second: np.allclose(first, second, TOLERANCE, TOLERANCE, equal_nan=True)  # noqa: E731
        if not all(jax.tree.leaves(jax.tree.map(close, alone, beside))):
            return f"{name} under vmap must equal {name} of each run alone; it depends on other runs in the batch"
    return None


def _renumbered(network: Network, order: np.ndarray) -> Network:
    """The same network with renumbered devices: new device i is old device `order[i]`."""
    rows, columns = np.ix_(order, order)
    return replace(
        network,
        position=network.position[order],
        rss=network.rss[:, rows, columns],
        outage=network.outage[:, rows, columns],
        trust=network.trust[rows, columns],
        counts=network.counts[order],
        thresholds=network.thresholds[order],
        cluster=network.cluster[order],
    )


def _numbering(trial: _Trial) -> str | None:
    num_devices = trial.config.num_devices
    order = np.random.default_rng(1).permutation(num_devices)
    place, keys = np.argsort(order), jax.random.split(jax.random.key(4), 512)
    other = _renumbered(trial.network, order)

    def differs(start: Callable, step: Callable, axes: tuple[int, int | None]) -> bool:
        first, second = start(trial.network), start(other)
        for number in range(8):
            links = np.random.default_rng(number).integers(num_devices, size=num_devices)
            state = jnp.int32(number % trial.config.num_states)
            first, _ = step(trial.network, first, jnp.asarray(links, jnp.int32), state)
            second, _ = step(other, second, jnp.asarray(place[links[order]], jnp.int32), state)
        weights = jax.vmap(lambda key, memory: trial.policy.weights(key, memory, jnp.int32(0)), axes)
        one, two = (np.asarray(weights(keys, memory), np.float64) for memory in (first, second))
        one, two = (values / values.sum(-1, keepdims=True) for values in (one, two))
        one = one[:, order[:, None], order]
        return bool((np.abs(one.mean(0) - two.mean(0)) > TOLERANCE + 6.0 * np.sqrt(2.0 * one.var(0) / 512)).any())

    # Averaged over many keys: a policy that draws noise is invariant only on average.
    if not differs(trial.start, trial.step, (0, None)):
        return None
    # It may also have drawn something before the first episode, so these keys are averaged over too.
    start = lambda network: jax.vmap(lambda key: trial.start(network, key))(keys)  # noqa: E731
    if not differs(start, jax.jit(jax.vmap(trial.step, (None, 0, None, None))), (0, 0)):
        return None
    return "weights must not depend on how devices are numbered; renumbering the devices changes them"


def _compiles_once(trial: _Trial) -> str | None:
    known = known_of(prepare(trial.network, trial.config), trial.policy.information)
    own = getattr(trial.policy, "policy", trial.policy)
    fixed = [name for name, value in vars(own).items() if isinstance(value, float) and name not in numbers_of(own)]
    if fixed:
        return f"numbers of a policy must be leaves of its pytree; {fixed[0]} is not, so each new value recompiles"

    def begin(policy: Any) -> Any:
        memory = policy.init(jax.random.key(1), known, trial.config)
        return policy.weights(jax.random.key(0), memory, jnp.int32(0))

    try:
        jax.eval_shape(begin, jax.tree.map(jnp.asarray, trial.policy))
    except jax.errors.ConcretizationTypeError:
        return "numbers of a policy must stay traced; one is used as a Python number, so each new value recompiles"
    return None


def _finite(trial: _Trial) -> str | None:
    config = trial.config
    memory = jax.jit(lambda: learn(trial.policy, run_key(0), trial.network, config))().memory
    bad = [
        jax.tree_util.keystr(path) or "the memory"
        for path, leaf in jax.tree_util.tree_leaves_with_path(memory)
        if jnp.issubdtype(leaf.dtype, jnp.floating) and bool(jnp.isnan(leaf).any())
    ]
    if bad:
        return f"memory must not become NaN; {', '.join(bad)} has NaN after {config.num_episodes:,} episodes"
    for state in range(config.num_states):
        fault = _fault_of(trial.weights(jax.random.key(2), memory, jnp.int32(state)))
        if fault:
            return f"{fault} after {config.num_episodes:,} episodes"
    return None


def _best(trial: _Trial) -> str | None:
    if not hasattr(trial.policy, "best"):
        return None
    *_, (memory, *_) = trial.episodes()
    try:
        checked_links("best", trial.policy.best(memory), (trial.config.num_states, trial.config.num_devices))
    except ValueError as error:
        return str(error)
    return None
