"""The order of the files: each may import only from those above it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import d2djax

ROOT = Path(__file__).parent.parent
FOLDERS = {"data", "policies"}


def imported(path):
    """Names of the modules of the package that a file imports when it is imported itself."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "d2djax":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return names


def test_files_import_only_from_those_before_them():
    table = re.search(r"\| file \| paper \| what \|\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL).group(
        1
    )
    order = re.findall(r"`(\w+)(?:\.py|/)`", table)
    package = ROOT / "d2djax"
    files = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")} | FOLDERS
    assert set(order) == files, "the README's table names every file"
    assert len(order) == len(files)
    for place, name in enumerate(order):
        paths = sorted((package / name).glob("*.py")) if name in FOLDERS else [package / f"{name}.py"]
        for path in paths:
            late = imported(path) - set(order[: place + 1])
            assert not late, f"{path.name} imports {late}, which the table lists after it"


def test_no_file_is_named_like_a_public_function():
    # The import of d2djax/sweep.py, say, would put the module in the place of the function `d2djax.sweep`.
    assert not {path.stem for path in (ROOT / "d2djax").glob("*.py")} & set(d2djax.__all__)


def test_public_names_are_there_in_any_order_of_imports():
    code = "import d2djax.sweeps, d2djax.config, d2djax; from d2djax import *; d2djax.channel, d2djax.data.load"
    code += (
        "; assert all(getattr(d2djax, name) is globals()[name] for name in d2djax.__all__); assert callable(sweep)"
    )
    code += "; assert not hasattr(d2djax, 'nonsense'); assert set(d2djax.__all__) <= set(dir(d2djax))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_command_line_is_imported_without_jax():
    code = "import sys, d2djax.cli; assert not {'jax', 'numpy', 'xarray', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
