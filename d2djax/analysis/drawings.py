"""Draws the figures of studies: 2d to 2h of the paper, and further figures.

Every function takes `ax`, the user's axes (several for several panels); None: it makes a new figure. It returns
the figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.figure import Figure

from d2djax.analysis.looks import (
    INTER_COLOUR,
    band,
    learning,
    legend,
    looks_of,
    panels,
    policies_of,
    policy_lines,
    styled,
    told,
    whiskers,
)
from d2djax.analysis.statistics import bounds_of, cost_to_end_of_none, data_of, limits, setting
from d2djax.analysis.studies import COMPARED
from d2djax.config import Config
from d2djax.data import SOURCES
from d2djax.running.results import counted

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes


def _key(axes: Axes, results: xarray.Dataset, place: Literal["best", "upper right"] = "best") -> None:
    axes.legend(loc=place, title=told(results.sizes["run"]), title_fontsize="small")


@styled
def schemes(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws accuracy over local steps (2d), one panel for each scheme.

    Args:
        results: results of a sweep over `scheme`.
        ax: the user's axes, one for each scheme.
    """
    names = {"fedavg": "FedAvg", "fedprox": "FedProx", "fedsgd": "FedSGD"}
    given = [str(name) for name in results["scheme"].values]
    figure, ((*columns,),) = panels(ax, 1, len(given), 5.0, 2.4, sharey=True)
    for axes, scheme in zip(columns, given, strict=True):
        policy_lines(axes, counted(results.sel(scheme=scheme), "accuracy"), "round")
        axes.set(title=names.get(scheme, scheme), xlabel="local steps")
    columns[0].set_ylabel("accuracy on held-out points")
    _key(columns[-1], results)
    return figure


def _final(ax: Any, results: xarray.Dataset, dim: str, label: str) -> tuple[Figure, Axes]:
    figure, ((axes,),) = panels(ax)
    policy_lines(axes, counted(results, "accuracy").isel(round=-1, drop=True), dim, marker="o")
    axes.set(xlabel=label, ylabel="final accuracy on held-out points")
    axes.set_xticks(results[dim].values)
    _key(axes, results)
    return figure, axes


@styled
def stragglers(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws the final accuracy against the number of stragglers (2e).

    Args:
        results: results of a sweep over `num_stragglers`.
        ax: the user's axes.
    """
    return _final(ax, results, "num_stragglers", "stragglers m")[0]


@styled
def intervals(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws the final accuracy against the aggregation interval, after the same number of local steps (2h).

    Args:
        results: results of a sweep over `aggregation_interval`.
        ax: the user's axes.
    """
    figure, axes = _final(ax, results, "aggregation_interval", "aggregation interval $\\tau_a$ (local steps)")
    ticks = results["aggregation_interval"].values
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(one) for one in ticks])
    axes.minorticks_off()
    return figure


SHARES = (0.9, 0.95, 1.0)


@styled
def energy(*all_results: xarray.Dataset, ax: Any = None) -> Figure:
    """Draws the energy to reach shares of the final accuracy of `none`: D2D and uploads, stacked (2f).

    D2D includes the exchange and the messages of discovery. A run that never reaches a share counts with its whole
    training; the legend states their number at the largest share. Whiskers are the limits of `statistics.limits`
    for the whole bar.

    Args:
        *all_results: results of `run` or `sweep`, one for each panel, with the policies none, uniform and rl.
        ax: the user's axes, one for each panel.
    """
    figure, ((*columns,),) = panels(ax, 1, len(all_results), 7.2, 3.2)
    looks = looks_of(COMPARED)
    for axes, results in zip(columns, all_results, strict=True):
        for place, policy in enumerate(COMPARED):
            x = np.arange(len(SHARES)) + 0.27 * (place - 1)
            costs = [cost_to_end_of_none(results, s).sel(policy=policy) for s in SHARES]
            energies = np.stack([one["energy"].values for one in costs], axis=-1)
            needed, low, high = limits(energies, bounds_of("energy"))
            between = np.array([float((one["exchange"] + one["messages"]).mean()) for one in costs])
            look = {"width": 0.25, "color": looks[policy]["color"], "edgecolor": "white", "linewidth": 0.3}
            never = int((costs[-1]["reached"] == 0).sum())
            label = f"{policy}, D2D {between[-1]:.2g} J" if between[-1] else policy
            label += f"\n(at least: {never} never reach it)" if never else ""
            axes.bar(x, between, gid=f"{policy}, D2D", **(look | {"hatch": "////"}))
            axes.bar(x, needed - between, bottom=between, label=label, gid=f"{policy}, uploads", **look)
            whiskers(axes, x, needed, low, high, f"_{policy}, in all")
        data = data_of(results)
        axes.set(title=SOURCES[data].title if data in SOURCES else data, xlabel="share of none's final accuracy")
        axes.set_xticks(range(len(SHARES)), [f"{share:.0%}" for share in SHARES])
        axes.margins(y=0.7)
        # The legend is wider than a panel, so including it in the layout would shrink the panels to nothing.
        axes.legend(loc="upper left").set_in_layout(False)
    columns[0].set_ylabel("D2D + D2S energy (J)")
    return figure


