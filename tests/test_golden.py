"""Numbers of a small run as the first release computed them: a changed draw or equation shows here."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest

import d2djax
from d2djax.rng import run_key
from d2djax.running.results import read
from d2djax.settings import RENAMED
from d2djax.storage import store

# What the golden numbers were computed with: sums are in the order of this version's and these vectors' code.
JAXLIB, VENDOR, VECTORS, NO_VECTORS = "0.10.2", "AuthenticAMD", {"avx2", "fma"}, "avx512"
FOR_TESTS = ("--xla_backend_optimization_level", "--xla_cpu_use_fusion_emitters")
GOLDEN = Path(__file__).parent / "data" / "golden.npz"
CONFIG = d2djax.Config(
    num_devices=8,
    num_states=3,
    num_episodes=400,
    num_steps=20,
    aggregation_interval=10,
    points_per_device=80,
    threshold=6.0,
    cluster_budget=25.0,
    batch_size=8,
    num_stragglers=1,
    delivery="sampled",
    channel_model="mobility",
    policies=("none", "uniform", "rl", "nearest", "best_response", "pooled"),
)


def is_computed_alike():
    """Whether the version of XLA and the processor are those that the golden numbers were computed with."""
    about = Path("/proc/cpuinfo")
    words = set(about.read_text().split()) if about.exists() else set()
    is_same = {VENDOR} | VECTORS <= words and not any(word.startswith(NO_VECTORS) for word in words)
    return is_same and jaxlib.__version__ == JAXLIB


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


def computed():
    """The numbers of this version, by name."""
    # The first release did not evaluate the model before training.
    results = d2djax.run(CONFIG, seeds=[0, 5], progress=False).isel(round=slice(1, None))
    config = d2djax.validate(CONFIG)
    found = jax.jit(d2djax.discover)(run_key(5), d2djax.make_network(run_key(5), config), config)
    buffer = {"buffer_reward": found.buffer.reward, "buffer_tries": found.buffer.tries, "greedy": found.links}
    learns = {name: one.sel(policy="rl") for name, one in results.items() if "discovery_" in str(name)}
    return {name: np.asarray(value) for name, value in ({**results.data_vars} | learns | buffer).items()}


@pytest.fixture(scope="module")
def now(tmp_path_factory):
    """The same, from a process that compiles as those of users do, unlike these tests, see `conftest.py`."""
    file = tmp_path_factory.mktemp("golden") / "now.npz"
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(FOR_TESTS)]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"XLA_FLAGS": " ".join(flags), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, __file__, str(file)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(file) as found:
        return dict(found)


def test_golden_numbers_are_all_there(golden, now):
    assert len(golden) == 33
    assert set(golden) <= set(now)


def test_whole_numbers_are_those_of_the_first_release(golden, now):
    for name, value in golden.items():
        if value.dtype.kind == "i":
            np.testing.assert_array_equal(now[name], value, err_msg=name)


def test_numbers_are_those_of_the_first_release(golden, now):
    # Anywhere: another processor, or another version of XLA, sums in another order.
    for name, value in golden.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(now[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.skipif(not is_computed_alike(), reason=f"to the bit only with jaxlib {JAXLIB} on {VENDOR} with AVX2")
def test_numbers_are_those_of_the_first_release_to_the_bit(golden, now):
    for name, value in golden.items():
        np.testing.assert_array_equal(now[name], value, err_msg=name)


def test_stores_of_the_first_release_are_read(tmp_path):
    with tarfile.open(GOLDEN.with_name("store_0_1.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    with pytest.raises(ValueError, match=r"was written before d2djax 0\.2"):
        # What a sweep asks of a store before it resumes.
        store.manifest_at(tmp_path / "results.zarr")
    with pytest.warns(UserWarning, match="'method' is read as 'policy', 'methods' is read as 'policies'"):
        found = read(tmp_path / "results.zarr")
    assert found.sizes["policy"] == 2 and np.isfinite(found["graph_reward"].sel(policy="rl")).all()
    config = json.loads(found.attrs["manifest"])["config"]
    assert config["policies"] == ["none", "rl"] and not set(config) & set(RENAMED)
    assert config["max_outage"] == pytest.approx(0.1) and config["shadowing_std"] == 4.0
    with pytest.raises(KeyError):
        found.sel(policy="nonsense")


if __name__ == "__main__":
    np.savez(sys.argv[1], **computed())
