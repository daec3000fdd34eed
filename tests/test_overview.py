import csv
import io
import json

import numpy as np
import pytest
import xarray

from d2djax.analysis.overview import best_points, csv_text, open_results, status_line
from d2djax.cli import commands
from d2djax.running import results
from d2djax.storage import files

REWARD = np.array([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0], [4.0, np.nan, 40.0]])


def swept(seeds=(0, 1, 2), axis="gamma", config=(), done=None):
    """Graphs alone at three points, for policies none and rl; the reward of rl is that of `REWARD`."""
    seeds = list(seeds)
    reward = np.stack([np.zeros_like(REWARD), REWARD], -1)[:, seeds, :, None]
    status = np.where(np.isnan(reward[..., 0]), 2, 0).astype(np.int8)
    about = {
        "config": {"num_devices": 5, "scheme": "fedavg", **dict(config)},
        "axes": {axis: [0.0, 0.5, 1.0]},
        "dimensions": [axis],
        "seeds": seeds,
        "data": {"name": "tiny", "digest": {}},
    }
    outer = [axis, "run", "policy"]
    return xarray.Dataset(
        {
            "graph_reference_reward": ([*outer, "state"], reward, {"units": "1"}),
            "counts": ([*outer, "device", "class"], np.full((*status.shape, 1, 2), 5)),
            "points_moved": (outer, np.full(status.shape, 7)),
            "status": (outer, status),
            "done": ([axis, "run"], np.ones(status.shape[:2], np.int8) if done is None else done),
        },
        {
            axis: about["axes"][axis],
            "run": seeds,
            "policy": np.array(["none", "rl"], object),
            "state": [0],
            "device": [0],
            "class": [0, 1],
        },
        {"manifest": json.dumps(about)},
    )


@pytest.fixture
def folder(tmp_path):
    """`folder(name, results)`: the name of a folder in which a sweep left results."""

    def save(name, found):
        results.save(found, tmp_path / name / files.STORE)
        return str(tmp_path / name)

    return save


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_numbers_as_csv_have_a_row_for_each_point_and_policy():
    found = rows(csv_text(swept()))
    assert [(row["gamma"], row["policy"]) for row in found[:3]] == [("0.0", "none"), ("0.0", "rl"), ("0.5", "none")]
    assert len(found) == 6
    row = found[3]
    assert float(row["reference_reward"]) == 8 and float(row["points_moved"]) == 7
    assert 0 < float(row["reference_reward_low"]) < 8 < float(row["reference_reward_high"])
    # Non-finite values are reported and do not count.
    assert (found[5]["reference_reward"], found[5]["reference_reward_seeds"], found[5]["runs_not_finite"]) == (
        "22.0",
        "2",
        "1",
    )
    assert found[5]["runs_done"] == "3"


def test_best_point_is_one_whose_seeds_all_count():
    table, notes = best_points(swept(), "rl")
    cells = [list(column.cells) for column in table.columns]
    # The mean at 1 is larger, of two seeds.
    assert cells[0] == ["reward, reference weights"] and cells[1] == ["0.5"] and cells[2] == ["8.0000"]
    assert "other seeds" in notes[-1]
    table, _ = best_points(swept(), "none")
    assert list(table.columns[2].cells) == ["0.0000 (also at 2 other points)"]


def test_measures_that_contain_an_axis_have_no_best_point():
    table, notes = best_points(swept(axis="cluster_budget"), "rl")
    assert table is None and notes == ["no best by reward, reference weights: its formula has cluster_budget"]


def test_status_says_what_is_done(folder):
    done = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 0]], np.int8)
    name = folder("s", swept(done=done))
    line = status_line(open_results(name))
    assert line == (
        f"{name}: sweep on tiny, graphs alone over gamma, 3 points x 3 seeds (0 to 2); "
        "7 of 9 runs done, 1 with numbers that are not finite"
    )


def test_command_merges_shows_and_keeps(folder, capsys, tmp_path):
    parts = [folder("a", swept([0, 2])), folder("b", swept([1]))]
    table, out = tmp_path / "x.csv", tmp_path / "merged"
    commands.main(["results", *parts, "--csv", str(table), "--out", str(out)])
    shown = capsys.readouterr().out
    assert f"{parts[0]}: sweep" in shown and f"{parts[1]}: sweep" in shown and "best of 3 points for rl" in shown
    assert "3 seeds: mean" in shown
    assert rows(table.read_text()) == rows(csv_text(swept()))
    merged = results.read(out / files.STORE)
    assert json.loads(merged.attrs["manifest"])["seeds"] == [0, 1, 2]
    np.testing.assert_array_equal(merged["graph_reference_reward"], swept()["graph_reference_reward"])


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        commands.main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert ended.value.code == 2 and len(printed.err.splitlines()) == 1
    return printed.err


