"""The problem of `federated_numpy` as input of d2djax, with its initial model and minibatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.federated_numpy import NUM_CLASSES, Model, Problem
from d2djax import Config, validate
from d2djax.config import as_numbers
from d2djax.federated import Learning, train
from d2djax.models import MLP
from d2djax.points import Points, inputs
from d2djax.recipe import Recipe
from d2djax.rng import Stream, at, run_key
from d2djax.sampling import minibatch
from d2djax.transfer import Holding

RECIPE = Recipe(MLP(NUM_CLASSES))
SEED = 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shared:
    """What all runs share."""

    points: Points
    test: jax.Array
    holding: Holding
    config: Config


def share(problem: Problem, num_rounds: int) -> Shared:
    """The problem as input of d2djax; without held-out images, it evaluates once at the end, on one image."""
    setting, evaluates = problem.setting, len(problem.test) > 0
    config = Config(
        dataset="fashion_mnist",
        num_devices=setting.clients,
        num_steps=num_rounds * setting.interval,
        aggregation_interval=setting.interval,
        evaluate_every=1 if evaluates else num_rounds,
        batch_size=setting.minibatch,
        learning_rate=setting.learning_rate,
    )
    points = Points(
        x=jnp.asarray(problem.x.reshape(-1, 28, 28, 1)),
        y=jnp.asarray(problem.y, jnp.int32),
        mean=jnp.float32(problem.mean),
        std=jnp.float32(problem.deviation),
        sizes=tuple(int(size) for size in np.bincount(problem.y, minlength=NUM_CLASSES)),
    )
    size = jnp.full(setting.clients, setting.points, jnp.int32)
    holding = Holding(jnp.asarray(problem.held.reshape(-1), jnp.int32), jnp.cumsum(size) - size, size)
    test = problem.test if evaluates else np.zeros(1)
    return Shared(points, jnp.asarray(test, jnp.int32), holding, as_numbers(validate(config)))


def one_run(shared: Shared, seed: jax.Array, static: None) -> Learning:
    """One training, as `map_runs` calls it."""
    return train(run_key(seed), RECIPE, shared.points, shared.test, shared.holding, shared.config)


@jax.jit
def package_start(shared: Shared, steps: jax.Array) -> tuple[Any, jax.Array]:
    """Initial parameters and minibatches [T, N, B] of the run with seed `SEED`."""
    key = run_key(SEED)
    start = RECIPE.model.init(at(key, Stream.MODEL), inputs(shared.points, jnp.zeros(1, jnp.int32)))
    return start, jax.vmap(lambda step: minibatch(key, step, shared.holding, shared.config))(steps)


def as_model(parameters: Any) -> Model:
    """Parameters of d2djax in the layout of the baselines."""
    layers = (parameters["params"][f"Dense_{number}"] for number in range(2))
    kernel, bias, last_kernel, last_bias = (
        np.asarray(layer[name]) for layer in layers for name in ("kernel", "bias")
    )
    return kernel, bias, last_kernel, last_bias
