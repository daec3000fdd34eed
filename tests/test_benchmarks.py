"""The benchmarks: every baseline does the work of d2djax, the harness is fair, and each script runs."""

import json
import math
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from d2djax import federated as training
from d2djax.discovery import discover
from d2djax.rng import run_key

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import (  # noqa: E402
    convolution,
    discovery,
    discovery_c,
    end_to_end,
    federated,
    federated_numpy,
    federated_package,
    harness,
    scaling,
    start_up,
    tables,
)
from benchmarks.discovery_problem import CURVES, check, package_draws, problem_of  # noqa: E402

BASELINES = (discovery.LOOPS, discovery.NUMPY, discovery.C, discovery.FAST_C)
SETTINGS = [
    {},
    {"stay_probability": 0.6, "temperature": 0.5, "gamma": 2.0, "trust_probability": 0.5},
    {
        "cluster_budget": 5.0,
        "alpha_budget": 0.1,
        "max_outage": 0.02,
        "min_classes": 2,
        "threshold": 15.0,
    },
]
discovered = jax.jit(discover)


@pytest.fixture(scope="module", params=SETTINGS, ids=range(len(SETTINGS)))
def played(request, network_program, tiny_config):
    """A network, its config with 300 episodes, the uniform numbers of d2djax, and what it discovers with them."""
    config = replace(tiny_config, **request.param)
    draw, _ = network_program
    network = jax.tree.map(lambda leaf: np.asarray(leaf)[0], draw(np.array([3]), config))
    config = replace(config, num_episodes=300)
    uniform = np.asarray(package_draws(run_key(3), 300, config.num_devices))
    return network, config, uniform, jax.tree.map(np.asarray, discovered(run_key(3), network, config))


def function_of(name):
    function = discovery.baselines()[name]
    if function is None:
        pytest.skip(discovery_c.missing())
    return function


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_discovers_what_d2djax_discovers(name, played):
    network, config, uniform, wanted = played
    found = function_of(name)(problem_of(network, config), uniform)
    np.testing.assert_array_equal(found.tries, wanted.buffer.tries)
    np.testing.assert_allclose(found.reward, wanted.buffer.reward, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found.greedy, wanted.links)
    history = np.stack([getattr(wanted.history, curve) for curve in CURVES], axis=1)
    np.testing.assert_allclose(found.history, history, rtol=1e-4, atol=1e-4)


def test_a_library_of_fast_mathematics_leaves_the_tiniest_numbers_alone():
    if discovery_c.missing():
        pytest.skip(discovery_c.missing())
    discovery_c._library(discovery_c.FAST_FLAGS)
    tiniest = np.array([np.finfo(np.float64).smallest_subnormal])
    assert (tiniest + 0.0 != 0.0).all()


@pytest.mark.parametrize("name", BASELINES)
def test_the_check_before_the_benchmark_accepts_every_baseline(name, played):
    network, config, uniform, _ = played
    check(name, function_of(name), network, config, uniform)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda found: replace(found, links=np.roll(found.links, 1, axis=1)), "draws"),
        (lambda found: replace(found, tries=found.tries + 1), "tries"),
        (lambda found: replace(found, reward=found.reward * 1.01), "rewards"),
    ],
)
def test_the_check_before_the_benchmark_refuses_other_work(change, complaint, played):
    network, config, uniform, _ = played
    wrong = lambda problem, uniform: change(function_of(discovery.NUMPY)(problem, uniform))  # noqa: E731
    with pytest.raises(RuntimeError, match=complaint):
        check("wrong", wrong, network, config, uniform)


def test_a_missing_compiler_is_named_in_the_table(monkeypatch, played, capsys):
    monkeypatch.setattr(discovery_c.shutil, "which", lambda name: None)
    network, config, _, _ = played
    contestants = [discovery.baseline(name, network, config, 60) for name in (discovery.NUMPY, discovery.C)]
    report = harness.Report(harness.race("demo", {}, contestants, unit="episodes", repeats=1, shortest=0.0))
    ratio, spread = harness.ratio(report.results[0], report.results[1])
    report.targets.append(harness.Target("demo", "NumPy / C", 2.0, ratio, spread=spread))
    tables.show(report)
    text = capsys.readouterr().out
    assert "no gcc on this machine" in text
    assert "not measured" in text


def test_contestants_alternate_and_each_round_starts_with_another_one():
    calls = []
    contestants = [harness.Contestant(name, lambda name=name: calls.append(name), 1.0) for name in "abc"]
    harness.race("demo", {}, contestants, unit="calls", repeats=3, shortest=0.0)
    assert "".join(calls) == "aabbcc" + "abc" + "bca" + "cab"


def test_a_ratio_is_the_median_over_rounds():
    fast = harness.Result("demo", {}, "fast", "steps", 2.0, seconds=[1.0, 2.0, 4.0])
    slow = harness.Result("demo", {}, "slow", "steps", 1.0, seconds=[1.0, 1.0, 1.0])
    assert harness.ratio(fast, slow) == (1.0, (0.5, 2.0))
    assert fast.rate == 1.0


