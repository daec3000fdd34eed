import errno
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path

import jax
import jax.monitoring
import numpy as np
import pytest
import xarray

import d2djax
from d2djax.cli import arguments, commands
from d2djax.cli.parser import parse
from d2djax.config import Config
from d2djax.running import machine, many_runs, results, runs

# The devices are fixed once JAX has started: a command in this process then leaves them to the other tests.
jax.devices()

COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: COMPILED.append(event) if "backend_compile" in event else None
)

TOY_SETTINGS = {
    "dataset": "fashion_mnist",
    "num-devices": 5,
    "num-states": 2,
    "classes-per-device": 3,
    "points-per-device": 30,
    "threshold": 5,
    "min-classes": 4,
    "num-episodes": 20,
    "record-every": 10,
    "num-steps": 4,
    "aggregation-interval": 2,
    "batch-size": 4,
}
TOY = [word for name, value in TOY_SETTINGS.items() for word in (f"--{name}", value)]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("D2DJAX_CACHE", "0")
    monkeypatch.delenv("D2DJAX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


class StartedError(BaseException):
    """Stands for the first compilation."""


@pytest.fixture
def stops_before_compiling(monkeypatch):
    def start(*_, **__):
        raise StartedError

    # Both are imported before one is replaced.
    monkeypatch.setattr(runs, "map_runs", start)
    monkeypatch.setattr(many_runs, "map_runs", start)
    # Nothing may end to compile in the background of the next test.
    monkeypatch.setattr("d2djax.running.programs.start", lambda *_, **__: None)


@pytest.fixture(scope="session")
def idx_folder(tmp_path_factory):
    """Fashion-MNIST's files with 40 images of each class."""
    folder = tmp_path_factory.mktemp("idx")
    rng = np.random.default_rng(0)
    for split, size in (("train", 300), ("t10k", 100)):
        labels = rng.permutation(np.arange(size) % 10).astype(np.uint8)
        images = rng.integers(0, 100, (size, 28, 28))
        images[np.arange(size), 2 * labels] += 150
        for kind, array in (("images", images.astype(np.uint8)), ("labels", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{split}-{kind}-idx{array.ndim}-ubyte").write_bytes(header + array.tobytes())
    return folder


def refused(capsys, *arguments, copies=0):
    """Runs a command that must end with code 2 before anything compiles; returns the lines on stderr.

    `copies`: programs that only put the points on the accelerator, which may come before the refusal.
    """
    before, start = len(COMPILED), time.monotonic()
    with pytest.raises(SystemExit) as caught:
        commands.main([str(argument) for argument in arguments])
    assert time.monotonic() - start < 10
    assert len(COMPILED) <= before + copies
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert not out
    return err.splitlines()


def one_line(lines, *words):
    """Checks that the reason is one line, the last; before it may stand the machine and what was noticed."""
    reasons = [line for line in lines if line.startswith("d2djax: ")]
    assert reasons == lines[-1:], lines
    assert len(lines) <= 4
    for word in words:
        assert str(word) in reasons[0], reasons[0]


# --- bad input ---


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--num-devices", "1"], ["num_devices", "at least 2", "got 1"]),
        (["--classes-per-device", "12"], ["classes_per_device", "11 classes", "got 12"]),
        (["--transmit-power", "-1"], ["transmit_power", "in [1e-12, 1e6]", "got -1"]),
        (["--max-outage", "1"], ["max_outage", "in [1e-12, 1)", "got 1"]),
        (["--aggregation-interval", "33"], ["aggregation_interval", "divisor of num_steps, 500", "got 33"]),
        (["--aggregation-interval", "0"], ["aggregation_interval", "at least 1", "got 0"]),
        (["--gamma", "nan"], ["gamma", "finite", "nan"]),
        (["--policies", "rl", "rl"], ["policies", "without repeats"]),
        (["--seeds", "0"], ["seeds", "at least 1", "got 0"]),
        (["--seeds", "-2"], ["seeds", "at least 1", "got -2"]),
    ],
)
def test_settings_out_of_range(capsys, stops_before_compiling, arguments, words):
    lines = refused(capsys, "run", *arguments)
    assert len(lines) == 1
    one_line(lines, *words)


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["run", "--dataset", "mnist"], "mnist"),
        (["run", "--nmu-devices", "3"], "nmu-devices"),
        (["run", "--num-devices", "many"], "many"),
        (["run", "--policies", "rl", "best"], "best"),
        (["run", "--num-devices"], "num-devices"),
        (["train"], "train"),
    ],
)
def test_arguments_that_the_parser_refuses(capsys, stops_before_compiling, arguments, word):
    assert word in "\n".join(refused(capsys, *arguments))


