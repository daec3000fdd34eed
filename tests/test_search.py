from dataclasses import replace

import numpy as np
import optuna
import pytest

import d2djax
from d2djax import cli, results, search, tables
from d2djax.axes import Choice, LogUniform, Uniform
from d2djax.search import OBJECTIVES, trials_of

RANGES = {"gamma": Uniform(0.0, 1.0), "alpha_outage": LogUniform(0.5, 8.0), "min_classes": Uniform(1, 4)}


@pytest.fixture(scope="module")
def seek(tiny_config, tiny_dataset):
    """`seek(out, trials=...)`: a search for graphs without training, in batches of 6 trials, 2 seeds each."""

    def run(out, **options):
        given = {"config": tiny_config, "ranges": RANGES, "objectives": ("reward",), "trials": 18, "seeds": 2}
        given |= {"batch": 6, "progress": False, "data": tiny_dataset} | options
        return search.search(given.pop("config"), out=out, **given)

    return run


@pytest.fixture(scope="module")
def whole(seek, tmp_path_factory):
    """The folder and the study of a search that was never stopped."""
    out = tmp_path_factory.mktemp("whole")
    return out, seek(out)


def finished(study):
    return [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]


def proposals(study):
    return [trial.params for trial in finished(study)]


def test_trials_are_in_their_ranges(whole):
    trials = finished(whole[1])
    assert len(trials) == 18
    for trial in trials:
        assert 0 <= trial.params["gamma"] <= 1 and 0.5 <= trial.params["alpha_outage"] <= 8
        assert trial.params["min_classes"] in (1, 2, 3, 4)
        assert trial.value == pytest.approx(np.mean(trial.user_attrs["reward"]))


def test_a_trial_has_the_value_of_the_run_at_its_settings(whole, tiny_config, tiny_dataset):
    best = whole[1].best_trial
    found = d2djax.sweep(
        replace(tiny_config, policies=("rl",)), [best.params], 2, whole[0] / "again", data=tiny_dataset,
        training=False, progress=False,
    )  # fmt: skip
    again = found["graph_reward"].isel(point=0, policy=0).mean("state").values
    np.testing.assert_array_equal(again, np.float32(best.user_attrs["reward"]))
    assert best.value == max(trial.value for trial in finished(whole[1]))


def test_later_trials_are_better_than_the_first(whole):
    # The first ten are drawn at random; gamma and min_classes shift the reward by more than chance does.
    values = [trial.value for trial in finished(whole[1])]
    assert np.mean(values[12:]) > np.mean(values[:10])


def test_a_search_that_was_stopped_goes_on_alike(whole, seek, tmp_path):
    seek(tmp_path, trials=6)
    study = optuna.load_study(
        study_name="d2djax",
        storage=optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
        ),
    )
    # As if killed after it had asked for a batch, in the middle of a line of the journal.
    study.ask()
    with (tmp_path / "journal.log").open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    resumed = seek(tmp_path)
    assert proposals(resumed) == proposals(whole[1])
    assert [trial.value for trial in finished(resumed)] == [trial.value for trial in finished(whole[1])]
    assert [trial.state.name for trial in resumed.trials].count("FAIL") == 1


