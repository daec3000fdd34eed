"""Recipes in files: what is read, what is refused, and commands that use one."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import d2djax
from d2djax.cli import commands
from d2djax.cli.recipe_files import load_recipe
from d2djax.running import repeat, results

MINE = '''
from dataclasses import dataclass

import jax
import jax.numpy as jnp

import d2djax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Greedy:
    """The mean reward of each link, and noise."""

    noise: float = 0.5
    information = "own"

    def init(self, key, known, config):
        return jnp.zeros((2, known.num_states, known.num_devices, known.num_devices))

    def weights(self, key, memory, state):
        mean = memory[0, state] / jnp.maximum(memory[1, state], 1)
        return jnp.exp(mean + self.noise * jax.random.gumbel(key, mean.shape))

    def update(self, memory, state, links, feedback):
        earned = jnp.stack([feedback.reward, jnp.ones_like(feedback.reward)])
        return memory.at[:, state, jnp.arange(links.size), links].add(earned)


recipe = d2djax.Recipe(policies={"noisy": Greedy()})
other = d2djax.Recipe(policies={"noisier": Greedy(2.0)})
'''
SMALL = [
    *("--num-devices", "5", "--num-states", "2", "--num-episodes", "40", "--record-every", "20"),
    *("--policies", "none", "--seeds", "2"),
]


@pytest.fixture
def mine(recipe_file):
    return recipe_file("mine_to_test", MINE)


def test_a_file_is_read_once_and_knows_its_place(mine):
    first, again = load_recipe(str(mine)), load_recipe(f"{mine}:other")
    assert list(first.policies) == ["noisy"] and list(again.policies) == ["noisier"]
    assert first.file == f"{mine}:recipe" and again.file == f"{mine}:other"
    assert type(first.policies["noisy"]) is type(again.policies["noisier"])


@pytest.mark.parametrize(
    "text, name, message",
    [
        (MINE, ":nothing", "expected a d2djax.Recipe called nothing; it has recipe, other"),
        ("x = 1\n", "", "expected a d2djax.Recipe called recipe; it has none"),
        ("import sys\nsys.exit(0)\n", "", ", line 2: SystemExit: 0"),
        ("\n\n1 / 0\n", "", ", line 3: ZeroDivisionError: division by zero"),
        ("def\n", "", "SyntaxError: invalid syntax"),
        (
            "import d2djax\nrecipe = d2djax.Recipe(policies=3)\n",
            "",
            ", line 2: ValueError: policies must be a dict",
        ),
    ],
)
def test_bad_files_are_one_line(mine, text, name, message):
    mine.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_recipe(f"{mine}{name}")
    assert "\n" not in str(caught.value) and str(mine) in str(caught.value)


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        load_recipe(str(tmp_path / "missing.py"))
    (tmp_path / "numpy.py").write_text(MINE)
    with pytest.raises(ValueError, match="rename the file, because a module numpy already exists"):
        load_recipe(str(tmp_path / "numpy.py"))


def test_a_sweep_of_a_recipe_is_repeated_from_its_file(mine, tmp_path, capsys):
    first, again = tmp_path / "first", tmp_path / "again"
    axes = ["--axis", "noisy.noise=0:1:0.5", "--axis", "gamma=0,1"]
    commands.main(["sweep", "--recipe", str(mine), *SMALL, *axes, "--no-training", "--out", str(first)])
    assert repeat.read(str(first / "config.toml"))[0]["recipe"] == f"{mine}:recipe"
    commands.main(["sweep", "--config", str(first / "config.toml"), "--out", str(again)])
    one, two = results.read(first / "results.zarr"), results.read(again / "results.zarr")
    assert one["policy"].values.tolist() == ["none", "noisy"] and one["noisy.noise"].values.tolist() == [0, 0.5, 1]
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name], err_msg=str(name))
    about = json.loads(one.attrs["manifest"])["recipe"]
    assert about["file"] == f"{mine}:recipe" and about["policies"]["noisy"]["name"] == "mine_to_test.Greedy"
    # Another line in the file: another sweep.
    mine.write_text(MINE.replace("jnp.maximum(memory[1, state], 1)", "(memory[1, state] + 1)"))
    del sys.modules[mine.stem]
    with pytest.raises(SystemExit) as caught:
        commands.main(["sweep", "--config", str(first / "config.toml"), "--out", str(first)])
    assert caught.value.code == 2
    assert "holds the results of another sweep (recipe.policies.noisy.hash" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "wrong_ucb",
            "policies['my_ucb'].weights: TracerBoolConversionError: Attempted boolean conversion of traced",
        ),
        ("wrong_greedy", "policies['greedy'].update: AttributeError: 'received' is not visible to a policy with"),
        ("wrong_neural", "policies['neural'].update must return memory with the structure of init; got"),
        ("wrong_ring", "links of policies['ring'] must be in 0..4 for 5 devices; got 5 at [0, 3]"),
        ("wrong_shape", "policies['ring'] must return links, whole numbers [S, N] = [2, 5]; got int32[5]"),
        ("wrong_kind", "policies['ring'] must return links, whole numbers [S, N] = [2, 5]; got float32[2, 5]"),
    ],
)
def test_wrong_policies_are_one_line_and_nothing_is_written(tmp_path, capsys, name, message):
    recipe = Path(__file__).with_name("own_ideas.py")
    arguments = ["sweep", "--recipe", f"{recipe}:{name}", *SMALL, "--axis", "gamma=0,1", "--no-training"]
    with pytest.raises(SystemExit) as ended:
        commands.main([*arguments, "--out", str(tmp_path / "out")])
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and not (tmp_path / "out").exists()
    assert [line for line in lines if line.startswith("d2djax: ")] == lines[-1:] and message in lines[-1], lines


def test_a_graph_of_devices_that_are_none_is_one_line(tmp_path, capsys):
    recipe = f"{Path(__file__).with_name('own_ideas.py')}:wrong_nearest"
    arguments = ["sweep", "--recipe", recipe, *SMALL, "--axis", "gamma=0,1", "--no-training"]
    with pytest.raises(SystemExit) as ended:
        commands.main([*arguments, "--out", str(tmp_path / "out")])
    message = "policies['nearest_one'] must return links in 0..4, device numbers; got 5 for device 0 in state 0"
    assert ended.value.code == 2 and message in capsys.readouterr().err
    # Numbers that depend on the network are known only when they are computed: no run of it is kept.
    assert results.read(tmp_path / "out" / "results.zarr")["done"].sum() == 0


def test_manifests_name_the_file_or_are_refused(tmp_path):
    about = {"config": {"num_devices": 5}, "seeds": [0, 1], "recipe": {"policies": {"mine": {}}, "file": "/a.py:b"}}
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    assert repeat.read(str(tmp_path / "manifest.json"))[0]["recipe"] == "/a.py:b"
    about["recipe"]["file"] = None
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="the recipe was given in Python"):
        repeat.read(str(tmp_path / "manifest.json"))


def test_the_place_of_a_file_is_no_part_of_what_results_are_of():
    assert d2djax.Recipe(file="a.py:b") == d2djax.Recipe()
