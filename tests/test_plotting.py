import io
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

import d2djax
from d2djax import plotting
from d2djax.config import PolicyName

POLICIES = get_args(PolicyName)


@pytest.fixture(scope="module")
def found(tiny_config, tiny_dataset):
    """All policies, three seeds."""
    config = replace(tiny_config, policies=POLICIES)
    return d2djax.run(config, 3, data=tiny_dataset, progress=False, width=1)


@pytest.fixture(scope="module")
def without_rl(tiny_config, tiny_dataset):
    config = replace(tiny_config, policies=("none",))
    return d2djax.run(config, 3, data=tiny_dataset, progress=False, width=1)


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
    assert set(plotting.COLOURS) == set(plotting.STYLES) == set(POLICIES)
    assert len(set(plotting.COLOURS.values())) == len(POLICIES)
    assert len(set(plotting.STYLES.values())) == len(POLICIES)


def test_accuracy_curves(found):
    axes = draw(plotting.accuracy_curves(found))
    assert legend_labels(axes.get_legend()) == list(POLICIES)
    assert len(axes.lines) == len(POLICIES)
    assert len(bands(axes)) == 3, "the others are thin lines"
    for policy, line in zip(POLICIES, axes.lines, strict=True):
        expected = found["accuracy"].sel(policy=policy).mean("run")
        np.testing.assert_array_equal(line.get_xdata(), found["round"])
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-6, err_msg=policy)
    assert axes.get_xlabel() and axes.get_ylabel()


def test_accuracy_curves_of_one_seed_have_no_band(found):
    axes = draw(plotting.accuracy_curves(found.isel(run=[1])))
    assert not bands(axes)
    assert len(axes.lines) == len(POLICIES)


def test_accuracy_curves_without_rl(without_rl):
    axes = draw(plotting.accuracy_curves(without_rl))
    assert legend_labels(axes.get_legend()) == ["none"]
    assert len(bands(axes)) == 1


def test_band_is_the_confidence_interval(found):
    axes = draw(plotting.accuracy_curves(found))
    # Two rounds: the corners of the first band are the limits of `none`, by Student's 4.302653.
    samples = found["accuracy"].sel(policy="none").values.astype(float)
    half = 4.302653 * samples.std(axis=0, ddof=1) / np.sqrt(3)
    corners = bands(axes)[0].get_paths()[0].vertices[:, 1]
    limits = [samples.mean(axis=0) - half, samples.mean(axis=0) + half]
    np.testing.assert_allclose([corners.min(), corners.max()], [np.min(limits), np.max(limits)], rtol=1e-5)


def test_reward_curve(found):
    axes = draw(plotting.reward_curve(found))
    assert len(bands(axes)) == 1
    learned, *levels = axes.lines
    np.testing.assert_allclose(learned.get_ydata(), found["discovery_reward"].mean("run"), rtol=1e-5)
    # `pooled` has no graph, so no reward.
    others = [policy for policy in POLICIES if policy != "pooled"]
    assert len(levels) == len(others)
    for policy, line in zip(others, levels, strict=True):
        expected = found["graph_reward"].sel(policy=policy).mean()
        assert line.get_ydata()[0] == pytest.approx(float(expected), rel=1e-5), policy
    names = ["rl, final graph" if policy == "rl" else policy for policy in others]
    assert legend_labels(axes.get_legend()) == ["rl, while it learns", *names]


def test_reward_curve_of_one_seed(found):
    axes = draw(plotting.reward_curve(found.isel(run=[0])))
    assert not bands(axes)


def arrows(axes):
    return [text for text in axes.texts if text.arrow_patch is not None]


@pytest.mark.parametrize("policy", POLICIES)
def test_graph_has_an_arrow_for_each_link(found, policy):
    axes = draw(plotting.graph(found, policy=policy, run=1))
    state = int(found["exchange_state"][1])
    links = found["links"].sel(policy=policy).values[1, state]
    receivers = np.flatnonzero(links != np.arange(6))
    assert len(arrows(axes)) == len(receivers)
    position = found["position"].values[1]
    # From transmitter to receiver: the head is at `xy`, the tail at the place of the text.
    ends = {(tuple(arrow.xyann), tuple(arrow.xy)) for arrow in arrows(axes)}
    assert ends == {(tuple(position[links[i]]), tuple(position[i])) for i in receivers}


def test_graph_of_a_given_state_and_links_between_clusters(found):
    cluster = found["cluster"].values[0]
    for state in range(3):
        axes = draw(plotting.graph(found, state=state))
        links = found["links"].sel(policy="rl").values[0, state]
        crossing = (cluster[links] != cluster).sum()
        dashed = [arrow for arrow in arrows(axes) if arrow.arrow_patch.get_linestyle() == "--"]
        assert len(dashed) == crossing
        assert len(arrows(axes)) == (links != np.arange(6)).sum()


def test_graph_shows_every_device(found):
    axes = draw(plotting.graph(found, policy="none"))
    np.testing.assert_allclose(axes.collections[0].get_offsets(), found["position"].values[0])


@pytest.mark.parametrize("runs", [[0], [0, 1, 2]])
def test_saved_figures_with_rl(found, tmp_path, runs):
    paths = plotting.save_figures(found.isel(run=runs), tmp_path)
    assert [path.name for path in paths] == ["accuracy.png", "graph.png", "reward.png"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["accuracy.png", "graph.png", "reward.png"]
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG" and min(image.size) > 300


def test_saved_figures_without_rl(without_rl, tmp_path):
    assert plotting.save_figures(without_rl, tmp_path) == [tmp_path / "accuracy.png"]
    assert (tmp_path / "accuracy.png").stat().st_size > 1000


def test_figures_of_a_diverged_run(found, tmp_path):
    wild = found.copy(deep=True)
    wild["loss"][0] = np.nan
    wild["status"][0] = 1
    assert len(plotting.save_figures(wild, tmp_path)) == 3
