"""Points of one's own in files: what is read, what is refused, and commands that use them."""

import io
import json
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from d2djax.cli import commands
from d2djax.cli.options import Run
from d2djax.cli.parser import parse
from d2djax.data import own
from d2djax.data.types import DataError
from d2djax.running import repeat, results

RNG = np.random.default_rng(0)
OWNER = RNG.permutation(np.repeat(np.arange(4), [20, 30, 50, 60])).astype(np.int32)
Y = ((OWNER + RNG.integers(0, 2, OWNER.size)) % 3).astype(np.int32)
X = (RNG.normal(size=(Y.size, 4)) + Y[:, None]).astype(np.float32)
HOLE = X.copy()
HOLE[2, 1] = np.nan
ARRAYS = {"x": X, "y": Y, "class_names": np.array(["low", "middle", "high"]), "owner": OWNER}


@pytest.fixture
def file(tmp_path):
    """A file of all four arrays."""
    np.savez(tmp_path / "mine.npz", **ARRAYS)
    return tmp_path / "mine.npz"


def test_all_of_a_file_is_read(file):
    found = own.read(file)
    assert (found.name, found.source, found.file) == ("mine.npz", str(file), str(file))
    assert found.class_names == ("low", "middle", "high")
    for name, array in (("x", X), ("y", Y), ("owner", OWNER)):
        np.testing.assert_array_equal(getattr(found, name), array)


def test_names_and_owners_may_be_missing(tmp_path):
    np.savez_compressed(tmp_path / "few.npz", x=X.astype(np.float64), y=Y.astype(np.int8))
    found = own.read(str(tmp_path / "few.npz"))
    assert found.class_names == ("0", "1", "2") and found.owner is None
    assert found.x.dtype == np.float32 and found.y.dtype == np.int32


# --- files that are none ---


def saved(**arrays):
    content = io.BytesIO()
    np.savez(content, **{"x": X, "y": Y, **arrays})
    return content.getvalue()


def archive(**parts):
    """An archive of raw bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, part in parts.items():
            made.writestr(f"{name}.npy", part)
    return content.getvalue()


def raw(array, shape=None):
    """An array as bytes; `shape` is what its header claims."""
    content = io.BytesIO()
    about = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(content, about | {"shape": shape or array.shape})
    return content.getvalue() + array.tobytes()


class Harm:
    """Writes a file where it is read from a pickle."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return (Path.touch, (Path(self.place),))


def flipped(content):
    """A bit of the last array that has turned round."""
    place = content.rfind(Y[-8:].tobytes())
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


BAD = {
    "empty": (b"", "expected an .npz file, as written by numpy.savez; found a file of another kind"),
    "text": (b"1,2,3\n" * 50, "found a file of another kind"),
    "npy": (raw(X), "found a file of another kind"),
    "pickle": (pickle.dumps({"x": X}), "found a file of another kind"),
    "cut": (saved()[:900], "found a file of another kind"),
    "flipped": (flipped(saved()), "found damage (Bad CRC-32 for file 'y.npy')"),
    "headless": (archive(x=b"nothing", y=raw(Y)), "found damage ("),
    "objects": (
        saved(owner=np.array([Harm("harmed")] * Y.size)),
        "in owner.npy; found a pickle, which could run code",
    ),
    "lying": (
        archive(x=raw(X, (10**9, 4)), y=raw(Y)),
        "expected x.npy of float32 [1000000000, 4]; found 2,560 bytes",
    ),
    "short": (archive(x=raw(X, (3, 4)), y=raw(Y)), "expected x.npy of float32 [3, 4]; found 2,560 bytes"),
    "strange": (archive(x=b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 118, y=raw(Y)), "found damage ("),
    "large": (saved(x=np.zeros((Y.size, 2000), np.float32)), "expected arrays that fit into memory, 0.0 GiB"),
    "misspelt": (saved(owners=OWNER), "and optionally class_names and owner; found x.npy, y.npy, owners.npy"),
    "twice": (archive(**{"x": raw(X), "y": raw(Y), "y.npy": raw(Y)}), "expected the arrays x and y"),
    "no y": (archive(x=raw(X)), "expected the arrays x and y and optionally class_names and owner; found x.npy"),
    "no arrays": (archive(), "found none"),
    "nan": (saved(x=HOLE), "x must be finite; found nan at [2, 1]"),
    "complex": (saved(x=X * 1j), "x must be real numbers"),
    "texts": (saved(y=np.array(["low"] * Y.size)), "y must be numbers; got 'low' in it"),
    "nan labels": (saved(y=np.full(Y.size, np.nan)), "y must be whole numbers; found nan at [0]"),
    "labels": (
        saved(y=Y.astype(np.int64) + 2**40),
        "y must be labels in 0..159, one for each of class_names; found 1099511627776",
    ),
    "few names": (saved(class_names=np.array(["low", "high"])), "y must be labels in 0..1"),
    "names": (saved(class_names=np.zeros((3, 1))), "expected class_names [L]; found shape [3, 1]"),
    "lengths": (saved(y=Y[1:]), "x and y must have one entry per point; got 160 points and 159 labels"),
    "gap": (saved(owner=OWNER * 2), "owner must number the devices from 0 without a gap; 1 is unused"),
}


