import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import jax
import jaxlib.version
import numpy as np
import pytest

import d2djax
from d2djax.analysis.studies import ALL
from d2djax.config import Config
from d2djax.data.types import Dataset
from d2djax.network import make_network
from d2djax.rng import run_key
from d2djax.running import machine
from d2djax.storage import store
from d2djax.validation import validate

# Compilation takes most of the time of these tests. XLA's optimisation multiplies it without making programs this
# small any faster. JAX reads this when it first compiles; a level that is already set stays. test_golden.py
# compiles as users do.
LEVEL = "--xla_backend_optimization_level"
FLAGS = os.environ.get("XLA_FLAGS", "")
if LEVEL not in FLAGS:
    # XLA aborts at a flag that it does not know: the second one is only for versions that are known to have it.
    fast = f"{LEVEL}=0" + " --xla_cpu_use_fusion_emitters=false" * (jaxlib.version.__version_info__ < (0, 11))
    os.environ["XLA_FLAGS"] = f"{FLAGS} {fast}".strip()
# The tests write nothing to the user's home folder.
os.environ.setdefault("D2DJAX_CACHE", "0")
# Many files compile the same programs: all workers, what they start and later runs of the tests share what was
# compiled. JAX finds a program by its code, its flags and its version; `pytest --cache-clear` deletes them all.
MOST_BYTES = 2**30


def programs_folder():
    """In pytest's own cache, for this processor alone; where nothing can be written, one for this run."""
    processor = hashlib.sha256(machine._processor().encode()).hexdigest()[:12]
    folder = Path(__file__).parents[1] / ".pytest_cache" / "d" / "programs" / processor
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if sum(file.stat().st_size for file in folder.iterdir()) > MOST_BYTES:
            shutil.rmtree(folder)
    except OSError:
        folder = tempfile.mkdtemp(prefix="d2djax-tests-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = programs_folder()
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def pytest_xdist_auto_num_workers(config):
    """All tests run in a process a core; those of files that are named start at once, in this process."""
    words = config.option.file_or_dir
    if words and not any(Path(word).is_dir() for word in words):
        return 0
    cores = machine.num_cores()
    # More would wait for the longest file.
    return 0 if cores == 1 else min(cores, 8)


@pytest.fixture(scope="session")
def tiny_config():
    """A setting whose whole run takes a second: 6 devices with 2 of 5 classes, 20 points of each."""
    config = Config(
        dataset="fashion_mnist",
        num_devices=6,
        num_classes=5,
        num_states=3,
        classes_per_device=2,
        points_per_device=40,
        threshold=8.0,
        min_classes=3,
        num_episodes=60,
        record_every=20,
        num_steps=8,
        aggregation_interval=4,
        batch_size=8,
    )
    return validate(config)


@pytest.fixture(scope="session")
def tiny_dataset():
    """1,000 images of 4 x 4 pixels in 5 classes of unequal size; a linear model tells the classes apart."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(5, dtype=np.int32), [200, 180, 210, 190, 220]))
    x = rng.integers(0, 60, (len(y), 16))
    # Three bright pixels of its own for each class; the sixteenth pixel is noise.
    for offset in range(3):
        x[np.arange(len(y)), 3 * y + offset] += 120
    return Dataset(
        x=x.reshape(-1, 4, 4, 1).astype(np.uint8),
        y=y,
        class_names=("a", "b", "c", "d", "e"),
        name="tiny",
        source="drawn in the tests",
    )


@pytest.fixture(scope="session")
def every_policy(tiny_config, tiny_dataset):
    """Results of the seeds 0, 1 and 2 with every policy of the paper's figures, for tests that look at them."""
    config = replace(tiny_config, policies=ALL)
    return d2djax.run(config, 3, data=tiny_dataset, progress=False, width=1)


@pytest.fixture(scope="session")
def no_exchange(tiny_config, tiny_dataset):
    """The same with the policy `none` alone, which learns nothing."""
    return d2djax.run(replace(tiny_config, policies=("none",)), 3, data=tiny_dataset, progress=False, width=1)


@pytest.fixture(scope="session")
def network_program():
    """`(draw, traces)`: `draw(seeds, config)` makes the networks of several runs; `traces` grows per trace."""
    traces = []

    def one(seed, config):
        traces.append(seed)
        return make_network(run_key(seed), config)

    return jax.jit(jax.vmap(one, (0, None))), traces


@pytest.fixture(scope="session")
def tiny_networks(network_program, tiny_config):
    """Networks of the seeds 0 to 127 in the tiny setting, as NumPy arrays with a leading axis of runs."""
    return jax.tree.map(np.asarray, network_program[0](np.arange(128), tiny_config))


@pytest.fixture
def stopping(monkeypatch):
    """`with stopping(after, error)`: a store takes so many chunks, and the next one fails."""

    @contextmanager
    def stopping(after, error=KeyboardInterrupt):
        write, written = store.Store.write, []

        def stop(self, region, *arguments):
            if len(written) == after:
                raise error
            written.append(region)
            write(self, region, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(store.Store, "write", stop)
            yield

    return stopping


@pytest.fixture
def recipe_file(tmp_path, monkeypatch):
    """`recipe_file(name, text)`: a file of code of one's own, whose module is forgotten after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = []

    def write(name, text):
        names.append(name)
        (file := tmp_path / f"{name}.py").write_text(text)
        return file

    yield write
    for name in names:
        sys.modules.pop(name, None)


def pytest_collection_modifyitems(items):
    """Files with slow tests first: of two workers none is left with a long file when all others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
