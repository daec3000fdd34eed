"""The page of results, in a real browser."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray

from d2djax.analysis import reduced
from d2djax.cli import commands
from d2djax.report.page import page_data, report
from d2djax.running import results

POLICIES, RUNS, STATES, DEVICES = ["none", "rl"], 3, 2, 5
LENGTH = {"policy": 2, "round": 4, "state": STATES, "device": DEVICES, "class": 3, "axis": 2, "episode": 5}


def text(*names):
    return np.array(names, object)


def made(axes, **changes):
    """Results of a sweep over `axes`, random numbers of the shapes that real ones have."""
    rng, sizes = np.random.default_rng(0), [len(values) for values in axes.values()]
    lead = (*axes, "run")

    def drawn(*dims):
        return (*lead, *dims), rng.uniform(size=(*sizes, RUNS, *(LENGTH[dim] for dim in dims)))

    whole = lambda most, *dims: (drawn(*dims)[0], (drawn(*dims)[1] * most).astype(np.int32))  # noqa: E731
    per_policy = ("policy",)
    values = {
        "status": whole(1, *per_policy),
        "done": whole(0) if changes.get("unfinished") else (lead, np.ones((*sizes, RUNS), np.int8)),
        "accuracy": drawn("policy", "round"),
        "discovery_reward": drawn("policy", "episode"),
        "graph_reward": drawn("policy", "state"),
        "graph_outage": drawn("policy", "state"),
        "points_moved": whole(90, *per_policy),
        "exchange_energy": drawn("policy"),
        "control_energy": drawn("policy"),
        "upload_energy": drawn(),
        "upload_bits": drawn(),
        "position": drawn("device", "axis"),
        "cluster": whole(2, "device"),
        "links": whole(DEVICES, "policy", "state", "device"),
        "counts_before": whole(30, "device", "class"),
        "counts": whole(30, "policy", "device", "class"),
        "exchange_state": whole(STATES),
    }
    about = {
        "config": {
            "scheme": "fedavg",
            "aggregation_interval": 10,
            "num_steps": 20,
            "gamma": 0.5,
            "policies": POLICIES,
        },
        "data": {"name": "</script><b>mine<!--<script> /* script */"},
        "seeds": [0, 1, 2],
        "versions": {"d2djax": "1"},
    }
    coordinates = {"policy": text(*POLICIES), "round": [10, 20, 30, 40], "class": text("a", "b", "c")}
    coordinates |= {"run": [0, 1, 2]} | axes
    return xarray.Dataset(values, coordinates, {"manifest": json.dumps(about), "title": "hand-made"})


GRID = {"gamma": [0.0, 0.5], "alpha_outage": [1.0, 2.0, 4.0]}


def test_variables_are_those_of_a_run(every_policy):
    run = every_policy
    found = page_data(run)
    assert set(made({}).data_vars) - {"done"} <= set(run.data_vars)
    assert {"accuracy", "discovery_reward"} <= set(found["curves"]["variables"])
    assert found["settings"] == {} and len(found["graphs"]["links"]) == 1
    shown = found["curves"]["variables"]["accuracy"]["values"][0][2][0]
    assert run["policy"][2] == "rl"
    np.testing.assert_allclose(shown, run["accuracy"].sel(policy="rl").mean("run"), rtol=1e-4)
    assert found["claims"]


def test_points_are_in_order():
    swept = made(GRID)
    found = page_data(swept)
    assert found["settings"] == {"gamma": [0.0] * 3 + [0.5] * 3, "alpha_outage": [1.0, 2.0, 4.0] * 2}
    one = swept["graph_reward"].sel({"gamma": 0.5, "alpha_outage": 2.0, "policy": "rl"}).mean()
    np.testing.assert_allclose(found["maps"]["graph_reward"]["values"][4][1][0], one, rtol=1e-4)


def test_a_list_of_points():
    swept = made({"point": [0, 1]}).assign_coords(
        gamma=("point", [0.25, 0.75]), model=("point", text("mlp", "cnn"))
    )
    found = page_data(swept)
    assert found["settings"] == {"gamma": [0.25, 0.75], "model": ["mlp", "cnn"]} and not found["isGrid"]


def test_runs_that_are_not_done_do_not_count():
    swept = made(GRID)
    swept["done"][:, :, 1:] = 0
    found = page_data(swept)
    assert "6 of 18 runs are done; only these count." in found["notes"]
    one = swept["graph_reward"].sel({"gamma": 0.0, "alpha_outage": 1.0, "policy": "rl"}).isel(run=0).mean()
    mean, low, high = found["maps"]["graph_reward"]["values"][0][1]
    np.testing.assert_allclose(mean, one, rtol=1e-4)
    assert low is high is None
    nothing = page_data(made(GRID, unfinished=True))["maps"]
    assert all(set(np.ravel(one["values"])) == {None} for one in nothing.values())


def test_whole_numbers_of_runs_that_are_not_done_do_not_count():
    swept = made({"gamma": [0.0, 0.5]})
    swept["done"][0, 1:] = 0
    for name in ("points_moved", "status", "links", "counts"):
        swept[name][0, 1:] = -1
    maps = page_data(swept)["maps"]
    assert maps["points_moved"]["values"][0][1][0] == swept["points_moved"].values[0, 0, 1]
    assert maps["diverged"]["values"][0][1][0] == 0
    assert page_data(swept)["graphs"]["done"] == [[True, False, False], [True, True, True]]


def test_trainings_that_diverged_do_not_count_and_it_says_so():
    swept = made({"gamma": [0.0, 0.5]})
    swept["status"][1, 0, 1] = 1
    swept["accuracy"][1, 0, 1, 2:] = np.nan
    found = page_data(swept)
    assert "1 of 12 training runs diverged; means exclude them." in found["notes"]
    left = swept["accuracy"].values[1, 1:, 1]
    np.testing.assert_allclose(found["curves"]["variables"]["accuracy"]["values"][1][1][0], left.mean(0), rtol=1e-4)
    np.testing.assert_allclose(found["maps"]["accuracy"]["values"][1][1][0], left.mean(), rtol=1e-4)
    np.testing.assert_allclose(found["maps"]["diverged"]["values"][1][1][0], 1 / 3, rtol=1e-4)


def test_the_end_of_points_with_fewer_rounds():
    swept = made({"aggregation_interval": [10, 20]})
    swept["accuracy"][1, :, :, 3:] = np.nan
    maps = page_data(swept)["maps"]
    for point, last in ((0, 3), (1, 2)):
        expected = swept["accuracy"].values[point, :, 0, last].mean()
        np.testing.assert_allclose(maps["accuracy, at the end"]["values"][point][0][0], expected, rtol=1e-4)
    assert maps["accuracy"]["label"].endswith(", mean over rounds")


def test_limits_are_students_interval():
    swept = made({})
    mean, low, high = np.array(page_data(swept)["curves"]["variables"]["accuracy"]["values"][0][0])
    samples = swept["accuracy"].values[:, 0]
    half = 4.302653 * samples.std(axis=0, ddof=1) / np.sqrt(3)
    # No share is below 0 or above 1.
    expected = [samples.mean(0), np.maximum(0, mean - half), np.minimum(1, mean + half)]
    np.testing.assert_allclose([mean, low, high], expected, rtol=1e-3, atol=1e-4)


def test_rewards_of_other_weights_are_not_shown_first():
    graphs = made(GRID).drop_vars("accuracy")
    graphs["graph_reference_reward"] = graphs["graph_reward"] / 2
    assert next(iter(page_data(graphs)["maps"])) == "graph_reference_reward"
    assert next(iter(page_data(made(GRID))["maps"])) == "accuracy"


def test_means_over_the_rounds_are_those_of_training():
    swept = made({"gamma": [0.0, 0.5]}).assign_coords(round=[0, 10, 20, 30])
    mean = page_data(swept)["maps"]["accuracy"]["values"][1][0][0]
    np.testing.assert_allclose(mean, swept["accuracy"].values[1, :, 0, 1:].mean(), rtol=1e-4)


def test_merged_results_are_of_several_parts():
    merged = made({"gamma": [0.0, 0.5]})
    machines = [{"backend": "cpu", "cores": 2}, {"backend": "gpu", "devices": ["H200"]}]
    parts = [{"machine": one, "commit": f"{number}" * 40} for number, one in enumerate(machines)]
    merged.attrs["manifest"] = json.dumps(json.loads(merged.attrs["manifest"]) | {"parts": parts})
    facts = dict(page_data(merged)["facts"])
    assert facts["merged"] == "2 results from the commits 000000000000, 111111111111"
    assert facts["machine"] == "cpu, 2 cores; gpu, 1 x H200"


def test_many_points_are_thinned_and_it_says_so():
    axes = {"gamma": list(np.linspace(0, 1, 110)), "alpha_outage": list(np.linspace(1, 2, 10))}
    found = page_data(made(axes))
    assert len(found["curves"]["variables"]["accuracy"]["values"]) == 64
    assert len(found["maps"]["graph_reward"]["values"]) == 1100
    assert len(found["maps"]["graph_reward"]["values"][0][0]) == 1
    assert found["notes"][0] == "Curves show 64 of 1,100 points; heat maps and lines show all points."
    # What is kept of a grid is a grid.
    kept = found["curves"]["points"]
    pairs = {tuple(found["settings"][name][point] for name in axes) for point in kept}
    assert len(kept) == len(pairs) == len({g for g, _ in pairs}) * len({a for _, a in pairs}) == 64
    assert {(0.0, 1.0), (1.0, 2.0)} <= pairs


def test_points_of_a_single_axis_are_thinned_evenly():
    kept, _ = reduced.chosen(reduced.by_point(made({"gamma": list(np.linspace(0, 1, 1100))})), 64)
    assert (kept[0], kept[-1], len(kept)) == (0, 1099, 64) and set(np.diff(kept)) == {17, 18}


def test_the_page_can_be_read_by_whom_the_folder_lets(tmp_path):
    page = report(made({}), tmp_path / "page.html")
    other = tmp_path / "other"
    other.write_text("")
    assert page.stat().st_mode == other.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "page.html"]


@pytest.mark.parametrize("there", [False, True])
def test_no_results(tmp_path, capsys, there):
    (tmp_path / "x").mkdir() if there else None
    with pytest.raises(SystemExit, match="2"):
        commands.main(["report", str(tmp_path / "x"), "-o", str(tmp_path / "page.html")])
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_other_arrays_are_refused(tmp_path):
    with pytest.raises(ValueError, match="results must be those of run or sweep; they lack status"):
        report(xarray.Dataset({"a": ("x", [1.0])}), tmp_path / "page.html")


def test_without_plotly(tmp_path):
    code = (
        "import sys; sys.modules['plotly.offline'] = None\nfrom d2djax.cli.commands import main; main(sys.argv[1:])"
    )
    results.save(made({}), tmp_path / "results.zarr")
    ended = subprocess.run(
        [sys.executable, "-c", code, "report", str(tmp_path)], capture_output=True, text=True, env=dict(os.environ)
    )
    assert ended.returncode == 2 and "pip install '.[plot]'" in ended.stderr


# --- in a browser ---

FLAGS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--window-size=960,2400",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if not driver or not chromium:
        pytest.skip("no Chromium with its driver here")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of results and checks that it complains of nothing and asks for nothing."""

    def show(found):
        results.save(found, tmp_path / "results.zarr")
        commands.main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")])
        browser.get((tmp_path / "page.html").as_uri())
        assert browser.get_log("browser") == []
        requests = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [one for one in requests if not one.startswith("data:")] == []
        return browser

    return show


