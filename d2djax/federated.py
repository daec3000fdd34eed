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

    `rounds` counts the first point; `train_loss` and `drift` are NaN there, as no step has been taken yet.

    Attributes:
        accuracy: [rounds] float32, share of held-out points classified right.
        loss: [rounds] float32, mean cross entropy of held-out points, nats.
        class_accuracy: [rounds, L] float32, share of each class's held-out points classified right.
        train_loss: [rounds] float32, mean cross entropy of the minibatches since the last evaluation, nats.
        drift: [rounds] float32, mean Euclidean distance of the local models from their average just before they
            are averaged, mean over the aggregations since the last evaluation; 0 in FedSGD, which has none.
    """

    accuracy: Array
    loss: Array
    class_accuracy: Array
    train_loss: Array
    drift: Array


@dataclass(frozen=True)
class Task:
    """What stays the same during the training of one policy of one run."""

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
        """The optimiser of the server; one that does nothing if the average becomes the model."""
        make = self.recipe.server
        return optax.identity() if make is None else make(jnp.asarray(self.config.server_learning_rate))


def _shares(weights: Array) -> Array:
    """Weights scaled to sum to 1, [N] float32; zeros if all are 0."""
    total = jnp.sum(weights)
    return weights / jnp.where(total > 0, total, 1.0)


def weighted_average(local: Parameters, weights: Array) -> Parameters:
    """Average of the local models by weight, leaf by leaf.

    Args:
        local: parameters with a leading device axis [N, ...].
        weights: [N] float, 0 or more; they need not sum to 1.

    Returns:
        Parameters without the device axis; zeros if all weights are 0.
    """
    share = _shares(weights)

    def average(leaf):
        # Full precision: a GPU would by default round the parameters themselves to ten bits.
        return jnp.tensordot(share, _counted(share, leaf), axes=1, precision=jax.lax.Precision.HIGHEST)

    return jax.tree.map(average, local)


def _counted(share: Array, values: Array) -> Array:
    """[N, ...] with zeros for the devices of no weight, whose values may be no numbers: 0 times NaN is NaN."""
    return jnp.where(share.reshape(-1, *(1,) * (values.ndim - 1)) > 0, values, jnp.zeros_like(values))


def _weights(task: Task, aggregation: Array) -> Array:
    """Weights of an aggregation: `|D-hat_i|`, 0 for stragglers, [N] float32."""
    takes_part = participants(task.key, aggregation, task.config)
    return jnp.where(takes_part, task.holding.size, 0).astype(jnp.float32)


def _equal_shares(task: Task) -> Array:
    """Equal weights of all devices that hold a point, [N] float32, summing to 1."""
    return _shares((task.holding.size > 0).astype(jnp.float32))


def _unless_all_straggle(weights: Array, new: Any, old: Any) -> Any:
    """What an aggregation yields, or what was before if no device took part in it."""
    return jax.tree.map(lambda fresh, before: jnp.where(jnp.sum(weights) > 0, fresh, before), new, old)


def _step_server(task: Task, carry: Any, average: Parameters, weights: Array) -> Any:
    """The global model and the server's state after an aggregation; unchanged if every device straggles."""
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
    """FedAvg: mean cross entropy of a minibatch, as what is minimised and as what is recorded."""
    # Deviation: the paper's loss sums over the points; a mean only rescales the step size.
    value = jnp.mean(cross_entropies(task.recipe.model, parameters, x, y, key))
    return value, value


def _proximal_loss(
    task: Task, parameters: Parameters, anchor: Parameters, x: Array, y: Array, key: Array | None
) -> tuple[Array, Array]:
    """FedProx: the loss of FedAvg with `(mu / 2) ||phi - phi_G||^2` added, and without."""
    distance = _squared_distance(parameters, anchor)
    value, _ = _local_loss(task, parameters, anchor, x, y, key)
    return value + 0.5 * task.config.proximal_weight * distance, value


def _keys(task: Task, step: Array) -> Array | None:
    """Key of what each device's model draws in a training step, [N]; none for a model that draws nothing."""
    if not is_switched(task.recipe.model):
        return None
    device = jnp.arange(task.config.num_devices)
    return jax.vmap(partial(jax.random.fold_in, at(task.key, Stream.DROPOUT, step)))(device)


