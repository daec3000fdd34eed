import json
import shutil
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import optax
import optuna
import pytest
import xarray

import d2djax
from d2djax.analysis import statistics, tables
from d2djax.cli import commands
from d2djax.models import MLP
from d2djax.running import results, runs
from d2djax.running.axes import Choice, LogUniform, Uniform
from d2djax.searching import journal, searches
from d2djax.searching.objectives import OBJECTIVES, check_objectives
from d2djax.searching.searches import trials_of

RANGES = {"gamma": Uniform(0.0, 1.0), "alpha_outage": LogUniform(0.5, 8.0), "num_sensitive_classes": Uniform(1, 4)}


@pytest.fixture(scope="module")
def seek(tiny_config, tiny_dataset):
    """`seek(out, trials=...)`: a search for graphs without training, in batches of 6 trials, 2 seeds each."""

    def run(out, **options):
        given = {"config": tiny_config, "ranges": RANGES, "objectives": ("reward",), "trials": 18, "seeds": 2}
        given |= {"batch": 6, "progress": False, "data": tiny_dataset} | options
        return searches.search(given.pop("config"), out=out, **given)

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
        assert trial.params["num_sensitive_classes"] in (1, 2, 3, 4)
        assert trial.value == pytest.approx(np.mean(trial.user_attrs["reward"]))


def test_a_trial_has_the_value_of_the_run_at_its_settings(whole, tiny_config, tiny_dataset):
    best = whole[1].best_trial
    found = d2djax.sweep(
        replace(tiny_config, policies=("rl",)), [best.params], 2, whole[0] / "again", data=tiny_dataset,
        training=False, progress=False,
    )  # fmt: skip
    again = found["graph_reference_reward"].isel(point=0, policy=0).astype(float).mean("state").values
    np.testing.assert_array_equal(again, best.user_attrs["reward"])
    assert best.value == max(trial.value for trial in finished(whole[1]))


def test_later_trials_are_better_than_the_first(whole):
    # The first ten are drawn at random; gamma and num_sensitive_classes shift the reward by more than chance does.
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
    # As if killed after proposing a batch, in the middle of a line of the journal.
    study.ask()
    with (tmp_path / "journal.log").open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    resumed = seek(tmp_path)
    assert proposals(resumed) == proposals(whole[1])
    assert [trial.value for trial in finished(resumed)] == [trial.value for trial in finished(whole[1])]
    assert [trial.number for trial in resumed.trials] == list(range(18))
    for name in ("best.toml", "config.toml"):
        assert (tmp_path / name).read_text() == (whole[0] / name).read_text()
    both = [d2djax.read(folder / "results.zarr").load() for folder in (whole[0], tmp_path)]
    xarray.testing.assert_identical(*both)


@pytest.mark.parametrize(
    "kind, step, number, done",
    [
        # Two notes a trial, its values and how many seeds are left, then the verdict.
        *((optuna.Trial, "set_user_attr", *one) for one in ((0, 0), (1, 0), (14, 7), (15, 7), (34, 17))),
        *((optuna.Study, "tell", *one) for one in ((0, 0), (7, 7))),
    ],
)
def test_a_search_that_was_stopped_amid_the_values_of_a_batch_goes_on_alike(
    whole, seek, tmp_path, monkeypatch, computed, kind, step, number, done
):
    real, told = getattr(kind, step), []

    def stop(*arguments, **options):
        if len(told) == number:
            raise KeyboardInterrupt
        told.append(real(*arguments, **options))

    monkeypatch.setattr(kind, step, stop)
    with pytest.raises(KeyboardInterrupt):
        seek(tmp_path)
    monkeypatch.setattr(kind, step, real)
    computed.clear()
    resumed = seek(tmp_path)
    assert sum(computed) == 2 * (18 - done)
    assert proposals(resumed) == proposals(whole[1])
    assert [trial.value for trial in finished(resumed)] == [trial.value for trial in finished(whole[1])]
    assert [trial.number for trial in resumed.trials] == list(range(18))
    assert (tmp_path / "config.toml").read_text() == (whole[0] / "config.toml").read_text()


