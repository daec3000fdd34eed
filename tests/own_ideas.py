"""Policies that users write outside the package, and a faulty one of each kind, for `--recipe`."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import optax

import d2djax


# The README shows this one.
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class UCB:
    width: float = 2.0
    information = "own"

    def init(self, key, known, config):
        return jnp.zeros((2, known.num_states, known.num_devices, known.num_devices))  # sums of rewards, and tries

    def weights(self, key, memory, state):
        total, tries = memory[:, state]
        bound = total / tries + self.width * jnp.sqrt(jnp.log1p(tries.sum(-1, keepdims=True)) / tries)
        bound = jnp.where(tries > 0, bound, jnp.inf)
        return jnp.float32(bound == bound.max(-1, keepdims=True))

    def update(self, memory, state, links, feedback):
        earned = jnp.stack([feedback.reward, jnp.ones_like(feedback.reward)])
        return memory.at[:, state, jnp.arange(links.size), links].add(earned)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpsilonGreedy:
    """The best link so far, and now and then any other; links that were never tried come first."""

    explore: float = 0.1
    information = "own"

    def init(self, key, known, config):
        return jnp.zeros((2, known.num_states, known.num_devices, known.num_devices))

    def weights(self, key, memory, state):
        total, tries = memory[:, state]
        mean = jnp.where(tries > 0, total / jnp.maximum(tries, 1), jnp.inf)
        is_best = mean == mean.max(-1, keepdims=True)
        return (1 - self.explore) * is_best / is_best.sum(-1, keepdims=True) + self.explore / mean.shape[-1]

    def update(self, memory, state, links, feedback):
        earned = jnp.stack([feedback.reward, jnp.ones_like(feedback.reward)])
        return memory.at[:, state, jnp.arange(links.size), links].add(earned)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NeuralSoftmax:
    """One network scores the links of all devices by their outage; it learns by policy gradient, with Adam."""

    learning_rate: float = 0.05
    hidden: int = field(default=8, metadata={"static": True})
    information = "own"

    def init(self, key, known, config):
        inner, outer = jax.random.split(key)
        network = {
            "inner": jax.random.normal(inner, (2, self.hidden)),
            "outer": 0.1 * jax.random.normal(outer, (self.hidden,)),
        }
        adam = optax.adam(self.learning_rate).init(network)
        # Each device's own row of outages, as the first axis of `known` is that of the devices.
        outage = jnp.swapaxes(known.outage, 0, 1)
        return {"network": network, "adam": adam, "mean": jnp.float32(0), "outage": outage}

    def scores(self, network, outage):
        features = jnp.stack([outage, jnp.ones_like(outage)], axis=-1)
        return jnp.tanh(features @ network["inner"]) @ network["outer"]

    def weights(self, key, memory, state):
        return jax.nn.softmax(self.scores(memory["network"], memory["outage"][state]))

    def update(self, memory, state, links, feedback):
        def loss(network):
            likely = jax.nn.log_softmax(self.scores(network, memory["outage"][state]))
            return -jnp.mean((feedback.reward - memory["mean"]) * likely[jnp.arange(links.size), links])

        gradient = jax.grad(loss)(memory["network"])
        step, adam = optax.adam(self.learning_rate).update(gradient, memory["adam"])
        mean = 0.9 * memory["mean"] + 0.1 * feedback.reward.mean()
        return memory | {"network": optax.apply_updates(memory["network"], step), "adam": adam, "mean": mean}


def ring(key, network, config):
    """Every device takes its points from the next one, in each state."""
    return jnp.tile((jnp.arange(config.num_devices) + 1) % config.num_devices, (config.num_states, 1))


recipe = d2djax.Recipe(
    policies={"my_ucb": UCB(1.0), "greedy": EpsilonGreedy(), "neural": NeuralSoftmax(), "ring": ring}
)
ucb_alone = d2djax.Recipe(policies={"my_ucb": UCB(1.0)})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WrongUCB(UCB):
    """It requests a number that is unknown at compile time."""

    def weights(self, key, memory, state):
        return jnp.ones(memory.shape[-2:]) if memory[1].sum() == 0 else UCB.weights(self, key, memory, state)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WrongEpsilonGreedy(EpsilonGreedy):
    """It requests more than its level of information contains."""

    def update(self, memory, state, links, feedback):
        return memory + feedback.received.sum()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WrongNeuralSoftmax(NeuralSoftmax):
    """It loses the state of its optimiser."""

    def update(self, memory, state, links, feedback):
        after = NeuralSoftmax.update(self, memory, state, links, feedback)
        return {name: part for name, part in after.items() if name != "adam"}


wrong_ucb = d2djax.Recipe(policies={"my_ucb": WrongUCB()})
wrong_greedy = d2djax.Recipe(policies={"greedy": WrongEpsilonGreedy()})
wrong_neural = d2djax.Recipe(policies={"neural": WrongNeuralSoftmax()})
# Devices are numbered from 0.
wrong_ring = d2djax.Recipe(policies={"ring": lambda key, network, config: ring(key, network, config) + 1})
wrong_nearest = d2djax.Recipe(
    policies={"nearest_one": lambda key, network, config: jnp.argmin(network.outage, axis=-1) + config.num_devices}
)
wrong_shape = d2djax.Recipe(policies={"ring": lambda key, network, config: jnp.arange(config.num_devices)})
wrong_kind = d2djax.Recipe(policies={"ring": lambda key, network, config: 1.0 * ring(key, network, config)})
