import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import d2djax
from d2djax.cli import terminal
from d2djax.running import machine

QUOTAS = [
    # Half a core, one and a half, many more than there are; version 2 of control groups, then version 1.
    ("cpu.max", "50000 100000", 1),
    ("cpu.max", "150000 100000", 1),
    ("cpu.max", "300000 100000", 3),
    ("cpu.max", "max 100000", 4),
    ("cpu.max", "9000000 100000", 4),
    ("cpu.cfs_quota_us", "50000", 1),
    ("cpu.cfs_quota_us", "-1", 4),
]


@pytest.fixture
def four_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name, text, cores", QUOTAS)
def test_cores_of_a_container(four_cores, name, text, cores):
    folder = four_cores if name == "cpu.max" else four_cores / "cpu"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text + "\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.num_cores() == cores


def test_cores_of_a_control_group_on_the_host(four_cores, monkeypatch):
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path: "0::/a/b\n" if str(path) == "/proc/self/cgroup" else read(path)
    )
    (four_cores / "a" / "b").mkdir(parents=True)
    (four_cores / "a" / "b" / "cpu.max").write_text("max 100000")
    # The limit of the group around it holds, too.
    (four_cores / "a" / "cpu.max").write_text("200000 100000")
    assert machine.num_cores() == 2


def test_without_control_groups_the_affinity_counts(four_cores):
    assert machine.num_cores() == 4


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "d2djax", "info"],
        ["-c", "import d2djax; d2djax.run(d2djax.Config(num_devices=5), 1, training=False)"],
        ["-c", "import d2djax; d2djax.sweep(d2djax.Config(num_devices=5), {'gamma': [0, 1]}, 1)"],
    ],
)
def test_a_platform_that_is_not_there_is_one_line(command, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(d2djax.__file__).parents[1]), "JAX_PLATFORMS": "cuda"}
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 120, "cwd": tmp_path}
    ended = subprocess.run([sys.executable, *command], **options)
    if jax.default_backend() != "cpu":
        pytest.skip("there is a GPU here")
    is_command = command[0] == "-m"
    assert ended.returncode == (2 if is_command else 1) and not ended.stdout and not any(tmp_path.iterdir())
    last = ended.stderr.splitlines()[-1]
    assert last == ("d2djax" if is_command else "ValueError") + (
        ": JAX_PLATFORMS=cuda: this machine has no such device"
    )
    assert ("Traceback" in ended.stderr) != is_command


def test_variables_that_are_misspelt_are_named(monkeypatch):
    monkeypatch.setenv("D2DJAX_DATA", "/data")
    assert not [line for line in terminal.unknown_variables() if "D2DJAX_DATA has" in line]
    monkeypatch.setenv("D2DJAX_DATAS", "/data")
    assert "D2DJAX_DATAS is unknown and ignored; did you mean D2DJAX_DATA?" in terminal.unknown_variables()


def test_all_variables_are_known():
    package = Path(d2djax.__file__).parent
    text = "".join(path.read_text() for path in package.rglob("*.py"))
    names = {word.strip("'\"") for word in text.replace("(", " ").replace(")", " ").split() if "'D2DJAX_" in word}
    names |= {part.split('"')[0] for part in text.split('"D2DJAX_')[1:]}
    assert {name.removeprefix("D2DJAX_") for name in names} - {""} == {
        name.removeprefix("D2DJAX_") for name in terminal.VARIABLES
    }
