"""Tables and summaries of runs, sweeps and selections, by hand-made results."""

import io
import json

import numpy as np
import pytest
import xarray
from rich.console import Console

from d2djax.analysis import statistics, summary, tables

POLICIES = ["none", "rl"]
ROUNDS, DEVICES, CLASSES = 2, 4, 3


def results(accuracy, axes=None, **more):
    """Results of runs with the given accuracy after training, [.., run, policy]."""
    accuracy, axes = np.asarray(accuracy, float), axes or {}
    shape, within = accuracy.shape, (*axes, "run", "policy")
    one = np.ones(shape)
    curves = np.stack([accuracy / 2, accuracy], -1)
    values = {
        "status": (within, one.astype(np.int8) * 0),
        "accuracy": ((*within, "round"), curves),
        "counts": ((*within, "device", "class"), np.ones((*shape, DEVICES, CLASSES), np.int32)),
        "exchange_energy": (within, one * [0.0, 2.0]),
        "control_energy": (within, one * [0.0, 3.0]),
        "points_moved": (within, one.astype(np.int32) * [0, 70]),
        "graph_reference_reward": ((*within, "state"), np.stack([one, one * 3], -1)),
        "graph_outage": ((*within, "state"), np.stack([one, one], -1) * 0.25),
        "upload_energy": (within[:-1], one[..., 0] * 10.0),
        "upload_bits": (within[:-1], one[..., 0] * 1e6),
    } | more
    config = {"scheme": "fedavg", "aggregation_interval": 10, "num_steps": 20}
    coordinates = {"policy": POLICIES, "round": [10, 20], "run": np.arange(shape[-2])} | axes
    return xarray.Dataset(values, coordinates, {"manifest": json.dumps({"config": config})})


# Three seeds of none and rl.
ONE = [[0.2, 0.4], [0.4, 0.8], [0.6, 0.6]]


def rows_of(table):
    """Title, headings, and cells of each row of a table as it is shown."""
    stream = io.StringIO()
    Console(file=stream, width=400).print(table)
    lines = stream.getvalue().splitlines()
    cells = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in lines]
    head = next(number for number, line in enumerate(lines) if line.startswith("┃"))
    return lines[0].strip(), cells[head], [one for one in cells[head + 1 :] if len(one) == len(cells[head])]


def by_policy(table):
    _, head, rows = rows_of(table)
    at = head.index("policy")
    return {row[at]: dict(zip(head, row, strict=True)) for row in rows}


