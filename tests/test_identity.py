"""The identity of results: equal where results are, and in words what differs where they are not."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from d2djax import policies, rng
from d2djax.models import MLP, check_model
from d2djax.recipe import Recipe
from d2djax.running import identity, runs
from d2djax.running.axes import lay_out
from d2djax.running.identity import differences, identify
from d2djax.validation import validate


class Linear(nn.Module):
    hidden: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))


@pytest.fixture
def identified(tiny_config, tiny_dataset):
    """`identified(...)`: the identity of four runs in the tiny setting, some of whose parts are others."""

    def one(dataset=tiny_dataset, recipe=None, seeds=range(4), trains=True, axes=None, **settings):
        axes, config = axes or {}, validate(replace(tiny_config, **settings))
        laid = lay_out(config, axes)
        recipe = Recipe(MLP(5)) if recipe is None else recipe
        parameters = check_model(recipe.model, dataset.shape, 5)
        coordinates = {name: values for name, (_, values) in laid.coordinates.items()}
        return identify(
            laid.configs, seeds, [dataset], recipe, parameters, runs.TAKES_PART, trains=trains, axes=coordinates,
            dimensions=list(laid.dims),
        )  # fmt: skip

    return one


def test_an_identity_is_plain_and_the_same_again(identified):
    found = identified()
    assert json.loads(json.dumps(found, sort_keys=True)) == found and "0x" not in json.dumps(found)
    keys = [
        "config",
        "axes",
        "dimensions",
        "seeds",
        "training",
        "data",
        "recipe",
        "code",
        "versions",
        "jax",
        "backend",
        "commit",
    ]
    assert list(found) == keys
    assert differences(found, identified()) == ""
    assert found["versions"]["jax"] == jax.__version__ and found["recipe"]["model"]["name"] == "d2djax.models.MLP"
    assert found["recipe"]["parameters"]["params/Dense_0/kernel"] == "float32[16, 200]"
    assert {"d2djax.discovery", "d2djax.federated", "d2djax.running.results"} <= set(found["code"])


def changed(dataset, **arrays):
    return replace(dataset, **{name: change(getattr(dataset, name).copy()) for name, change in arrays.items()})


def one_more(values):
    values.reshape(-1)[0] += 1
    return values


sgd_by_lambda = Recipe(MLP(5), client=lambda lr: optax.sgd(lr))
OTHER = {
    "config.gamma": lambda made, data: made(gamma=0.25),
    "seeds": lambda made, data: made(seeds=range(5)),
    "training": lambda made, data: made(trains=False),
    "data.digest": lambda made, data: made(dataset=changed(data, x=one_more)),
    "data.class_names": lambda made, data: made(dataset=replace(data, class_names=("a", "b", "c", "d", "f"))),
    "data.dtype": lambda made, data: made(dataset=changed(data, x=np.float32)),
    "recipe.client.hash": lambda made, data: made(recipe=Recipe(MLP(5), client=lambda lr: optax.adam(lr))),
    "recipe.model.numbers.num_hidden": lambda made, data: made(recipe=Recipe(MLP(5, 100), sgd_by_lambda.client)),
    "recipe.model.name": lambda made, data: made(recipe=Recipe(Linear(), sgd_by_lambda.client)),
    "recipe.server": lambda made, data: made(recipe=replace(sgd_by_lambda, server=optax.adam)),
    "axes.gamma": lambda made, data: made(axes={"gamma": [0.0, 1.0]}),
}


@pytest.mark.parametrize("name", OTHER)
def test_another_identity_is_told_by_name(identified, tiny_dataset, name):
    found = identified(recipe=sgd_by_lambda)
    make = (
        functools.partial(identified)
        if name.startswith("recipe")
        else functools.partial(identified, recipe=sgd_by_lambda)
    )
    text = differences(found, OTHER[name](make, tiny_dataset))
    assert f"{name}: " in text or f"{name}." in text
    assert "\n" not in text and len(text) < 600


def test_the_order_of_axes_counts(identified):
    first = identified(axes={"gamma": [0.0, 1.0], "alpha_outage": [0.5, 8.0]})
    second = identified(axes={"alpha_outage": [0.5, 8.0], "gamma": [0.0, 1.0]})
    text = differences(json.loads(json.dumps(first, sort_keys=True)), second)
    assert text == 'dimensions: in another order, "gamma" there and "alpha_outage" now at position 1'
    assert differences(first, identified(axes={"gamma": [1.0, 0.0], "alpha_outage": [0.5, 8.0]})) == (
        "axes.gamma: in another order, 0.0 there and 1.0 now at position 1"
    )


def test_code_and_settings_of_jax_count(identified, monkeypatch):
    found = identified()
    monkeypatch.setitem(policies.BUILT_IN, "rl", policies.BUILT_IN["uniform"])
    assert differences(found, identified()).startswith("code.d2djax.")
    monkeypatch.undo()
    with jax.default_matmul_precision("highest"):
        assert differences(found, identified()) == ('jax.jax_default_matmul_precision: null there, "highest" now')
    with jax.numpy_dtype_promotion("strict"):
        assert "jax.jax_numpy_dtype_promotion" in differences(found, identified())
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " --xla_cpu_enable_fast_math=true")
    assert differences(found, identified()) == 'jax.xla_flags: "--xla_cpu_enable_fast_math=true" only now'
    monkeypatch.setattr(identity, "_version", lambda top: "0.0.1")
    assert "versions.jaxlib: " in differences(found, identified())


def test_the_commit_is_told_but_refuses_nothing(identified, monkeypatch):
    found = identified()
    monkeypatch.setattr("d2djax.running.machine.git_commit", lambda: "another")
    assert identified()["commit"] == "another" and differences(found, identified()) == ""


def test_only_settings_that_are_read_count(identified):
    found = identified()["config"]
    assert not {"data_dir", "min_snr", "mobility_step", "proximal_weight", "d2d_power", "concentration"} & set(
        found
    )
    assert "server_learning_rate" not in found and {"model", "learning_rate", "num_steps"} <= set(found)
    graphs = identified(trains=False)["config"]
    assert not {"learning_rate", "num_steps", "batch_size", "scheme"} & set(graphs) and "num_episodes" in graphs
    own = identified(recipe=Recipe(Linear(), optax.sgd, optax.adam))["config"]
    assert "model" not in own and "server_learning_rate" in own
    assert "proximal_weight" in identified(scheme="fedprox")["config"]
    assert {"d2d_power", "d2s_power"} <= set(identified(power_mode="fixed")["config"])


def test_settings_that_do_not_count_change_nothing(identified):
    """Of those that the identity leaves out, another value is no other identity."""
    found = identified()
    for name, value in {"min_snr": 4, "mobility_step": 3.0, "proximal_weight": 2.0, "d2s_power": 1.0}.items():
        assert differences(found, identified(**{name: value})) == "", name


def test_digests_depend_on_every_byte(tiny_dataset):
    assert identity.digest([tiny_dataset]) == identity.digest([changed(tiny_dataset)])
    others = [
        changed(tiny_dataset, x=one_more),
        changed(tiny_dataset, y=lambda y: y[::-1]),
        changed(tiny_dataset, x=np.int16),
    ]
    assert len({identity.digest([one]) for one in [tiny_dataset, *others]}) == 4


# --- in words ---


@pytest.mark.parametrize(
    "found, wanted, text",
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": 1}, {"a": 2}, "a: 1 there, 2 now"),
        ({"a": 1}, {}, "a: 1 there, nothing now"),
        ({}, {"a": {"b": None}}, "a.b: nothing there, null now"),
        ({"seeds": [0, 1]}, {"seeds": [0, 1, 2, 3]}, "seeds: 2, 3 only now"),
        ({"seeds": list(range(1000))}, {"seeds": list(range(2000))}, "seeds: 1000 to 1999 only now"),
        ({"seeds": [0, 1]}, {"seeds": [1, 0]}, "seeds: in another order, 0 there and 1 now at position 1"),
        ({"x": [0, 0]}, {"x": [0]}, "x: 2 entries there, 1 now"),
        ({"x": [0, 1, 2, 3]}, {"x": [*range(0, 90, 9)]},
         "x: 1 to 3 only there, 9, 18, 27, 36, 45, 54 and 3 more only now"),
        ({"x": "a" * 90 + "b"}, {"x": "a" * 90 + "c"}, f'x: "...{"a" * 10}b" there, "...{"a" * 10}c" now'),
        ({"x": "a" * 90}, {"x": "a" * 90 + "c"}, f'x: "...{"a" * 10}" there, "...{"a" * 10}c" now'),
        ({"commit": "a", "wall_seconds": 1, "machine": {"cores": 1}}, {"commit": "b"}, ""),
        ({"data": {"source": "here"}}, {"data": {"source": "there"}}, ""),
        (dict.fromkeys("abcdefg", 0), {},
         "".join(f"{x}: 0 there, nothing now; " for x in "abcdef") + "and 1 more"),
        ({"b": 0, "a": 1}, {"a": 2, "c": 0}, "a: 1 there, 2 now; b: 0 there, nothing now; c: nothing there, 0 now"),
    ],
)  # fmt: skip
def test_differences_in_words(found, wanted, text):
    assert differences(found, wanted) == text


def test_entries_that_may_differ():
    found = {"axes": {"gamma": [0]}, "seeds": [0], "data": {"points": 1}}
    wanted = {"axes": {"gamma": [0, 1]}, "seeds": [0, 1], "data": {"points": 2}}
    assert differences(found, wanted, besides=("axes", "seeds")) == "data.points: 1 there, 2 now"


# --- keys ---

SCRIPT = """
import jax, numpy as np
from d2djax.running.many_runs import map_runs
from d2djax.rng import Stream, at, run_key, uniform_numbers

def one(shared, seed, static):
    key = run_key(seed)
    return uniform_numbers(at(key, Stream.POSITION, 3), (300,)), jax.random.normal(at(key, Stream.MODEL), (7,))

print([np.asarray(part, np.float64).sum().hex() for part in map_runs(one, None, np.arange(3, dtype=np.int32))])
"""


def test_settings_of_the_generator_change_no_draw():
    found = set()
    settings = (
        {},
        {"JAX_DEFAULT_PRNG_IMPL": "rbg"},
        {"JAX_THREEFRY_PARTITIONABLE": "0"},
        {"JAX_ENABLE_CUSTOM_PRNG": "1"},
    )
    running = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], env=os.environ | one, stdout=subprocess.PIPE, text=True)
        for one in settings
    ]
    for one in running:
        found.add(one.communicate()[0])
        assert one.returncode == 0
    assert len(found) == 1


def test_keys_have_a_generator_of_their_own():
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(rng.run_key(3)).shape == (2,)
    assert jax.random.key_impl(rng.run_key(3)) == jax.random.key_impl(jax.random.key(3, impl="threefry2x32"))