@pytest.mark.parametrize("kind", BAD)
def test_damaged_wrong_and_malicious_files_are_one_line(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, message = BAD[kind]
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        own.read("mine.npz", most_bytes=10**6)
    assert "\n" not in str(caught.value) and "mine.npz" in str(caught.value) and len(str(caught.value)) < 300
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"], "nothing in the file has run"


def test_what_is_no_file_is_one_line(tmp_path):
    for path, message in ((tmp_path, "found no file"), (tmp_path / "missing.npz", "found nothing")):
        with pytest.raises(DataError, match=message):
            own.read(path)
    with pytest.raises(DataError, match="found damage"):
        own.read("\0")


# --- commands ---

SETTING = [
    *(
        "--num-states",
        "2",
        "--num-episodes",
        "20",
        "--record-every",
        "20",
        "--threshold",
        "5",
        "--min-classes",
        "2",
    ),
    *("--num-steps", "4", "--aggregation-interval", "2", "--batch-size", "4", "--policies", "none"),
]
TRAINED = [*SETTING, "--model", "mlp", "--learning-rate", "0.05"]


def command(*arguments):
    commands.main([str(one) for one in arguments])


def refused(capsys, *arguments):
    """What a command that is refused says in its last line."""
    with pytest.raises(SystemExit) as caught:
        command(*arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def equal(first, second):
    one, two = results.read(first / "results.zarr"), results.read(second / "results.zarr")
    assert set(one.data_vars) == set(two.data_vars)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], two[name], err_msg=str(name))
    return one


@pytest.mark.slow
def test_a_run_of_a_file_is_repeated_from_what_it_leaves(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("d2djax.analysis.plots.save_figures", lambda *arguments: [])
    command("run", "--data", "mine.npz", *TRAINED, "--seeds", 2, "--out", "first")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    left = repeat.read("../first/config.toml")[0]
    assert left["data"] == str(file) and left["dataset"] == "own"
    command("run", "--config", "../first/config.toml", "--out", "toml")
    command("run", "--config", "../first/manifest.json", "--out", "json")
    for again in ("toml", "json"):
        found = equal(tmp_path / "first", tmp_path / "elsewhere" / again)
    assert found["class"].values.tolist() == ["low", "middle", "high"] and found.sizes["device"] == 4
    sizes = np.bincount(OWNER)
    assert found["counts_before"].sum("class").values.tolist() == [(sizes - np.rint(sizes * 0.2)).tolist()] * 2
    about = json.loads(found.attrs["manifest"])
    assert about["data"]["name"] == "mine.npz" and about["data"]["file"] == str(file)


def test_a_sweep_of_a_file_goes_on_and_a_changed_file_does_not(file, tmp_path, capsys):
    out, sweep = tmp_path / "out", ["sweep", "--data", file, *TRAINED, "--axis", "learning_rate=0.05,0.1"]
    command(*sweep, "--seeds", 1, "--out", out)
    command("sweep", "--config", out / "config.toml", "--seeds", 2, "--out", out)
    assert (results.read(out / "results.zarr")["done"] == 1).all()
    # One number is another.
    other = X.copy()
    other[7, 1] += 1
    np.savez(file, **ARRAYS | {"x": other})
    found = refused(capsys, *sweep, "--seeds", 3, "--out", out)
    assert "holds the results of another sweep (data.digest.all: " in found


def test_a_search_of_a_file_leaves_files_that_name_it(file, tmp_path):
    pytest.importorskip("optuna")
    search = [
        "search",
        "--data",
        file,
        *SETTING,
        "--axis",
        "gamma=0,1",
        "--objective",
        "reward",
        "--policy",
        "none",
    ]
    command(*search, "--trials", 2, "--seeds", 1, "--out", tmp_path / "out")
    for name in ("config.toml", "best.toml"):
        assert repeat.read(str(tmp_path / "out" / name))[0]["data"] == str(file)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run"], "data of your own have no defaults for model and learning_rate: "),
        (["run", "--model", "mlp"], "data of your own have no defaults for learning_rate: "),
        (["sweep", "--axis", "gamma=0,1"], "data of your own have no defaults for model and learning_rate: "),
        (["run", "--num-devices", "5"], "num_devices must be 4, the owners of mine.npz; got 5"),
        (["run", "--dataset", "cifar10"], "--data and --dataset cifar10 name two data sets; give one of them"),
        (["run", "--data-dir", "."], "data and data_dir='.' name two data sets; give one of them"),
        (
            ["sweep", "--axis", "points_per_device=5,6"],
            "points_per_device cannot be an axis if points have owners",
        ),
    ],
)
def test_what_contradicts_a_file_is_refused_and_writes_nothing(arguments, message, file, tmp_path, capsys):
    assert message in refused(capsys, *arguments, "--data", file, "--out", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


@pytest.mark.parametrize("kind", ["run", "sweep", "search"])
def test_bad_files_end_commands_with_nothing_written(kind, tmp_path, capsys):
    pytest.importorskip("optuna")
    (tmp_path / "mine.npz").write_bytes(saved()[:900])
    axis = [] if kind == "run" else ["--axis", "gamma=0,1"]
    found = refused(capsys, kind, "--data", tmp_path / "mine.npz", *axis, "--out", tmp_path / "out")
    assert found.endswith(
        "mine.npz: expected an .npz file, as written by numpy.savez; found a file of another kind"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_own_points_without_a_file_name_the_option(tmp_path, capsys):
    found = refused(capsys, "run", "--dataset", "own", "--out", tmp_path / "out")
    assert "dataset='own' stands for points of your own: --data mine.npz" in found
    assert not (tmp_path / "out").exists()


def test_the_option_is_no_short_form_of_another():
    found, _ = parse(["run", "--data", "a.npz"], {"run": Run})
    assert found.data == "a.npz" and found.config.data_dir is None