def plotted(browser, where):
    """All that a picture is drawn from."""
    script = "const one = document.getElementById(arguments[0]); return JSON.stringify([one.data, one.layout])"
    data, layout = json.loads(browser.execute_script(script, where))
    return data, layout.get("annotations", [])


def choose(browser, where, text):
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("id", where)).select_by_visible_text(text)


def test_choices_change_the_pictures(opened):
    swept = made(GRID)
    # The state in which the graph opens; the other one is chosen below.
    swept["exchange_state"][:] = 0
    browser = opened(swept)
    assert browser.title == "hand-made"
    for picture, select, text in (
        ("curves", "curves-variable", "discovery_reward"),
        ("curves", "curves-gamma", "0.5"),
        ("curves", "curves-alpha_outage", "4"),
        ("points", "points-variable", "points_moved"),
        ("points", "points-policy", "none"),
        ("points", "points-x", "alpha_outage"),
        ("points", "points-gamma", "0.5"),
        ("graph", "graph-gamma", "0.5"),
        ("graph", "graph-alpha_outage", "2"),
        ("graph", "graph-run", "2"),
        ("graph", "graph-policy", "none"),
        ("graph", "graph-state", "1"),
    ):
        before = plotted(browser, picture)
        choose(browser, select, text)
        assert plotted(browser, picture) != before, select
    assert browser.get_log("browser") == []
    # The graph that is chosen now, arrow by arrow.
    at = {"gamma": 0.5, "alpha_outage": 2.0, "run": 2, "policy": "none"}
    links = swept["links"].sel(at).isel(state=1).values
    (*_, devices), arrows = plotted(browser, "graph")
    ends = [[arrow["x"], arrow["y"]] for arrow in arrows]
    state = int(swept["exchange_state"].sel({name: at[name] for name in ("gamma", "alpha_outage", "run")}))
    assert f"happened in state {state}:" in browser.find_element("id", "graph-note").text
    at.pop("policy")
    place = swept["position"].sel(at).values
    receivers = [i for i, j in enumerate(links) if i != j]
    np.testing.assert_allclose(ends, place[receivers], rtol=1e-4)
    assert devices["hovertext"][0].startswith("device 0, cluster ")
    before = swept["counts_before"].sel(at).isel(device=0).values
    told = ", ".join(f"{name} {n}" for name, n in zip("abc", before, strict=True) if n)
    assert f"<br>before: {told}<br>after: " in devices["hovertext"][0]