def test_command_refuses_what_it_would_lose_or_mix(folder, capsys, tmp_path):
    one, other = folder("a", swept([0])), folder("b", swept([1], config={"num_devices": 9}, axis="tau"))
    table = tmp_path / "x.csv"
    table.write_text("mine")
    assert "the file exists; --overwrite replaces it" in refused(capsys, "results", one, "--csv", table)
    assert "cannot replace one of their sources" in refused(capsys, "results", one, other, "--out", other)
    assert "the folder holds the results of a sweep; --overwrite" in refused(
        capsys, "results", one, "--out", folder("c", swept([2]))
    )
    assert f"{other} cannot be merged with {one}: " in refused(capsys, "results", one, other)
    assert "found no results" in refused(capsys, "results", tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("mine")
    assert "found something that d2djax did not write" in refused(capsys, "results", tmp_path / "mine")
    damaged = tmp_path / "a" / files.STORE / "status" / "c"
    next(file for file in damaged.rglob("*") if file.is_file()).unlink()
    assert "status" in refused(capsys, "results", one)
    assert table.read_text() == "mine"


@pytest.fixture
def searched(tmp_path):
    """`searched(name, trials, **about)`: the folder of an unfinished search with the values of these trials."""
    pytest.importorskip("optuna")
    from optuna.distributions import FloatDistribution

    from d2djax.searching import journal

    def search(name, trials):
        about = {
            "objectives": ["accuracy"],
            "ranges": {"gamma": "0 to 1"},
            "seeds": [0, 1],
            "data": {"name": "tiny"},
        }
        with journal.held(tmp_path / name):
            study = journal.open_study(tmp_path / name, ["maximize"], about)
            for values in trials:
                journal.tell(study, study.ask({"gamma": FloatDistribution(0, 1)}), {"accuracy": values})
            study.ask({"gamma": FloatDistribution(0, 1)})
        return tmp_path / name

    return search


def test_trials_of_a_search_are_shown_while_it_goes_on(searched, folder, capsys, tmp_path):
    place = searched("search", ([0.25, 0.5], [0.75, np.nan]))
    before = (place / files.JOURNAL).read_bytes() + b'{"op_code": 5, "half'
    (place / files.JOURNAL).write_bytes(before)
    commands.main(["results", str(place), "--csv", str(tmp_path / "x.csv")])
    shown = capsys.readouterr().out
    assert f"{place}: search for accuracy on tiny, 2 seeds (0, 1); 2 trials, 1 of which failed" in shown
    assert "best of 2 trials" in shown and (place / files.JOURNAL).read_bytes() == before
    found = rows((tmp_path / "x.csv").read_text())
    assert [(row["accuracy"], row["accuracy_seed_1"], row["is_best"]) for row in found] == [
        ("0.375", "0.5", "1"),
        ("", "", "0"),
    ]
    sweep = folder("s", swept())
    assert "searches cannot be merged with runs or sweeps" in refused(capsys, "results", place, sweep)


def test_a_search_of_the_first_release_is_neither_shown_nor_resumed(searched, capsys):
    from d2djax.searching import journal

    place = searched("search", ())
    study = journal._study(place / files.JOURNAL, ["maximize"])
    study.set_user_attr("config", {"methods": ["rl"]})
    before = (place / files.JOURNAL).read_bytes()
    reason = "d2djax 0.1 started this search, and later versions can neither resume nor show it"
    assert reason in refused(capsys, "results", place)
    page = place.with_name("page.html")
    assert f"{place}: {reason}" in refused(capsys, "report", place, "--out", page)
    # Its store knows neither what it is of nor how many seeds are left.
    trials = xarray.Dataset(
        {"is_best": ("trial", [1]), "reward": (("trial", "run"), [[0.5]])}, {"trial": [0], "run": [0]}
    )
    results.save(trials, place / files.STORE)
    assert f"{place}: {reason}" in refused(capsys, "report", place, "--out", page)
    assert reason in refused(capsys, "report", place / files.STORE, "--out", page)
    assert reason in refused(capsys, "results", place / files.STORE)
    assert not page.exists()
    with journal.held(place), pytest.raises(ValueError, match=reason):
        journal.open_study(place, ["maximize"], {"seeds": [0, 1]})
    assert (place / files.JOURNAL).read_bytes() == before


def test_several_searches_are_shown_in_turn_and_written_together(searched, capsys, tmp_path):
    places = [str(searched("a", ([0.25, 0.5], [0.75, 0.5]))), str(searched("b", ([0.1, 0.3],)))]
    commands.main(["results", *places, "--csv", str(tmp_path / "x.csv")])
    shown = capsys.readouterr().out
    assert "best of 2 trials" in shown and "best of 1 trial," in shown
    found = rows((tmp_path / "x.csv").read_text())
    assert [(row["search"], row["trial"], row["accuracy"], row["is_best"]) for row in found] == [
        (places[0], "0", "0.375", "0"),
        (places[0], "1", "0.625", "1"),
        (places[1], "0", "0.2", "1"),
    ]
    message = "searches cannot be merged with each other; --csv writes the trials of all searches"
    assert message in refused(capsys, "results", *places, "--out", tmp_path / "out")
