"""Fingerprints differ where code or what it holds differs, and in nothing else, in every process."""

import functools
import importlib
import os
import subprocess
import sys
import types
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from d2djax import baselines, discovery, networks, policies
from d2djax.models import MLP, RadioCNN
from d2djax.recipe import Recipe
from d2djax.running import programs, runs
from d2djax.running.fingerprint import Survey, fingerprint
from d2djax.running.many_runs import map_runs


def scaled(factor):
    return lambda x: factor * x


def scaled_with_default(x, factor=2.0):
    return factor * x


class Linear(nn.Module):
    hidden: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.hidden)(x)


class Deep(nn.Module):
    hidden: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.hidden)(nn.relu(x))


@dataclass(frozen=True)
class Holder:
    factor: float

    def __call__(self, x):
        return self.factor * x


class Plain:
    def __init__(self, factor):
        self.factor = factor

    def scale(self, x):
        return self.factor * x


def calls(name):
    """A function whose module is made up, with one global."""
    module = types.ModuleType("somebody")
    exec("def inner(x):\n    return x + 1\ndef outer(x):\n    return inner(x)\n", vars(module))
    return module, getattr(module, name)


DIFFERENT = {
    "optimisers": (lambda lr: optax.sgd(lr), lambda lr: optax.adam(lr)),
    "arguments of one": (lambda lr: optax.sgd(lr, momentum=0.9), lambda lr: optax.sgd(lr, momentum=0.8)),
    "kind of a constant": (lambda x: x + 1, lambda x: x + 1.0),
    "sign of zero": (lambda x: x + 0.0, lambda x: x + -0.0),
    "closures": (scaled(1.0), scaled(2.0)),
    "arrays in closures": (scaled(np.arange(3)), scaled(np.arange(3) + np.eye(1, 3, dtype=int)[0])),
    "arrays on the device": (scaled(jnp.arange(3.0)), scaled(jnp.arange(3.0) + 1)),
    "kinds of arrays": (scaled(np.zeros(2, np.int32)), scaled(np.zeros(2, np.float32))),
    "keys": (scaled(jax.random.key(0)), scaled(jax.random.key(1))),
    "partial parts": (functools.partial(optax.sgd, momentum=0.9), functools.partial(optax.sgd, momentum=0.8)),
    "partial functions": (functools.partial(optax.sgd), functools.partial(optax.adam)),
    "sizes of a network": (Linear(3), Linear(4)),
    "code of a network": (Linear(3), Deep(3)),
    "kinds of networks": (MLP(5), RadioCNN(5)),
    "optimisers that are made": (scaled(optax.sgd(0.1)), scaled(optax.sgd(0.2))),
    "records": (Holder(1.0), Holder(2.0)),
    "objects": (Plain(1.0), Plain(2.0)),
    "methods of objects": (Plain(1.0).scale, Plain(2.0).scale),
    "entries of tables": (scaled({"a": 1}), scaled({"a": 2})),
    "library functions": (jnp.sin, jnp.cos),
    "compiled functions": (jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)),
    "libraries": (np.sin, jnp.sin),
    "built-in functions": (max, min),
    "methods of tables": ({"a": 1}.get, {"a": 2}.get),
    "recipes": (
        Recipe(Linear(), client=lambda lr: optax.sgd(lr)),
        Recipe(Linear(), client=lambda lr: optax.sgd(-lr)),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_has_another_fingerprint(name):
    first, second = DIFFERENT[name]
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint(first) == fingerprint(first)


def test_what_is_made_again_alike_has_the_same():
    assert fingerprint(scaled(np.arange(3))) == fingerprint(scaled(np.arange(3)))
    assert fingerprint(Linear(4)) == fingerprint(Linear(4))
    made = [
        Recipe(Linear(4), functools.partial(optax.sgd, momentum=0.9), lambda lr: optax.adam(lr)) for _ in range(2)
    ]
    assert fingerprint(made[0]) == fingerprint(made[1])


def test_default_values_count(monkeypatch):
    before = fingerprint(scaled_with_default)
    monkeypatch.setattr(scaled_with_default, "__defaults__", (3.0,))
    assert fingerprint(scaled_with_default) != before


def test_texts_about_code_do_not_count():
    spaces = [{}, {}, {}]
    exec("def f(x):\n    '''Says this.'''\n    y = x + 1\n    return y\n", spaces[0])
    exec("\n\n# A comment.\ndef f(x: int) -> int:\n    '''Says that.'''\n    z = x + 1\n    return z\n", spaces[1])
    exec("def f(x):\n    '''Says this.'''\n    y = x + 2\n    return y\n", spaces[2])
    first, second, third = (fingerprint(space["f"]) for space in spaces)
    assert first == second != third


def test_what_a_function_calls_counts():
    module, outer = calls("outer")
    before = fingerprint(outer)
    module.inner = lambda x: x + 2
    assert fingerprint(outer) != before
    module, outer = calls("outer")
    assert fingerprint(outer) == before
    module.inner.__code__ = (lambda x: x + 3).__code__
    assert fingerprint(outer) != before


def test_a_function_that_was_put_into_a_library_counts(monkeypatch):
    make = lambda lr: optax.sgd(lr)  # noqa: E731
    before = fingerprint(make)
    monkeypatch.setattr(optax, "sgd", lambda lr: optax.adam(lr))
    assert fingerprint(make) != before


def test_functions_that_call_each_other_and_things_that_hold_themselves():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    table = {"even": even}
    table["itself"] = table
    assert fingerprint((even, table)) == fingerprint((even, table))
    assert fingerprint(even) != fingerprint(odd)


ROOTS = (policies.candidates_of, runs.network_of, runs.graphs_of, runs.learning_of)
PLACES = [
    (policies.BUILT_IN, "rl", policies.BUILT_IN["uniform"]),
    (baselines, "_uniform_links", lambda key, num_devices: jnp.zeros(num_devices, jnp.int32)),
    (discovery.policy, "update", lambda buffer, state, links, reward: buffer),
    (networks, "make_network", lambda key, config: None),
]


@pytest.mark.parametrize("place, name, new", PLACES, ids=lambda value: getattr(value, "__name__", None))
def test_whatever_is_replaced_in_the_package_counts(place, name, new, monkeypatch):
    before = fingerprint(ROOTS)
    (monkeypatch.setitem if isinstance(place, dict) else monkeypatch.setattr)(place, name, new)
    assert fingerprint(ROOTS) != before
    monkeypatch.undo()
    assert fingerprint(ROOTS) == before


def test_every_function_of_a_run_is_found():
    survey = Survey()
    survey.add(ROOTS)
    found = {f"{module}.{name}" for module, name in survey.digests}
    for name in (
        *(
            "baselines.best_response",
            "channel.outage_probability",
            "clustering.reliable_clusters",
            "config.complete",
        ),
        *(
            "discovery.learn",
            "energy.upload_energy",
            "episode.exchange_and_reward",
            "evaluation.evaluate",
            "federated.train",
        ),
        *("federated._fedprox", "messages.deliver", "partition.dirichlet", "points.split", "policy.refreshed"),
        *("reward.rewards", "rng.Stream", "sampling.participants", "transfer.pool", "trust.draw_trust"),
    ):
        assert f"d2djax.{name}" in found
    assert {"jax", "optax"} <= survey.packages and "d2djax" not in survey.packages


SCRIPT = """
import functools, sys
import flax.linen as nn
import numpy as np
import optax
from d2djax.running import runs
from d2djax.recipe import Recipe
from d2djax.running.fingerprint import fingerprint
from d2djax.policies import candidates_of

class Mine(nn.Module):
    names = {"a", "b", "c", "d"}
    hidden: int = 3
    @nn.compact
    def __call__(self, x):
        for name in {"x", "y", "z"}:
            x = nn.Dense(self.hidden, name=name)(x)
        return x

scale = np.arange(3.0)
recipe = Recipe(Mine(4), functools.partial(optax.sgd, momentum=0.9), lambda lr: optax.adam(lr, eps=float(scale[1])))
print(fingerprint((candidates_of, runs.network_of, runs.graphs_of, runs.learning_of)), fingerprint(recipe))
"""


def test_fingerprints_are_equal_in_every_process():
    # Texts of sets come in an order that the seed decides; the code of a prompt or of a cell has no file.
    prints = []
    for seed, arguments in (("1", ["-c", SCRIPT]), ("2", ["-"])):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, *arguments], input=SCRIPT, env=environment, capture_output=True, text=True, check=True
        )
        prints.append(done.stdout.split())
    assert prints[0] == prints[1]
    assert prints[0][0] == fingerprint(ROOTS)