def run_toy(folder, *arguments):
    return ["run", *TOY, "--data-dir", folder, *arguments]


def test_more_points_than_there_are(capsys, stops_before_compiling, idx_folder):
    lines = refused(capsys, *run_toy(idx_folder, "--points-per-device", 600), copies=1)
    # Five devices with three of ten classes: two share a class, each wants 200 of its 32 training points.
    one_line(lines, "points_per_device=600", "needs up to 400", "'T-shirt/top'", "32 are available")


def test_missing_folder(capsys, stops_before_compiling, tmp_path):
    one_line(refused(capsys, *run_toy(tmp_path / "nowhere")), "fashion_mnist", tmp_path / "nowhere", "missing")


def test_truncated_file(capsys, stops_before_compiling, idx_folder, tmp_path):
    for path in idx_folder.iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[:1000] if path.name == "train-images-idx3-ubyte" else content)
    lines = refused(capsys, *run_toy(tmp_path))
    one_line(lines, tmp_path / "train-images-idx3-ubyte", "expected 235200 bytes", "found only 984")


def test_unknown_model(capsys, stops_before_compiling, idx_folder):
    message = "\n".join(refused(capsys, *run_toy(idx_folder, "--model", "vgg")))
    assert "vgg" in message and "radio_cnn" in message


def test_first_seed_out_of_range(capsys, stops_before_compiling, idx_folder):
    one_line(refused(capsys, *run_toy(idx_folder, "--first-seed", -1)), "seed")


def test_out_that_is_a_file(capsys, stops_before_compiling, idx_folder, tmp_path):
    # Noticed before the hours of work whose results it cannot take.
    (tmp_path / "taken").write_text("mine")
    one_line(refused(capsys, *run_toy(idx_folder, "--out", tmp_path / "taken")), tmp_path / "taken")


