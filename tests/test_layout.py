"""The order of the files: each may import only from those above it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import d2djax

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "d2djax"
# Folders whose files the table does not list: their `__init__.py` is what others import.
WHOLE = {"data", "policies"}


def imported(path):
    """Modules of the package that a file imports when it is imported itself, such as `storage.files`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "d2djax":
            module = node.module.split(".")[1:]
            folder = PACKAGE.joinpath(*module)
            if module and module[0] in WHOLE:
                names.add(module[0])
            elif folder.is_dir():
                names |= {".".join([*module, alias.name]) for alias in node.names}
            else:
                names.add(".".join(module))
    return names


def listed():
    """Modules in the order of the README's table."""
    table = re.search(r"\| file \| paper \| what \|\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    order = []
    for row in table.splitlines()[1:]:
        folder, files = re.match(r"\| (?:`(\w+)/`(?:: )?)?(.*?) \|", row).groups()
        names = re.findall(r"`(\w+)\.py`", files)
        order += [f"{folder}.{name}" if folder else name for name in names] or [folder]
    return order


def test_files_import_only_from_those_before_them():
    order = listed()
    paths = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    files = {name for name in paths if "__" not in name and name.split(".")[0] not in WHOLE} | WHOLE
    assert set(order) == files, "the README's table names every file"
    assert len(order) == len(files)
    for place, name in enumerate(order):
        of_row = sorted((PACKAGE / name).glob("*.py")) if name in WHOLE else [paths[name]]
        for path in of_row:
            late = imported(path) - set(order[: place + 1])
            assert not late, f"{path.name} imports {late}, which the table lists after it"


def test_no_file_is_named_like_a_public_function():
    # The import of d2djax/sweep.py, say, would put the module in the place of the function `d2djax.sweep`.
    assert not {path.stem for path in PACKAGE.glob("*")} & set(d2djax.__all__)


def test_public_names_are_there_in_any_order_of_imports():
    code = "import d2djax.running.sweeps, d2djax.config, d2djax; from d2djax import *; d2djax.channel"
    code += "; d2djax.data.load, d2djax.analysis"
    code += (
        "; assert all(getattr(d2djax, name) is globals()[name] for name in d2djax.__all__); assert callable(sweep)"
    )
    code += "; assert not hasattr(d2djax, 'nonsense'); assert set(d2djax.__all__) <= set(dir(d2djax))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_command_line_is_imported_without_jax():
    code = "import sys, d2djax.cli.commands; assert not {'jax', 'numpy', 'xarray', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