@pytest.mark.parametrize(
    "measured, at_most, met",
    [(2.0, False, True), (1.9, False, False), (2.0, True, True), (2.1, True, False), (None, False, None)],
)
def test_a_target_is_met(measured, at_most, met):
    assert harness.Target("demo", "what", 2.0, measured, at_most).met is met


def test_compiling_is_timed_apart():
    contestant = harness.compiled("double", lambda x: 2 * x, (np.ones(8, np.float32),), 1.0)
    [result] = harness.race("demo", {"n": 8}, [contestant], unit="calls", repeats=5, shortest=0.01)
    assert result.compile_seconds > 0
    assert result.program_bytes >= 64
    assert len(result.seconds) == 5
    assert result.calls > 1


@pytest.fixture(scope="module")
def federation():
    """A small problem; the model and the minibatches of d2djax; its curves, and its global models by round."""
    # With these sizes no input of a ReLU comes closer to 0 than 2e-5, where a rounding would decide its gradient.
    setting = federated_numpy.Setting(clients=2, points=30, held_out=90, minibatch=8, interval=3)
    problem = federated_numpy.make_problem(setting)
    shared = federated_package.share(problem, 2)
    start, numbers = federated_package.package_start(shared, np.arange(6))
    learning, models = jax.jit(curves_and_models)(shared)
    return problem, federated_package.as_model(start), np.asarray(numbers, np.int64), learning, models


def curves_and_models(shared):
    """What training records, and with it the models that it evaluates, which it does not return."""
    evaluate = training.evaluate
    with pytest.MonkeyPatch.context() as patch:
        both = lambda model, parameters, *rest: replace(  # noqa: E731
            found := evaluate(model, parameters, *rest), accuracy=(found.accuracy, parameters)
        )
        patch.setattr(training, "evaluate", both)
        learning = federated_package.one_run(shared, federated_package.SEED, None)
    return replace(learning, accuracy=learning.accuracy[0]), learning.accuracy[1]


def federated_baseline(name):
    # PyTorch warns as it is imported, of other packages than this one.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = federated.baselines()[name]
    if function is None:
        pytest.skip("no torch on this machine")
    return function


@pytest.mark.parametrize("name", [federated.NUMPY, federated.LOOP, federated.VMAP])
def test_a_federated_baseline_computes_the_model_of_d2djax(name, federation):
    problem, start, numbers, learning, models = federation
    found = federated_baseline(name)(problem, start, numbers)
    wanted = federated_package.as_model(jax.tree.map(lambda leaf: leaf[-1], models))
    for mine, theirs, first in zip(found.model, wanted, start, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
        assert np.abs(theirs - first).max() > 1e-3
    # Without the first point, before training.
    np.testing.assert_allclose(found.curves[:, 1], learning.loss[1:], rtol=1e-4)
    np.testing.assert_allclose(found.curves[:, 0], learning.accuracy[1:], atol=0.02)
    np.testing.assert_allclose(found.curves[:, 2:], learning.class_accuracy[1:], atol=0.2)


def test_the_check_before_the_federated_benchmark_refuses_other_work(monkeypatch, federation):
    problem, _, _, learning, _ = federation
    monkeypatch.setattr(federated, "torch_baselines", dict)
    assert federated.NUMPY in federated.check_baselines(problem, 2, learning)
    other = replace(problem, setting=replace(problem.setting, learning_rate=0.02))
    wrong = lambda _, model, numbers: federated_numpy.train(other, model, numbers)  # noqa: E731
    monkeypatch.setattr(federated, "train_numpy", wrong)
    with pytest.raises(RuntimeError, match="does not train as d2djax"):
        federated.check_baselines(problem, 2, learning)


def test_missing_peers_are_named(monkeypatch, federation):
    problem = federation[0]
    monkeypatch.setattr(federated.importlib.util, "find_spec", lambda name: None)
    federated.blas.cache_clear()
    contestants = federated.numpy_contestants(problem, federated.TOY)
    contestants += federated.torch_contestants(problem, federated.TOY)
    contestants.append(federated.flower_contestant(federated.start_flower(problem), problem, federated.TOY))
    federated.blas.cache_clear()
    absent = [one.missing for one in contestants if one.run is None]
    assert absent == ["threadpoolctl"] * 3 + ["torch"] * 2 + ["torch, flwr, ray"]


def test_the_federated_targets_take_the_fastest_numpy():
    names = [federated.CORES, federated.MANY.format(16), federated.LOOP, federated.VMAP, federated.PRODUCTS]
    names += [federated.NUMPY, federated.NUMPY_ONE, federated.NUMPY_CORES]
    results = [
        harness.Result("demo", {"evaluation": "none"}, name, "steps", 1.0 + place, seconds=[1.0])
        for place, name in enumerate(names)
    ]
    results.append(harness.Result("demo", {"evaluation": "none"}, federated.FLOWER, "steps", 1.0, missing="flwr"))
    found = {target.what: target for target in federated.targets_of(results, federated.FULL)}
    start = f"evaluation none: ({federated.CORES}) / "
    assert found[f"{start}({federated.NUMPY_CORES})"].measured == 1 / 8
    assert found[f"{start}({federated.FLOWER})"].met is None
    assert found[f"evaluation none: (d2djax, 16 runs) / ({federated.CORES})"].met


@pytest.fixture(scope="module")
def clients():
    """The mesh and the arguments of the toy convolution."""
    mesh = convolution.make_mesh()
    return mesh, convolution.spread_out(convolution.example(convolution.TOY), mesh)


def test_pytorch_takes_the_parameters_of_the_image_network_and_gives_them_back(clients):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("benchmarks.convolution_torch", exc_type=ImportError)
    start = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0]), clients[1][0])
    back = module.from_state(module.to_state(start, convolution.TOY.side), convolution.TOY.side)
    jax.tree.map(np.testing.assert_array_equal, back, start)


