import os

import pytest

from d2djax.cli import arguments
from d2djax.running.axes import Choice, LogUniform, Uniform


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)


# --- axes ---


@pytest.mark.parametrize(
    "text, expected",
    [
        ("gamma=0,0.25, 1e-3,-2", ("gamma", [0, 0.25, 0.001, -2])),
        ("--alpha-outage=log:0.1:10", ("alpha_outage", LogUniform(0.1, 10.0))),
        ("gamma=uniform:0:1", ("gamma", Uniform(0.0, 1.0))),
        ("scheme=fedavg,fedsgd", ("scheme", ["fedavg", "fedsgd"])),
        ("score_fraction=none,0.5", ("score_fraction", [None, 0.5])),
        ("num_devices=6", ("num_devices", [6])),
    ],
)
def test_axis(text, expected):
    name, values = arguments.axis(text)
    assert (name, values) == expected
    if isinstance(values, list):
        assert list(map(type, values)) == list(map(type, expected[1]))


def test_a_grid_and_points():
    grid = arguments.axes(["gamma=0,1", "rate=2"], 0, 0)
    assert grid == {"gamma": [0, 1], "rate": [2]}
    points = arguments.axes(["gamma=uniform:0:1", "scheme=fedavg,fedsgd"], 8, 3)
    assert len(points) == 8 and all(set(point) == {"gamma", "scheme"} for point in points)
    assert {point["scheme"] for point in points} == {"fedavg", "fedsgd"}
    assert points[:4] == arguments.axes(["gamma=uniform:0:1", "scheme=fedavg,fedsgd"], 4, 3)
    assert arguments.axes([], 0, 0) == {}
    ranges = arguments.ranges_of(["gamma=log:1:2", "rate=1,2"])
    assert ranges == {"gamma": LogUniform(1.0, 2.0), "rate": Choice((1, 2))}


@pytest.mark.parametrize(
    "texts, random, message",
    [
        (["gamma"], 0, "--axis gamma: expected NAME=VALUE"),
        (["gamma="], 0, "--axis gamma=: expected NAME=VALUE"),
        (["gama=1"], 0, "did you mean 'gamma'"),
        (["policies=rl"], 0, "policies cannot be an axis"),
        (["gamma=uniform:0:1"], 0, "--axis gamma: a range needs --random COUNT"),
        (["gamma=uniform:0"], 4, "--axis gamma=uniform:0: expected two numbers, uniform:LOW:HIGH"),
        (["gamma=log:a:1"], 4, "expected two numbers, log:LOW:HIGH"),
        (["gamma=log:none:1"], 4, "expected two numbers, log:LOW:HIGH"),
        (["gamma=uniform:1:0"], 4, "axis gamma must go from a number to a larger one"),
        (["gamma=uniform:nan:0"], 4, "axis gamma must go from a number to a larger one"),
        (["gamma=log:0:1"], 4, "axis gamma must begin above 0"),
        (["gamma=0", "gamma=1"], 0, "--axis: give each setting once; got gamma, gamma"),
        (["gamma=0,1,"], 0, "--axis gamma=0,1,: a value is missing before or after a comma"),
        (["gamma=0,1"], -1, "count of points must be at least 1; got -1"),
        ([], 4, "--random 4: expected at least one --axis"),
    ],
)
def test_bad_axes_are_refused(texts, random, message):
    with pytest.raises(ValueError) as caught:
        arguments.axes(texts, random, 0)
    assert message in str(caught.value) and "\n" not in str(caught.value)


# --- shards ---


@pytest.mark.parametrize("text, expected", [("3/16", (3, 16)), ("1/1", (1, 1)), ("16/16", (16, 16)), ("", None)])
def test_shard(text, expected):
    assert arguments.shard(text) == expected


@pytest.mark.parametrize("text", ["3", "0/4", "5/4", "-1/4", "a/b", "/", "1/", "1/2/3", "1.0/2"])
def test_bad_shards_are_refused(text):
    with pytest.raises(ValueError, match=f"--shard {text}: expected a number from 1 to the count of shards"):
        arguments.shard(text)


SLURM = [
    ({"ARRAY_TASK_ID": 0, "ARRAY_TASK_COUNT": 4, "ARRAY_TASK_MIN": 0, "ARRAY_TASK_STEP": 1}, (1, 4)),
    ({"ARRAY_TASK_ID": 16, "ARRAY_TASK_COUNT": 16, "ARRAY_TASK_MIN": 1, "ARRAY_TASK_STEP": 1}, (16, 16)),
    ({"ARRAY_TASK_ID": 12, "ARRAY_TASK_COUNT": 3, "ARRAY_TASK_MIN": 4, "ARRAY_TASK_STEP": 4}, (3, 3)),
    ({"ARRAY_TASK_ID": 3, "ARRAY_TASK_COUNT": 4, "ARRAY_TASK_MIN": 0, "NTASKS": 1, "PROCID": 0}, (4, 4)),
    ({"NTASKS": 8, "PROCID": 7, "STEP_ID": 0}, (8, 8)),
    ({"NTASKS": 8, "PROCID": 1, "STEP_ID": 3, "STEP_NUM_TASKS": 2}, (2, 2)),
    # In a batch script, or in an interactive shell, all is left to this process.
    ({"NTASKS": 4, "PROCID": 0}, None),
    ({"NTASKS": 4, "PROCID": 0, "STEP_ID": 2**32 - 5}, None),
    ({"NTASKS": 4, "PROCID": 0, "STEP_ID": 0, "STEP_NUM_TASKS": 1}, None),
    ({"NTASKS": 1, "PROCID": 0}, None),
    ({"ARRAY_TASK_ID": 5, "ARRAY_TASK_COUNT": 1, "ARRAY_TASK_MIN": 5}, None),
    ({}, None),
]


@pytest.mark.parametrize("variables, expected", SLURM)
def test_shard_of_slurm(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    assert arguments.shard("") == expected
    # What is given wins.
    assert arguments.shard("2/3") == (2, 3)


@pytest.mark.parametrize(
    "variables, says", [({"NTASKS": 4}, True), ({"NTASKS": 4, "STEP_ID": 0}, False), ({}, False)]
)
def test_tasks_of_slurm_that_nothing_started_are_named(monkeypatch, variables, says):
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    assert bool(arguments.slurm_note()) is says
    if says:
        assert "4 tasks, but srun did not start this process" in arguments.slurm_note()


@pytest.mark.parametrize("task", [3, 7])
def test_tasks_of_slurm_without_a_common_step_are_refused(monkeypatch, task):
    # --array=1,3,7: nothing tells a task which place it has among them.
    variables = {"ARRAY_TASK_ID": task, "ARRAY_TASK_COUNT": 3, "ARRAY_TASK_MIN": 1, "ARRAY_TASK_MAX": 7}
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    with pytest.raises(ValueError, match="give --shard"):
        arguments.shard("")


def test_what_slurm_says_must_be_numbers(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "many")
    with pytest.raises(ValueError, match="SLURM_NTASKS=many: expected a whole number; give --shard"):
        arguments.shard("")
