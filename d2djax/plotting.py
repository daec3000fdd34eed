"""Figures: accuracy curves with bands, the discovered graph on the map, the reward while the policies learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from d2djax.statistics import interval

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart by people with any common colour vision.
COLOURS = {
    "none": "#000000",
    "uniform": "#E69F00",
    "rl": "#0072B2",
    "nearest": "#009E73",
    "best_response": "#CC79A7",
    "pooled": "#999999",
}
STYLES = {
    "none": ":",
    "uniform": "--",
    "rl": "-",
    "nearest": "-.",
    "best_response": (0, (5, 1)),
    "pooled": (0, (1, 1)),
}
CLUSTER_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
INTER_COLOUR = "#D55E00"


# Text of the size of a caption at the width of a column; read when an artist is made, so around all of a drawing.
styled = matplotlib.style.context(Path(__file__).with_name("figures.mplstyle"))
# What is compared is drawn as a line with a band; what puts it into proportion, thin.
COMPARED = ("none", "uniform", "rl")


def panels(rows: int = 1, columns: int = 1, width: float = 3.5, height: float = 2.5, **options: Any) -> Any:
    """A figure and its panels, [rows, columns], drawn without a display; sizes in inches."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def band(axes: Axes, x: np.ndarray, samples: np.ndarray, **style: Any) -> None:
    """Mean over seeds, [R, ...], with the 95 % confidence interval of the mean."""
    mean, low, high = interval(samples)
    (line,) = axes.plot(x, mean, **style)
    if samples.shape[0] > 1:
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def policy_lines(axes: Axes, values: xarray.DataArray, dim: str, **style: Any) -> None:
    """One line for each policy over a dimension, with bands for none, uniform and rl, and the others thin.

    Args:
        axes: where.
        values: (run, policy, dim), in any order.
        dim: what goes along the axis.
        style: options of all lines.
    """
    for policy in (str(name) for name in values["policy"].values):
        one = values.sel(policy=policy).dropna(dim, how="all").transpose("run", dim)
        look: dict[str, Any] = {"label": policy, "color": COLOURS[policy], "linestyle": STYLES[policy]} | style
        if policy in COMPARED:
            band(axes, one[dim].values, one.values, **look)
        else:
            look["linewidth"] = 0.8
            axes.plot(one[dim].values, one.mean("run").values, **look)


@styled
def accuracy_curves(dataset: xarray.Dataset) -> Figure:
    """Accuracy of the global model over local steps, mean and 95 % interval over seeds, one curve per policy."""
    figure, ((axes,),) = panels()
    policy_lines(axes, dataset["accuracy"], "round")
    axes.set(xlabel="local steps", ylabel="accuracy on held-out points")
    axes.legend(loc="lower right")
    return figure


@styled
def reward_curve(dataset: xarray.Dataset) -> Figure:
    """Mean reward while rl learns, and the mean reward of the graphs that each policy ends with."""
    figure, ((axes,),) = panels()
    episode = dataset["episode"].values
    band(axes, episode, dataset["discovery_reward"].values, color=COLOURS["rl"], label="rl, while it learns")
    for policy in (str(name) for name in dataset["policy"].values):
        if policy != "pooled":
            level = dataset["graph_reward"].sel(policy=policy).mean().item()
            label = "rl, final graph" if policy == "rl" else policy
            style = "--" if policy == "rl" else STYLES[policy]
            axes.axhline(level, color=COLOURS[policy], linestyle=style, linewidth=1, label=label)
    axes.set(xlabel="episodes", ylabel="mean total reward of the devices")
    axes.legend(loc="center right")
    return figure


def _arrow(axes: Axes, start: np.ndarray, end: np.ndarray, crosses: bool) -> None:
    style = {"color": INTER_COLOUR, "linestyle": "--"} if crosses else {"color": "#555555", "linestyle": "-"}
    properties = {
        "arrowstyle": "-|>",
        "shrinkA": 5,
        "shrinkB": 5,
        "linewidth": 0.9,
        "mutation_scale": 8,
        **style,
    }
    axes.annotate("", xy=tuple(end), xytext=tuple(start), arrowprops=properties, zorder=1)


@styled
def graph(dataset: xarray.Dataset, *, policy: str = "rl", run: int = 0, state: int | None = None) -> Figure:
    """The graph of one run on the map: colours are clusters, arrows go from transmitter to receiver.

    Args:
        dataset: results.
        policy: whose graph.
        run: position of the run.
        state: channel state; none: the state in which the exchange happened.

    Returns:
        The figure; links inside a cluster are solid grey, links between clusters dashed orange.
    """
    one = dataset.isel(run=run)
    state = int(one["exchange_state"]) if state is None else state
    position, cluster = one["position"].values, one["cluster"].values
    links = one["links"].sel(policy=policy).isel(state=state).values
    figure, ((axes,),) = panels(height=3.7)
    for receiver, transmitter in enumerate(links):
        if receiver != transmitter:
            crosses = cluster[receiver] != cluster[transmitter]
            _arrow(axes, position[transmitter], position[receiver], bool(crosses))
    colours = [CLUSTER_COLOURS[label % len(CLUSTER_COLOURS)] for label in cluster]
    axes.scatter(*position.T, c=colours, s=42, edgecolors="white", linewidths=0.6, zorder=2)
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.margins(0.06)
    handles = [
        Line2D([], [], color="#555555", label="link inside a cluster"),
        Line2D([], [], color=INTER_COLOUR, linestyle="--", label="link between clusters"),
        Line2D([], [], color=CLUSTER_COLOURS[0], marker="o", linestyle="", label="device, colour: cluster"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


# All that `save_figures` may write.
PICTURES = ("accuracy.png", "graph.png", "reward.png")


def save_figures(dataset: xarray.Dataset, folder: Path) -> list[Path]:
    """Saves as PNG the figures that a run has data for.

    Returns:
        Paths of `accuracy.png` and, where rl ran, `graph.png` and `reward.png`.
    """
    figures = {"accuracy": accuracy_curves(dataset)}
    if "rl" in dataset["policy"].values:
        figures |= {"graph": graph(dataset), "reward": reward_curve(dataset)}
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1])
    return paths
