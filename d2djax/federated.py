"""Federated training after the exchange (Sections II-A.4, IV): local steps, aggregation, stragglers, schemes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from d2djax.config import Config
from d2djax.evaluation import Evaluation, cross_entropies, evaluate
from d2djax.models import Parameters, first_parameters, is_switched
from d2djax.points import Points, inputs
from d2djax.recipe import Recipe
from d2djax.rng import Stream, at
from d2djax.sampling import minibatch, participants
from d2djax.transfer import Holding


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learning:
    """Learning curves of the global model: one point before training, then one per evaluation.

    `rounds` includes the first point, where `train_loss` and `drift` are NaN.

    Attributes:
        accuracy: [rounds] float32, share of held-out points classified correctly.
        loss: [rounds] float32, mean cross entropy of held-out points, nats.
        class_accuracy: [rounds, L] float32, share of each class's held-out points classified correctly.
        train_loss: [rounds] float32, mean cross entropy of the minibatches since the last evaluation, nats.
        drift: [rounds] float32, mean Euclidean distance of the local models from their average just before an
            aggregation, averaged over the aggregations since the last evaluation; 0 in FedSGD.
    """

    accuracy: Array
    loss: Array
    class_accuracy: Array
    train_loss: Array
    drift: Array


@dataclass(frozen=True)
class Task:
    """The constants of one training: of one policy in one run."""

    key: Array
    recipe: Recipe
    points: Points
    holding: Holding
    config: Config

    @property
    def client(self) -> optax.GradientTransformation:
        """The optimiser of the devices."""
        return self.recipe.client(jnp.asarray(self.config.learning_rate))

    @property
    def server(self) -> optax.GradientTransformation:
        """The optimiser of the server; the identity if the recipe has none."""
        make = self.recipe.server
        return optax.identity() if make is None else make(jnp.asarray(self.config.server_learning_rate))


def _shares(weights: Array) -> Array:
    """Weights scaled to sum to 1, [N] float32; zeros if all are 0."""
    total = jnp.sum(weights)
    return weights / jnp.where(total > 0, total, 1.0)


def weighted_average(local: Parameters, weights: Array) -> Parameters:
    """Weighted average of the local models, leaf by leaf.

    Args:
        local: parameters with a leading device axis [N, ...].
        weights: [N] float, 0 or more; they need not sum to 1.

    Returns:
        Parameters without the device axis; zeros if all weights are 0.
    """
    share = _shares(weights)

    def average(leaf):
        # Full precision: by default a GPU would round the parameters to ten bits.
        return jnp.tensordot(share, _counted(share, leaf), axes=1, precision=jax.lax.Precision.HIGHEST)

    return jax.tree.map(average, local)


def _counted(share: Array, values: Array) -> Array:
    """[N, ...], zeroed for devices of weight 0, whose values may be NaN (and 0 times NaN is NaN)."""
    return jnp.where(share.reshape(-1, *(1,) * (values.ndim - 1)) > 0, values, jnp.zeros_like(values))


def _weights(task: Task, aggregation: Array) -> Array:
    """[N] float32, weights of an aggregation: `|D-hat_i|`, or 0 for stragglers."""
    takes_part = participants(task.key, aggregation, task.config)
    return jnp.where(takes_part, task.holding.size, 0).astype(jnp.float32)


def _equal_shares(task: Task) -> Array:
    """[N] float32, equal weights of all devices with at least one point; they sum to 1."""
    return _shares((task.holding.size > 0).astype(jnp.float32))


def _unless_all_straggle(weights: Array, new: Any, old: Any) -> Any:
    """The result of an aggregation, or the previous values if no device took part."""
    return jax.tree.map(lambda fresh, before: jnp.where(jnp.sum(weights) > 0, fresh, before), new, old)


def _step_server(task: Task, carry: Any, average: Parameters, weights: Array) -> Any:
    """The global model and the server optimiser's state after an aggregation; unchanged if all devices straggle."""
    parameters, state = carry
    if task.recipe.server is None:
        new = (average, state)
    else:
        difference = jax.tree.map(jnp.subtract, parameters, average)
        change, new_state = task.server.update(difference, state, parameters)
        new = (optax.apply_updates(parameters, change), new_state)
    return _unless_all_straggle(weights, new, carry)


def _squared_distance(first: Parameters, second: Parameters) -> Array:
    """Squared Euclidean distance of two models, [] float32."""
    squares = jax.tree.map(lambda one, other: jnp.sum((one - other) ** 2), first, second)
    return jax.tree.reduce(jnp.add, squares)


def _drift(local: Parameters, share: Array) -> Array:
    """Mean Euclidean distance of the local models from their average, [] float32."""
    squares = jax.vmap(_squared_distance, in_axes=(0, None))(local, weighted_average(local, share))
    return jnp.sum(share * _counted(share, jnp.sqrt(squares)))


