import re
import tomllib
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_what_is_to_be_installed_is_in_the_clone():
    """The package is on no index: everything that says how to install it says so from a clone."""
    root = README.parent
    places = [
        *root.glob("*.md"),
        *root.glob("*/*.md"),
        *root.glob("d2djax/**/*.py"),
        *root.rglob("notebooks/*.ipynb"),
    ]
    for path in places:
        assert not re.search(r"pip install[^\n]*d2djax\[", path.read_text()), path
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for extra in re.findall(r"\.\[(\w+)\]", "".join(path.read_text() for path in places)):
        assert extra in project["optional-dependencies"], extra


@pytest.mark.slow
def test_quickstart_runs(tmp_path, monkeypatch):
    """Every Python block of the README runs as written, one after the other."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks, "the README has no quickstart"
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "graph.png").stat().st_size > 0


def test_policy_of_ones_own_is_the_one_that_is_tested_and_has_15_lines():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if "class UCB" in block)
    tested = (README.parent / "tests" / "own_ideas.py").read_text()
    policy = tested[tested.index("@jax.tree_util") : tested.index("\n\n\n", tested.index("class UCB"))]
    assert policy in block
    assert len([line for line in policy.splitlines() if line.strip()]) == 15
