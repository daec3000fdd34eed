"""The custom code of a run in one record: model, optimisers, policies, reward and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from d2djax.checks import cut, shown
from d2djax.models import Parameters
from d2djax.networks import check_own as check_own_network
from d2djax.networks import is_made
from d2djax.parts import as_declared, has_numbers
from d2djax.policies import check_own, learners_in
from d2djax.reward import PAPER, PaperReward, check_reward

OptimizerFactory = Callable[[Any], optax.GradientTransformation]


@dataclass(frozen=True)
class Recipe:
    """All custom code of a run; each part defaults to the paper's.

    Attributes:
        model: a Flax module from [B, ...] to logits [B, L]; None: the model that the config names. If its
            `__call__` takes `train`, `training` or `deterministic`, this argument selects training, in which the
            model may draw random numbers (dropout).
        client: makes the devices' optimiser from `learning_rate`, such as `optax.sgd`; its state (momentum) is
            reset after each aggregation. FedSGD uses it at the server, where the state is kept.
        server: makes the server's optimiser from `server_learning_rate`; its gradient is the global minus the
            average model (`optax.adam` is FedAdam). None: the average becomes the global model, as in the paper.
        policies: custom policies by name, compared in addition to those that the config names: policies that learn
            (see `d2djax.discovery.learn`), or functions `(key, network, config) -> links`, [S, N] int32.
        reward: the reward that devices learn from and that `best_response` maximises: `(network, state, links,
            exchange, config) -> Rewards`, a function or, if its numbers are to be axes, a frozen dataclass. A
            dataclass may have `upper_bound(config)`, a bound on the total reward; otherwise `rl` needs the setting
            `initial_value`.
        network: a `Network`, or several with a leading axis G, of which the run with seed g uses number g mod G; a
            `GivenNetwork`, whose missing parts are drawn; or a function `(key, config) -> Network`, which is
            traced. None: networks are drawn. A new network of the same shapes does not recompile; a new function
            does. Given counts may have any sum; those of a function sum to `num_devices * points_per_device`.
        file: `mine.py:name` that the recipe was read from; None if it was made in Python.

    Raises:
        ValueError: a field is of the wrong kind; one line names it.
    """

    # None only until `simulation.with_model` sets the model that the config names.
    model: Any = None
    client: OptimizerFactory = optax.sgd
    server: OptimizerFactory | None = None
    policies: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    reward: Any = field(default=PAPER, hash=False, compare=False)
    network: Any = field(default=None, hash=False, compare=False)
    file: str | None = field(default=None, hash=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the fields, and converts numbers of custom code to their declared types."""
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise ValueError(f"recipe.model must be a Flax module, such as Net(); got {shown(self.model)}")
        for name, make in (("client", self.client), ("server", self.server)):
            if not (callable(make) or (make is None and name == "server")):
                raise ValueError(
                    f"recipe.{name} must make an optimiser from a step size, such as optax.adam or "
                    f"lambda rate: optax.adam(rate, b1=0.8); got {shown(make)}"
                )
        # The only way to set a field of a frozen dataclass; nothing has read the field yet.
        if isinstance(self.policies, Mapping):
            object.__setattr__(self, "policies", {name: as_declared(one) for name, one in self.policies.items()})
        object.__setattr__(self, "reward", as_declared(self.reward))
        check_own(self.policies)
        if "reward" in self.policies:
            raise ValueError(
                "policies['reward'] must have another name: reward.NAME names the numbers of the reward"
            )
        check_reward(self.reward)
        if self.network is not None:
            check_own_network(self.network)

    @property
    def numbered(self) -> dict[str, Any]:
        """Custom parts whose numbers can be axes, by name: policies that learn, and the reward."""
        reward = {"reward": self.reward} if self.has_reward and has_numbers(self.reward) else {}
        return learners_in(self.policies) | reward

    @property
    def has_reward(self) -> bool:
        """Whether the reward is a custom one."""
        return type(self.reward) is not PaperReward

    @property
    def reads_settings(self) -> bool:
        """Whether custom code receives the config before a graph is found, and so may read any setting."""
        return bool(self.policies) or self.has_reward or is_made(self.network)


def check_optimisers(recipe: Recipe, parameters: Parameters) -> None:
    """Checks that a recipe's custom optimisers can be made and can step its model; compiles nothing.

    Args:
        recipe: a recipe with a model.
        parameters: parameters of the model as `jax.ShapeDtypeStruct`.

    Raises:
        ValueError: an optimiser fails or ignores its step size; one line names it and the reason.
    """
    for name, make in (("client", recipe.client), ("server", recipe.server)):
        if make is None or make is optax.sgd:
            continue

        def step(rate: Array, parameters: Parameters, make: OptimizerFactory = make) -> Any:
            optimiser = make(rate)
            if not (callable(getattr(optimiser, "init", None)) and callable(getattr(optimiser, "update", None))):
                raise TypeError(f"it returns {shown(optimiser)}")
            return optimiser.update(parameters, optimiser.init(parameters), parameters)

        try:
            traced = jax.make_jaxpr(step)(jax.ShapeDtypeStruct((), jnp.float32), parameters).jaxpr
        except Exception as error:
            raise ValueError(
                f"recipe.{name} must make an optimiser from a traced step size: {cut(str(error), 90)}"
            ) from error
        # Otherwise results would name a step size with which nothing was computed.
        rate, used = traced.invars[0], [traced.outvars, *(equation.invars for equation in traced.eqns)]
        if not any(rate is one for some in used for one in some):
            setting = "learning_rate" if name == "client" else "server_learning_rate"
            raise ValueError(
                f"recipe.{name} must use the step size that it is given, the setting {setting}, as in "
                "lambda rate: optax.adam(rate); it ignores it"
            )