def test_the_heat_map_shows_what_was_found(opened):
    swept = made(GRID)
    browser = opened(swept)
    choose(browser, "points-variable", "graph_reward")
    ((heat,), _) = plotted(browser, "points")
    expected = swept["graph_reward"].sel(policy="rl").mean(["run", "state"]).transpose("alpha_outage", "gamma")
    np.testing.assert_allclose(heat["z"], expected, rtol=1e-4)


def test_several_points_and_several_policies(opened):
    swept = made(GRID)
    browser = opened(swept)
    assert "mean over all points" in browser.find_element("id", "claims-note").text
    choose(browser, "curves-together", "alpha_outage")
    choose(browser, "curves-policy", "rl")
    lines = [one for one in plotted(browser, "curves")[0] if one.get("fill") is None]
    assert [one["name"] for one in lines] == [f"alpha_outage = {value}" for value in (1, 2, 4)]
    for line, value in zip(lines, GRID["alpha_outage"], strict=True):
        one = swept["accuracy"].sel(gamma=0.0, alpha_outage=value, policy="rl").mean("run")
        np.testing.assert_allclose(line["y"], one, rtol=1e-4)
    choose(browser, "points-y", "(lines of all policies)")
    assert [one["name"] for one in plotted(browser, "points")[0] if one.get("fill") is None] == POLICIES
    assert browser.get_log("browser") == []


