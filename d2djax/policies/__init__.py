"""All policies that choose a graph, by name: the built-in ones and custom ones."""

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
from d2djax.policies import exact, matching, offers
from d2djax.policies.commit import Commit
from d2djax.policies.epsilon_greedy import EpsilonGreedy
from d2djax.policies.exp3 import EXP3
from d2djax.policies.exponential import exponential
from d2djax.policies.gumbel import BoltzmannGumbel
from d2djax.policies.informed import Informed
from d2djax.policies.own import OwnGraph
from d2djax.policies.thompson import Thompson
from d2djax.policies.ucb import UCB1


@dataclass(frozen=True)
class Candidate:
    """A policy to compare, and how a run treats it.

    Attributes:
        rule: of a built-in policy that learns, `(config, num_classes, reward) -> policy`; of a custom one, the
            policy with its numbers set to 0; of all others, `(key, network, config) -> links`, [S, N] int32.
        learns: whether its devices learn for E episodes.
        starts_at_bound: whether it values untried links at `initial_value`, by default a bound on the reward.
        seeks_reward: whether its rule also takes the reward: `(key, network, config, reward) -> links`.
        agrees: whether its devices send messages to agree on the exchange.
        hears: whether each device hears the offers of all others once, before the first episode.
        has_graph: whether points move over its graph; otherwise they are pooled and redistributed.
        most_devices: the largest number of devices that it can compute a graph for; None: any number.
        information: the information level of its devices, or of the search; see `d2djax.information`.
    """

    rule: Any
    learns: bool = False
    starts_at_bound: bool = False
    seeks_reward: bool = False
    agrees: bool = True
    hears: bool = False
    has_graph: bool = True
    most_devices: int | None = None
    information: str = "own"

    def num_exchanges(self, config: Config) -> int:
        """How often the devices agree on an exchange: in each episode of discovery, and once for the final one.

        Args:
            config: `num_episodes`.

        Returns:
            The number of exchanges; 0 for a policy without an exchange.
        """
        return (1 + config.num_episodes * self.learns) * self.agrees

    def num_offers(self, config: Config) -> int:
        """How many offers each device hears besides those of the exchanges.

        Args:
            config: `num_devices`.

        Returns:
            N - 1, or 0 for a policy that does not hear them.
        """
        return (config.num_devices - 1) * self.hears


BUILT_IN: dict[str, Candidate] = {
    "none": Candidate(baselines.none, agrees=False),
    "uniform": Candidate(baselines.uniform),
    "rl": Candidate(boltzmann, learns=True, starts_at_bound=True),
    "nearest": Candidate(baselines.nearest),
    "best_response": Candidate(baselines.best_response, seeks_reward=True, information="all"),
    "pooled": Candidate(baselines.none, agrees=False, has_graph=False, information="all"),
    "offers": Candidate(offers.offers, hears=True, information="heard"),
    "informed": Candidate(
        lambda config, num_classes, reward: Informed(), learns=True, hears=True, information="heard"
    ),
    "matching": Candidate(matching.matching, information="all"),
    "exact": Candidate(exact.exact, seeks_reward=True, most_devices=exact.MOST_DEVICES, information="all"),
    "exponential": Candidate(exponential),
    "epsilon_greedy": Candidate(lambda config, num_classes, reward: EpsilonGreedy(), learns=True),
    "ucb": Candidate(lambda config, num_classes, reward: UCB1(), learns=True),
    "thompson": Candidate(lambda config, num_classes, reward: Thompson(), learns=True),
    "gumbel": Candidate(lambda config, num_classes, reward: BoltzmannGumbel(), learns=True),
    "exp3": Candidate(lambda config, num_classes, reward: EXP3(), learns=True),
    "commit": Candidate(lambda config, num_classes, reward: Commit(), learns=True),
}


def is_learner(rule: Any) -> bool:
    """Whether `rule` is a policy that learns, rather than a function that returns a graph."""
    return hasattr(rule, "weights") or hasattr(rule, "update")


def check_own(own: Mapping[str, Any]) -> None:
    """Checks custom policies.

    Args:
        own: custom policies and functions, by name.

    Raises:
        ValueError: one is neither a policy nor a function, or its name is no identifier.
    """
    if not isinstance(own, Mapping):
        raise ValueError(f"policies must be a dict of names and policies; got {type(own).__name__}")
    for name, rule in own.items():
        _check_one(name, rule)


def _check_one(name: Any, rule: Any) -> None:
    where = f"policies[{name!r}]"
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"the name of a policy must be a word, such as 'my_ucb'; got {name!r}")
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
    """All policies that a run compares: the built-in ones that the config names, then the custom ones.

    Args:
        config: `policies`.
        own: custom policies and functions, by name.

    Returns:
        The candidates by name, in the order of the results.

    Raises:
        ValueError: there is no policy at all, too many devices for one, or two policies of one name.
    """
    found = {name: BUILT_IN[name] for name in config.policies}
    for name, one in found.items():
        if one.most_devices is not None and config.num_devices > one.most_devices:
            raise ValueError(
                f"num_devices must be at most {one.most_devices} with the policy {name!r}; got {config.num_devices}"
            )
    for name, rule in own.items():
        if name in found:
            raise ValueError(
                f"policies[{name!r}] must have another name: the setting policies names the built-in {name}"
            )
        if is_learner(rule):
            # What level "all" adds is in no message of the paper, so its cost is unknown and not counted.
            level = rule.information
            found[name] = Candidate(without_numbers(rule), True, hears=level == "heard", information=level)
        else:
            found[name] = Candidate(OwnGraph(name, rule), information="all")
    if not found:
        raise ValueError("policies must name at least one policy; got ()")
    return found


def learners_in(own: Mapping[str, Any]) -> dict[str, Any]:
    """The custom policies in `own` that learn, by name."""
    return {name: rule for name, rule in own.items() if is_learner(rule)}
