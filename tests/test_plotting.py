import csv
import io
import sys
from typing import get_args

import matplotlib
import numpy as np
import pytest
import scipy
import xarray
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import Image

from d2djax.analysis import drawings, plots, statistics
from d2djax.analysis.looks import CLUSTER_COLOURS, INTER_COLOUR, LOOKS, looks_of
from d2djax.analysis.readout import numbers_of
from d2djax.analysis.statistics import bounds_of, interval, limits
from d2djax.analysis.studies import ALL as POLICIES
from d2djax.analysis.tables import cost_table, summary_table
from d2djax.config import PolicyName


@pytest.fixture(scope="module")
def found(every_policy):
    return every_policy


@pytest.fixture(scope="module")
def without_rl(no_exchange):
    return no_exchange


def draw(figure):
    """Renders a figure: what goes wrong in the layout shows only then, as a warning, which is an error here."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("L"))
    assert 0 < (pixels < 128).mean() < 0.5
    return figure.axes[0]


def bands(axes):
    return [artist for artist in axes.collections if isinstance(artist, PolyCollection)]


def legend_labels(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_every_policy_has_a_look_of_its_own():
    names = [*get_args(PolicyName), *(f"mine {number}" for number in range(40))]
    looks = looks_of(names)
    assert len({str(look) for look in looks.values()}) == len(names)
    # Colours alone tell those of the figures apart; there are too few for all.
    assert len({look["color"] for policy, look in looks.items() if policy in POLICIES}) == len(POLICIES)
    assert set(LOOKS) == set(get_args(PolicyName))
    # A policy has the same style in every comparison.
    assert looks_of(["rl"])["rl"] == looks["rl"]


# Machado, Oliveira and Fernandes (2009): linear RGB as people see it who lack one kind of cones.
VISION = {
    "common": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(colour, seen_by):
    """A colour in CIE L*a*b*, where distances are about as large as they look."""
    encoded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(VISION[seen_by]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ linear / [0.9505, 1, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen_by", VISION)
@pytest.mark.parametrize("which", ["policies", "clusters and links"])
def test_colours_can_be_told_apart(seen_by, which):
    policies = [look["color"] for look in looks_of(POLICIES).values()]
    colours = policies if which == "policies" else [*CLUSTER_COLOURS, INTER_COLOUR]
    seen = np.array([lab(colour, seen_by) for colour in colours])
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(len(seen), 1)]
    # Two is just noticeable side by side; grey and purple, once in use, were 7 apart.
    assert apart.min() > 14


def test_bands_stay_where_the_numbers_can_be():
    samples = np.array([[0.9, 0.01], [0.99, 0.0], [1.0, 0.2]])
    mean, low, high = limits(samples, bounds_of("accuracy"))
    np.testing.assert_allclose(mean, samples.mean(axis=0))
    assert (low >= 0).all() and (high <= 1).all() and high[0] == 1 and low[1] == 0
    uncut = interval(samples)
    assert uncut[2][0] > 1 and uncut[1][1] < 0
    assert bounds_of("graph_outage") == (0, 1) and bounds_of("exchange_energy") == (0, np.inf)
    assert bounds_of("graph_reference_reward") == (-np.inf, np.inf)


def test_the_band_of_two_seeds_is_their_range():
    # Student's interval of these is 12.7 standard errors wide, from below 0 to above 1.
    _, low, high = limits(np.array([[0.3, 0.5], [0.5, np.nan]]), bounds_of("accuracy"))
    np.testing.assert_array_equal([low, high], [[0.3, np.nan], [0.5, np.nan]])


def test_what_is_no_number_does_not_count():
    mean, low, high = limits(np.array([[1.0, np.nan], [np.nan, np.inf], [3.0, np.nan]]))
    np.testing.assert_array_equal([mean, low, high], [[2, np.nan], [1, np.nan], [3, np.nan]])


def test_accuracy_curves(found):
    axes = draw(plots.accuracy_curves(found))
    assert legend_labels(axes.get_legend()) == list(POLICIES)
    assert len(axes.lines) == len(POLICIES)
    assert len(bands(axes)) == 3, "the others are thin lines"
    for policy, line in zip(POLICIES, axes.lines, strict=True):
        expected = found["accuracy"].sel(policy=policy).mean("run")
        np.testing.assert_array_equal(line.get_xdata(), found["round"])
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-6, err_msg=policy)
    assert axes.get_xlabel() and axes.get_ylabel()


def test_accuracy_curves_of_one_seed_have_no_band(found):
    axes = draw(plots.accuracy_curves(found.isel(run=[1])))
    assert not bands(axes)
    assert len(axes.lines) == len(POLICIES)


def test_accuracy_curves_without_rl(without_rl):
    axes = draw(plots.accuracy_curves(without_rl))
    assert legend_labels(axes.get_legend()) == ["none"]
    assert len(bands(axes)) == 1


def test_band_is_the_confidence_interval(found):
    axes = draw(plots.accuracy_curves(found))
    # The corners of the first band are the limits of `none`, by Student's 4.302653.
    samples = found["accuracy"].sel(policy="none").values.astype(float)
    half = 4.302653 * samples.std(axis=0, ddof=1) / np.sqrt(3)
    corners = bands(axes)[0].get_paths()[0].vertices[:, 1]
    edges = [samples.mean(axis=0) - half, samples.mean(axis=0) + half]
    expected = [max(0, np.min(edges)), min(1, np.max(edges))]
    np.testing.assert_allclose([corners.min(), corners.max()], expected, rtol=1e-5)


def test_reward_curve(found):
    axes = draw(plots.reward_curve(found))
    assert len(bands(axes)) == 1
    learned, *levels = axes.lines
    np.testing.assert_allclose(
        learned.get_ydata(), found["discovery_reward"].sel(policy="rl").mean("run"), rtol=1e-5
    )
    # `pooled` has no graph, so no reward.
    others = [policy for policy in POLICIES if policy != "pooled"]
    assert len(levels) == len(others)
    for policy, line in zip(others, levels, strict=True):
        expected = found["graph_reward"].sel(policy=policy).mean()
        assert line.get_ydata()[0] == pytest.approx(float(expected), rel=1e-5), policy
    names = ["rl, final graph" if policy == "rl" else policy for policy in others]
    assert legend_labels(axes.figure.legends[0]) == ["rl, while it learns", *names]


def test_reward_curve_of_one_seed(found):
    axes = draw(plots.reward_curve(found.isel(run=[0])))
    assert not bands(axes)


def arrows(axes):
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def ends_of(arrow):
    """Tail and head, in metres."""
    return tuple(tuple(end) for end in arrow._posA_posB)


@pytest.mark.parametrize("policy", POLICIES)
def test_graph_has_an_arrow_for_each_link(found, policy):
    axes = draw(plots.graph(found, policy=policy, run=1))
    state = int(found["exchange_state"][1])
    links = found["links"].sel(policy=policy).values[1, state]
    receivers = np.flatnonzero(links != np.arange(6))
    assert len(arrows(axes)) == len(receivers)
    position = found["position"].values[1]
    # From transmitter to receiver.
    assert {ends_of(arrow) for arrow in arrows(axes)} == {
        (tuple(position[links[i]]), tuple(position[i])) for i in receivers
    }


def test_graph_of_a_given_state_and_links_between_clusters(found):
    cluster = found["cluster"].values[0]
    for state in range(3):
        axes = draw(plots.graph(found, state=state))
        links = found["links"].sel(policy="rl").values[0, state]
        crossing = (cluster[links] != cluster).sum()
        dashed = [arrow for arrow in arrows(axes) if arrow.get_linestyle() == "--"]
        assert len(dashed) == crossing
        assert len(arrows(axes)) == (links != np.arange(6)).sum()


def test_graph_shows_every_device(found):
    axes = draw(plots.graph(found, policy="none"))
    shown = np.concatenate([one.get_offsets() for one in axes.collections])
    assert {tuple(place) for place in shown} == {tuple(place) for place in found["position"].values[0]}


def test_graph_shows_the_border_of_the_field(found):
    (border,) = (patch for patch in draw(plots.graph(found)).patches if isinstance(patch, Rectangle))
    assert border.get_bbox().bounds == (0, 0, 400, 400)
    unknown = found.assign_attrs(manifest="{}")
    assert not [patch for patch in plots.graph(unknown).axes[0].patches if isinstance(patch, Rectangle)]


def test_arrows_have_shafts_however_near_the_devices_are(found):
    near = found.isel(run=[0]).copy(deep=True)
    near["position"].values[0] = np.cumsum([[0, 0], [8, 0], [15, 0], [4, 4], [100, 200], [9, 3]], axis=0)
    near["links"].values[:] = [1, 0, 1, 2, 0, 4]
    figure = plots.graph(near)
    draw(figure)
    assert len(arrows(figure.axes[0])) == 6
    for arrow in arrows(figure.axes[0]):
        paths, _ = arrow._get_path_in_displaycoord()
        shaft = np.concatenate([path.interpolated(8).vertices for path in paths[:1]])
        length = np.hypot(*np.diff(shaft, axis=0).T).sum()
        assert length > 4 * figure.dpi / 200, ends_of(arrow)


def test_graph_of_an_unknown_policy(found):
    with pytest.raises(ValueError, match=r"policy must be one of none, .*; got 'wide'"):
        plots.graph(found, policy="wide")


# --- axes of the user's ---

DRAWN = {
    "accuracy": plots.accuracy_curves,
    "reward": plots.reward_curve,
    "graph": plots.graph,
    "reliability": drawings.reliability,
    "degrees": drawings.degrees,
    "regret": drawings.regret,
}


@pytest.mark.parametrize("name", DRAWN)
def test_users_axes_keep_the_users_style(found, name):
    theirs = {"font.size": 17, "axes.spines.top": True, "lines.linewidth": 4.0}
    with matplotlib.rc_context(theirs):
        before = dict(matplotlib.rcParams)
        count = {"reliability": 2, "degrees": 2}.get(name, 1)
        figure = Figure()
        axes = figure.subplots(1, count, squeeze=False)
        assert DRAWN[name](found, ax=axes if count > 1 else axes[0, 0]) is figure
        assert dict(matplotlib.rcParams) == before
        assert axes[0, 0].xaxis.label.get_fontsize() == 17 and axes[0, 0].spines["top"].get_visible()
        assert not figure.legends and axes.ravel()[0 if name == "degrees" else -1].get_legend()
        # Nor is it left changed by a figure of our own.
        DRAWN[name](found)
        assert dict(matplotlib.rcParams) == before


def test_too_few_axes_of_the_users(found):
    with pytest.raises(ValueError, match="ax must be 2 axes for this figure; got 1"):
        drawings.degrees(found, ax=Figure().subplots())


# --- sweeps, runs that diverged, numbers ---


@pytest.fixture(scope="module")
def swept(found):
    """Two values of an axis; the second has other numbers."""
    other = found.copy(deep=True)
    other["accuracy"] = other["accuracy"] / 2
    return xarray.concat([found, other], xarray.Variable("gamma", [0.0, 0.5]), coords="minimal", compat="override")


def test_curves_of_several_points(swept):
    axes = draw(plots.accuracy_curves(swept.sel(policy=["none", "rl"])))
    names = legend_labels(axes.get_legend())
    assert names == [f"{policy}, gamma = {value}" for value in ("0", "0.5") for policy in ("none", "rl")]
    expected = swept["accuracy"].sel(policy="rl", gamma=0.5).mean("run")
    np.testing.assert_allclose(axes.lines[3].get_ydata(), expected, rtol=1e-6)
    assert len({(line.get_color(), str(line.get_linestyle())) for line in axes.lines}) == 4


def test_too_many_points(swept):
    many = swept.isel(gamma=[0] * 5).assign_coords(gamma=np.arange(5.0))
    with pytest.raises(ValueError, match="results must have at most 4 points for one figure; got 5: select some"):
        plots.accuracy_curves(many)
    with pytest.raises(ValueError, match=r"one value of gamma; got 2: choose it with \.sel"):
        plots.graph(swept)


def test_policies_over_a_setting(swept):
    axes = draw(plots.over_setting(swept, "accuracy", "gamma"))
    assert legend_labels(axes.get_legend()) == list(POLICIES)
    expected = statistics.mean_accuracy(swept).sel(policy="rl").mean("run")
    np.testing.assert_allclose(axes.lines[POLICIES.index("rl")].get_ydata(), expected, rtol=1e-6)
    for arguments, message in (
        (("speed", "gamma"), "variable must be one of the results that has runs; got 'speed'"),
        (("accuracy", "rate"), "axis must be one of gamma; got 'rate'"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.over_setting(swept, *arguments)
    for one in ({"run": 0}, {"policy": "rl"}):
        listed = swept.sel({dim: [place] for dim, place in one.items()})
        pictures = [plots.over_setting(part, "accuracy", "gamma") for part in (swept.sel(one), listed)]
        assert numbers_of(pictures[0]) == numbers_of(pictures[1])


def test_runs_that_diverged_do_not_count(found):
    wild = found.copy(deep=True)
    number = POLICIES.index("rl")
    wild["status"][0, number] = 1
    wild["accuracy"][0, number] = 1e3
    axes = draw(plots.accuracy_curves(wild))
    expected = found["accuracy"].sel(policy="rl").isel(run=[1, 2]).mean("run")
    np.testing.assert_allclose(axes.lines[number].get_ydata(), expected, rtol=1e-6)


def test_numbers_behind_a_picture(found):
    rows = list(csv.DictReader(io.StringIO(numbers_of(plots.accuracy_curves(found)))))
    assert len(rows) == len(POLICIES) * found.sizes["round"]
    for policy in POLICIES:
        own = [row for row in rows if row["series"] == policy]
        assert [float(row["x"]) for row in own] == found["round"].values.tolist()
        samples = found["accuracy"].sel(policy=policy).values
        expected = limits(samples, (0, 1))
        names = ("y",) if policy in ("nearest", "best_response", "pooled") else ("y", "low", "high")
        for name, values in zip(names, expected, strict=False):
            np.testing.assert_allclose([float(row[name]) for row in own], values, rtol=1e-6, err_msg=policy)


def test_numbers_of_bars_and_heat_maps():
    axes = (figure := Figure()).subplots(1, 2)
    axes[0].barh(["a", "b"], [1.0, 2.0])
    axes[1].imshow([[1.0, 2.0], [3.0, np.nan]])
    axes[1].set(ylabel="gamma")
    axes[1].set_xticks([0, 1], ["x", "y"])
    axes[1].set_yticks([0, 1], ["0", "0.5"])
    rows = [line.split(",") for line in numbers_of(figure).splitlines()[1:]]
    assert [row[1:4] for row in rows[:2]] == [["a", "0", "1"], ["b", "1", "2"]]
    assert [row[1:4] for row in rows[2:]] == [
        ["gamma = 0", "x", "1"],
        ["gamma = 0", "y", "2"],
        ["gamma = 0.5", "x", "3"],
        ["gamma = 0.5", "y", ""],
    ]


def test_what_is_in_no_csv_is_told():
    axes = (figure := Figure()).subplots(1, 4)
    for number, one in enumerate(axes):
        one.plot([0, 1], [2.0, 3.0], label="a")
        one.set_title(f"panel {number}")
    axes[0].scatter([0, 1], [2, 3])
    axes[1].contour([[0.0, 1.0], [2.0, 3.0]])
    axes[2].axvspan(0, 1)
    axes[2].fill_between([0, 5], [1, 1], [2, 2])
    axes[3].fill_between([0, 1], [1, 2], [3, 4], color=axes[3].lines[0].get_color(), alpha=0.2)
    axes[3].add_patch(FancyArrowPatch((0, 0), (1, 1)))
    with pytest.warns(UserWarning, match="not in the CSV") as told:
        assert len(numbers_of(figure).splitlines()) == 9
    assert [str(one.message).split(": not")[0] for one in told] == [
        "panel 'panel 0' also shows PathCollection",
        "panel 'panel 1' also shows QuadContourSet",
        "panel 'panel 2' also shows FillBetweenPolyCollection, Rectangle",
    ]


def test_numbers_of_bars_that_stand_on_others():
    axes = (figure := Figure()).subplots()
    axes.bar([0, 1], [1.0, 2.0], gid="D2D")
    axes.bar([0, 1], [3.0, 4.0], bottom=[1.0, 2.0], label="rl, D2D 2 J\n(at least: 1)", gid="uploads")
    axes.set_xticks([0, 1], ["50%", "90%"])
    rows = [line.split(",") for line in numbers_of(figure).splitlines()[1:]]
    assert [row[1:] for row in rows] == [
        ["D2D", "50%", "1", "0", "1"],
        ["D2D", "90%", "2", "0", "2"],
        ["uploads", "50%", "3", "1", "4"],
        ["uploads", "90%", "4", "2", "6"],
    ]


def rows_of(figure):
    """Series, x, y and limits, without the panel."""
    return [line.split(",")[1:] for line in numbers_of(figure).splitlines()[1:]]


def test_numbers_of_whiskers():
    axes = (figure := Figure()).subplots()
    axes.errorbar([10, 20, 30], [2, 3, 4], [0.5, np.nan, 1], capsize=2, label="a")
    assert rows_of(figure) == [["a", "10", "2", "1.5", "2.5"], ["a", "20", "3", "", ""], ["a", "30", "4", "3", "5"]]
    axes.set_xticks([10, 20, 30], ["x", "y", "z"])
    assert [row[1] for row in rows_of(figure)] == ["x", "y", "z"]
    # Not each place has a text of its own.
    axes.set_xticks([10, 20], ["x", "y"])
    assert [row[1] for row in rows_of(figure)] == ["10", "20", "30"]


@pytest.mark.parametrize(
    "errors",
    [
        {"xerr": [1, 2]},
        {"xerr": [1, 2], "yerr": [0.1, 0.2]},
        {"yerr": [0.1, 0.2], "errorevery": 2},
        {"yerr": [0.1, 0.2], "uplims": True},
        {"yerr": [0.1, 0.2], "fmt": "none"},
    ],
)
def test_whiskers_that_are_not_plain_have_no_limits(errors):
    axes = (figure := Figure()).subplots()
    axes.errorbar([10, 20], [2, 3], capsize=2, label="a", **errors)
    with pytest.warns(UserWarning, match="also shows LineCollection: not in the CSV"):
        rows = rows_of(figure)
    assert rows == ([] if "fmt" in errors else [["a", "10", "2", "", ""], ["a", "20", "3", "", ""]])


def test_whiskers_on_bars_are_told():
    axes = (figure := Figure()).subplots()
    axes.bar([0, 1], [1.0, 2.0], yerr=[0.1, 0.2], capsize=2)
    with pytest.warns(UserWarning, match="also shows LineCollection"):
        assert [row[1:] for row in rows_of(figure)] == [["0", "1", "0", "1"], ["1", "2", "0", "2"]]


@pytest.mark.parametrize("ticks", [None, ([0, 1, 2], ["low", "middle", "high"])])
def test_bars_along_numbers_keep_their_numbers(ticks):
    columns = (figure := Figure()).subplots(1, 2)
    for axes, orientation in zip(columns, ("vertical", "horizontal"), strict=True):
        axes.hist([0.7, 0.8, 1.0, 1.25], bins=[0.625, 0.875, 1.125, 1.375], orientation=orientation)
        if ticks:
            (axes.set_xticks if orientation == "vertical" else axes.set_yticks)(*ticks)
    rows = rows_of(figure)
    assert [row[1:3] for row in rows] == [["0.75", "2"], ["1", "1"], ["1.25", "1"]] * 2


def test_cells_without_texts_have_their_places():
    axes = (figure := Figure()).subplots(1, 3)
    axes[0].imshow([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    axes[1].imshow([[1.0, 2.0]], origin="lower", extent=(0, 4, 10, 12))
    axes[2].imshow(np.ones((2, 2, 3)))
    axes[2].set_title("colours")
    with pytest.warns(UserWarning, match="panel 'colours' also shows AxesImage"):
        rows = rows_of(figure)
    places = [(row, column) for row in ("0", "1", "2") for column in ("0", "1")]
    expected = [[f" = {row}", column, str(1 + number)] for number, (row, column) in enumerate(places)]
    assert [row[:3] for row in rows] == [*expected, [" = 11", "1", "1"], [" = 11", "3", "2"]]


@pytest.mark.parametrize("runs", [[0], [0, 1, 2]])
def test_saved_figures_with_rl(found, tmp_path, runs):
    paths = plots.save_figures(found.isel(run=runs), tmp_path)
    assert [path.name for path in paths] == ["accuracy.png", "graph.png", "reward.png"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(plots.PICTURES)
    lines = (tmp_path / "graph.csv").read_text().splitlines()
    assert lines[0] == "device,x_m,y_m,cluster,transmitter" and len(lines) == 7
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG" and min(image.size) > 300


def test_tables_and_pictures_of_a_run_do_not_wait_for_scipy_stats(found, tmp_path, monkeypatch):
    """Its import takes a second, each time that `d2djax run` has computed something."""
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    monkeypatch.delitem(vars(scipy), "stats", raising=False)
    with pytest.raises(ImportError):
        statistics.bootstrap(np.arange(3.0))
    summary_table(found)
    cost_table(found)
    assert len(plots.save_figures(found, tmp_path)) == 3


def test_saved_figures_without_rl(without_rl, tmp_path):
    assert plots.save_figures(without_rl, str(tmp_path)) == [tmp_path / "accuracy.png"]
    assert (tmp_path / "accuracy.png").stat().st_size > 1000


def test_figures_of_a_diverged_run(found, tmp_path):
    wild = found.copy(deep=True)
    wild["loss"][0] = np.nan
    wild["status"][0] = 1
    assert len(plots.save_figures(wild, tmp_path)) == 3


def test_selections_have_pictures(found):
    for dim, place in (("run", 0), ("policy", "rl"), ("round", 4), ("class", "a"), ("episode", 20)):
        alone, listed = found.sel({dim: place}), found.sel({dim: [place]})
        for picture in (plots.accuracy_curves, plots.reward_curve):
            assert numbers_of(picture(alone)) == numbers_of(picture(listed)), dim
        assert plots.map_of(alone) == plots.map_of(listed), dim
    # As after a gap was filled, links are no whole numbers.
    assert plots.map_of(found.where(found["run"] >= 0)) == plots.map_of(found)


def test_a_graph_is_drawn_of_all_devices_in_a_state_that_is_there(found):
    state = int(found["exchange_state"][0])
    alone, other = found.isel(state=[state]), found.isel(state=[state - 1])
    assert plots.map_of(alone) == plots.map_of(found) and plots.graph(alone)
    for picture in (plots.map_of, plots.graph):
        with pytest.raises(ValueError, match=f"state must be one of {int(other['state'][0])}, .*; got {state}"):
            picture(other)
        with pytest.raises(ValueError, match="results must have every device, in order"):
            picture(found.isel(device=[1, 2, 0]))
    with pytest.raises(ValueError, match="results must have accuracy, which these lack"):
        cost_table(found.drop_vars("accuracy"))
    with pytest.raises(ValueError, match="results must be those of run or sweep; they lack status"):
        summary_table(found.drop_vars("status"))
