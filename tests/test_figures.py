import json
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure
from PIL import Image

from d2djax.analysis import figures, studies
from d2djax.analysis.figures import FIGURES, FigureOf
from d2djax.analysis.statistics import WITHIN
from d2djax.analysis.studies import CIFAR10, FASHION_MNIST, GRAPHS, RADIOML, settings_of
from d2djax.cli import commands
from d2djax.config import complete
from d2djax.validation import validate

STUDIES = {study.name: study for figure in FIGURES.values() for study in figure.studies}
EXPERIMENTS = Path(__file__).parent.parent / "experiments"


@pytest.mark.parametrize("size", ["toy", "small", "paper"])
@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_settings_are_valid(study, size):
    config, axes = settings_of(study, size)
    for axis, values in axes.items():
        for value in values:
            validate(replace(config, **{axis: value}))
    assert not set(axes) & set(WITHIN)


def test_studies_of_one_name_are_one():
    """A study is stored and looked up by its name."""
    assert all(study == STUDIES[study.name] for figure in FIGURES.values() for study in figure.studies)


def test_a_figure_is_one_entry_and_the_command_line_lists_it(monkeypatch, capsys):
    monkeypatch.setitem(FIGURES, "mine", FigureOf("One of my own", (GRAPHS,), Figure))
    assert figures.check_names(["mine"]) == ["mine"]
    commands.main(["figure"])
    listed = capsys.readouterr().out
    assert "mine         One of my own" in listed and all(name in listed for name in (*FIGURES, "all"))


def test_the_papers_setting_is_the_default_one():
    config, _ = settings_of(RADIOML, "paper")
    assert (config.num_devices, complete(config).points_per_device, config.classes_per_device) == (25, 990, 4)
    for study in (CIFAR10, FASHION_MNIST):
        assert complete(settings_of(study, "paper")[0]).points_per_device == 1200


@pytest.mark.parametrize("study, channels", [(CIFAR10, 3), (FASHION_MNIST, 1)], ids=["cifar10", "fashion_mnist"])
def test_stand_in(study, channels):
    config, _ = settings_of(study, "toy")
    drawn = studies.stand_in(config)
    assert drawn.x.shape[1:] == (8, 8, channels) and drawn.x.dtype == np.uint8
    assert drawn.num_classes == 10 and set(drawn.y) == set(range(10))
    assert drawn.name == f"stand-in for {study.name}"


@pytest.mark.parametrize(
    "names, message", [(["2z"], "figure must be one of 2a, .*; got 2z"), ([], "figure must be one of .*; got none")]
)
def test_unknown_figures(names, message):
    with pytest.raises(ValueError, match=message):
        figures.check_names(names)


def test_names_come_in_order_and_once():
    assert figures.check_names(["2c", "2a", "2c"]) == ["2a", "2c"]
    assert figures.check_names(["all"]) == list(FIGURES)


def test_a_missing_data_set_stops_before_any_work(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        commands.main(
            ["figure", "2a", "2b", "--size", "small", "--out", str(tmp_path), "--cifar10", str(tmp_path / "no")]
        )
    assert "d2djax: cifar10: found no data" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_data_of_a_folder_that_is_given(monkeypatch):
    asked = []
    monkeypatch.setattr(studies, "load_dataset", lambda config: asked.append(config.data_dir))
    studies.check_data(CIFAR10, "small", "here")
    studies.check_data(CIFAR10, "toy", "here")
    studies.check_data(GRAPHS, "paper", "here")
    assert asked == ["here"]


@pytest.mark.parametrize("size", ["toy", "small"])
def test_data_of_a_study_that_names_no_data_set(monkeypatch, tmp_path, size):
    """Its windows are read where a file of them is given, and graphs alone need none."""
    read, computed = [], {}
    monkeypatch.setattr(studies, "load_dataset", lambda config: read.append((config.dataset, config.data_dir)))

    def compute(study, *_, data_dir, **__):
        computed[study.name] = data_dir
        return xarray.Dataset({"run": [0]}, attrs={"manifest": json.dumps({"data": {"name": "radioml"}})})

    monkeypatch.setattr(studies, "compute", compute)
    figure = FigureOf("One of my own", (studies.Study("mine", {}), GRAPHS), lambda *_: Figure())
    monkeypatch.setitem(FIGURES, "mine", figure)
    list(figures.draw(["mine"], size, tmp_path, folders={"radioml": "here.pkl", "cifar10": "there"}))
    assert read == [("radioml", "here.pkl")] and computed == {"mine": "here.pkl", "graphs": None}
    read.clear()
    list(figures.draw(["mine"], size, tmp_path))
    assert read == [] and computed == {"mine": None, "graphs": None}


def test_the_template_of_a_figure_draws_its_own(monkeypatch, tmp_path, capsys):
    template = runpy.run_path(str(EXPERIMENTS / "figure.py"))
    small = replace(template["CONFIG"], num_devices=6, num_states=2, num_episodes=40)
    for name, value in (("CONFIG", small), ("AXES", {"trust_probability": [0.5, 1.0]})):
        monkeypatch.setitem(template["main"].__globals__, name, value)
    # The devices and the cache are those of all tests.
    for name in ("use_all_cores", "use_compilation_cache"):
        monkeypatch.setattr(template["d2djax"], name, lambda: None)
    template["main"](2, tmp_path)
    with Image.open(tmp_path / "trust.png") as picture:
        assert picture.width > 500
    lines = (tmp_path / "trust.csv").read_text().splitlines()
    # A point for each of three policies and two values, below the heading.
    assert len(lines) == 7 and sum(",rl," in line for line in lines) == 2
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "trust.png")


@pytest.mark.parametrize(
    "size, data, note",
    [
        ("toy", "stand-in for cifar10", "size toy, stand-in data drawn in process: the numbers mean nothing"),
        ("toy", "radioml", "size toy: the numbers mean nothing"),
        ("small", "radioml", ""),
    ],
)
def test_pictures_say_that_data_are_made_up(size, data, note):
    results = xarray.Dataset(attrs={"manifest": json.dumps({"data": {"name": data}})})
    assert figures.noted(Figure(), size, [results]).get_supxlabel() == note


@pytest.mark.slow
def test_all_figures_at_size_toy(monkeypatch, tmp_path, capsys):
    # One network for all data: that those of images and of radio windows train is the matter of other tests.
    monkeypatch.setitem(studies.TOY, "model", "mlp")
    commands.main(["figure", "all", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "size toy: numbers mean nothing" in out and "claims of Section IV-B" in out
    for name, figure in FIGURES.items():
        picture = tmp_path / "toy" / f"{name}.png"
        with Image.open(picture) as image:
            assert 0 < (np.asarray(image.convert("L")) < 128).mean() < 0.5
        assert picture.with_suffix(".pdf").stat().st_size > 0
        assert picture.with_suffix(".csv").read_text().count("\n") > 3
        numbers = json.loads(picture.with_suffix(".json").read_text())
        assert numbers["size"] == "toy" and numbers["seeds"] == [0, 1]
        # Eight of them are the paper's, and each claims something, as does the comparison of all policies.
        assert bool(numbers["claims"]) == (name.startswith("2") or name == "league"), figure.title