def test_over_seeds_leaves_out_what_does_not_count():
    values = xarray.DataArray([[1.0, np.nan], [2.0, np.nan], [3.0, 5.0]], dims=("run", "at"))
    found = statistics.over_seeds(values)
    np.testing.assert_array_equal(found["mean"], [2, 5])
    np.testing.assert_array_equal(found["seeds"], [3, 1])
    _, low, high = statistics.interval(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose([found["low"][0], found["high"][0]], [low, high])
    assert np.isnan([found["low"][1], found["high"][1]]).all()
    assert np.isnan(statistics.over_seeds(values.isel(run=[0, 1]))["mean"][1])


def test_table_of_a_run():
    title, head, rows = rows_of(tables.summary_table(results(ONE)))
    assert title == "3 seeds: mean and 95 % confidence interval"
    assert head == ["policy", "final accuracy", "mean of rounds", "difference to none", "above in", "classes"]
    assert [row[0] for row in rows] == POLICIES
    assert rows[0][1].startswith("0.4000 ± ") and rows[1][2].startswith("0.4500 ± ") and rows[1][4] == "2/3"
    assert rows[1][3].startswith("+0.1500 ± ") and rows[0][3:5] == ["", ""]


def test_what_diverged_is_out_of_the_table_and_the_seeds_left_are_shown():
    status = np.zeros((3, 2), np.int8)
    status[1, 1] = 1
    found = results(ONE).assign(status=(("run", "policy"), status))
    shown = by_policy(tables.summary_table(found))
    assert shown["rl"]["final accuracy"].startswith("0.5000 ± ") and shown["rl"]["seeds that count"] == "2/3"
    assert shown["none"]["final accuracy"].startswith("0.4000") and shown["none"]["seeds that count"] == "3/3"
    assert shown["rl"]["above in"] == "1/2"
    costs = by_policy(tables.cost_table(found))
    assert costs["rl"]["reached in"] == "2/2" and costs["none"]["reached in"] == "3/3"


def test_a_run_of_which_all_diverged_shows_no_number():
    # The accuracy of logits that are NaN was that of class 0: .0909 of eleven classes, with an interval.
    found = results(np.full((3, 2), np.nan)).assign(status=(("run", "policy"), np.ones((3, 2), np.int8)))
    for row in by_policy(tables.summary_table(found)).values():
        assert (row["final accuracy"], row["mean of rounds"], row["seeds that count"]) == ("–", "–", "0/3")
    for row in by_policy(tables.cost_table(found)).values():
        assert row["reached in"] == "0/0" and row["energy (J)"] == row["energy, none = 1"] == "–"


def test_costs_of_a_run():
    # none ends with .2, .4 and .6 after 20 steps: 20 J. rl is there after 10 steps in the first two seeds, after
    # 20 in the third: 2 J of exchange, 3 J of messages, and 10, 10 and 20 J.
    shown = by_policy(tables.cost_table(results(ONE)))
    rl = shown["rl"]
    assert (rl["reached in"], rl["exchange (J)"], rl["messages (J)"]) == ("3/3", "2", "3")
    assert (rl["uploads (J)"], rl["energy (J)"]) == ("13.33", "18.33")
    assert shown["none"]["energy (J)"] == "20" and shown["none"]["energy, none = 1"] == "–"
    ratio = (15 / 20 * 15 / 20 * 25 / 20) ** (1 / 3)
    assert rl["energy, none = 1"].startswith(f"{ratio:.2f} (")


def test_a_target_never_reached_is_marked_and_counts():
    # In the last seed rl ends below none: 20 steps, and at least 25 J.
    shown = by_policy(tables.cost_table(results([*ONE[:2], [0.6, 0.5]])))["rl"]
    assert shown["reached in"] == "2/3" and shown["energy (J)"] == "≥ 18.33" and shown["local steps"] == "≥ 13"
    assert shown["exchange (J)"] == "2"
    assert shown["energy, none = 1"].startswith("≥ "), "none gets there, so this is the least, too"


SWEPT = {"gamma": [0.0, 0.5]}


def test_points_of_a_sweep_have_rows_of_their_own():
    found = results([ONE, np.add(ONE, 0.1)], SWEPT)
    title, head, rows = rows_of(tables.summary_table(found))
    assert title.startswith("3 seeds:") and head[:2] == ["gamma", "policy"]
    assert [row[:2] for row in rows] == [["0", "none"], ["0", "rl"], ["0.5", "none"], ["0.5", "rl"]]
    assert rows[3][2].startswith("0.7000 ± ")
    _, head, rows = rows_of(tables.cost_table(found))
    assert head[:2] == ["gamma", "policy"] and len(rows) == 4


def test_means_over_many_points_are_said():
    found = results([ONE, np.add(ONE, 0.1)], SWEPT)
    title, head, rows = rows_of(tables.summary_table(found, most=1))
    assert title == "3 seeds, means over 2 points (gamma): mean and 95 % confidence interval"
    assert head[0] == "policy" and rows[1][1].startswith("0.6500 ± ")
    title, _, rows = rows_of(tables.cost_table(found, most=1))
    assert "means over 2 points (gamma) and seeds" in title and rows[1][1] == "6/6"


def test_points_drawn_at_random():
    found = results([ONE] * 30, {"point": np.arange(30)}).assign_coords(rate=("point", np.linspace(0, 1, 30)))
    title, _, rows = rows_of(tables.summary_table(found))
    assert "means over 30 points (rate)" in title and len(rows) == 2
    _, head, rows = rows_of(tables.summary_table(found.isel(point=[0, 29])))
    assert head[:2] == ["rate", "policy"] and [row[0] for row in rows] == ["0", "0", "1", "1"]


def test_absent_devices_do_not_count():
    """A selection with fewer devices than other points: two devices with 3 classes each, not four with 1.5."""
    counts = np.ones((2, 3, 2, DEVICES, CLASSES), np.int32)
    counts[0, :, :, 2:] = -1
    within = ("num_devices", "run", "policy", "device", "class")
    found = results([ONE, ONE], {"num_devices": [2, 4]}, counts=(within, counts))
    small = found.sel(num_devices=2)
    assert by_policy(tables.summary_table(small))["rl"]["classes"] == "3.00"
    assert [row[-1] for row in rows_of(tables.summary_table(found))[2]] == ["3.00"] * 4
    np.testing.assert_array_equal(statistics.classes_held(found), np.full((2, 3, 2), 3.0))


def test_points_with_fewer_rounds_end_earlier():
    found = results([ONE, ONE], SWEPT)
    found["accuracy"].values[0, ..., 1] = np.nan
    np.testing.assert_allclose(statistics.final_accuracy(found).isel(gamma=0), np.divide(ONE, 2))
    assert summary.summary(found)["final_accuracy_seeds"].values.tolist() == [[3, 3], [3, 3]]


def test_graphs_alone_have_a_table():
    found = results(ONE).drop_vars("accuracy")
    _, head, rows = rows_of(tables.summary_table(found))
    assert head[0] == "policy" and "outage" in head and rows[1][1].startswith("2.000")
    assert rows[1][head.index("points moved")] == "70 ± 0" and rows[1][head.index("messages (J)")] == "3 ± 0"


def test_selections_of_a_policy_or_a_seed():
    found = results(ONE)
    assert rows_of(tables.summary_table(found.sel(policy="rl")))[2][0][:2][0] == "rl"
    title, _, rows = rows_of(tables.summary_table(found.isel(run=0)))
    assert title.startswith("1 seed:") and rows[1][1] == "0.4000"
    for one in ("rl", ["rl"]):
        with pytest.raises(ValueError, match="target needs the policy none, which must be among rl"):
            statistics.cost_to_end_of_none(found.sel(policy=one))
    _, head, rows = rows_of(tables.summary_table(found[["accuracy", "status"]]))
    assert [row[head.index("classes")] for row in rows] == ["–"] * len(rows)


def test_one_place_along_a_dimension_may_be_selected():
    found = results(ONE).assign_coords(state=range(2), device=range(DEVICES), **{"class": list("abc")})
    one = summary.summary(found.isel(round=1, state=0, device=2))
    for name in ("final_accuracy", "mean_accuracy", "reference_reward"):
        expected = found.isel(round=[1], state=[0], device=[2])
        np.testing.assert_array_equal(one[name], summary.summary(expected)[name])
    assert (summary.summary(found.sel({"class": "b"}))["classes"] == 1).all()
    with pytest.raises(ValueError, match="results must keep their round: select it without drop=True"):
        summary.summary(found.isel(round=1, drop=True))


def test_what_is_no_longer_known_of_results_is_said_in_a_line():
    swept = results([ONE, ONE], {"num_steps": [20, 40]})
    about = json.loads(swept.attrs["manifest"]) | {"axes": {"num_steps": [20, 40]}}
    del about["config"]["num_steps"]
    swept = swept.assign_attrs(manifest=json.dumps(about))
    tables.cost_table(swept.isel(num_steps=1))
    with pytest.raises(ValueError, match="results must keep their num_steps: select points without drop=True"):
        tables.cost_table(swept.isel(num_steps=1, drop=True))
    with pytest.raises(ValueError, match=r"results must have their manifest: .* keep_attrs=True"):
        tables.cost_table(swept.drop_attrs(deep=False).drop_vars("num_steps"))
    with pytest.raises(ValueError, match="reference must be among rl; got 'none'"):
        statistics.paired_differences(statistics.mean_accuracy(swept.sel(policy="rl")))


@pytest.mark.parametrize("mark", ["status", "done"])
def test_means_over_runs_are_no_results(mark):
    swept = results([ONE, ONE], SWEPT)
    whole = np.array([[0, 1], [1, 0]])[:, [0, 1, 1]]
    swept = swept.assign({mark: (("gamma", "run"), whole) if mark == "done" else swept[mark] + whole[..., None]})
    assert summary.summary(swept)["final_accuracy_seeds"].values.min() < 3
    with pytest.raises(ValueError, match=f"results must be of single runs, but {mark} is a mean"):
        summary.summary(swept.mean("gamma", keep_attrs=True))


def test_runs_that_are_not_done_do_not_count():
    found = results(ONE).assign(done=("run", np.array([1, 0, 1], np.int8)))
    shown = by_policy(tables.summary_table(found))["rl"]
    assert shown["final accuracy"].startswith("0.5000") and shown["seeds that count"] == "2/3"


def test_a_summary_is_a_data_frame():
    found = summary.summary(results([ONE, ONE], SWEPT)).to_dataframe(dim_order=["gamma", "policy"])
    assert found.index.tolist() == [(0.0, "none"), (0.0, "rl"), (0.5, "none"), (0.5, "rl")]
    assert {"final_accuracy", "final_accuracy_low", "final_accuracy_seeds", "difference_to_none"} <= set(found)
    costs = summary.costs(results([ONE, ONE], SWEPT)).to_dataframe()
    assert {"energy", "exchange", "messages", "uploads", "reached", "runs", "ratio"} <= set(costs)
