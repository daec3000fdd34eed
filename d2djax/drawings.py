"""Pictures of studies: figures 2d to 2h of the paper, and what it leaves to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from d2djax.config import Config
from d2djax.plotting import COLOURS, COMPARED, STYLES, band, panels, policy_lines, styled
from d2djax.statistics import cost_to_end_of_none, data_of, setting

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes


def _named(results: xarray.Dataset) -> list[str]:
    return [str(name) for name in results["policy"].values]


@styled
def schemes(results: xarray.Dataset) -> Figure:
    """Accuracy over local steps with FedProx and with FedSGD (2d)."""
    names = {"fedavg": "FedAvg", "fedprox": "FedProx", "fedsgd": "FedSGD"}
    given = [str(name) for name in results["scheme"].values]
    figure, ((*columns,),) = panels(1, len(given), 5.0, 2.4, sharey=True)
    for axes, scheme in zip(columns, given, strict=True):
        policy_lines(axes, results["accuracy"].sel(scheme=scheme), "round")
        axes.set(title=names[scheme], xlabel="local steps")
    columns[0].set_ylabel("accuracy on held-out points")
    columns[-1].legend(loc="lower right")
    return figure


def _final(results: xarray.Dataset, dim: str, label: str) -> tuple[Figure, Axes]:
    figure, ((axes,),) = panels()
    policy_lines(axes, results["accuracy"].isel(round=-1, drop=True), dim, marker="o")
    axes.set(xlabel=label, ylabel="final accuracy on held-out points")
    axes.set_xticks(results[dim].values)
    axes.legend(loc="lower left")
    return figure, axes


@styled
def stragglers(results: xarray.Dataset) -> Figure:
    """Final accuracy against the number of stragglers (2e)."""
    return _final(results, "num_stragglers", "stragglers m")[0]


@styled
def intervals(results: xarray.Dataset) -> Figure:
    """Final accuracy against the aggregation interval, after the same number of local steps (2h)."""
    figure, axes = _final(results, "aggregation_interval", "aggregation interval $\\tau_a$ (local steps)")
    ticks = results["aggregation_interval"].values
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(one) for one in ticks])
    axes.minorticks_off()
    return figure


SHARES = (0.9, 0.95, 1.0)


@styled
def energy(*all_results: xarray.Dataset) -> Figure:
    """Energy until shares of the accuracy that none ends with are reached: D2D and uploads, stacked (2f).

    D2D is the exchange with the messages of the discovery. Runs that never reach a share count with all of their
    training; the legend says how many they are at the largest share.
    """
    names = {"radioml": "RadioML", "cifar10": "CIFAR-10", "fashion_mnist": "Fashion-MNIST"}
    figure, ((*columns,),) = panels(1, len(all_results), 6.2, 2.5)
    for axes, results in zip(columns, all_results, strict=True):
        for place, policy in enumerate(COMPARED):
            x = np.arange(len(SHARES)) + 0.27 * (place - 1)
            costs = [cost_to_end_of_none(results, s).sel(policy=policy) for s in SHARES]
            needed = np.array([float(one["energy"].mean()) for one in costs])
            between = np.array([float((one["exchange"] + one["messages"]).mean()) for one in costs])
            look = {"width": 0.25, "color": COLOURS[policy], "edgecolor": "white", "linewidth": 0.3}
            never = int((costs[-1]["reached"] == 0).sum())
            label = f"{policy}, D2D {between[-1]:.2g} J" if between[-1] else policy
            label += f"; at least: {never} never reach it" if never else ""
            axes.bar(x, between, **(look | {"hatch": "////"}))
            axes.bar(x, needed - between, bottom=between, label=label, **look)
        data = data_of(results)
        axes.set(title=names.get(data, data), xlabel="share of none's final accuracy")
        axes.set_xticks(range(len(SHARES)), [f"{share:.0%}" for share in SHARES])
        axes.margins(y=0.45)
        axes.legend(loc="upper left")
    columns[0].set_ylabel("D2D + D2S energy (J)")
    return figure


@styled
def reliability(results: xarray.Dataset) -> Figure:
    """Success of the links and points asked for between clusters, while the policies learn (2g)."""
    figure, ((upper,), (lower,)) = panels(2, 1, height=3.6, sharex=True)
    episode = results["episode"].values
    graphs = {name: results[f"graph_{name}"].mean("state") for name in ("outage", "requested_inter")}
    success = 1 - results["discovery_outage"].transpose("run", "episode").values
    asked = results["discovery_requested_inter"].transpose("run", "episode").values
    for axes, learned, name in ((upper, success, "outage"), (lower, asked, "requested_inter")):
        band(axes, episode, learned, color=COLOURS["rl"], label="rl, while it learns")
        for policy in ("uniform", "nearest", "rl"):
            level = graphs[name].sel(policy=policy).transpose("run").values[:, None] * np.ones(len(episode))
            look = {"linestyle": (0, (1, 1)), "label": "rl, final graph"} if policy == "rl" else {}
            style = {"color": COLOURS[policy], "linestyle": STYLES[policy], "label": policy} | look
            band(axes, episode, 1 - level if name == "outage" else level, **style)
    budget = setting(results, "cluster_budget").item()
    lower.axhline(budget, color="#D55E00", linewidth=0.8, label="budget B")
    upper.set(ylabel="probability of success", ylim=(0.5, 1.02))
    lower.set(xlabel="episodes", ylabel="points requested from\noutside, per cluster", ylim=(0, None))
    figure.legend(*lower.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


@styled
def regret(results: xarray.Dataset) -> Figure:
    """What rl falls short of the best response, over the episodes."""
    figure, ((axes,),) = panels(height=2.9)
    reward = results["graph_reward"].mean("state")
    best = reward.sel(policy="best_response")
    short = (best - results["discovery_reward"]).transpose("run", "episode").values
    band(axes, results["episode"].values, short, color=COLOURS["rl"], label="rl, while it learns")
    for policy in ("uniform", "nearest", "rl"):
        level = float((best - reward.sel(policy=policy)).mean())
        name = "rl, final graph" if policy == "rl" else policy
        style = "--" if policy == "rl" else STYLES[policy]
        axes.axhline(level, color=COLOURS[policy], linestyle=style, linewidth=1, label=name)
    axes.set(yscale="log", xlabel="episodes", ylabel="reward below the best response")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


@styled
def degrees(results: xarray.Dataset) -> Figure:
    """How many receivers a device sends to, and how many links stay inside a cluster."""
    figure, ((left, right),) = panels(1, 2, 5.6, 2.4, width_ratios=(3, 2))
    cluster, num_devices = results["cluster"].transpose("run", "device").values, results.sizes["device"]
    inside = {}
    for policy in _named(results):
        links = results["links"].sel(policy=policy).transpose("run", "state", "device").values
        is_link = links != np.arange(num_devices)
        receivers = (links[..., None] == np.arange(num_devices)) & is_link[..., None]
        share = (receivers.sum(-2)[..., None] == np.arange(num_devices)).mean((1, 2))
        band(left, np.arange(num_devices), share, color=COLOURS[policy], linestyle=STYLES[policy], label=policy)
        stays = cluster[np.arange(len(cluster))[:, None, None], links] == cluster[:, None]
        inside[policy] = (stays & is_link).sum() / is_link.sum()
    left.set(xlabel="receivers of a device", ylabel="share of devices", xlim=(-0.3, 6.3), ylim=(0, 1))
    left.set_xticks(range(7))
    left.legend(loc="upper right")
    right.barh(list(inside), list(inside.values()), color=[COLOURS[policy] for policy in inside])
    right.set(xlabel="share of links inside clusters", xlim=(0, 1))
    right.invert_yaxis()
    return figure


def _heat(figure: Figure, axes: Axes, values: xarray.DataArray, rows: str, columns: str, form: str) -> Any:
    """A heat map with its numbers in it."""
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
def weights(results: xarray.Dataset) -> Figure:
    """Terms of the reward against gamma and the weights: diversity, success, points over the clusters' budgets."""
    terms = (
        ("num_classes", "classes", ".2f"),
        ("outage", "success", ".3f"),
        ("requested_inter", "points from outside", ".0f"),
    )
    figure, grid = panels(len(terms), 2, 6.6, 6.4)
    rl, alphas = results.sel(policy="rl"), ("alpha_outage", "alpha_budget")
    for row, (name, title, form) in zip(grid, terms, strict=True):
        values = rl[f"graph_{name}"].mean(["run", "state"])
        values = 1 - values if name == "outage" else values
        for axes, other, fixed in zip(row, alphas, alphas[::-1], strict=True):
            at = values.sel({fixed: getattr(Config, fixed)}, method="nearest")
            _heat(figure, axes, at, "gamma", other, form)
            axes.set_title(f"{title}, {fixed} = {float(at[fixed]):g}")
    return figure


@styled
def exploration(graphs: xarray.Dataset, results: xarray.Dataset) -> Figure:
    """Reward of the greedy graph against the temperature and the value of an untried link."""
    figure, ((axes,),) = panels(height=2.8)
    best = graphs["graph_reward"].sel(policy="best_response", drop=True)
    share = (results["graph_reward"].sel(policy="rl") / best).mean(["run", "state"])
    _heat(figure, axes, share, "temperature", "initial_value", ".3f")
    axes.set_title("reward, best response = 1")
    return figure


@styled
def devices(results: xarray.Dataset) -> Figure:
    """Quality of the graph and energy of the messages against the number of devices."""
    figure, ((left, right),) = panels(1, 2, 5.6, 2.5)
    reward = results["graph_reward"].mean("state")
    policy_lines(left, reward, "num_devices", marker="o")
    cost = results["control_energy"].sel(policy=["rl"]) / results["num_devices"]
    policy_lines(right, cost, "num_devices", marker="o")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="devices N")
        axes.set_xticks(results["num_devices"].values, [str(one) for one in results["num_devices"].values])
        axes.minorticks_off()
    left.set(ylabel="mean reward of a device")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    right.set(ylabel="messages of rl, J a device", ylim=(0, None))
    return figure
