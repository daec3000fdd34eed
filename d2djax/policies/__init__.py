"""All ways to choose the graph, by name: those that come with the package, and those of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from d2djax import baselines
from d2djax.checks import check_values, shown
from d2djax.config import Config
from d2djax.discovery import boltzmann
from d2djax.information import LEVELS
from d2djax.policies.own import OwnGraph
from d2djax.policies.per_device import PerDevice
from d2djax.validation import plain_number


@dataclass(frozen=True)
class Candidate:
    """A way to choose the graph, and what sets it apart from the others.

    Attributes:
        rule: of one that learns, `(config, num_classes) -> policy`, or, of one's own, the policy with zeros for its
            numbers; of all others, `(key, network, config) -> links`, [S, N] int32.
        learns: its devices learn for E episodes.
        agrees: its devices send messages to agree on the exchange.
        has_graph: points move over its graph; otherwise they are pooled and dealt anew.
    """

    rule: Any
    learns: bool = False
    agrees: bool = True
    has_graph: bool = True

    def num_exchanges(self, config: Config) -> int:
        """How often the devices agree on an exchange: in every episode of discovery, and once for the real one."""
        return (1 + config.num_episodes * self.learns) * self.agrees


BUILT_IN: dict[str, Candidate] = {
    "none": Candidate(baselines.none, agrees=False),
    "uniform": Candidate(baselines.uniform),
    "rl": Candidate(boltzmann, learns=True),
    "nearest": Candidate(baselines.nearest),
    "best_response": Candidate(baselines.best_response),
    "pooled": Candidate(baselines.none, agrees=False, has_graph=False),
}


def is_learner(rule: Any) -> bool:
    """Whether something learns, as a policy does, rather than being a function that gives a graph."""
    return hasattr(rule, "weights") or hasattr(rule, "update")


def check_own(own: Mapping[str, Any]) -> None:
    """Checks policies of one's own.

    Raises:
        ValueError: one is neither a policy nor a function, or has a name that is taken.
    """
    if not isinstance(own, Mapping):
        raise ValueError(f"policies must be a dict of names and policies; got {type(own).__name__}")
    for name, rule in own.items():
        _check_one(name, rule)


def _check_one(name: Any, rule: Any) -> None:
    where = f"policies[{name!r}]"
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"the name of a policy must be a word, such as 'ucb'; got {name!r}")
    if name in BUILT_IN:
        raise ValueError(f"{where} must have another name: a policy that comes with the package has this one")
    if isinstance(rule, type):
        raise ValueError(f"{where} must be an object, such as {rule.__name__}(); got the class itself")
    if is_learner(rule):
        _check_learner(where, rule)
    elif not callable(rule):
        raise ValueError(
            f"{where} must be a policy with init, weights and update, or a function (key, network, config); "
            f"got {shown(rule)}"
        )


def _check_learner(where: str, rule: Any) -> None:
    kind, level = type(rule).__name__, getattr(rule, "information", None)
    lacking = [part for part in ("init", "weights", "update") if not callable(getattr(rule, part, None))]
    if lacking:
        raise ValueError(f"{where} must have init, weights and update; {kind} lacks {' and '.join(lacking)}")
    if level not in LEVELS:
        raise ValueError(f"{where}: information must be one of {', '.join(LEVELS)}; got {level!r}")
    numbers = jax.tree.leaves(rule)
    if not dataclasses.is_dataclass(rule) or any(leaf is rule for leaf in numbers):
        raise ValueError(
            f"{where} must be a frozen dataclass that JAX can take apart: write @jax.tree_util.register_dataclass "
            f"and @dataclass(frozen=True) above {kind}"
        )
    for name, number in numbers_of(rule).items():
        _check_number(where, f"{where}.{name}", number)
    try:
        hash(without_numbers(rule))
    except TypeError as error:
        raise ValueError(f"{where} must be fixed but for its numbers: {error}") from None


def _check_number(where: str, name: str, number: Any) -> None:
    """Checks a number of a policy as a setting is checked: what 32 bits cannot hold would be another number."""
    # A key of JAX cannot be made an array of NumPy.
    array = np.asarray(None if jnp.issubdtype(getattr(number, "dtype", int), jax.dtypes.extended) else number)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where} must be made of numbers and arrays; got {shown(number)}")
    if array.ndim == 0 and array.dtype.kind != "b":
        plain_number(name, int if is_whole(number) else float, number)
    elif array.dtype.kind == "f":
        most = float(np.finfo(np.float32).max)
        check_values(name, number, "finite numbers that single precision holds", lambda values: abs(values) <= most)
    elif array.dtype.kind in "iu":
        held = np.iinfo(_KINDS[array.dtype.kind])
        check_values(name, number, "numbers of 32 bits", lambda values: (values >= held.min) & (values <= held.max))


def without_numbers(rule: Any) -> Any:
    """A policy in which all numbers are 0: what two that share a program have in common."""
    return jax.tree.map(lambda leaf: 0, rule)


def candidates_of(config: Config, own: Mapping[str, Any]) -> dict[str, Candidate]:
    """All that are compared in a run: the built-in ones that the config names, then one's own.

    Args:
        config: `policies`.
        own: policies and functions of one's own, by name.

    Returns:
        The candidates by name, in the order of the results.

    Raises:
        ValueError: there is none at all.
    """
    found = {name: BUILT_IN[name] for name in config.policies}
    for name, rule in own.items():
        learns = is_learner(rule)
        found[name] = Candidate(without_numbers(rule) if learns else OwnGraph(name, rule), learns)
    if not found:
        raise ValueError("policies must be at least one policy; got ()")
    return found


def _inside(rule: Any) -> Any:
    return rule.policy if isinstance(rule, PerDevice) else rule


def numbers_of(rule: Any) -> dict[str, Any]:
    """The numbers of a policy that learns, by name; those of a part by the names of both, such as `noise.scale`."""
    places = jax.tree_util.tree_leaves_with_path(_inside(rule))
    text = lambda key: str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key))))  # noqa: E731
    return {".".join(map(text, path)): leaf for path, leaf in places}


def is_whole(number: Any) -> bool:
    """Whether a number of a policy is whole."""
    return np.asarray(number).dtype.kind in "iu"


def with_numbers(policy: str, rule: Any, numbers: Mapping[str, Any]) -> Any:
    """A policy with other values for some of its numbers, which are called as on an axis, such as `ucb.width`."""
    names = [f"{policy}.{number}" for number in numbers_of(rule)]
    leaves, structure = jax.tree.flatten(rule)
    return structure.unflatten([numbers.get(name, leaf) for name, leaf in zip(names, leaves, strict=True)])


def learners_in(own: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some policies of one's own that learn, by name."""
    return {name: rule for name, rule in own.items() if is_learner(rule)}


# What numbers of policies are computed as.
_KINDS = {"f": np.float32, "i": np.int32, "u": np.uint32, "b": bool}


def learners_of(own: Mapping[str, Any]) -> dict[str, Any]:
    """Policies of one's own that learn, by name, their numbers as arrays of 32 bits, which hold them."""

    def plain(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return array.astype(_KINDS[array.dtype.kind])

    return {name: jax.tree.map(plain, rule) for name, rule in learners_in(own).items()}