@styled
def reliability(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws the success of the links and the points requested from other clusters during discovery (2g).

    Args:
        results: results of `run`, or one point of a sweep.
        ax: two of the user's axes.
    """
    figure, ((upper,), (lower,)) = panels(ax, 2, 1, height=3.8, sharex=True)
    episode, looks, learns = results["episode"].values, looks_of(policies_of(results)), learning(results)
    for axes, name in ((upper, "outage"), (lower, "requested_inter")):
        final = counted(results, f"graph_{name}").mean("state")
        learned, drawn = counted(results, f"discovery_{name}").transpose("policy", "run", "episode"), {}
        for policy in learns:
            curve = learned.sel(policy=policy).values
            drawn[f"{policy}, while it learns"] = (curve, {"color": looks[policy]["color"]})
        for policy in (one for one in ("uniform", "nearest", *learns) if one in looks):
            level = final.sel(policy=policy).transpose("run").values[:, None] * np.ones(len(episode))
            look = looks[policy] | ({"linestyle": (0, (1, 1))} if policy in learns else {})
            drawn[f"{policy}, final graph" if policy in learns else policy] = (level, look)
        for label, (samples, look) in drawn.items():
            shown = 1 - samples if name == "outage" else samples
            band(axes, episode, shown, bounds=bounds_of(name), label=label, **look)
    budget = float(setting(results, "cluster_budget"))
    lower.axhline(budget, color=INTER_COLOUR, linewidth=0.8, label="budget B")
    upper.set(ylabel="probability of success", ylim=(None, 1.02))
    lower.set(xlabel="episodes", ylabel="points requested from\noutside, per cluster", ylim=(0, None))
    legend(figure, lower, ax is None, title=told(results.sizes["run"]), title_fontsize="small")
    return figure


@styled
def regret(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws the difference in reward between the best response and the learning policies over the episodes.

    Args:
        results: results of `run` with the policy `best_response`, or one point of a sweep.
        ax: the user's axes.
    """
    figure, ((axes,),) = panels(ax, height=2.9)
    looks, learns = looks_of(policies_of(results)), learning(results)
    reward = counted(results, "graph_reward").mean("state")
    best = reward.sel(policy="best_response")
    for policy in learns:
        short = best - counted(results, "discovery_reward").sel(policy=policy)
        short = short.transpose("run", "episode").values
        look = {"color": looks[policy]["color"], "label": f"{policy}, while it learns"}
        # On a logarithmic axis, an interval must not reach 0.
        band(axes, results["episode"].values, short, bounds=(np.nanmin(short) / 2, np.inf), **look)
    for policy in (one for one in ("uniform", "nearest", *learns) if one in looks):
        level = float((best - reward.sel(policy=policy)).mean())
        is_learned, style = policy in learns, looks[policy]["linestyle"]
        name, style = (f"{policy}, final graph", "--") if is_learned else (policy, style)
        axes.axhline(level, color=looks[policy]["color"], linestyle=style, linewidth=1, label=name)
    axes.set(yscale="log", xlabel="episodes", ylabel="reward below the best response")
    legend(figure, axes, ax is None, title=told(results.sizes["run"]), title_fontsize="small")
    return figure


@styled
def degrees(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws how many receivers a device sends to, and the share of links inside clusters.

    Args:
        results: results of `run`, or one point of a sweep.
        ax: two of the user's axes.
    """
    figure, ((left, right),) = panels(ax, 1, 2, 5.6, 2.4, width_ratios=(3, 2))
    cluster, num_devices = results["cluster"].transpose("run", "device").values, results.sizes["device"]
    inside, looks = {}, looks_of(policies_of(results))
    for policy, look in looks.items():
        links = results["links"].sel(policy=policy).transpose("run", "state", "device").values
        # A negative link marks a policy without a graph, because its weights were not finite, see `results`.
        is_link = (links != np.arange(num_devices)) & (links >= 0)
        receivers = (links[..., None] == np.arange(num_devices)) & is_link[..., None]
        share = (receivers.sum(-2)[..., None] == np.arange(num_devices)).mean((1, 2))
        share[np.any(links < 0, axis=(1, 2))] = np.nan
        band(left, np.arange(num_devices), share, bounds=(0, 1), label=policy, **look)
        stays = cluster[np.arange(len(cluster))[:, None, None], links] == cluster[:, None]
        # A policy may have no links.
        inside[policy] = (stays & is_link).sum() / max(1, is_link.sum())
    left.set(xlabel="receivers of a device", ylabel="share of devices", xlim=(-0.3, 6.3), ylim=(0, 1))
    left.set_xticks(range(7))
    _key(left, results, "upper right")
    right.barh(list(inside), list(inside.values()), color=[looks[policy]["color"] for policy in inside])
    right.set(xlabel="share of links inside clusters", xlim=(0, 1))
    right.invert_yaxis()
    return figure


def _heat(figure: Figure, axes: Axes, values: xarray.DataArray, rows: str, columns: str, form: str) -> Any:
    """Draws a heat map with the numbers in its cells."""
    table = values.transpose(rows, columns).values
    image = axes.imshow(table, origin="lower", aspect="auto")
    low, high = image.get_clim()
    for (row, column), value in np.ndenumerate(table):
        colour = "black" if value > (low + high) / 2 else "white"
        axes.text(column, row, format(value, form), ha="center", va="center", fontsize=6, color=colour)
    for axis, dim in ((axes.xaxis, columns), (axes.yaxis, rows)):
        axis.set_ticks(range(values.sizes[dim]), [f"{value:g}" for value in values[dim].values])
        axis.set_label_text(dim)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes)
    return image


@styled
def weights(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws terms of the reward against gamma and the weights: diversity, success, points from outside.

    Args:
        results: results of a sweep over `gamma`, `alpha_outage` and `alpha_budget`.
        ax: six of the user's axes, three rows of two.
    """
    terms = (
        ("num_classes", "classes", ".2f"),
        ("outage", "success", ".3f"),
        ("requested_inter", "points from outside", ".0f"),
    )
    figure, grid = panels(ax, len(terms), 2, 6.6, 6.4)
    rl, alphas = results.sel(policy="rl"), ("alpha_outage", "alpha_budget")
    for row, (name, title, form) in zip(grid, terms, strict=True):
        values = counted(rl, f"graph_{name}").mean(["run", "state"])
        values = 1 - values if name == "outage" else values
        for axes, other, fixed in zip(row, alphas, alphas[::-1], strict=True):
            at = values.sel({fixed: getattr(Config, fixed)}, method="nearest")
            _heat(figure, axes, at, "gamma", other, form)
            axes.set_title(f"{title}, {fixed} = {float(at[fixed]):g}")
    return figure


@styled
def exploration(graphs: xarray.Dataset, results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws the reward of the greedy graph against the temperature and the initial value of untried links.

    Args:
        graphs: results with the policy `best_response`, the reference.
        results: results of a sweep over `temperature` and `initial_value`.
        ax: the user's axes.
    """
    figure, ((axes,),) = panels(ax, height=2.8)
    best = counted(graphs, "graph_reward").sel(policy="best_response", drop=True)
    share = (counted(results, "graph_reward").sel(policy="rl") / best).mean(["run", "state"])
    _heat(figure, axes, share, "temperature", "initial_value", ".3f")
    axes.set_title("reward, best response = 1")
    return figure


@styled
def devices(results: xarray.Dataset, *, ax: Any = None) -> Figure:
    """Draws the reward of the graph and the energy of the messages against the number of devices.

    Args:
        results: results of a sweep over `num_devices`.
        ax: two of the user's axes.
    """
    figure, ((left, right),) = panels(ax, 1, 2, 5.6, 2.6)
    policy_lines(left, counted(results, "graph_reward").mean("state"), "num_devices", marker="o")
    cost = counted(results, "control_energy").sel(policy=["rl"]) / results["num_devices"]
    policy_lines(right, cost.rename("control_energy"), "num_devices", marker="o")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="devices N")
        axes.set_xticks(results["num_devices"].values, [str(one) for one in results["num_devices"].values])
        axes.minorticks_off()
    left.set(ylabel="mean reward of a device")
    legend(figure, left, ax is None, 3, title=told(results.sizes["run"]), title_fontsize="small")
    right.set(ylabel="messages of rl, J a device", ylim=(0, None))
    return figure