def _local_loss(
    task: Task, parameters: Parameters, anchor: Parameters, x: Array, y: Array, key: Array | None
) -> tuple[Array, Array]:
    """FedAvg: mean cross entropy of a minibatch, both as the objective and as the recorded loss."""
    # Deviation: the paper sums the loss over the points; the mean only rescales the step size.
    value = jnp.mean(cross_entropies(task.recipe.model, parameters, x, y, key))
    return value, value


def _proximal_loss(
    task: Task, parameters: Parameters, anchor: Parameters, x: Array, y: Array, key: Array | None
) -> tuple[Array, Array]:
    """FedProx: the loss of FedAvg plus `(mu / 2) ||phi - phi_G||^2` as the objective; records it without."""
    distance = _squared_distance(parameters, anchor)
    value, _ = _local_loss(task, parameters, anchor, x, y, key)
    return value + 0.5 * task.config.proximal_weight * distance, value


def _keys(task: Task, step: Array) -> Array | None:
    """Keys [N] of each device's model in a training step; None for a model that draws nothing."""
    if not is_switched(task.recipe.model):
        return None
    device = jnp.arange(task.config.num_devices)
    return jax.vmap(partial(jax.random.fold_in, at(task.key, Stream.DROPOUT, step)))(device)


def _each_device(function: Callable, *arrays: Any) -> Any:
    """Applies a function to each device's rows of [N, ...] arrays, or pytrees of them.

    On a CPU one device at a time: its model then stays in the core's cache over all local steps, where the models
    of all devices would be read from memory in each step. An accelerator processes all devices at once.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda rows: function(*rows), arrays)
    return jax.vmap(function)(*arrays)


def _local_training(loss: Callable, task: Task, carry: Any, first_step: Array) -> tuple[Any, tuple[Array, Array]]:
    """One aggregation of FedAvg or FedProx: `tau_a` local steps of every device, then the average."""
    anchor, config, equal = carry[0], task.config, _equal_shares(task)
    optimizer = task.client
    gradient_and_value = jax.grad(lambda parameters, *batch: loss(task, parameters, anchor, *batch), has_aux=True)

    def local_step(carry, batch_and_key):
        (parameters, state), (batch, key) = carry, batch_and_key
        gradient, value = gradient_and_value(parameters, inputs(task.points, batch), task.points.y[batch], key)
        change, state = optimizer.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, change), state), value

    def local_steps(batches, keys):
        (parameters, _), values = jax.lax.scan(local_step, (anchor, optimizer.init(anchor)), (batches, keys))
        # As one vector, so that later operations on the models are one each instead of one per layer.
        return ravel_pytree(parameters)[0], jnp.mean(values)

    steps = first_step + jnp.arange(config.aggregation_interval)
    batches = jax.vmap(lambda step: minibatch(task.key, step, task.holding, config), out_axes=1)(steps)
    local, values = _each_device(local_steps, batches, jax.vmap(partial(_keys, task), out_axes=1)(steps))
    weights = _weights(task, first_step // config.aggregation_interval)
    drift = _drift(local, equal)
    average = ravel_pytree(anchor)[1](weighted_average(local, weights))
    carry = _step_server(task, carry, average, weights)
    return carry, (jnp.sum(equal * _counted(equal, values)), drift)


def _all_cross_entropies(task: Task, parameters: Parameters, x: Array, y: Array, keys: Array | None) -> Array:
    """[N, B] float32, cross entropy of each point of all minibatches under one model."""
    of = partial(cross_entropies, task.recipe.model, parameters)
    if keys is not None:
        return jax.vmap(of)(x, y, keys)
    return of(x.reshape(-1, *x.shape[2:]), y.reshape(-1)).reshape(y.shape)


def _gradient_steps(task: Task, carry: Any, first_step: Array) -> tuple[Any, tuple[Array, Array]]:
    """`tau_a` aggregations of FedSGD: each averages one gradient per device, all at the global model.

    All devices share the global model, so the average of their gradients is the gradient of one large batch.
    `tau_a` only sets how often curves are recorded, so that all schemes take the same number of steps.
    """
    optimizer, equal = task.client, _equal_shares(task)

    def step(carry, number):
        batch = minibatch(task.key, number, task.holding, task.config)
        weights = _weights(task, number)
        share = _shares(weights)
        x, y = inputs(task.points, batch), task.points.y[batch]

        def loss(parameters):
            by_device = jnp.mean(_all_cross_entropies(task, parameters, x, y, _keys(task, number)), axis=1)
            return jnp.sum(share * by_device), jnp.sum(equal * by_device)

        gradient, value = jax.grad(loss, has_aux=True)(carry[0])
        change, state = optimizer.update(gradient, carry[1], carry[0])
        new = (optax.apply_updates(carry[0], change), state)
        return _unless_all_straggle(weights, new, carry), value

    carry, values = jax.lax.scan(step, carry, first_step + jnp.arange(task.config.aggregation_interval))
    return carry, (jnp.mean(values), jnp.float32(0.0))


def _fedavg(task: Task, carry: Any, first_step: Array) -> tuple[Any, tuple[Array, Array]]:
    return _local_training(_local_loss, task, carry, first_step)


def _fedprox(task: Task, carry: Any, first_step: Array) -> tuple[Any, tuple[Array, Array]]:
    return _local_training(_proximal_loss, task, carry, first_step)


@dataclass(frozen=True)
class Scheme:
    """A federated algorithm, and what other modules need to know of it.

    Attributes:
        steps: `(task, carry, first_step) -> (carry, (train loss, drift))`; takes `tau_a` steps from number
            `first_step` on. `carry` is the global model and the state of an optimiser.
        optimizer: from the task, the optimiser whose state is kept between aggregations.
        aggregates_every_step: devices send a gradient after each step instead of a model after `tau_a` steps.
        settings: the settings that only this scheme reads.
    """

    steps: Callable[[Task, Any, Array], tuple[Any, tuple[Array, Array]]]
    optimizer: Callable[[Task], optax.GradientTransformation] = lambda task: task.server
    aggregates_every_step: bool = False
    settings: frozenset[str] = frozenset()


# The keys are those of `settings.SchemeName`.
SCHEMES: dict[str, Scheme] = {
    "fedavg": Scheme(_fedavg),
    "fedprox": Scheme(_fedprox, settings=frozenset({"proximal_weight"})),
    "fedsgd": Scheme(_gradient_steps, lambda task: task.client, aggregates_every_step=True),
}


def steps_between_aggregations(config: Config) -> int:
    """Local steps between two aggregations: `tau_a`, or 1 for FedSGD.

    Args:
        config: `scheme` and `aggregation_interval`.
    """
    return 1 if SCHEMES[config.scheme].aggregates_every_step else config.aggregation_interval


def train(key: Array, recipe: Recipe, points: Points, test: Array, holding: Holding, config: Config) -> Learning:
    """Trains one global model by federated learning, and evaluates it on held-out points.

    FedAvg: each device takes `tau_a` optimiser steps from the global model on minibatches of its points; the server
    averages the local models with weights `|D-hat_i|` and broadcasts the result. FedProx adds a proximal term to
    the local loss. FedSGD averages gradients at every step instead of models.

    Args:
        key: key of the run.
        recipe: the model and the optimisers; all policies of a run start from the same parameters.
        points: all points.
        test: [n] int32, numbers of the held-out points.
        holding: the points of each device.
        config: `scheme`, `num_steps` T, `aggregation_interval` tau_a, `evaluate_every`, `batch_size`, the step
            sizes, `proximal_weight` mu and the stragglers.

    Returns:
        The learning curves.

    Raises:
        ValueError: FedSGD is given a server optimiser (its server steps with the client's), or a step size is
            missing.
    """
    for name in ("learning_rate", "server_learning_rate"):
        if getattr(config, name) is None and (name == "learning_rate" or recipe.server is not None):
            raise ValueError(f"{name} must be given: Config({name}=0.01)")
    scheme = SCHEMES[config.scheme]
    if scheme.aggregates_every_step and recipe.server is not None:
        raise ValueError(
            f"recipe.server must be None with scheme={config.scheme}, whose server steps with recipe.client"
        )
    task = Task(key, recipe, points, holding, config)

    def stretch(carry, first_steps):
        carry, (train_loss, drift) = jax.lax.scan(lambda *step: scheme.steps(task, *step), carry, first_steps)
        return carry, (jnp.mean(train_loss), jnp.mean(drift))

    def recorded(carry, first_steps):
        # No training before the first evaluation; the branch lets it share its compiled code with the others.
        unknown = (jnp.float32(jnp.nan), jnp.float32(jnp.nan))
        carry, losses = jax.lax.cond(
            first_steps[0] < 0, lambda *args: (carry, unknown), stretch, carry, first_steps
        )
        found: Evaluation = evaluate(recipe.model, carry[0], points, test)
        return carry, Learning(found.accuracy, found.loss, found.class_accuracy, *losses)

    start = first_parameters(recipe.model, at(key, Stream.MODEL), inputs(points, jnp.zeros(1, jnp.int32)))
    first_steps = jnp.arange(0, config.num_steps, config.aggregation_interval).reshape(-1, config.evaluate_every)
    before = jnp.full_like(first_steps[:1], -1)
    carry = (start, scheme.optimizer(task).init(start))
    return jax.lax.scan(recorded, carry, jnp.concatenate([before, first_steps]))[1]
