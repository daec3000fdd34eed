"""The notebooks: each runs from top to bottom and is stored with its outputs."""

import gc
import importlib.util
import itertools
import json
import os
import re
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import nbclient
import nbformat
import pytest
from ipykernel.kernelspec import write_kernel_spec
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))
PLACES = re.compile(r"(?<![\w.<])/(bin|content|home|mnt|opt|root|tmp|usr|var|work|Users)/")
NOISE = re.compile(r"warning|widget|\d%\|", re.IGNORECASE)
FLAGS = "--xla_backend_optimization_level=1"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Name of a kernel that runs this interpreter with the package of this checkout."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    overrides = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        # No compiled programs in the user's cache; fast compilation, as in `conftest.py`.
        "env": {"PYTHONPATH": path, "D2DJAX_CACHE": "0", "XLA_FLAGS": os.environ.get("XLA_FLAGS", FLAGS)},
    }
    write_kernel_spec(tmp_path / "jupyter" / "kernels" / "d2djax-tests", overrides=overrides)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return "d2djax-tests"


def test_all_are_here():
    assert [path.stem for path in NOTEBOOKS] == ["own_data_and_policy", "sweep_on_gpu", "tour"]


def code_cells(path):
    notebook = nbformat.read(path, nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """The kinds of a cell's outputs; text in several pieces counts as one output."""
    found = [(one.output_type, one.get("name"), *sorted(one.get("data", ()))) for one in cell.outputs]
    return [kind for kind, _ in itertools.groupby(found)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("image/png" in one.get("data", ()) for cell in cells for one in cell.outputs) >= 1
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_have_no_errors_noise_or_machine_paths(path):
    for cell in code_cells(path):
        for one in cell.outputs:
            assert one.output_type in ("stream", "display_data", "execute_result"), cell.id
            assert one.get("name") != "stderr", cell.id
            shown = {kind: text for kind, text in one.get("data", {}).items() if kind != "image/png"}
            text = json.dumps([shown, one.get("text", "")])
            assert not PLACES.search(text), cell.id
            assert not NOISE.search(text), cell.id


class Magics:
    """The part of IPython that an install cell needs: records the arguments of magics."""

    def __init__(self, names):
        self.names, self.called = names, []

    def run_line_magic(self, name, line):
        self.called.append((name, line.format(**self.names)))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("there", "gpu"), [("package", False), ("nothing", False), ("nothing", True), ("folder", False)]
)
def test_what_is_missing_is_installed_from_the_clone(path, there, gpu, monkeypatch):
    source = next(cell.source for cell in code_cells(path) if "%pip" in cell.source)
    folder, package = ModuleSpec("d2djax", None), ModuleSpec("d2djax", None, origin="__init__.py")
    specs = {"nothing": None, "folder": folder, "package": package}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: specs[there])
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/nvidia-smi" if gpu else None)
    monkeypatch.chdir(path.parent)
    names = {}
    shell = Magics(names)
    names["get_ipython"] = lambda: shell
    exec(TransformerManager().transform_cell(source), names)
    installed = [("pip", f'install --quiet "{ROOT}{"[cuda12]" if gpu else ""}"')]
    assert shell.called == ([] if there == "package" else installed)


@pytest.mark.slow
# The client leaves the socket of a kernel that has ended to the garbage collector.
@pytest.mark.filterwarnings("ignore:Unclosed socket <zmq:ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, kernel, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    notebook = nbformat.read(path, as_version=4)
    kept = [kinds(cell) for cell in notebook.cells if cell.cell_type == "code"]
    resources = {"metadata": {"path": str(work)}}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name=kernel, resources=resources)
    # Raises with the cell and its traceback when one fails.
    client.execute()
    # The outputs in the file are those of these cells.
    assert [kinds(cell) for cell in notebook.cells if cell.cell_type == "code"] == kept
    # Here, where the warning is known.
    del client
    gc.collect()