def test_the_graph_opens_in_the_state_of_the_exchange(opened):
    from selenium.webdriver.support.ui import Select

    swept = made({})
    swept["exchange_state"][:] = [1, 0, 1]
    browser = opened(swept)
    for run, state in ((0, 1), (1, 0), (2, 1)):
        choose(browser, "graph-run", str(run))
        assert Select(browser.find_element("id", "graph-state")).first_selected_option.text == str(state)
    links = swept["links"].sel(policy="rl").isel(run=2, state=1).values
    choose(browser, "graph-policy", "rl")
    assert len(plotted(browser, "graph")[1]) == (links != np.arange(DEVICES)).sum()


def test_summary_and_costs_are_on_the_page(opened):
    browser = opened(made({"gamma": [0.0, 0.5]}))
    summary, costs = browser.find_element("id", "tables").find_elements("tag name", "table")
    assert "final accuracy" in summary.text and "rl" in summary.text and "local steps" in costs.text
    before = summary.text
    choose(browser, "tables-gamma", "0.5")
    assert browser.find_element("id", "tables").find_elements("tag name", "table")[0].text != before


def test_graphs_alone_have_a_summary():
    graphs = made(GRID).drop_vars(["accuracy", "upload_energy", "upload_bits"])
    graphs["graph_reference_reward"] = graphs["graph_reward"] / 2
    found = page_data(graphs)["tables"]
    assert [len(one) for one in found] == [1] * 6
    ((_, rl),) = (table["rows"] for table in found[5])
    expected = graphs["graph_reference_reward"].isel(gamma=1, alpha_outage=2).sel(policy="rl").mean()
    assert float(rl[1].split(" ")[0]) == pytest.approx(expected.item(), abs=5e-4)


def searched():
    """Trials of a search for two objectives; the first depends on gamma alone, and one trial failed."""
    rng = np.random.default_rng(0)
    gamma, budget = rng.uniform(size=(2, 24))
    accuracy = 1 - (gamma - 0.3)[:, None] ** 2 + 0.001 * rng.normal(size=(24, 3))
    accuracy[5, 1] = np.nan
    values = {"accuracy": (("trial", "run"), accuracy), "energy": (("trial", "run"), np.tile(gamma[:, None], 3))}
    about = {"seeds": [0, 1, 2], "config": {}}
    return xarray.Dataset(
        values | {"is_best": ("trial", (np.arange(24) % 6 == 0).astype(np.int8))},
        {
            "trial": np.arange(24),
            "run": [0, 1, 2],
            "gamma": ("trial", gamma),
            "alpha_budget": ("trial", budget),
            "model": ("trial", text(*["mlp", "cnn"] * 12)),
        },
        {"title": "d2djax search", "manifest": json.dumps(about)},
    )


