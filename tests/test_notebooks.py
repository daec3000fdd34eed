"""The notebooks: each runs from top to bottom, and is kept without outputs."""

import gc
import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from ipykernel.kernelspec import write_kernel_spec

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))
FLAGS = "--xla_backend_optimization_level=1"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Name of a kernel that is this interpreter with the package of this checkout."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    overrides = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        # No compiled programs in the cache of whoever runs the tests; compiling fast, as in `conftest.py`.
        "env": {"PYTHONPATH": path, "D2DJAX_CACHE": "0", "XLA_FLAGS": os.environ.get("XLA_FLAGS", FLAGS)},
    }
    write_kernel_spec(tmp_path / "jupyter" / "kernels" / "d2djax-tests", overrides=overrides)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return "d2djax-tests"


def test_all_are_here():
    assert [path.stem for path in NOTEBOOKS] == ["own_data_and_policy", "sweep_on_gpu", "tour"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path):
    notebook = nbformat.read(path, nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, cell.id


@pytest.mark.slow
# The client leaves the socket of a kernel that has ended to the garbage collector.
@pytest.mark.filterwarnings("ignore:Unclosed socket <zmq:ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, kernel, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(work)}}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name=kernel, resources=resources)
    # Raises with the cell and its traceback when one fails.
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    # Here, where the warning is known.
    del client
    gc.collect()