def test_a_finished_search_computes_nothing(whole, seek, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr("d2djax.running.runs.map_runs", refuse)
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
    study = searches.search(
        config, {"gamma": Choice((0.0, 0.5)), "scheme": Choice(("fedavg",)), "initial_value": Choice((None,))},
        tuple(OBJECTIVES), 1, 2, tmp_path, batch=1, data=tiny_dataset, progress=False,
    )  # fmt: skip
    trial = study.trials[0]
    settings = trials_of(study)[["scheme", "initial_value"]]
    assert settings["scheme"].dtype == object, "zarr has no stable form of texts of fixed length"
    assert np.isnan(settings["initial_value"]).all()
    run = d2djax.run(
        replace(config, policies=("rl",), gamma=trial.params["gamma"]), 2, data=tiny_dataset, progress=False
    )
    uploads = config.num_steps // config.aggregation_interval
    energy = run["exchange_energy"] + run["control_energy"] + uploads * run["upload_energy"]
    expected = {
        "accuracy": statistics.mean_accuracy(run),
        "final_accuracy": run["accuracy"].isel(round=-1),
        "reward": run["graph_reference_reward"].mean("state"),
        "energy": energy,
        "reliability": 1 - run["graph_outage"].mean("state"),
        "points_sent": run["points_moved"],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(trial.user_attrs[name], values.values[:, 0], rtol=1e-6, err_msg=name)


def test_trials_with_other_rounds_count(tiny_config, tiny_dataset, tmp_path):
    ranges, names = {"aggregation_interval": Choice((2, 4))}, ("accuracy", "final_accuracy", "energy")
    study = searches.search(tiny_config, ranges, names, 3, 1, tmp_path, batch=3, data=tiny_dataset, progress=False)
    for trial in study.trials:
        config = replace(tiny_config, policies=("rl",), **trial.params)
        run = d2djax.run(config, 1, data=tiny_dataset, progress=False)
        uploads = config.num_steps // config.aggregation_interval
        energy = run["exchange_energy"] + run["control_energy"] + uploads * run["upload_energy"]
        expected = [statistics.mean_accuracy(run).mean(), run["accuracy"].isel(round=-1).mean(), energy.mean()]
        np.testing.assert_allclose(trial.values, expected, rtol=1e-6)
    assert len({trial.params["aggregation_interval"] for trial in study.trials}) == 2, "they share a batch"


def test_a_trial_that_diverges_fails_and_the_others_count(seek, tmp_path, capsys):
    options = {
        "ranges": {"learning_rate": Choice((0.1, 1e20))},
        "objectives": ("accuracy",),
        "trials": 8,
        "batch": 4,
    }
    study = seek(tmp_path, **options, progress=True)
    assert len(study.trials) == 8
    assert {(trial.params["learning_rate"], trial.state.name) for trial in study.trials} == {
        (0.1, "COMPLETE"),
        (1e20, "FAIL"),
    }
    found = trials_of(study)
    is_sound = found["learning_rate"].values == 0.1
    np.testing.assert_array_equal(np.isfinite(found["accuracy"]).all("run"), is_sound)
    assert (found["learning_rate"][found["is_best"] == 1] == 0.1).all() and int(found["is_best"].sum()) >= 1
    num_failed = int((~is_sound).sum())
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("16/16 runs") and last.endswith(f"{2 * num_failed} diverged")
    # They are not computed again.
    assert len(seek(tmp_path, **options).trials) == 8


def test_a_search_in_which_all_diverge_has_no_best(seek, tmp_path):
    ranges = {"learning_rate": Choice((1e20,))}
    study = seek(tmp_path, ranges=ranges, objectives=("accuracy",), trials=2, batch=2)
    assert dict(trials_of(study).sizes) == {"trial": 2, "run": 2}
    assert np.isnan(trials_of(study)["accuracy"]).all()
    assert tables.best_trials(trials_of(study)).row_count == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"objectives": ("speed",)}, r"objectives must be distinct and from accuracy, .*; got \('speed',\)"),
        ({"objectives": ()}, "objectives must be distinct and from"),
        ({"ranges": {}}, "ranges must name at least one setting"),
        ({"ranges": {"gama": Uniform(0, 1)}}, "did you mean 'gamma'"),
        ({"ranges": {"gamma": Uniform(1, 0)}}, "axis gamma must go from a number to a larger one"),
        ({"ranges": {"gamma": LogUniform(0, 1)}}, "axis gamma must begin above 0"),
        ({"trials": 0}, "trials must be at least 1; got 0"),
        ({"policy": "nearest"}, "policy must be one of none, uniform, rl; got 'nearest'"),
        ({"seeds": 0}, "seeds must be at least 1"),
    ],
)
def test_bad_input_is_refused(seek, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        seek(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["reward", "energy", "reliability", "points_sent"])
def test_a_policy_without_a_graph_has_no_objective_of_graphs(seek, tiny_config, tmp_path, name):
    config = replace(tiny_config, policies=("pooled",))
    message = f"objective of pooled, which has no graph, must be one of accuracy, final_accuracy; got '{name}'"
    with pytest.raises(ValueError, match=message):
        seek(tmp_path / "new", config=config, policy="pooled", objectives=("accuracy", name))
    assert not (tmp_path / "new").exists()


def test_another_search_is_refused(whole, seek):
    with pytest.raises(
        ValueError, match=r"holds another search \(objectives: \"reward\" only there, \"reliab.* only now\)"
    ):
        seek(whole[0], objectives=("reliability",))
    with pytest.raises(ValueError, match=r"holds another search \(ranges.gamma: .*high=1.0.*high=2.0"):
        seek(whole[0], ranges=RANGES | {"gamma": Uniform(0.0, 2.0)})
    with pytest.raises(ValueError, match=r"holds another search \(seeds: 1 only there\)"):
        seek(whole[0], seeds=1)
    assert len(finished(whole[1])) == 18


@pytest.mark.parametrize(
    "change, message",
    [
        ({"config": {"trust_probability": 0.5}}, "config.trust_probability: 0.75 there, 0.5 now"),
        ({"recipe": d2djax.Recipe(MLP(5), client=lambda lr: optax.adam(lr))}, "recipe.client.name: .*sgd.* there"),
        ({"sampler_seed": 1}, "sampler_seed: 0 there, 1 now"),
        ({"data": {"class_names": ("a", "b", "c", "d", "f")}}, 'data.class_names: "e" only there, "f" only now'),
    ],
)
def test_what_another_search_is_of_is_told(whole, seek, tiny_config, tiny_dataset, monkeypatch, change, message):
    change = dict(change)
    if "config" in change:
        change["config"] = replace(tiny_config, **change["config"])
    if "data" in change:
        change["data"] = replace(tiny_dataset, **change["data"])
    monkeypatch.setattr("d2djax.running.runs.map_runs", None)
    journal = (whole[0] / "journal.log").read_bytes()
    with pytest.raises(ValueError, match=f"holds another search .*{message}") as caught:
        seek(whole[0], **change)
    assert "\n" not in str(caught.value) and (whole[0] / "journal.log").read_bytes() == journal


def test_other_data_are_another_search(whole, seek, tiny_dataset):
    # One that trains reads the points.
    with pytest.raises(ValueError, match="holds another search"):
        seek(whole[0], objectives=("accuracy",), data=replace(tiny_dataset, x=255 - tiny_dataset.x))


@pytest.fixture
def computed(monkeypatch):
    """Number of runs in each call that finds graphs."""
    numbers, real = [], runs.map_runs

    def count(function, shared, items, *arguments, **options):
        if function is runs.graphs_of:
            numbers.append(len(items["seed"]))
        return real(function, shared, items, *arguments, **options)

    monkeypatch.setattr(runs, "map_runs", count)
    return numbers


@pytest.fixture
def copied(whole, tmp_path):
    """A folder with the finished search of two seeds."""
    shutil.copytree(whole[0], tmp_path / "search")
    return tmp_path / "search"


def test_more_seeds_are_computed_alone(whole, copied, seek, computed):
    grown = seek(copied, seeds=4)
    assert sum(computed) == 2 * 18 and grown.user_attrs["seeds"] == [0, 1, 2, 3]
    assert proposals(grown) == proposals(whole[1])
    for before, after in zip(finished(whole[1]), finished(grown), strict=True):
        assert after.user_attrs["reward"][:2] == before.user_attrs["reward"]
        assert after.value == np.mean(after.user_attrs["reward"]) and after.user_attrs["seeds_left"] == 4
    saved = results.read(copied / "results.zarr")
    assert saved.sizes["run"] == 4 and json.loads(saved.attrs["manifest"])["seeds"] == [0, 1, 2, 3]
    # The new values are those of a search that has had these seeds from the start.
    fresh = seek(copied.with_name("fresh"), seeds=4, trials=6)
    for one, same in zip(finished(fresh), finished(grown), strict=False):
        assert one.params == same.params and one.user_attrs["reward"] == same.user_attrs["reward"]
    text = (copied / "config.toml").read_text()
    assert "seeds = 4" in text and "trials = 18" in text
    # From the start with four seeds, the later proposals would be others.
    assert "grown = true" in text and "grown" not in (whole[0] / "config.toml").read_text()
    assert "seeds = 4" in (copied / "best.toml").read_text()
    computed.clear()
    seek(copied, seeds=4)
    seek(copied, seeds=4, trials=5, batch=1)
    assert not computed and (copied / "config.toml").read_text() == text
    with pytest.raises(ValueError, match="seeds: 3 only there"):
        seek(copied, seeds=3)


@pytest.mark.parametrize(
    "batches, seeds, grown",
    [
        ([(6, 6), (6, 12)], False, False),
        # The last batch of a search may be smaller, but not one before it.
        ([(6, 6), (6, 8)], False, False),
        ([(6, 8), (6, 12)], False, True),
        ([(6, 6), (3, 12)], False, True),
        ([(6, 6), (6, 6)], True, True),
        ([(6, 8), (6, 12), (6, 24)], False, True),
    ],
)
def test_steps_that_one_search_would_not_take_are_noted(batches, seeds, grown):
    study = optuna.create_study()
    for batch, trials in batches:
        done = len(journal.finished(study))
        found = journal.note_steps(study, batch, seeds and done > 0, trials > done)
        for _ in range(trials - done):
            journal.tell(study, study.ask(), {"reward": [1.0]})
    assert found is grown


def test_there_is_no_best_trial_left_when_none_is(copied, seek, monkeypatch):
    assert (copied / "best.toml").exists()
    monkeypatch.setattr(searches, "best_trial", lambda study: None)
    seek(copied)
    assert not (copied / "best.toml").exists()


def test_more_trials_and_more_seeds_after_a_stop(whole, copied, seek, computed, monkeypatch):
    keep, kept = journal.keep_more, []

    def stop(*arguments):
        if len(kept) == 6:
            raise KeyboardInterrupt
        kept.append(keep(*arguments))

    monkeypatch.setattr(journal, "keep_more", stop)
    with pytest.raises(KeyboardInterrupt):
        seek(copied, seeds=3)
    # Unchanged for the seeds that were already there.
    assert proposals(seek(copied)) == proposals(whole[1])
    monkeypatch.setattr(journal, "keep_more", keep)
    computed.clear()
    grown = seek(copied, seeds=3, trials=20)
    assert sum(computed) == 12 + 3 * 2 and len(finished(grown)) == 20
    assert all(len(trial.user_attrs["reward"]) == 3 for trial in finished(grown))
    assert proposals(grown)[:18] == proposals(whole[1])


SECOND = """
import sys
from pathlib import Path
from d2djax.searching import journal
with journal.held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_who_works_here(copied, seek, tmp_path):
    first = subprocess.Popen(
        [sys.executable, "-c", SECOND, str(copied)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout.readline() == "held\n"
    before = (copied / "journal.log").read_bytes()
    with pytest.raises(ValueError, match=f"process {first.pid} on .* works in it; wait"):
        seek(copied, trials=24)
    assert (copied / "journal.log").read_bytes() == before
    # The lock of one that was killed is free.
    first.kill()
    first.communicate()
    assert len(finished(seek(copied))) == 18
    assert not list(copied.glob("*.lock"))


def test_a_full_disk_leaves_what_was_done(seek, tmp_path, monkeypatch):
    backend, lines = optuna.storages.journal.JournalFileBackend, []
    real = backend.append_logs

    def full(self, logs):
        lines.append(logs)
        if len(lines) > 50:
            raise OSError(28, "No space left on device")
        real(self, logs)

    monkeypatch.setattr(backend, "append_logs", full)
    with pytest.raises(OSError, match="No space left"):
        seek(tmp_path, trials=6)
    monkeypatch.undo()
    assert len(finished(seek(tmp_path, trials=6))) == 6


def test_the_command_says_that_the_disk_is_full(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(searches, "search", full)
    with pytest.raises(SystemExit) as caught:
        commands.main(f"search --axis gamma=uniform:0:1 --out {tmp_path}".split())
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"d2djax: --out {tmp_path}: No space left on device; "
        "finished work is kept, and rerunning the command resumes it"
    )


def test_what_cannot_be_written_is_told_before_anything_is_computed(seek, tmp_path, computed, whole):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="expected a folder"):
        seek(tmp_path / "file")
    results.save(xarray.Dataset({"x": 1}, attrs={"manifest": "{}"}), tmp_path / "run" / "results.zarr")
    with pytest.raises(ValueError, match="the results of a run are here; choose another folder"):
        seek(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal.log").write_text("Dear diary")
    with pytest.raises(ValueError, match="choose another folder"):
        seek(tmp_path / "other")
    assert (tmp_path / "other" / "journal.log").read_text() == "Dear diary" and not computed


@pytest.mark.parametrize(
    "name, searched",
    [
        ("reward", "reference_weights"),
        ("reward", "min_classes"),
        ("reward", "cluster_budget"),
        ("energy", "rate"),
        ("energy", "d2d_power"),
        ("energy", "bandwidth"),
        ("reliability", "transmit_power"),
        ("accuracy", "evaluate_every"),
    ],
)
def test_an_objective_must_not_contain_what_is_searched(name, searched):
    with pytest.raises(ValueError, match=f"objective {name} must not contain .* formula has {searched}, which"):
        check_objectives((name,), (searched, "learning_rate"))


def test_objectives_that_may_be_searched():
    assert check_objectives(("reward", "accuracy"), ("gamma", "alpha_outage", "learning_rate"))
    names = {item.name for item in fields(d2djax.Config)}
    assert all(set(one.contains) <= names for one in OBJECTIVES.values())


def test_the_command_refuses_such_an_objective(capsys, tmp_path):
    with pytest.raises(SystemExit) as caught:
        commands.main(f"search --axis rate=uniform:1:2 --objective energy --out {tmp_path / 'new'}".split())
    assert caught.value.code == 2 and not (tmp_path / "new").exists()
    assert "objective energy must not contain a searched setting" in capsys.readouterr().err.splitlines()[-1]


def test_the_command_reads_its_axes(monkeypatch, capsys, tmp_path):
    seen = {}

    def stop(config, ranges, objectives, trials, seeds, out, **options):
        seen.update(ranges=ranges, objectives=objectives, trials=trials, out=out, **options)
        raise OSError("far enough")

    monkeypatch.setattr("d2djax.searching.searches.search", stop)
    line = "search --axis gamma=uniform:0:1 --axis alpha-outage=log:0.1:10 --axis num_devices=10,25 --trials 8"
    with pytest.raises(SystemExit):
        commands.main([*line.split(), "--objective", "accuracy", "energy", "--out", str(tmp_path)])
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"d2djax: --out {tmp_path}: far enough; ")
    assert seen["ranges"] == {
        "gamma": Uniform(0.0, 1.0),
        "alpha_outage": LogUniform(0.1, 10.0),
        "num_devices": Choice((10, 25)),
    }
    assert seen["objectives"] == ("accuracy", "energy") and seen["trials"] == 8 and seen["policy"] == "rl"