def test_the_page_of_a_search(opened):
    trials = searched()
    trials["above_bound"] = ("trial", np.eye(24, dtype=int)[3], {"reward": "mine.Paid"})
    browser = opened(trials)
    assert "in 1 run of 1 trial a mean reward" in browser.find_element("id", "notes").text
    assert "1 of 24 trials failed" in browser.find_element("id", "notes").text
    (dots, line), _ = plotted(browser, "history")
    means = trials["accuracy"].mean("run", skipna=False).values
    assert dots["y"][5] is None
    np.testing.assert_allclose(np.array(dots["y"], float), means, rtol=1e-4)
    np.testing.assert_allclose(line["y"], np.fmax.accumulate(means), rtol=1e-4)
    ((bars,), _) = plotted(browser, "importance")
    assert bars["y"][-1] == "gamma" and bars["x"][-1] > 0.5
    ((front,), _) = plotted(browser, "pareto")
    assert [symbol == "circle" for symbol in front["marker"]["symbol"]] == trials["is_best"].values.astype(
        bool
    ).tolist()
    choose(browser, "history-objective", "energy")
    assert plotted(browser, "history")[0][1]["y"][-1] == pytest.approx(trials["energy"].min().item(), rel=1e-4)
    assert "accuracy" in browser.find_element("id", "tables").text
    assert browser.get_log("browser") == []


def test_the_heat_map_fits_a_phone(opened, browser):
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        opened(made(GRID))
        width = (
            "const box = document.querySelector('#points .plot .bg, #points .bglayer .bg, #points .heatmaplayer');"
        )
        assert browser.execute_script(width + "return box.getBoundingClientRect().width") > 250
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_texts_are_not_taken_for_markup(opened):
    browser = opened(made({}))
    assert "</script><b>mine<!--<script> /* script */" in browser.find_element("id", "facts").text
    assert len(browser.find_elements("id", "points")) == 0, "a run has no settings to go over"


def test_lists_of_points_and_single_axes(opened):
    listed = made({"point": [0, 1]})
    browser = opened(listed.assign_coords(gamma=("point", [0.25, 0.75]), rate=("point", [1.0, 2.0])))
    choose(browser, "points-x", "gamma")
    dots, _ = plotted(browser, "points")
    assert [one["name"] for one in dots] == POLICIES
    assert all(one["mode"] == "markers" and one["x"] == [0.25, 0.75] for one in dots)
    browser = opened(made({"gamma": [0.0, 0.5]}))
    (band, line, *other), _ = plotted(browser, "points")
    assert band["fill"] == "toself" and line["x"] == [0, 0.5]
    assert line["name"] == "none" and other[1]["name"] == "rl"
    assert not browser.find_element("id", "points-policy").is_enabled()


def test_a_run_that_is_not_finished(opened):
    swept = made({"gamma": [0.0, 0.5]})
    swept["done"][1] = 0
    swept["position"][1] = np.nan
    for name in ("cluster", "links", "counts", "counts_before", "exchange_state", "status"):
        swept[name][1] = -1
    browser = opened(swept)
    choose(browser, "graph-gamma", "0.5")
    assert browser.find_element("id", "graph-note").text == "This run is not finished."
    (*_, devices), arrows = plotted(browser, "graph")
    assert arrows == [] and set(devices["x"]) == {None}
    assert browser.get_log("browser") == []


def test_selections_have_a_page():
    swept = made({"gamma": [0.0, 1.0]}).assign_coords(state=range(STATES), device=range(DEVICES), episode=range(5))
    for dim, place in (("run", 1), ("policy", "rl"), ("round", 20), ("class", "b"), ("episode", 2)):
        assert page_data(swept.sel({dim: place})) == page_data(swept.sel({dim: [place]})), dim
    for one in ({"state": [1]}, {"device": [1, 0, 2, 3, 4]}, {"device": 0}):
        with pytest.raises(ValueError, match=f"results must have every {next(iter(one))}, in order"):
            page_data(swept.isel(one))
    with pytest.raises(ValueError, match="results must keep their run: select it without drop=True"):
        page_data(swept.isel(run=0, drop=True))
    with pytest.raises(ValueError, match="results must have at least one run; these have none"):
        page_data(swept.isel(run=[]))
    with pytest.raises(ValueError, match="results must have a round of training; these have round 0 alone"):
        page_data(swept.assign_coords(round=[0, 1, 2, 3]).isel(round=[0]))