def test_a_finished_search_computes_nothing(whole, seek, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr("d2djax.runs.map_runs", refuse)
    assert proposals(seek(whole[0])) == proposals(whole[1])


def test_trials_as_labelled_arrays(whole):
    saved = results.read(whole[0] / "results.zarr").load()
    found = trials_of(whole[1])
    assert dict(saved.sizes) == dict(found.sizes) == {"trial": 18, "run": 2}
    assert set(found.coords) == {"trial", "run", *RANGES}
    assert int(found["is_best"].sum()) == 1
    best = found["reward"].mean("run").values.argmax()
    assert found["is_best"].values[best] == 1
    assert "best of 18 trials, means over 2 seeds" in tables.best_trials(found).title


def test_two_objectives_give_what_no_other_trial_beats(seek, tmp_path):
    study = seek(tmp_path, objectives=("reward", "points_sent"), trials=12)
    values = np.array([trial.values for trial in finished(study)]) * [1, -1]
    beaten = [any((other >= one).all() and (other > one).any() for other in values) for one in values]
    np.testing.assert_array_equal(trials_of(study)["is_best"], ~np.array(beaten))


def test_every_objective(tiny_config, tiny_dataset, tmp_path):
    config = replace(tiny_config, num_steps=8)
    study = search.search(
        config, {"gamma": Choice((0.0, 0.5))}, tuple(OBJECTIVES), 1, 2, tmp_path, batch=1, data=tiny_dataset,
        progress=False,
    )  # fmt: skip
    trial = study.trials[0]
    run = d2djax.run(
        replace(config, policies=("rl",), gamma=trial.params["gamma"]), 2, data=tiny_dataset, progress=False
    )
    uploads = config.num_steps // config.aggregation_interval
    energy = run["exchange_energy"] + run["control_energy"] + uploads * run["upload_energy"]
    expected = {
        "accuracy": run["accuracy"].mean("round"),
        "final_accuracy": run["accuracy"].isel(round=-1),
        "reward": run["graph_reward"].mean("state"),
        "energy": energy,
        "reliability": 1 - run["graph_outage"].mean("state"),
        "points_sent": run["points_moved"],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(trial.user_attrs[name], values.values[:, 0], rtol=1e-6, err_msg=name)


def test_trials_with_other_rounds_count(tiny_config, tiny_dataset, tmp_path):
    ranges, names = {"aggregation_interval": Choice((2, 4))}, ("accuracy", "final_accuracy", "energy")
    study = search.search(tiny_config, ranges, names, 3, 1, tmp_path, batch=3, data=tiny_dataset, progress=False)
    for trial in study.trials:
        config = replace(tiny_config, policies=("rl",), **trial.params)
        run = d2djax.run(config, 1, data=tiny_dataset, progress=False)
        uploads = config.num_steps // config.aggregation_interval
        energy = run["exchange_energy"] + run["control_energy"] + uploads * run["upload_energy"]
        expected = [run["accuracy"].mean(), run["accuracy"].isel(round=-1).mean(), energy.mean()]
        np.testing.assert_allclose(trial.values, expected, rtol=1e-6)
    assert len({trial.params["aggregation_interval"] for trial in study.trials}) == 2, "they share a batch"


def test_a_trial_that_diverges_fails_and_the_others_count(seek, tmp_path, capsys):
    ranges = {"alpha_diversity": Choice((1.0, 3e38))}
    study = seek(tmp_path, ranges=ranges, trials=8, batch=4, progress=True)
    assert len(study.trials) == 8
    assert {(trial.params["alpha_diversity"], trial.state.name) for trial in study.trials} == {
        (1.0, "COMPLETE"),
        (3e38, "FAIL"),
    }
    found = trials_of(study)
    is_sound = found["alpha_diversity"].values == 1
    np.testing.assert_array_equal(np.isfinite(found["reward"]).all("run"), is_sound)
    assert (found["alpha_diversity"][found["is_best"] == 1] == 1).all() and int(found["is_best"].sum()) >= 1
    num_failed = int((~is_sound).sum())
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("16/16 runs") and last.endswith(f"{2 * num_failed} diverged")
    # They are not computed again.
    assert len(seek(tmp_path, ranges=ranges, trials=8, batch=4).trials) == 8


def test_a_search_in_which_all_diverge_has_no_best(seek, tmp_path):
    study = seek(tmp_path, ranges={"alpha_diversity": Choice((3e38,))}, trials=2, batch=2)
    assert dict(trials_of(study).sizes) == {"trial": 2, "run": 2}
    assert np.isnan(trials_of(study)["reward"]).all()
    assert tables.best_trials(trials_of(study)).row_count == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"objectives": ("speed",)}, r"objectives must be different ones of accuracy, .*; got \('speed',\)"),
        ({"objectives": ()}, "objectives must be different ones"),
        ({"ranges": {}}, "ranges must name at least one setting"),
        ({"ranges": {"gama": Uniform(0, 1)}}, "did you mean 'gamma'"),
        ({"ranges": {"gamma": Uniform(1, 0)}}, "axis gamma must go from a number to a larger one"),
        ({"ranges": {"gamma": LogUniform(0, 1)}}, "axis gamma must begin above 0"),
        ({"trials": 0}, "trials and batch must be at least 1; got 0 and 6"),
        ({"policy": "nearest"}, "policy must be one of config.policies, none, uniform, rl; got 'nearest'"),
        ({"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_bad_input_is_refused(seek, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        seek(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_another_search_is_refused(whole, seek):
    with pytest.raises(
        ValueError, match=r"another search is here \(objectives: \"reward\" only there, \"reliab.* only now\)"
    ):
        seek(whole[0], objectives=("reliability",))
    with pytest.raises(ValueError, match=r"another search is here \(ranges.gamma: .*high=1.0.*high=2.0"):
        seek(whole[0], ranges=RANGES | {"gamma": Uniform(0.0, 2.0)})
    with pytest.raises(ValueError, match=r"another search is here \(seeds: 2 only now\)"):
        seek(whole[0], seeds=3)
    assert len(finished(whole[1])) == 18


def test_the_command_reads_its_axes(monkeypatch, capsys, tmp_path):
    seen = {}

    def stop(config, ranges, objectives, trials, seeds, out, **options):
        seen.update(ranges=ranges, objectives=objectives, trials=trials, out=out, **options)
        raise ValueError("far enough")

    monkeypatch.setattr("d2djax.search.search", stop)
    line = "search --axis gamma=uniform:0:1 --axis alpha-outage=log:0.1:10 --axis num_devices=10,25 --trials 8"
    with pytest.raises(SystemExit):
        cli.main([*line.split(), "--objective", "accuracy", "energy", "--out", str(tmp_path)])
    assert capsys.readouterr().err.splitlines()[-1] == "d2djax: far enough"
    assert seen["ranges"] == {
        "gamma": Uniform(0.0, 1.0),
        "alpha_outage": LogUniform(0.1, 10.0),
        "num_devices": Choice((10, 25)),
    }
    assert seen["objectives"] == ("accuracy", "energy") and seen["trials"] == 8 and seen["policy"] == "rl"
