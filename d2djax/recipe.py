"""Everything in a run that is code: model, optimisers, policies, reward and network of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from d2djax.checks import cut, shown
from d2djax.models import Parameters, first_parameters
from d2djax.networks import check_own as check_own_network
from d2djax.networks import is_made
from d2djax.parts import as_declared, has_numbers
from d2djax.policies import check_own, learners_in
from d2djax.reward import PAPER, PaperReward, check_reward
from d2djax.rng import run_key

OptimizerFactory = Callable[[Any], optax.GradientTransformation]


@dataclass(frozen=True)
class Recipe:
    """All code of one's own that takes part in a run; each part has the paper's as its default.

    Attributes:
        model: a Flax module from [B, ...] to logits [B, L]; none: the one that the config names. One whose
            `__call__` takes `train`, `training` or `deterministic` trains with it on (`deterministic`: off), and
            may then draw random numbers (dropout).
        client: makes the optimiser of the devices from `learning_rate`, such as `optax.sgd`; its state (momentum)
            begins anew after every aggregation. FedSGD steps with it at the server, where the state stays.
        server: makes the server's optimiser from `server_learning_rate`, which then sees global minus average
            as its gradient (`optax.adam` is FedAdam); none: the average becomes the global model, as in the paper.
        policies: ways to choose the graph by name, beside those that the config names: policies that learn (see
            `d2djax.discovery.learn`), or functions `(key, network, config) -> links`, [S, N] int32.
        reward: what the devices learn from, and `best_response` ascends: a function or, so that its numbers can be
            axes, a frozen dataclass, `(network, state, links, exchange, config) -> Rewards`. A dataclass may have
            `upper_bound(config)`, what no total reward exceeds; otherwise `rl` needs the setting `initial_value`.
        network: a `Network`, or several with a leading axis, of which a run with seed g takes number g mod G; a
            `GivenNetwork`, the rest of which is drawn; or a function `(key, config) -> Network`, which is traced.
            None: networks are drawn. Another network of the same shapes compiles nothing; another function does.
            Counts that are given may have any sum, those of a function `num_devices * points_per_device`.
        file: `mine.py:name` that the recipe was read from; none for one that was made in Python.

    Raises:
        ValueError: a field is not of its kind.
    """

    # None only until `make_model` has made the one that the config names.
    model: Any = None
    client: OptimizerFactory = optax.sgd
    server: OptimizerFactory | None = None
    policies: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    reward: Any = field(default=PAPER, hash=False, compare=False)
    network: Any = field(default=None, hash=False, compare=False)
    file: str | None = field(default=None, hash=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the fields; numbers of code of one's own are of the kind that they are declared as."""
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise ValueError(f"recipe.model must be a Flax module, such as Net(); got {shown(self.model)}")
        for name, make in (("client", self.client), ("server", self.server)):
            if not (callable(make) or (make is None and name == "server")):
                raise ValueError(
                    f"recipe.{name} must make an optimiser from a step size, such as optax.adam or "
                    f"lambda rate: optax.adam(rate, b1=0.8); got {shown(make)}"
                )
        # A frozen record can be changed in no other way, and nobody has seen it yet.
        if isinstance(self.policies, Mapping):
            object.__setattr__(self, "policies", {name: as_declared(one) for name, one in self.policies.items()})
        object.__setattr__(self, "reward", as_declared(self.reward))
        check_own(self.policies)
        if "reward" in self.policies:
            raise ValueError(
                "policies['reward'] must have another name: numbers of the reward are called reward.NAME"
            )
        check_reward(self.reward)
        if self.network is not None:
            check_own_network(self.network)

    @property
    def numbered(self) -> dict[str, Any]:
        """Parts of one's own whose numbers can be axes, by name: policies that learn, and the reward."""
        reward = {"reward": self.reward} if self.has_reward and has_numbers(self.reward) else {}
        return learners_in(self.policies) | reward

    @property
    def has_reward(self) -> bool:
        """Whether the reward is one's own."""
        return type(self.reward) is not PaperReward

    @property
    def reads_settings(self) -> bool:
        """Whether code of one's own is given the config on the way to a graph, and may read any setting."""
        return bool(self.policies) or self.has_reward or is_made(self.network)


def check_optimisers(recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Checks that a recipe's own optimisers can be made and take a step with its model; compiles nothing.

    Args:
        recipe: with its model.
        shape: of a point.

    Raises:
        ValueError: one cannot.
    """
    x = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    for name, make in (("client", recipe.client), ("server", recipe.server)):
        if make is None or make is optax.sgd:
            continue

        def step(rate: Array, parameters: Parameters, make: OptimizerFactory = make) -> Any:
            optimiser = make(rate)
            if not (callable(getattr(optimiser, "init", None)) and callable(getattr(optimiser, "update", None))):
                raise TypeError(f"it makes {shown(optimiser)}")
            return optimiser.update(parameters, optimiser.init(parameters), parameters)

        try:
            parameters = jax.eval_shape(partial(first_parameters, recipe.model), run_key(0), x)
            jax.eval_shape(step, jax.ShapeDtypeStruct((), jnp.float32), parameters)
        except Exception as error:
            raise ValueError(
                f"recipe.{name} must make an optimiser from a step size that is traced: {cut(str(error), 90)}"
            ) from error