def test_the_check_before_the_convolution_benchmark_refuses_other_work(monkeypatch, clients):
    mesh, arguments = clients
    monkeypatch.setattr(convolution, "networks", lambda: {"d2djax": convolution.ImageCNN(convolution.CLASSES)})
    idle = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0]), arguments[0])
    monkeypatch.setattr(convolution, "torch_step", lambda arguments: idle)
    with pytest.raises(RuntimeError, match="is not one of PyTorch"):
        convolution.check(arguments, mesh)


def test_a_missing_pytorch_is_named_by_the_convolution_benchmark(monkeypatch, clients):
    monkeypatch.setattr(convolution.importlib.util, "find_spec", lambda name: None)
    assert convolution.torch_contestant(clients[1], convolution.TOY).missing == "torch"
    assert convolution.torch_step(clients[1]) is None


def test_moments_that_two_programs_compile_count_once():
    assert start_up.union([(0.0, 2.0), (1.0, 1.5), (5.0, 6.0), (1.5, 3.0)]) == 4.0
    assert start_up.union([]) == 0.0


def test_the_shares_of_a_run_add_up():
    seconds = dict(zip((end_to_end.WHOLE, end_to_end.DATA), (20.0, 1.0), strict=True))
    seconds |= {end_to_end.DISCOVERY: 2.0, end_to_end.GRAPHS: 3.0, end_to_end.DEALT: 1.0}
    seconds |= {end_to_end.TRAINING: 13.0, end_to_end.BARE: 9.0}
    raced = [harness.Result("demo", {}, name, "runs", 1.0, seconds=[took]) for name, took in seconds.items()]
    [found] = end_to_end.shares(raced)
    wanted = {"discovery": 0.1, "exchange": 0.1, "training": 0.4, "evaluation": 0.2, "data": 0.05, "the rest": 0.15}
    assert found == pytest.approx(wanted)
    assert "training 40.0 % (40.0 to 40.0)" in end_to_end.note_of([found])


class Answers:
    """Stands for a process with some devices; `wrong` of its runs differ."""

    def __init__(self, devices, wrong=0):
        self.devices, self.wrong = devices, wrong

    def ask(self, work, runs, digests=False):
        return [f"other {run}" if run < self.wrong else f"{work} {run}" for run in range(runs)]


def test_runs_that_depend_on_the_devices_stop_the_scaling_benchmark():
    assert "bitwise equal on 1, 2" in scaling.check([Answers(1), Answers(2)], scaling.TOY)
    with pytest.raises(RuntimeError, match="on 2 CPU devices are not"):
        scaling.check([Answers(1), Answers(2, wrong=1)], scaling.TOY)


def test_scaling_goes_up_to_the_cores_and_needs_two():
    assert [scaling.counts(cores) for cores in (1, 2, 3, 4, 12)] == [
        [1, 2],
        [1, 2],
        [1, 2],
        [1, 2, 4],
        [1, 2, 4, 8],
    ]
    case = {"work": "training", "runs": 4}
    raced = [
        harness.Result("demo", case, name, "runs", 1.0, seconds=[took]) for name, took in (("1", 2.0), ("2", 1.0))
    ]
    assert scaling.target_of(raced, 2).met
    assert scaling.target_of(raced, 1).met is None


@pytest.mark.slow
def test_every_script_runs_at_its_toy_size(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--toy", "--out", str(tmp_path)]
    # The starts with a cache keep the radio windows in it, too.
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert "targets" in done.stdout
    files = {path.stem: path.read_text().splitlines() for path in tmp_path.glob("*.jsonl")}
    assert set(files) == {"discovery", "convolution", "federated", "end_to_end", "sweep", "scaling"}
    for lines in files.values():
        for line in map(json.loads, lines):
            assert line["machine"]["versions"]["jax"] == jax.__version__
            if line["kind"] == "target":
                numbers = [line["wanted"], line["measured"], *(line["spread"] or ())]
            else:
                numbers = [line["work"], line["rate"], *line["seconds"]]
            # A target or a contestant whose tool is missing has no number, and says so.
            if line.get("missing") or None in numbers:
                assert line.get("missing") or line["met"] is None
                continue
            assert all(map(math.isfinite, numbers)), line
            # An exponent, the only number with an upper bound, may come out below zero at a toy size.
            assert line.get("at_most") or all(number > 0 for number in numbers), line