def _each_device(function: Callable, *arrays: Any) -> Any:
    """Applies a function to every device's rows of [N, ...] arrays, or trees of them.

    On a CPU one device after the other: a core's cache then holds the model over all its local steps, where
    the models of all devices would go through memory in each. An accelerator takes all devices at once.
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
        # As one vector: what is done with the models afterwards is then one operation, not one for each layer.
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
    """Cross entropy of each point of all minibatches at one model, [N, B] float32."""
    of = partial(cross_entropies, task.recipe.model, parameters)
    if keys is not None:
        return jax.vmap(of)(x, y, keys)
    return of(x.reshape(-1, *x.shape[2:]), y.reshape(-1)).reshape(y.shape)


def _gradient_steps(task: Task, carry: Any, first_step: Array) -> tuple[Any, tuple[Array, Array]]:
    """`tau_a` aggregations of FedSGD: each averages one gradient per device, all taken at the global model.

    As no device leaves the global model, the average of gradients is the gradient of one large batch. `tau_a`
    only sets how often the curves are recorded, so that all schemes take the same number of steps.
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
    """A federated algorithm, and all that other parts of the package must know about it.

    Attributes:
        steps: `(task, carry, first_step) -> (carry, (train loss, drift))`, which takes `tau_a` steps, the first of
            which has the number `first_step`; `carry` is the global model and the state of an optimiser.
        optimizer: the optimiser of a task whose state is carried from aggregation to aggregation.
        aggregates_every_step: devices send a gradient after every step instead of a model after `tau_a` steps.
        settings: the settings that this scheme reads and that no other part of the simulator reads.
    """

    steps: Callable[[Task, Any, Array], tuple[Any, tuple[Array, Array]]]
    optimizer: Callable[[Task], optax.GradientTransformation] = lambda task: task.server
    aggregates_every_step: bool = False
    settings: frozenset[str] = frozenset()


# By the names in `settings.SchemeName`.
SCHEMES: dict[str, Scheme] = {
    "fedavg": Scheme(_fedavg),
    "fedprox": Scheme(_fedprox, settings=frozenset({"proximal_weight"})),
    "fedsgd": Scheme(_gradient_steps, lambda task: task.client, aggregates_every_step=True),
}


def steps_between_aggregations(config: Config) -> int:
    """Local steps from one aggregation to the next.

    Args:
        config: `scheme` and `aggregation_interval`.

    Returns:
        Local steps, at least 1.
    """
    return 1 if SCHEMES[config.scheme].aggregates_every_step else config.aggregation_interval


def train(key: Array, recipe: Recipe, points: Points, test: Array, holding: Holding, config: Config) -> Learning:
    """Trains one global model federatedly and records it on held-out points.

    FedAvg: every device takes `tau_a` optimiser steps from the global model on minibatches of its own points;
    the server averages the local models with weights `|D-hat_i|` and broadcasts. FedProx pulls the local steps
    towards the global model. FedSGD averages gradients at every step instead of models.

    Args:
        key: key of the run.
        recipe: the model, from equal first parameters for every device and policy, and the optimisers.
        points: all points.
        test: [n] int32, numbers of the held-out points.
        holding: who holds which points.
        config: `scheme`, `num_steps` T, `aggregation_interval` tau_a, `evaluate_every`, `batch_size`, the step
            sizes, `proximal_weight` mu and the stragglers.

    Returns:
        The learning curves.

    Raises:
        ValueError: FedSGD is given a server optimiser; it steps with the client's, at the server. Or a step size
            is missing.
    """
    for name in ("learning_rate", "server_learning_rate"):
        if getattr(config, name) is None and (name == "learning_rate" or recipe.server is not None):
            raise ValueError(f"{name} must be given: Config({name}=0.01)")
    scheme = SCHEMES[config.scheme]
    if scheme.aggregates_every_step and recipe.server is not None:
        raise ValueError(
            f"scheme={config.scheme} steps with recipe.client at the server; recipe.server must be none"
        )
    task = Task(key, recipe, points, holding, config)

    def stretch(carry, first_steps):
        carry, (train_loss, drift) = jax.lax.scan(lambda *step: scheme.steps(task, *step), carry, first_steps)
        return carry, (jnp.mean(train_loss), jnp.mean(drift))

    def recorded(carry, first_steps):
        # Nothing is trained before the first evaluation, which so shares its compiled code with all others.
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
