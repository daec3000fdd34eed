"""The command line and the files of settings: what they take, how they refuse the rest. Nothing compiles here."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from importlib import metadata
from pathlib import Path
from typing import get_args

import pytest

import d2djax
from d2djax.cli import arguments, options, parser
from d2djax.regimes import REGIMES, RegimeName
from d2djax.running import repeat
from d2djax.running.axes import Choice, LogUniform, Uniform
from d2djax.settings import Config, PolicyName

POLICIES = ", ".join(get_args(PolicyName))

COMMANDS = {
    "run": options.Run,
    "sweep": options.Sweep,
    "search": options.Search,
    "figure": options.Figure,
    "report": options.Report,
    "download": options.Download,
    "info": options.Info,
}
WITH_SETTINGS = ["run", "sweep", "search"]


def parse(*words):
    return parser.parse([str(word) for word in words], COMMANDS)


def refused(*words):
    """The message for a command line; it must be one line, no longer than a screen of three lines."""
    with pytest.raises(ValueError) as caught:
        parse(*words)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400, message
    return message


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes `settings.toml` into the folder that tests work in."""
    monkeypatch.chdir(tmp_path)

    def write(content):
        path = Path("settings.toml")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# --- help ---


def printed(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        parse(*words)
    assert not caught.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["sweep", "--help"], ["search", "--help"]])
def test_help_takes_well_under_a_second(words):
    # Without JAX. Time of the processor, as other work on the machine counts in no other; the best of two.
    root = Path(parser.__file__).parents[1]
    code = (
        "import resource, sys; from d2djax.cli import commands\n"
        "try: commands.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime, file=sys.stderr)\n"
        "assert not {'jax', 'numpy', 'xarray', 'matplotlib'} & set(sys.modules)"
    )
    seconds = []
    for _ in range(2):
        environment = os.environ | {"PYTHONPATH": str(root)}
        words_ = [sys.executable, "-c", code, *words]
        ended = subprocess.run(words_, env=environment, capture_output=True, text=True, check=True)
        seconds.append(float(ended.stderr.splitlines()[-1]))
    assert min(seconds) < 1


def test_version(capsys):
    stated = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["version"]
    assert metadata.version("d2djax") == stated, (
        "installed before pyproject.toml changed: uv pip install --no-deps -e ."
    )
    assert d2djax.__version__ == stated and printed(capsys, "--version") == f"d2djax {stated}\n"


