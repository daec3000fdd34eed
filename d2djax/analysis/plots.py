"""Draws figures of a run or a sweep: accuracy curves with bands, the graph on a map, reward during discovery."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from d2djax.analysis.looks import (
    CLUSTER_COLOURS,
    CLUSTER_MARKERS,
    DASHES,
    INSIDE_COLOUR,
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
)
from d2djax.analysis.merging import axes_of
from d2djax.analysis.readout import numbers_of, table
from d2djax.analysis.statistics import bounds_of, check_all, setting, whole
from d2djax.running.results import counted, own_reward
from d2djax.storage import files

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

MOST_LINES = 24


def points_of(results: xarray.Dataset) -> Iterator[tuple[str, xarray.Dataset]]:
    """Yields every point of a sweep with its settings in words; a run is a single point.

    Args:
        results: results of `run` or `sweep`, or a selection of them.

    Yields:
        The settings of a point, empty for a run, and its results with the dimensions of a run.

    Raises:
        ValueError: one figure cannot show so many points.
    """
    dims = axes_of(results)
    sizes = [results.sizes[dim] for dim in dims]
    most = MOST_LINES // results.sizes["policy"]
    if np.prod(sizes, dtype=int) > max(1, most):
        raise ValueError(
            f"results must have at most {max(1, most)} points for one figure; got {np.prod(sizes, dtype=int):,}: "
            "select some with results.sel or results.isel"
        )
    for place in np.ndindex(*sizes):
        one = results.isel(dict(zip(dims, place, strict=True)))
        names = [str(name) for name in one.coords if set(results[name].dims) & set(dims) and name != "point"]
        yield ", ".join(f"{name} = {_short(one[name].item())}" for name in names), one


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@styled
def accuracy_curves(results: xarray.Dataset, *, ax: Axes | None = None) -> Figure:
    """Draws the accuracy of the global model over local steps, including step 0, with one curve per policy.

    Args:
        results: results of `run`, or of a `sweep` with few points, each of which has a different line style.
        ax: the user's axes, which keep their style; None: makes a new figure.

    Returns:
        The figure: mean and band over the seeds whose training did not diverge.

    Raises:
        ValueError: one figure cannot show so many points, or the runs did not train.
    """
    if "accuracy" not in results:
        raise ValueError("results must be of runs with training; these runs stopped after discovery")
    results = whole(results)
    figure, ((axes,),) = panels(ax)
    for number, (name, one) in enumerate(points_of(results)):
        values = counted(one, "accuracy")
        if name:
            for policy, look in looks_of(policies_of(values)).items():
                shown = {**look, "linestyle": DASHES[number % len(DASHES)], "label": f"{policy}, {name}"}
                policy_lines(axes, values.sel(policy=[policy]), "round", **shown)
        else:
            policy_lines(axes, values, "round")
    axes.set(xlabel="local steps", ylabel="accuracy on held-out points")
    axes.legend(loc="best", title=told(results.sizes["run"]), title_fontsize="small")
    return figure


@styled
def over_setting(results: xarray.Dataset, variable: str, axis: str, *, ax: Axes | None = None) -> Figure:
    """Draws a variable of every policy over one axis of a sweep: means within each run, with a band over the seeds.

    Args:
        results: results of a `sweep` over `axis`; select one value of every other axis.
        variable: name of a variable; round 0, which precedes training, does not count.
        axis: name of a dimension, or of a setting along the points.
        ax: the user's axes, which keep their style; None: makes a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: there is no such variable or axis, or another axis has several values.
    """
    results = whole(results)
    dims = axes_of(results)
    if variable not in results.data_vars or "run" not in results[variable].dims:
        raise ValueError(f"variable must be one of the results that has runs; got {variable!r}")
    if axis not in results.coords or not set(results[axis].dims) & set(dims):
        raise ValueError(f"axis must be one of {', '.join(dims) or 'a sweep'}; got {axis!r}")
    (along,) = results[axis].dims
    for dim in dims:
        if dim != along and results.sizes[dim] > 1:
            raise ValueError(f"results must have one value of {dim}; got {results.sizes[dim]}: choose it with .sel")
    values = counted(results, variable)
    values = values.sel(round=values["round"] > 0) if "round" in values.dims else values
    values = values.mean([dim for dim in values.dims if dim not in ("run", "policy", along)])
    values = values if "policy" in values.dims else values.expand_dims(policy=["all"])
    numbers = results[axis].values
    is_text = numbers.dtype == object
    order = np.arange(len(numbers)) if is_text else np.argsort(numbers, kind="stable")
    values = values.isel({along: order}).assign_coords({along: order if is_text else numbers[order]})
    figure, ((axes,),) = panels(ax)
    policy_lines(axes, values.rename(variable), str(along), marker="o")
    if is_text:
        axes.set_xticks(order, [str(name) for name in numbers])
    attributes = results[variable].attrs
    unit = attributes.get("units", "1")
    by = f"\nby {attributes['reward']}" if "reward" in attributes else ""
    axes.set(xlabel=axis, ylabel=(variable if unit == "1" else f"{variable} ({unit})") + by)
    axes.legend(loc="best", title=told(results.sizes["run"]), title_fontsize="small")
    return figure


@styled
def reward_curve(results: xarray.Dataset, *, ax: Axes | None = None) -> Figure:
    """Draws the mean reward during discovery, and the mean reward of each policy's final graph.

    Args:
        results: results of `run`, or one point of a `sweep`, with a policy that learns.
        ax: the user's axes, which keep their style; None: makes a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the results have several points.
    """
    results = _one_point(results)
    figure, ((axes,),) = panels(ax, height=2.9)
    looks, episode = looks_of(policies_of(results)), results["episode"].values
    bounds = bounds_of("discovery_reward")
    learned, learns = counted(results, "discovery_reward"), learning(results)
    for policy in learns:
        samples = learned.sel(policy=policy).transpose("run", "episode").values
        band(
            axes, episode, samples, bounds=bounds, color=looks[policy]["color"], label=f"{policy}, while it learns"
        )
    levels = counted(results, "graph_reward")
    for policy, look in looks.items():
        level = levels.sel(policy=policy).mean().item()
        # `pooled` has no graph.
        if np.isfinite(level):
            label, dash = (f"{policy}, final graph", "--") if policy in learns else (policy, look["linestyle"])
            axes.axhline(level, color=look["color"], linestyle=dash, linewidth=1, label=label)
    own = own_reward(results)
    axes.set(xlabel="episodes", ylabel="mean total reward of the devices" + (f"\nby {own}" if own else ""))
    legend(figure, axes, ax is None, 3, title=told(results.sizes["run"]), title_fontsize="small")
    return figure


def _one_point(results: xarray.Dataset) -> xarray.Dataset:
    """Removes the axes of a sweep from the results of one point, and makes them whole.

    Raises:
        ValueError: the results have several points.
    """
    for dim in axes_of(results):
        if results.sizes[dim] > 1:
            raise ValueError(f"results must have one value of {dim}; got {results.sizes[dim]}: choose it with .sel")
    return whole(results).squeeze(axes_of(results))


def field_of(results: xarray.Dataset) -> float | None:
    """Returns the side of the square field, m, from the settings of the results; None if it is unknown.

    Args:
        results: results of `run` or `sweep`, or a selection of them.
    """
    if "field_size" not in results.coords:
        config = json.loads(results.attrs.get("manifest", "{}")).get("config", {})
        return float(config["field_size"]) if "field_size" in config else None
    return float(setting(results, "field_size"))


def _arrow(start: np.ndarray, end: np.ndarray, crosses: bool, points_per_metre: float) -> FancyArrowPatch:
    """Makes an arrow with a visible shaft: between close devices, it bends more and has a smaller head."""
    colour, dash = (INTER_COLOUR, "--") if crosses else (INSIDE_COLOUR, "-")
    length = float(np.hypot(*(end - start))) * points_per_metre
    # A slight bend also separates the two links of devices that send to each other.
    bend = 0.12 if length > 24 else 0.9 if length < 9 else 0.45
    gap = min(3.2, 0.2 * length)
    return FancyArrowPatch(
        tuple(start),
        tuple(end),
        arrowstyle="-|>,head_length=0.45,head_width=0.22",
        connectionstyle=f"arc3,rad={bend}",
        mutation_scale=float(np.clip(0.4 * length, 3.5, 8)),
        shrinkA=gap,
        shrinkB=gap,
        linewidth=0.9,
        zorder=1,
        color=colour,
        linestyle=dash,
    )


@styled
def graph(
    results: xarray.Dataset,
    *,
    policy: str | None = None,
    run: int = 0,
    state: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws the graph of one run on a map: colours are clusters, arrows go from transmitter to receiver.

    Args:
        results: results of `run`, or one point of a `sweep`.
        policy: policy whose graph is drawn; None: the first policy that learns, or else the first policy.
        run: index of the run.
        state: channel state; None: the state of the exchange.
        ax: the user's axes, which keep their style; None: makes a new figure.

    Returns:
        The figure. Links inside a cluster are solid grey, links between clusters dashed orange, and a thin line is
        the border of the field.

    Raises:
        ValueError: there is no such policy, or the results have several points.
    """
    results = _one_point(results)
    policy = _shown(results) if policy is None else policy
    if policy not in policies_of(results):
        raise ValueError(f"policy must be one of {', '.join(policies_of(results))}; got {policy!r}")
    one = results.isel(run=run)
    position, cluster = one["position"].transpose("device", "axis").values, one["cluster"].values
    links = _links_of(one, policy, state)
    figure, ((axes,),) = panels(ax, width=4.5, height=4.9)
    side = field_of(results)
    if side is not None:
        axes.add_patch(Rectangle((0, 0), side, side, fill=False, edgecolor="#999999", linewidth=0.6, zorder=0))
    extent = max(float(np.ptp(position)), side or 0.0, 1.0)
    # The approximate scale of the axes, which only determines how far arrows bend.
    points_per_metre = 0.8 * 72 * figure.get_figwidth() / extent
    for receiver, transmitter in enumerate(links):
        if receiver != transmitter and transmitter >= 0:
            crosses = bool(cluster[receiver] != cluster[transmitter])
            axes.add_patch(_arrow(position[transmitter], position[receiver], crosses, points_per_metre))
    for label in np.unique(cluster):
        turn, colour = divmod(int(label), len(CLUSTER_COLOURS))
        # With more clusters than colours, the colours repeat with another shape.
        marker = CLUSTER_MARKERS[turn % len(CLUSTER_MARKERS)]
        look = {"s": 26, "edgecolors": "#333333", "linewidths": 0.5, "zorder": 2, "marker": marker}
        axes.scatter(*position[cluster == label].T, color=CLUSTER_COLOURS[colour], **look)
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.margins(0.04)
    axes.autoscale_view()
    handles = [
        Line2D([], [], color=INSIDE_COLOUR, label="link inside a cluster"),
        Line2D([], [], color=INTER_COLOUR, linestyle="--", label="link between clusters"),
        Line2D([], [], color=CLUSTER_COLOURS[0], marker="o", linestyle="", label="device, colour: cluster"),
    ]
    if side is not None:
        handles.append(Line2D([], [], color="#999999", linewidth=0.6, label="border of the field"))
    legend(figure, axes, ax is None, handles=handles)
    return figure