# --- programs ---

FACTOR = 2.0
TABLE = {"factor": 2.0}


def by_global(shared, item, static):
    return FACTOR * item


def by_table(shared, item, static):
    return TABLE["factor"] * item


def by_function(shared, item, static):
    return scaled_with_default(item)


@pytest.mark.parametrize(
    "function, change",
    [
        (by_global, lambda patch: patch.setitem(globals(), "FACTOR", 3.0)),
        (by_table, lambda patch: patch.setitem(TABLE, "factor", 3.0)),
        (by_function, lambda patch: patch.setitem(globals(), "scaled_with_default", lambda x: 3 * x)),
        (by_function, lambda patch: patch.setattr(scaled_with_default, "__defaults__", (3.0,))),
    ],
)
def test_what_is_changed_after_a_first_run_computes_anew(function, change, monkeypatch):
    given = np.ones(2, np.float32)
    compiled = programs.num_compiled()
    np.testing.assert_array_equal(map_runs(function, None, given), [2, 2])
    change(monkeypatch)
    np.testing.assert_array_equal(map_runs(function, None, given), [3, 3])
    monkeypatch.undo()
    np.testing.assert_array_equal(map_runs(function, None, given), [2, 2])
    assert programs.num_compiled() <= compiled + 2


def test_a_closure_that_is_changed_computes_anew():
    factor = 2.0

    def one(shared, item, static):
        return factor * item

    np.testing.assert_array_equal(map_runs(one, None, np.ones(2, np.float32)), [2, 2])
    factor = 3.0
    np.testing.assert_array_equal(map_runs(one, None, np.ones(2, np.float32)), [3, 3])


def test_where_code_lies_does_not_count(tmp_path, monkeypatch):
    found = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("def one(x):\n    return x if __file__ else 2 * x\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        found.append(fingerprint(importlib.import_module("mine").one))
        monkeypatch.undo()
    assert found[0] == found[1]