def test_gpu_that_is_required_but_missing(capsys, stops_before_compiling, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    one_line(refused(capsys, "run", "--require-gpu"), "--require-gpu", "no GPU or TPU")


@pytest.mark.parametrize(
    "content, words",
    [
        (None, ["No such file"]),
        (b"num_devices: 5\n", ["not a TOML file"]),
        (b"\xff\xfe", ["not a TOML file"]),
    ],
)
def test_config_file_that_cannot_be_read(capsys, stops_before_compiling, tmp_path, content, words):
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    lines = refused(capsys, "run", "--config", path)
    assert len(lines) == 1
    one_line(lines, path, *words)


def test_range_is_checked_in_a_config_file_too(capsys, stops_before_compiling, tmp_path):
    (tmp_path / "config.toml").write_text("num_devices = 1\n")
    one_line(refused(capsys, "run", "--config", "config.toml"), "num_devices", "got 1")


def test_exit_code_of_the_process():
    environment = os.environ | {"PYTHONPATH": str(Path(d2djax.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-m", "d2djax", "run", "--num-devices", "1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "d2djax: num_devices must be at least 2; got 1\n"


# --- config files ---


@pytest.fixture
def parsed(monkeypatch):
    """Parses a command line without running it."""
    seen = []
    monkeypatch.setitem(commands.COMMANDS, "run", (commands.Run, seen.append))

    def parse(*arguments):
        commands.main(["run", *map(str, arguments)])
        return seen.pop()

    return parse


CHANGED = Config(
    dataset="cifar10",
    data_dir="a folder/with blanks",
    min_snr=-10,
    policies=("pooled", "none"),
    num_devices=7,
    noise_power=1.5e-15,
    rate=0.1 + 0.2,
    channel_model="mobility",
    score_fraction=0.25,
    initial_value=-1e-5,
    reference_weights=(3.0, 0.0, 0.125, 1.5),
    points_per_device=41,
    model="radio_cnn",
    learning_rate=3.0,
    delivery="sampled",
)


@pytest.mark.parametrize("config", [CHANGED, Config(), replace(Config(), initial_value=-2.5, min_snr=-20)])
def test_config_file_round_trip(parsed, tmp_path, config):
    (tmp_path / "config.toml").write_text(arguments.file_text(commands.Run(config)))
    assert parsed("--config", tmp_path / "config.toml").config == config


def test_round_trip_changes_every_kind_of_field():
    changed = {field.name for field in fields(Config) if getattr(CHANGED, field.name) != field.default}
    kinds = {type(getattr(CHANGED, name)) for name in changed}
    assert kinds == {int, float, str, tuple}


def test_command_line_wins_over_the_file(parsed, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('num_devices = 7\npolicies = ["none", "rl"]\nseeds = 9\ngamma = 0.125\n')
    command = parsed("--num-devices", 8, "--config", path, "--policies", "pooled")
    assert command.config == replace(Config(), num_devices=8, policies=("pooled",), gamma=0.125)
    assert command.seeds == 9


def test_config_in_one_word(parsed, tmp_path):
    (tmp_path / "a=b.toml").write_text("num_devices = 7\n")
    assert parsed(f"--config={tmp_path / 'a=b.toml'}", "--seeds", 2).config == replace(Config(), num_devices=7)


def test_defaults(parsed):
    command = parsed()
    assert command == commands.Run()
    assert command.config == Config()


# --- info and the machine ---


def test_info(capsys):
    commands.main(["info"])
    out, err = capsys.readouterr()
    for name in ("d2djax", "jax", "jaxlib", "flax", "numpy", "zarr"):
        assert f"{name} {metadata.version(name)}" in out
    for kind in machine.device_names():
        assert kind in out
    assert f"{machine.num_cores()}" in out
    assert jax.default_backend() in out
    assert not err


@pytest.mark.parametrize("file, word", [("/dev/nvidia0", "NVIDIA GPU"), ("/dev/accel0", "TPU")])
def test_accelerator_that_is_not_used_is_named(capsys, monkeypatch, stops_before_compiling, idx_folder, file, word):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    exists = Path.exists

    def claims(path, **options):
        hidden = ("/dev/nvidia0", "/dev/accel0", "/proc/driver/nvidia/version")
        return str(path) == file if str(path) in hidden else exists(path, **options)

    monkeypatch.setattr(Path, "exists", claims)
    assert word in machine.silent_fallback()
    commands.main(["info"])
    assert word in capsys.readouterr().out
    with pytest.raises(StartedError):
        commands.main(list(map(str, run_toy(idx_folder))))
    assert f"warning: this machine has a{'n' if word[0] == 'N' else ''} {word}" in capsys.readouterr().err


def test_nothing_is_named_where_there_is_no_accelerator(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert machine.silent_fallback() is None


# --- progress ---


def test_progress_starts_before_anything_compiles(capsys, stops_before_compiling, idx_folder):
    before = len(COMPILED)
    with pytest.raises(StartedError):
        commands.main(list(map(str, run_toy(idx_folder, "--seeds", 3))))
    assert len(COMPILED) == before
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"d2djax {metadata.version('d2djax')}, jax {jax.__version__}, ")
    assert any(line.startswith("data: fashion_mnist, 400 points") for line in lines)
    assert lines[-1] == "network: 0/3, compiling"


def test_folder_with_brackets_is_shown_as_it_is(capsys, stops_before_compiling, idx_folder, tmp_path):
    folder = tmp_path / "seeds[a]"
    folder.symlink_to(idx_folder)
    with pytest.raises(StartedError):
        commands.main(list(map(str, run_toy(folder))))
    assert str(folder) in capsys.readouterr().err


# --- a whole run ---


@pytest.fixture(scope="module")
def toy(idx_folder, tmp_path_factory):
    """Folder of results, standard output and standard error of a whole run of the default policies."""
    base = tmp_path_factory.mktemp("toy")
    # Longer than the 80 characters to which a log without a terminal might be broken.
    folder, out, err = base / ("long-" * 20) / "out", base / "stdout", base / "stderr"
    with pytest.MonkeyPatch.context() as patch, out.open("w") as stdout, err.open("w") as stderr:
        patch.setenv("D2DJAX_CACHE", "0")
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        commands.main(list(map(str, run_toy(idx_folder, "--seeds", 2, "--first-seed", 7, "--out", folder))))
    return folder, out.read_text(), err.read_text()


def test_run_writes_everything(toy):
    folder, _, _ = toy
    pictures = ("accuracy", "graph", "reward")
    files = {"config.toml", "manifest.json", "results.zarr", *(f"{name}.csv" for name in pictures)}
    assert {entry.name for entry in folder.iterdir()} == files | {f"{name}.png" for name in pictures}
    for name in pictures:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    found = results.read(folder / "results.zarr")
    assert found["run"].values.tolist() == [7, 8]
    assert found["policy"].values.tolist() == ["none", "uniform", "rl"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == json.loads(found.attrs["manifest"])
    assert manifest["seeds"] == [7, 8]


@pytest.mark.parametrize("name", ["config.toml", "manifest.json"])
def test_a_run_repeats_from_its_files(toy, idx_folder, capsys, tmp_path, name):
    folder, _, _ = toy
    # A manifest says what the data were, not where.
    place = ["--data-dir", str(idx_folder)] if name == "manifest.json" else []
    commands.main(["run", "--config", str(folder / name), "--out", str(tmp_path / "again"), *place])
    again = results.read(tmp_path / "again" / "results.zarr")
    assert again["run"].values.tolist() == [7, 8]
    xarray.testing.assert_identical(again.drop_attrs(), results.read(folder / "results.zarr").drop_attrs())
    if name == "config.toml":
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_a_sweep_repeats_from_its_file(idx_folder, capsys, tmp_path):
    axes = ["--axis", "rate=1,2", "--axis", "gamma=0:0.2:0.1", "--seeds", "3,5", "--no-training"]
    words = ["sweep", *TOY, "--data-dir", idx_folder, "--policies", "uniform", *axes, "--out", tmp_path / "first"]
    commands.main(list(map(str, words)))
    text = (tmp_path / "first" / "config.toml").read_text()
    assert 'command = "sweep"' in text and "training = false" in text and "seeds = [\n    3,\n    5,\n]" in text
    commands.main(["sweep", "--config", str(tmp_path / "first/config.toml"), "--out", str(tmp_path / "again")])
    first, again = (results.read(tmp_path / one / "results.zarr") for one in ("first", "again"))
    assert list(again.sizes)[:3] == ["rate", "gamma", "run"]
    assert again["gamma"].values.tolist() == [0, 0.1, 0.2]
    xarray.testing.assert_identical(again.drop_attrs(), first.drop_attrs())
    assert (tmp_path / "again/config.toml").read_text() == text


def test_a_search_repeats_from_its_file_and_its_best_trial_as_a_run(idx_folder, capsys, tmp_path):
    own = [
        "--axis",
        "field_size=uniform:200:600",
        "--objective",
        "reliability",
        "points_sent",
        "--trials",
        4,
        "--batch",
        2,
    ]
    own += ["--seeds", "2,9", "--policy", "uniform", "--sampler-seed", 5]
    words = ["search", *TOY, "--data-dir", idx_folder, *own, "--out", tmp_path / "first"]
    commands.main(list(map(str, words)))
    commands.main(["search", "--config", str(tmp_path / "first/config.toml"), "--out", str(tmp_path / "again")])
    first, again = (results.read(tmp_path / one / "results.zarr") for one in ("first", "again"))
    xarray.testing.assert_identical(again.drop_attrs(), first.drop_attrs())
    for name in ("config.toml", "best.toml"):
        assert (tmp_path / "again" / name).read_text() == (tmp_path / "first" / name).read_text()
    # Of the trials that no other beats, the best in the first objective.
    front = first.isel(trial=np.flatnonzero(first["is_best"].values))
    best = front.isel(trial=int(front["reliability"].mean("run").argmax("trial")))
    command, _ = parse(["run", "--config", str(tmp_path / "first/best.toml")], {"run": commands.Run})
    assert command.config.field_size == float(best["field_size"])
    assert (command.seeds, command.config.policies) == ((2, 9), ("none", "uniform", "rl"))
    commands.main(["run", "--config", str(tmp_path / "first/best.toml"), "--out", str(tmp_path / "best")])
    run = results.read(tmp_path / "best/results.zarr").sel(policy="uniform")
    assert run["run"].values.tolist() == [2, 9]
    assert run["points_moved"].values.tolist() == best["points_sent"].values.tolist()
    np.testing.assert_allclose(1 - run["graph_outage"].mean("state"), best["reliability"], rtol=1e-6)


OWN_POLICIES = ("my_ucb", "greedy", "neural", "ring")


@pytest.mark.slow
def test_own_policies_from_a_file_are_run_shown_and_repeated(idx_folder, capsys, tmp_path):
    recipe, folder, page = Path(__file__).with_name("own_ideas.py"), tmp_path / "run", tmp_path / "page.html"
    commands.main(
        list(
            map(
                str,
                run_toy(idx_folder, "--recipe", recipe, "--policies", "none", "rl", "--seeds", 3, "--out", folder),
            )
        )
    )
    shown = capsys.readouterr().out
    found = results.read(folder / "results.zarr")
    assert found["policy"].values.tolist() == ["none", "rl", *OWN_POLICIES] and (found["status"] == 0).all()
    tables = [line.split() for line in shown.splitlines()]
    for name in OWN_POLICIES:
        # In the table of all policies, and in that of what they take to the accuracy of none.
        assert sum(name in words for words in tables) >= 2, shown
        curve = (folder / "accuracy.csv").read_text()
        assert name in curve
    for name in ("accuracy", "graph", "reward"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    learning = (folder / "reward.csv").read_text()
    assert all((f"{name}, while it learns" in learning) == (name != "ring") for name in OWN_POLICIES)
    commands.main(["report", str(folder), "-o", str(page)])
    assert all(f'"{name}"' in page.read_text() for name in OWN_POLICIES)
    words = ["run", "--config", folder / "manifest.json", "--data-dir", idx_folder, "--out", tmp_path / "again"]
    commands.main(list(map(str, words)))
    again = results.read(tmp_path / "again" / "results.zarr")
    xarray.testing.assert_identical(again.drop_attrs(), found.drop_attrs())


def test_numbers_of_own_policies_from_a_file_are_sought(idx_folder, capsys, tmp_path):
    recipe = f"{Path(__file__).with_name('own_ideas.py')}:ucb_alone"
    own = ["--recipe", recipe, "--policy", "my_ucb", "--axis", "my_ucb.width=uniform:0:3", "--objective", "reward"]
    words = ["search", *TOY, *own, "--trials", 2, "--batch", 2, "--seeds", 2, "--out", tmp_path]
    commands.main(list(map(str, words)))
    trials = results.read(tmp_path / "results.zarr")
    assert trials.sizes == {"trial": 2, "run": 2} and len(set(trials["my_ucb.width"].values)) == 2
    assert "my_ucb.width" in capsys.readouterr().out
    best = float(trials["my_ucb.width"][int(trials["is_best"].argmax("trial"))])
    # With that number, the best trial is a run as any other, which its own files repeat.
    assert f"my_ucb.width={best!r}" in (tmp_path / "best.toml").read_text()
    few = ["--policies", "none", "--data-dir", idx_folder, "--out"]
    commands.main(["run", "--config", str(tmp_path / "best.toml"), *map(str, few), str(tmp_path / "best")])
    found = results.read(tmp_path / "best" / "results.zarr")
    assert json.loads(found.attrs["manifest"])["recipe"]["policies"]["my_ucb"]["numbers"] == {"width": best}
    reward = found["graph_reference_reward"].sel(policy="my_ucb").mean("state")
    at = trials.isel(trial=int(trials["is_best"].argmax("trial")))
    np.testing.assert_allclose(reward, at["reward"], rtol=1e-6)
    for name in ("config.toml", "manifest.json"):
        command, _ = parse(["run", "--config", str(tmp_path / "best" / name)], {"run": commands.Run})
        assert f"my_ucb.width={best!r}" in command.number


@pytest.mark.parametrize(
    "words, rule",
    [
        (["--number", "my_ucb.width=1"], "needs --recipe"),
        (["--recipe", "own_ideas.py", "--number", "my_ucb.width"], "expected NAME=VALUE"),
        (["--recipe", "own_ideas.py", "--number", "my_ucb.widt=1"], "did you mean 'my_ucb.width'"),
        (["--recipe", "own_ideas.py", "--number", "gamma=1"], "must be a number of the recipe's code"),
        (["--recipe", "own_ideas.py", "--number", "my_ucb.width=wide"], "my_ucb.width must be"),
    ],
)
def test_wrong_numbers_of_code_of_ones_own_are_one_line(words, rule, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(ValueError, match=rule) as caught:
        arguments.recipe_of(parse(["run", *words], {"run": commands.Run})[0])
    assert "\n" not in str(caught.value)


def test_the_file_of_a_sweep_is_there_before_its_work_and_not_changed_by_one_that_is_refused(
    tiny_config, tiny_dataset, monkeypatch, tmp_path
):
    def stop(*_, **__):
        raise StartedError

    monkeypatch.setattr("d2djax.running.plan.compute", stop)
    options = {"data": tiny_dataset, "training": False, "progress": False}
    with pytest.raises(StartedError):
        d2djax.sweep(tiny_config, {"gamma": [0.0, 1.0]}, [4], tmp_path, **options)
    text = (tmp_path / "config.toml").read_text()
    assert 'axis = [\n    "gamma=0.0,1.0",\n]' in text and "first_seed = 4" in text and "\ngamma" not in text
    # Only Python has the data.
    with pytest.raises(ValueError, match=r"config.toml: data were given in Python; only d2djax.sweep"):
        parse(["sweep", "--config", str(tmp_path / "config.toml")], {"sweep": commands.Sweep})
    with pytest.raises(ValueError, match="rate"):
        d2djax.sweep(replace(tiny_config, rate=3.0), {"gamma": [0.0, 1.0]}, [4], tmp_path, **options)
    assert (tmp_path / "config.toml").read_text() == text


def test_the_file_of_points_from_python(tiny_config, tiny_dataset, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise StartedError

    monkeypatch.setattr("d2djax.running.plan.compute", stop)
    points = [{"score_fraction": None, "gamma": 0.1}, {"score_fraction": 0.5, "gamma": 1 / 3}]
    with pytest.raises(StartedError):
        d2djax.sweep(tiny_config, points, [9, 4], tmp_path, data=tiny_dataset, training=False, progress=False)
    path = tmp_path / "config.toml"
    path.write_text(re.sub(r"given_in_python = \[[^]]*\]", "", path.read_text()))
    command, _ = parse(["sweep", "--config", str(path)], {"sweep": commands.Sweep})
    assert arguments.axes(command.axis, command.random, command.draw_seed, command.points) == points
    assert (command.seeds, command.training) == ((9, 4), False)
    assert command.config == replace(tiny_config, score_fraction=None, gamma=Config.gamma)


def cells(line):
    return [cell.strip() for cell in line.replace("│", "|").replace("┃", "|").strip("|").split("|")]


def rows_of(out):
    return {row[0]: row for row in map(cells, out.splitlines()) if row[0] in ("none", "uniform", "rl")}


def test_costs_to_the_accuracy_of_none(toy):
    folder, out, _ = toy
    found = results.read(folder / "results.zarr")
    rows = rows_of(out.split("cost to reach")[1])
    assert set(rows) == {"none", "uniform", "rl"}
    accuracy = found["accuracy"].transpose("run", "policy", "round").values
    for number, name in enumerate(["none", "uniform", "rl"]):
        steps, reached = [], 0
        for run in range(2):
            target = accuracy[run, 0, -1]
            first = [
                step
                for step, value in zip(found["round"].values, accuracy[run, number], strict=True)
                if step > 0 and value >= target
            ]
            reached += bool(first)
            # A run that never reaches the target counts with all of its steps.
            steps.append(first[0] if first else found["round"].values[-1])
        sign = "" if reached == 2 else "≥ "
        assert rows[name][1] == f"{reached}/2"
        assert rows[name][2] == f"{sign}{np.mean(steps):.0f}"
        aggregations = np.array(steps) / json.loads(found.attrs["manifest"])["config"]["aggregation_interval"]
        bits = (aggregations * found["upload_bits"].values).mean()
        assert rows[name][3] == f"{sign}{bits / 1e6:,.4g}"
        parts = found[["exchange_energy", "control_energy"]].sel(policy=name).mean("run")
        uploads = (aggregations * found["upload_energy"].values).mean()
        joules = [float(parts["exchange_energy"]), float(parts["control_energy"])]
        assert rows[name][4:6] == [f"{one:,.3g}" for one in joules]
        assert rows[name][7] == f"{sign}{sum(joules) + uploads:,.4g}"


def test_download_says_where_the_files_are(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("d2djax.data.download", lambda name, folder, progressbar: folder / name)
    commands.main(["download", "cifar10", "--data-dir", str(tmp_path)])
    assert capsys.readouterr().out == f"cifar10: {tmp_path / 'cifar10'}\n"


def test_download_that_fails_is_one_line(capsys, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("")
    one_line(refused(capsys, "download", "fashion_mnist", "--data-dir", taken), taken, "by hand")


def test_table_holds_every_policy(toy):
    folder, out, _ = toy
    found = results.read(folder / "results.zarr")
    accuracy = found["accuracy"].sel(policy=["none", "uniform", "rl"]).values
    rows = rows_of(out.split("cost to reach")[0])
    assert set(rows) == {"none", "uniform", "rl"}
    for number, (name, row) in enumerate(rows.items()):
        assert row[1].startswith(f"{accuracy[:, number, -1].mean():.4f}"), name
        assert row[2].startswith(f"{accuracy[:, number, 1:].mean():.4f}"), name
        held = (found["counts"].values[:, number] > 0).sum(axis=-1).mean()
        assert row[-1] == f"{held:.2f}", name
    mean = accuracy[..., 1:].mean(axis=-1)
    for number, name in ((1, "uniform"), (2, "rl")):
        difference = mean[:, number] - mean[:, 0]
        assert rows[name][3].startswith(f"{difference.mean():+.4f}"), name
        assert rows[name][4] == f"{(difference > 0).sum()}/2", name
    assert rows["none"][3:5] == ["", ""]


def test_run_says_where_the_results_are(toy):
    folder, out, _ = toy
    # One piece, so that it can be copied: not broken into lines of 80 characters.
    assert str(folder) in out
    assert "accuracy.png" in out


def test_progress_lines_are_plain(toy):
    _, _, err = toy
    assert "\x1b" not in err and "\r" not in err
    lines = err.splitlines()
    for line in ("discovery: 0/2, compiling", "training: 0/6, compiling"):
        assert line in lines
    for name, total in (("discovery", 2), ("training", 6)):
        assert any(line.startswith(f"{name}: {total}/{total}, ") and line.endswith(" 0:00 left") for line in lines)


def test_nothing_diverged(toy):
    folder, _, err = toy
    assert "diverged" not in err
    assert (results.read(folder / "results.zarr")["status"] == 0).all()


# --- what the README says of results ---


def variable_rows(found):
    """The README's table of variables; graphs are valued alike while policies learn and in the end."""
    rows = ["| variable | dimensions | unit | meaning |", "|---|---|---|---|"]
    for name, one in found.data_vars.items():
        learning = found.get(name.replace("graph_", "discovery_"))
        if name.startswith("discovery_") and name.replace("discovery_", "graph_") in found:
            continue
        dims, meaning = [", ".join(dim for dim in one.dims if dim != "run")], one.attrs["long_name"]
        names = f"`{name}`"
        if learning is not None and name.startswith("graph_"):
            names += f", `{learning.name}`"
            dims += ["policy, episode"]
            meaning = meaning.removesuffix(", in each state")
            assert learning.attrs["units"] == one.attrs["units"]
            assert learning.attrs["long_name"] == f"{meaning}, during discovery"
        rows.append(f"| {names} | {'; '.join(dims)} | {one.attrs['units']} | {meaning} |")
    return "\n".join(rows)


def test_the_readme_lists_all_variables(toy):
    folder, _, _ = toy
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    found = readme.split("<!-- variables -->")[1].split("<!-- end of variables -->")[0].strip()
    # To renew it, copy what is expected.
    assert found == variable_rows(results.read(folder / "results.zarr"))


# --- where results go ---


def folder_of(path, kind):
    """A folder as a command leaves it, as far as its kind goes."""
    store = path / "results.zarr"
    for name in {"run": ["status"], "sweep": ["status", "done"], "search": ["trial", "is_best"]}[kind]:
        (store / name).mkdir(parents=True)
    (store / "zarr.json").write_text(json.dumps({"attributes": {"manifest": "{}"}}))
    if kind == "search":
        (path / "journal.log").write_text('{"op_code": 0}\n')
    return path


COMMANDS = {
    "run": ["run"],
    "sweep": ["sweep", "--axis", "gamma=0,1"],
    "search": ["search", "--axis", "gamma=uniform:0:1"],
    "figure": ["figure", "2a"],
}


def everything_in(path):
    return {str(one): one.is_file() and one.read_bytes() for one in path.rglob("*")}


@pytest.mark.parametrize("there", ["run", "sweep", "search"])
@pytest.mark.parametrize("command", list(COMMANDS))
def test_results_of_another_command_stay(capsys, stops_before_compiling, tmp_path, command, there):
    if command == there != "run":
        return
    out = folder_of(tmp_path / "out", there)
    before = everything_in(tmp_path)
    lines = refused(capsys, *COMMANDS[command], "--out", out)
    assert len(lines) == 1
    words = ["--overwrite replaces them"] if command == there else [there, "choose another folder"]
    one_line(lines, f"--out {out}", *words)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize(
    "command, name",
    [
        *(("run", name) for name in ("accuracy.png", "config.toml", "results.zarr")),
        ("figure", "toy/2a.png"),
        ("sweep", "results.zarr"),
        ("search", "journal.log"),
    ],
)
def test_files_of_others_stay(capsys, stops_before_compiling, tmp_path, command, name):
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    (tmp_path / "out" / "notes.txt").write_text("of no concern")
    one_line(refused(capsys, *COMMANDS[command], "--out", tmp_path / "out"), mine, "choose another folder")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("command", list(COMMANDS))
@pytest.mark.parametrize("out", ["/dev/null", "/proc/d2djax", "~nobody-of-this-name/x"])
def test_folders_that_cannot_be_written_are_known_first(capsys, stops_before_compiling, command, out):
    lines = refused(capsys, *COMMANDS[command], "--out", out)
    assert len(lines) == 1
    one_line(lines, "--out", out)


def test_report_replaces_nothing_but_a_report(capsys, tmp_path):
    (tmp_path / "mine.html").write_text("<title>mine</title>")
    (tmp_path / "link.html").symlink_to(tmp_path / "mine.html")
    places = {
        "mine.html": "not a report",
        "link.html": "found a link",
        "/dev/null": "found a device",
        ".": "a folder",
    }
    for out, words in places.items():
        one_line(refused(capsys, "report", tmp_path, "-o", tmp_path / out), words)
    assert (tmp_path / "mine.html").read_text() == "<title>mine</title>"
    assert (tmp_path / "link.html").is_symlink() and not Path("/dev/null").is_file()


def test_a_second_run_replaces_the_first_only_when_it_is_asked_to(toy, capsys, monkeypatch, tmp_path):
    folder, _, _ = toy
    found = results.read(folder / "results.zarr").load()
    monkeypatch.setattr("d2djax.running.runs.run", lambda *_, **__: found.sel(policy=["none", "uniform"]))
    out = tmp_path / "~" / "out"
    monkeypatch.setenv("HOME", str(tmp_path / "~"))
    shutil.copytree(folder, out)
    (out / "notes.txt").write_text("mine")
    before = everything_in(out)
    arguments = ["run", *map(str, TOY), "--policies", "none", "uniform", "--out", "~/out"]
    one_line(refused(capsys, *arguments), out, "--overwrite")
    assert everything_in(out) == before
    commands.main([*arguments, "--overwrite"])
    # Nothing of the run before is left beside: it had a graph and a reward.
    names = ["accuracy.csv", "accuracy.png", "config.toml", "manifest.json", "notes.txt", "results.zarr"]
    assert sorted(one.name for one in out.iterdir()) == names
    assert results.read(out / "results.zarr")["policy"].values.tolist() == ["none", "uniform"]


@pytest.mark.parametrize("fails", ["always", "pictures"])
def test_a_disk_that_is_full_in_the_end_loses_nothing(toy, capsys, monkeypatch, tmp_path, fails):
    folder, _, _ = toy
    found = results.read(folder / "results.zarr").load()
    monkeypatch.setattr("d2djax.running.runs.run", lambda *_, **__: found)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    (tmp_path / "spare").mkdir()
    out = tmp_path / "out"
    replace_file = os.replace

    def full(source, target):
        if out in Path(target).parents and (fails == "always" or Path(target).suffix == ".png"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SystemExit) as caught:
        commands.main(["run", *map(str, TOY), "--out", str(out)])
    printed, err = capsys.readouterr()
    assert caught.value.code == 1 and "Traceback" not in err and rows_of(printed)
    last = err.splitlines()[-1]
    assert last.startswith(f"d2djax: --out {out}: ") and "No space left on device" in last
    place = out if fails == "pictures" else next((tmp_path / "spare").iterdir())
    assert last.endswith(f"the results were saved in {place}")
    xarray.testing.assert_identical(results.read(place / "results.zarr").load(), found)
    assert (place / "config.toml").exists()
    assert (place / "accuracy.png").exists() == (fails == "always")


# --- damage ---


def test_damaged_results_are_named(toy, capsys, tmp_path):
    folder, _, _ = toy
    store = shutil.copytree(folder, tmp_path / "out") / "results.zarr"
    chunk = next(one for one in (store / "accuracy" / "c").rglob("*") if one.is_file())
    chunk.write_bytes(b"not what it was")
    one_line(refused(capsys, "report", tmp_path / "out"), store / "accuracy", "damaged")
    (store / "zarr.json").write_text("{")
    one_line(refused(capsys, "report", tmp_path / "out"), store, "damaged")
    (store / "zarr.json").unlink()
    one_line(refused(capsys, "report", tmp_path / "out"), store / "zarr.json", "missing")
    shutil.rmtree(store)
    one_line(refused(capsys, "report", tmp_path / "out"), tmp_path / "out", "no results here")
    assert not Path("report.html").exists()


def test_results_without_a_manifest_are_no_report(toy, capsys, tmp_path):
    folder, _, _ = toy
    found = results.read(folder / "results.zarr").load()
    found.attrs = {}
    results.save(found, tmp_path / "results.zarr")
    one_line(refused(capsys, "report", tmp_path), "lack the manifest")


def test_signs_that_the_output_lacks_lose_nothing(toy, monkeypatch, tmp_path):
    folder, _, _ = toy
    found = results.read(folder / "results.zarr").load()
    monkeypatch.setattr("d2djax.running.runs.run", lambda *_, **__: found)
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        commands.main(["run", *map(str, TOY), "--out", str(tmp_path / "out")])
    text = stream.buffer.getvalue().decode("ascii")
    assert "+-" in text and rows_of(text)
    assert (tmp_path / "out" / "graph.png").exists()