def _links_of(one: xarray.Dataset, policy: str, state: int | None = None) -> np.ndarray:
    """[N] int: the graph of a run in a state, by default that of the exchange; -1 in a run that is not done.

    Raises:
        ValueError: there is no such state, or devices were selected.
    """
    check_all(one, "device")
    state, states = int(one["exchange_state"]) if state is None else state, one["state"].values.tolist()
    if state == -1:
        return np.full(one.sizes["device"], -1)
    if state not in states:
        raise ValueError(f"state must be one of {', '.join(map(str, states))}, those of the results; got {state}")
    return one["links"].sel(policy=policy).isel(state=states.index(state)).values


def _shown(results: xarray.Dataset) -> str:
    """Returns the policy whose graph is drawn by default."""
    return [*learning(results), *policies_of(results)][0]


def map_of(results: xarray.Dataset, policy: str | None = None, run: int = 0) -> str:
    """Formats the numbers of `graph` as CSV: each device with its position, cluster and transmitter.

    Args:
        results: results of `run`, or one point of a `sweep`.
        policy: policy whose links are listed; None: the first policy that learns, or else the first policy.
        run: index of the run.

    Returns:
        One line for each device, with positions in metres.
    """
    results = _one_point(results)
    one, policy = results.isel(run=run), _shown(results) if policy is None else policy
    links = _links_of(one, policy)
    places = one["position"].transpose("device", "axis").values
    rows = [
        [device, float(x), float(y), int(cluster), "" if link in (device, -1) else int(link)]
        for device, ((x, y), cluster, link) in enumerate(zip(places, one["cluster"].values, links, strict=True))
    ]
    return table(("device", "x_m", "y_m", "cluster", "transmitter"), rows)


# All files that `save_figures` may write: images, and the numbers of each.
PICTURES = tuple(f"{name}.{kind}" for name in ("accuracy", "graph", "reward") for kind in ("png", "csv"))


def save_figures(results: xarray.Dataset, folder: str | os.PathLike[str]) -> list[Path]:
    """Saves the figures of a run as PNG, and the numbers of each as CSV.

    Args:
        results: results of `run`.
        folder: an existing folder, in which files of the same names are replaced.

    Returns:
        Paths of `accuracy.png` and, if a policy learns, `graph.png` and `reward.png`.
    """
    folder = files.expand(folder, "folder")
    figures = {"accuracy": accuracy_curves(results)}
    if learning(results):
        figures |= {"graph": graph(results), "reward": reward_curve(results)}
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1])
        numbers = map_of(results) if name == "graph" else numbers_of(figure)
        files.write_text(folder / f"{name}.csv", numbers)
    return paths