def test_a_folder_that_is_not_installed_has_no_version(capsys, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert printed(capsys, "--version") == "d2djax (not installed)\n"
    with pytest.raises(AttributeError, match="d2djax is not installed"):
        d2djax.__version__  # noqa: B018


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_settings_stand_in_groups_and_every_option_is_described(capsys, command):
    text = printed(capsys, command, "--help")
    groups = ["data", "network", "channel", "trust", "reward", "policy", "energy", "training", "output and machine"]
    places = [text.index(f"\n{group}:\n") for group in groups]
    assert places == sorted(places)
    assert "--config FILE" in text and "Static" not in text and "[[" not in text
    found, words = parser.options_of(COMMANDS[command]), re.findall(r"--[\w-]+", text)
    for option in found.values():
        assert len(option.help.split()) >= 2 or option.metadata.get("from_file"), option.name
        assert ("--" + option.name.replace("_", "-") in words) != bool(option.metadata.get("from_file"))
    placed = {"gamma": "reward", "rate": "channel", "policies": "policy", "min_snr": "data", "out": groups[-1]}
    assert {name: found[name].group for name in placed} == placed


def test_groups_begin_at_settings_that_exist_and_hold_them_all():
    names = [item.name for item in dataclasses.fields(Config)]
    assert set(options.SETTING_GROUPS) <= set(names) and next(iter(options.SETTING_GROUPS)) == names[0]
    for kind in COMMANDS.values():
        assert {option.group for option in parser.options_of(kind).values()} <= set(options.GROUPS)


def test_units_are_in_the_help():
    found = parser.options_of(options.Run)
    units = {
        **dict.fromkeys(("field_size", "hotspot_spread", "mobility_step"), "m"),
        **dict.fromkeys(("transmit_power", "noise_power", "d2d_power", "d2s_power", "circuit_power"), "W"),
        **dict.fromkeys(("receive_power",), "W"),
        **{"min_snr": "dB", "shadowing_std": "dB", "rate": "bit/s/Hz", "bandwidth": "Hz"},
    }
    for name, unit in units.items():
        assert any(f", {unit}{end}" in found[name].help for end in ".;"), name


def test_choices_are_named(capsys):
    text = " ".join(printed(capsys, "run", "--help").split())
    assert "--scheme fedavg|fedprox|fedsgd" in text
    assert f"Any of {POLICIES}." in text
    text = " ".join(printed(capsys, "figure", "--help").split())
    assert "usage: d2djax figure NAMES [OPTIONS]" in text and "2a to 2h of the paper" in text and "[[" not in text
    assert "fashion_mnist|cifar10" in printed(capsys, "download", "--help")


# --- the command line ---


def test_defaults_are_those_of_the_fields():
    for name, kind in COMMANDS.items():
        if name not in ("figure", "report", "download"):
            assert parse(name) == (kind(), [])
    assert parse("figure", "2a", "all")[0] == options.Figure(("2a", "all"))
    assert parse("report", "a/b", "-o", "c.html")[0] == options.Report(Path("a/b"), Path("c.html"))


def test_values_become_the_kinds_of_their_fields():
    words = "--initial-value -1e-5 --num_devices 1e1 --policies rl none --score-fraction=None --seeds 3,7"
    words += " --data-dir 5 --min-snr -20 --require-gpu --rate 2 --out ~/a"
    command, _ = parse("run", *words.split())
    assert command.config == Config(
        initial_value=-1e-5, num_devices=10, policies=("rl", "none"), data_dir="5", min_snr=-20, rate=2.0
    )
    assert (command.seeds, command.require_gpu, command.out) == ((3, 7), True, Path("~/a"))
    assert isinstance(command.config.rate, float) and isinstance(command.config.num_devices, int)
    command, _ = parse("sweep", "--axis", "gamma=0,1", "--axis=rate=1", "--no-training")
    assert (command.axis, command.training) == (("gamma=0,1", "rate=1"), False)
    weights = parse("run", "--reference-weights", 1, 2, "-.5", "1e-3")[0].config.reference_weights
    assert weights == (1.0, 2.0, -0.5, 0.001)


def test_a_preset_gives_settings_between_the_file_and_the_line(file):
    assert set(REGIMES) == set(get_args(RegimeName)) and d2djax.preset("paper") == Config()
    for name, settings in REGIMES.items():
        assert parse("sweep", "--preset", name)[0].config == d2djax.preset(name) == Config(**settings)
    path = file("min_classes = 5\npoints_per_device = 200\nrate = 2")
    command, notes = parse("run", "--preset", "scarce", "--config", path, "--points-per-device", 300)
    expected = d2djax.preset("scarce", points_per_device=300, rate=2.0)
    assert (command.config, notes) == (expected, []) and expected.min_classes == 7
    with pytest.raises(ValueError, match=r"preset must be one of paper, .*, strangers; got 'plenty'"):
        d2djax.preset("plenty")


@pytest.mark.parametrize("none", ["none", "None", "NONE"])
def test_none_in_every_spelling(file, none):
    for name in ("learning_rate", "initial_value", "score_fraction", "data_dir"):
        assert getattr(parse("run", f"--{name}", none)[0].config, name) is None
        assert getattr(parse("run", "--config", file(f"{name} = '{none}'"))[0].config, name) is None
    assert arguments.axis(f"score_fraction={none},0.5") == ("score_fraction", [None, 0.5])


@pytest.mark.parametrize(
    "words, message",
    [
        ("run --nmu-devices 3", "run has no option --nmu-devices; did you mean --num-devices?"),
        ("run --learningrate=.1", "run has no option --learningrate; did you mean --learning-rate?"),
        ("run --axis gamma=1", "run has no option --axis; it belongs to sweep, search"),
        ("run --no-training", "run has no option --no-training; it belongs to sweep"),
        ("run --points 1", "run has no option --points; it belongs to sweep"),
        ("info --config a.toml", "info has no option --config"),
        ("run 5", "run expects an option before each value; got '5'"),
        ("run --num-devices", "--num-devices: expected one argument"),
        ("run --num-devices many", "--num-devices must be a whole number; got 'many'"),
        ("run --num-devices 2.5", "--num-devices must be a whole number; got 2.5"),
        ("run --num-devices inf", "--num-devices must be a whole number; got inf"),
        ("run --gamma 0,5", "--gamma must be a number; got '0,5'"),
        ("run --score-fraction half", "--score-fraction must be a number or none; got 'half'"),
        ("run --dataset fashion-mnist", "cifar10, own; got 'fashion-mnist'; did you mean fashion_mnist?"),
        ("run --policies rl best", f"--policies must be one of {POLICIES}"),
        ("run --preset plenty", "--preset must be one of paper, contention, scarce, strangers; got 'plenty'"),
        ("info --preset paper", "info has no option --preset"),
        ("run --reference-weights 1 2", "--reference-weights: expected 4 arguments"),
        ("run --seeds 1,b", "--seeds must be a whole number; got 'b'"),
        ("run --seeds 1,2 --first-seed 4", "--first-seed needs a number of runs"),
        ("report", "the following arguments are required: PATH"),
        ("download mnist", "name must be one of fashion_mnist, cifar10; got 'mnist'"),
        ("train", "invalid choice: 'train'"),
        ("", "the following arguments are required: COMMAND"),
    ],
)  # fmt: skip
def test_one_line_for_what_is_wrong(words, message):
    assert message in refused(*words.split())


@pytest.mark.parametrize("words", ["2a 2b --seeds 3", "--seeds 3 2a 2b", "--seeds 3"])
def test_names_of_figures_may_stand_behind_options_or_be_left_out(words):
    command, _ = parse("figure", *words.split())
    assert command.seeds == 3 and command.names == (("2a", "2b") if "2a" in words else ())


LONG = ["9" * 100_000, "x" * 100_000, "-" * 100_000, "٣" * 9999]


@pytest.mark.parametrize("text", [*LONG, "\x00", "'\"\n", "1e999999"])
@pytest.mark.parametrize("name", ["num-devices", "gamma", "scheme", "seeds", "x" * 50_000])
def test_odd_words_are_one_line(name, text):
    if name == "gamma" and text[0].isdecimal():
        assert parse("run", "--gamma", text)[0].config.gamma == float("inf")
    else:
        refused("run", f"--{name}={text}")


# --- axes with steps ---


@pytest.mark.parametrize(
    "text, expected",
    [
        ("gamma=0:1:0.1", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
        ("num_devices=10:50:20", [10, 30, 50]),
        ("gamma=1:0:-0.25", [1, 0.75, 0.5, 0.25, 0]),
        ("gamma=-.1:.2:.15", [-0.1, 0.05, 0.2]),
        ("rate=1e-3:3e-3:1e-3", [0.001, 0.002, 0.003]),
        ("gamma=0:1:0.5,4, 8:10:2", [0, 0.5, 1, 4, 8, 10]),
        ("gamma=2:2:1", [2]),
    ],
)
def test_steps(text, expected):
    values = arguments.axis(text)[1]
    # As written, to the last digit: 0.30000000000000004 is another setting than 0.3.
    assert values == expected and list(map(repr, values)) == list(map(repr, expected))


@pytest.mark.parametrize(
    "text, message",
    [
        ("gamma=0:1:0.3", "steps of 0.3 from 0 do not reach 1; they end at 0.9"),
        ("gamma=0:1:0", "three numbers FIRST:LAST:STEP; got 0:1:0"),
        ("gamma=0:1:-0.1", "no steps of -0.1 lead from 0 to 1"),
        ("gamma=0:1", "three numbers FIRST:LAST:STEP; got 0:1"),
        ("gamma=unifrm:0:1", "three numbers FIRST:LAST:STEP; got unifrm:0:1"),
        ("gamma=0:inf:1", "three numbers"),
        ("gamma=nan:1:1", "three numbers"),
        ("gamma=0:1:1e-9", "at most 100,000 values"),
        ("gamma=0:1e999999:1e-999999", "three numbers"),
        ("gamma=0:1:a", "three numbers"),
    ],
)
def test_steps_that_lead_nowhere(text, message):
    with pytest.raises(ValueError) as caught:
        arguments.axis(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


# --- files ---


@pytest.mark.parametrize(
    "command",
    [
        options.Run(Config(num_devices=7, rate=0.1 + 0.2, initial_value=-1e-5, policies=("rl",)), 3, 5),
        options.Run(Config(data_dir='a "folder"\\with\nall', model="auto"), (4, 2)),
        options.Sweep(Config(rate=2.0), ("gamma=uniform:0:1", "score_fraction=none,.5"), (), 6, 2, 8, 1, False),
        options.Sweep(points=({"gamma": 0.1, "score_fraction": "none"}, {"gamma": 1 / 3, "score_fraction": 0.5})),
        options.Search(Config(), ("gamma=log:0.1:2",), ("energy", "reward"), "uniform", 3, 2, (5,), 9),
    ],
)  # fmt: skip
def test_the_file_of_a_command_gives_it_again(file, command):
    name = type(command).__name__.lower()
    path = file(arguments.file_text(command))
    assert parse(name, "--config", path) == (command, [])
    # Where results go, and what concerns the machine, is not the setting of anything.
    other = dataclasses.replace(command, out=Path("elsewhere"), require_gpu=True)
    assert arguments.file_text(other) == arguments.file_text(command)
    assert parse(name, "--out", "elsewhere", "--require-gpu", f"--config={path}") == (other, [])


def test_settings_left_to_the_data_set_stay_left_out(file):
    text = arguments.file_text(options.Run())
    for name in ("learning_rate", "num_classes", "points_per_device", "model", "initial_value", "data_dir"):
        assert f"\n{name} =" not in text
    assert "\nnum_devices = 25\n" in text


def test_settings_on_an_axis_are_not_in_the_file():
    text = arguments.file_text(options.Sweep(Config(gamma=3.0), ("gamma=0,1",)))
    assert "\ngamma =" not in text and "\nrate =" in text


def test_the_command_line_wins(file):
    sweep = options.Sweep(Config(rate=2.0), ("gamma=0,1", "threshold=5,6"), seeds=3, first_seed=8)
    path = file(arguments.file_text(sweep))
    words = ["--config", path, "--rate", 4, "--axis", "gamma=7", "--axis", "min_snr=0", "--seeds", 5]
    command, _ = parse("sweep", *words)
    # An axis of the same setting takes its place; the others stay, in their order.
    assert command.axis == ("gamma=7", "threshold=5,6", "min_snr=0")
    assert (command.config.rate, command.seeds, command.first_seed) == (4.0, 5, 8)
    # A list of seeds has no first one.
    assert parse("sweep", "--config", path, "--seeds", "1,2")[0].first_seed == 0
    assert "the file lists every seed" in refused("run", "--config", file("seeds = [1, 2]"), "--first-seed", 3)
    points = file("points = [{gamma = 1}]")
    assert "remove them from the file" in refused("sweep", "--config", points, "--axis", "gamma=1")


def test_the_file_of_another_command_gives_its_settings(file):
    sweep = options.Sweep(Config(rate=2.0), ("gamma=0,1",), seeds=9)
    command, notes = parse("run", "--config", file(arguments.file_text(sweep)))
    assert command == options.Run(Config(rate=2.0))
    assert notes == [
        "settings.toml was written by sweep: run takes its settings, not its axis, random, draw_seed, seeds, "
        "first_seed, training; it has no value for gamma"
    ]
    command, notes = parse("search", "--config", file(arguments.file_text(options.Run(Config(rate=3.0), 7))))
    assert command == options.Search(Config(rate=3.0)) and "was written by run" in notes[0]


def test_a_manifest_gives_the_run_again(file):
    config = dataclasses.asdict(Config(num_devices=7, num_classes=11, model="mlp"))
    for seeds, expected in (([5, 6], (2, 5)), ([3, 7], ((3, 7), 0))):
        command, notes = parse("run", "--config", file(json.dumps({"config": config, "seeds": seeds, "data": {}})))
        assert (command.seeds, command.first_seed) == expected and not notes
        assert command.config == Config(num_devices=7, num_classes=11, model="mlp")
    of_sweep = {"config": config, "seeds": [1], "axes": {"a": 1}}
    for wrong in ({}, {"config": config}, {"config": config, "seeds": "30"}, of_sweep):
        assert "settings.toml: not the manifest of a run" in refused("run", "--config", file(json.dumps(wrong)))


def test_the_run_of_data_of_ones_own_is_not_repeated_with_other_data(file):
    manifest = {"config": {"dataset": "radioml"}, "seeds": [0], "data": {"name": "mine"}}
    assert "the data set 'mine' was given in Python" in refused("run", "--config", file(json.dumps(manifest)))


def test_a_search_that_grew_is_repeated_with_a_word(file):
    notes = parse("search", "--config", file('command = "search"\ngrown = true\ntrials = 5'))[1]
    assert notes == ["settings.toml: seeds or trials were added to this search; repeating it may give other trials"]


def test_old_names_are_read_with_a_word(file):
    command, notes = parse("run", "--config", file('methods = ["rl", "none"]'))
    assert command.config.policies == ("rl", "none")
    assert notes == ["settings.toml: methods is now called policies"]
    assert "old name of policies" in refused("run", "--config", file('methods = ["rl"]\npolicies = ["rl"]'))


def test_a_byte_order_mark_and_both_ends_of_lines_are_fine(file):
    assert parse("run", "--config", file(b"\xef\xbb\xbfnum_devices = 7\r\nrate = 2\n"))[0].config.num_devices == 7


@pytest.mark.parametrize(
    "content, message",
    [
        ("num_device = 5", "settings.toml: unknown setting num_device; did you mean num_devices?"),
        ("axis = ['gamma=1']", "settings.toml: unknown setting axis (not an option of run)"),
        ('help = "x"', "settings.toml: unknown setting help"),
        ("version = 1", "settings.toml: unknown setting version"),
        ('"--seeds" = 1', "settings.toml: unknown setting --seeds; did you mean seeds?"),
        ('"a\\nb" = 1', "settings.toml: unknown setting a\\nb"),
        ('num_devices = "7"', "settings.toml: num_devices must be a whole number; got '7'"),
        ("num_devices = true", "settings.toml: num_devices must be a whole number; got True"),
        ("num_devices = [7]", "settings.toml: num_devices must be a whole number; got [7]"),
        ("num_devices = 2.5", "settings.toml: num_devices must be a whole number; got 2.5"),
        ("gamma = 1979-05-27", "settings.toml: gamma must be a number; got datetime.date"),
        ("rate = '--help'", "settings.toml: rate must be a number; got '--help'"),
        ('data_dir = ["a", "--num-devices", "7"]', "settings.toml: data_dir must be a text or none; got ['a',"),
        ('policies = ["rl", "--num-devices", "7"]', "settings.toml: policies must be one of none, uniform, rl, "),
        ("policies = 5", "settings.toml: policies must be a list; got 5"),
        ('scheme = "fedavgg"', "got 'fedavgg'; did you mean fedavg?"),
        ("require_gpu = 1", "settings.toml: require_gpu must be true or false; got 1"),
        ('command = "walk"', "settings.toml: command must be one of run, search, sweep; got 'walk'"),
        ("[network]\nrate = 2", "settings.toml: network is a table; write settings as lines NAME = VALUE"),
        ("rate.a = 2", "settings.toml: rate is a table"),
        ("[[runs]]\nrate = 2", "settings.toml: unknown setting runs"),
        ("gamma = 1" + "0" * 400, "settings.toml: gamma must be a number that fits into 64 bits; got 1"),
        ("gamma = 1" + "0" * 5000, "not a TOML file"),
        ("gamma = " + "[" * 100_000, "values are nested too deeply"),
        ("gamma = " + "{a=" * 100_000, "values are nested too deeply"),
        ('{"config": ' + "[" * 100_000, "values are nested too deeply"),
        ("a" + ".a" * 5_000 + " = 1", "a is a table"),
        ("num_devices: 5", "not a TOML file"),
        (b"\xff\xfe", "not a TOML file"),
        (b"rate = 1\x00", "not a TOML file"),
        ("rate = 1\nrate = 2", "not a TOML file"),
        ("{", "not a JSON file"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_one_line_with_its_name(file, content, message):
    assert message in refused("run", "--config", file(content))


@pytest.mark.parametrize("path", ["missing.toml", ".", "a\x00b", "~nobody-of-this-name/a.toml", "x" * 5000])
def test_a_file_that_cannot_be_read_is_one_line(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="--config ") as caught:
        parse("run", "--config", path)
    assert "\n" not in str(caught.value)


def test_thousands_of_unknown_settings_are_refused_at_once(file):
    path = file("".join(f"num_devics_{number} = {number}\n" for number in range(8000)))
    started = time.process_time()
    message = refused("run", "--config", path)
    assert time.process_time() - started < 1
    assert "unknown settings num_devics_0; did you mean num_devices?, num_devics_1" in message
    assert message.endswith("and 7,997 more")


def test_axes_are_written_with_every_digit():
    for values in (Uniform(0.1 + 0.2, 2.0), LogUniform(1 / 3, 7.0), [None, 1, 1e-17], [2, 1 / 7]):
        assert arguments.axis(repeat.axis_text("score_fraction", values)) == ("score_fraction", values)
    assert repeat.axis_text("rate", Choice((1, 2.5))) == "rate=1,2.5"
