"""Compares all policies with the best response: how near they come, how soon, and whether learning pays (ours)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from d2djax.analysis.claims import Claim, compare
from d2djax.analysis.looks import band, learning, looks_of, panels, policies_of, styled, told, whiskers
from d2djax.analysis.statistics import about, limits, setting
from d2djax.config import Config, complete
from d2djax.policies import BUILT_IN
from d2djax.regimes import REGIMES
from d2djax.running.results import counted

if TYPE_CHECKING:
    import xarray

# The search that all others are compared with; it knows the whole network.
REFERENCE = "best_response"
# The share of its reward at which the episodes are counted.
TARGET = 0.95
COLOURS = {"own": "#0072B2", "heard": "#E69F00", "all": "#999999"}


def standings(results: xarray.Dataset) -> xarray.Dataset:
    """Computes how near each policy comes to the best response in each run, how soon, and at which cost.

    Args:
        results: results of `run` or `sweep` with the policy `best_response`, without further axes.

    Returns:
        Variables (run, policy), NaN where a run does not count. `share`: reward of the policy's graph, as a mean
        over the channel states, divided by that of the best response; for policies that learn also `regret`, the
        reward below the best response, summed over the episodes; `episodes` until the reward while learning is at
        least `TARGET` of the best response; and `energy` of the control messages until then, J. Both are NaN if
        that does not happen.
    """
    import xarray

    best = _best(results)
    found = xarray.Dataset({"share": counted(results, "graph_reward").mean("state") / best})
    if "discovery_reward" not in results:
        return found
    curve = counted(results, "discovery_reward")
    episodes = int(setting(results, "num_episodes"))
    # The coordinate of a point of the curve is the number of episodes up to its end.
    soon = results["episode"].where(curve >= TARGET * best).min("episode")
    energy = counted(results, "control_energy")
    # The messages of the reference are those of one exchange, and all exchanges cost the same.
    energy = energy - (episodes - soon) * energy.sel(policy=REFERENCE, drop=True)
    short = (best - curve).mean("episode", skipna=False) * episodes
    return found.assign(regret=short, episodes=soon, energy=energy)


def _best(results: xarray.Dataset) -> xarray.DataArray:
    """Returns the reward of the best response, a mean over the channel states, (run)."""
    return counted(results, "graph_reward").sel(policy=REFERENCE, drop=True).mean("state")


def level_of(policy: str) -> str:
    """The information level of a built-in policy; of any other, `own`."""
    return BUILT_IN[policy].information if policy in BUILT_IN else "own"


def regime_of(results: xarray.Dataset) -> str | None:
    """The regime whose settings results have; None if they have others.

    Args:
        results: results of `run` or `sweep`.
    """
    found = about(results).get("config", {})
    default = complete(Config(dataset=found.get("dataset", Config.dataset)))
    names = {name for settings in REGIMES.values() for name in settings}
    for regime, settings in REGIMES.items():
        if all(found.get(name) == settings.get(name, getattr(default, name)) for name in names):
            return regime
    return None


def claims(results: xarray.Dataset) -> list[Claim]:
    """Compares, in one regime, learning with the best rule without learning, and each level with the paper's rule.

    Args:
        results: results of `run` or `sweep` with the policy `best_response`.

    Returns:
        The comparisons for which the results have policies. The best of several policies is chosen by its mean over
        the same seeds, which favours it.
    """
    share = standings(results)["share"]
    learns, every = learning(results), policies_of(results)
    others = [name for name in every if name not in learns and level_of(name) != "all" and name != "none"]
    found: list[Claim] = []
    for one, other, text in _pairs(share, learns, others):
        difference = (share.sel(policy=one, drop=True) - share.sel(policy=other, drop=True)) * 100
        name = f"{regime_of(results) or 'other settings'}: {text}"
        found.append(compare(name, "per cent of the best response", difference, "{:+.1f}".format))
    return found


def _pairs(share: xarray.DataArray, learns: list[str], others: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yields two policies and the claim that the graph of the first is better."""
    best = lambda names: names[int(share.sel(policy=names).mean("run").argmax("policy"))]  # noqa: E731
    if learns and others:
        one, other = best(learns), best(others)
        yield one, other, f"the best policy that learns ({one}) is better than the best that does not ({other})"
    if "rl" in learns:
        for level in ("own", "heard"):
            rivals = [name for name in learns if level_of(name) == level and name != "rl"]
            if rivals:
                one = best(rivals)
                yield one, "rl", f"the best other policy of level {level} ({one}) is better than rl"


@styled
def league(*all_results: xarray.Dataset, ax: Any = None) -> Figure:
    """Draws the reward of each policy's graph and the learning curves, both in per cent of the best response.

    Args:
        *all_results: results of `run` or `sweep`, one for each regime, with the policy `best_response`.
        ax: the user's axes, two rows with one column for each regime.
    """
    count = len(all_results)
    figure, grid = panels(ax, 2, count, 2.3 * count + 1.2, 5.2, sharey="row")
    for (upper, lower), results in zip(grid.T, all_results, strict=True):
        standing, looks = standings(results), looks_of(policies_of(results))
        names = [name for name in looks if name != REFERENCE]
        share = 100 * standing["share"].sel(policy=names).transpose("run", "policy").values
        mean, low, high = limits(share)
        for level, colour in COLOURS.items():
            at = np.array([level_of(name) == level for name in names])
            upper.bar(np.flatnonzero(at), mean[at], color=colour, label=f"level {level}")
        whiskers(upper, np.arange(len(names)), mean, low, high, "_all")
        upper.set_xticks(range(len(names)), names, rotation=90)
        upper.set(title=regime_of(results) or "other settings")
        for policy in learning(results):
            curve = 100 * counted(results, "discovery_reward").sel(policy=policy, drop=True) / _best(results)
            samples = curve.transpose("run", "episode").values
            band(lower, results["episode"].values, samples, bounds=(-np.inf, np.inf), label=policy, **looks[policy])
        lower.set(xlabel="episodes", xscale="log")
    # After all panels of a row are drawn, since they share their axis.
    for axes in grid[:, 0]:
        axes.set_ylim(bottom=0)
    grid[0, 0].set_ylabel("reward of the graph\n(% of best response)")
    grid[1, 0].set_ylabel("reward while learning\n(% of best response)")
    grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    grid[1, -1].legend(
        loc="upper left", bbox_to_anchor=(1, 1), title=told(all_results[-1].sizes["run"]), title_fontsize="small"
    )
    return figure
