"""All ways to choose the graph, by name: those that come with the package, and those of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from d2djax import baselines
from d2djax.checks import shown
from d2djax.config import Config
from d2djax.discovery import boltzmann
from d2djax.information import LEVELS
from d2djax.parts import check_part, without_numbers
from d2djax.policies.own import OwnGraph


@dataclass(frozen=True)
class Candidate:
    """A way to choose the graph, and what sets it apart from the others.

    Attributes:
        rule: of one that learns, `(config, num_classes, reward) -> policy`, or, of one's own, the policy with zeros
            for its numbers; of all others, `(key, network, config) -> links`, [S, N] int32.
        learns: its devices learn for E episodes.
        starts_at_bound: links that it has not tried count `initial_value`, by default what no reward exceeds.
        seeks_reward: its rule is also given the reward: `(key, network, config, reward) -> links`.
        agrees: its devices send messages to agree on the exchange.
        has_graph: points move over its graph; otherwise they are pooled and dealt anew.
    """

    rule: Any
    learns: bool = False
    starts_at_bound: bool = False
    seeks_reward: bool = False
    agrees: bool = True
    has_graph: bool = True

    def num_exchanges(self, config: Config) -> int:
        """How often the devices agree on an exchange: in every episode of discovery, and once for the real one.

        Args:
            config: `num_episodes`.

        Returns:
            A whole number; 0 for a policy without an exchange.
        """
        return (1 + config.num_episodes * self.learns) * self.agrees


BUILT_IN: dict[str, Candidate] = {
    "none": Candidate(baselines.none, agrees=False),
    "uniform": Candidate(baselines.uniform),
    "rl": Candidate(boltzmann, learns=True, starts_at_bound=True),
    "nearest": Candidate(baselines.nearest),
    "best_response": Candidate(baselines.best_response, seeks_reward=True),
    "pooled": Candidate(baselines.none, agrees=False, has_graph=False),
}


def is_learner(rule: Any) -> bool:
    """Whether something learns, as a policy does, rather than being a function that gives a graph.

    Args:
        rule: a policy or a function.

    Returns:
        True or false.
    """
    return hasattr(rule, "weights") or hasattr(rule, "update")


def check_own(own: Mapping[str, Any]) -> None:
    """Checks policies of one's own.

    Args:
        own: policies by their names.

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
    check_part(where, rule)


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


def learners_in(own: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some policies of one's own that learn, by name."""
    return {name: rule for name, rule in own.items() if is_learner(rule)}
