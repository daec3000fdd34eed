"""Data of one's own: what is taken, what is refused, and which settings must then be given."""

import json
from dataclasses import replace

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pandas
import pytest

import d2djax
from d2djax.config import PRESETS
from d2djax.data.types import DataError, Dataset
from d2djax.running import runs
from d2djax.running.axes import Uniform
from d2djax.running.plan import plan_sweep
from d2djax.running.runs import fill_in, set_up
from d2djax.searching.searches import search

NAMES = ("low", "high")
X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])


def given(x=X, y=Y, class_names=NAMES, name="mine", source="drawn here"):
    return Dataset(x, y, class_names, name, source)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(x.reshape(x.shape[0], -1))


def masked():
    x = np.ma.masked_array(X)
    x[2, 1] = np.ma.masked
    return x


def at(place, value, dtype=np.float32):
    x = X.astype(dtype)
    x[place] = value
    return x


REFUSED = [
    ({"x": at((2, 1), np.nan)}, r"x must be finite; found nan at \[2, 1\]"),
    ({"x": at((0, 0), -np.inf)}, r"x must be finite; found -inf at \[0, 0\]"),
    ({"x": at((3, 0), 1e300, np.float64)}, r"x must be within the range of single precision.*1e\+300 at \[3, 0\]"),
    ({"x": X.astype(np.float64) * 1e-60}, "x must be numbers that do not all round to 0 in single precision"),
    ({"x": at((5, 1), 2**32 + 1, np.int64)}, r"whole numbers within \+-2\*\*24.*found 4294967297 at \[5, 1\]"),
    ({"x": at((1, 0), 2**24 + 1, np.int32)}, r"whole numbers within .*found 16777217 at \[1, 0\]"),
    ({"x": at((4, 1), 2**63, np.uint64)}, r"whole numbers within .*found 9223372036854775808 at \[4, 1\]"),
    ({"x": X.astype(np.complex64)}, r"x must be real numbers, such as np.stack.*got complex64"),
    ({"x": X.astype(str)}, "x must be numbers; got '0.0' in it"),
    ({"x": [[1, 2], [3]]}, r"x must be an array of numbers; got \[\[1, 2\], \[3\]\]"),
    ({"x": at((2, 0), None, object)}, "x must be numbers; got None in it"),
    ({"x": np.array(["2020-01-01"] * 6, "M8[D]")}, "x must be numbers"),
    ({"x": masked()}, "x must have no masked values"),
    ({"x": 3.0}, r"x must be \[n, ...\] with at least one point; got shape \[\]"),
    ({"x": np.zeros((0, 2))}, r"x must be \[n, ...\] with at least one point"),
    ({"x": None}, "x must be numbers; got None in it"),
    ({"x": X[:5]}, "x and y must have one entry per point; got 5 points and 6 labels"),
    ({"y": at((0, 0), 7)[:, 0]}, r"y must be labels in 0..1, one for each of class_names; found 7.0 at \[0\]"),
    ({"y": -Y}, r"y must be labels in 0..1.*found -1 at \[1\]"),
    ({"y": Y + 2**32}, r"y must be labels in 0..1.*found 4294967296 at \[0\]"),
    ({"y": Y + 0.5}, r"y must be whole numbers; found 0.5 at \[0\]"),
    ({"y": np.where(Y, np.nan, 0)}, r"y must be whole numbers; found nan at \[1\]"),
    ({"y": np.eye(2)[Y]}, r"y must be \[n\], the class of each point; got shape \[6, 2\]"),
    ({"y": np.array(NAMES)[Y]}, r"y must be numbers; got 'low' in it; np.unique\(y, return_inverse=True\)"),
    ({"class_names": "ab"}, "class_names must be a list of names; got 'ab'"),
    ({"class_names": ("a", "a")}, "class_names must be distinct"),
    ({"class_names": ("a", 0.5)}, "class_names must be strings; got 0.5"),
    ({"class_names": 2}, "class_names must be a list of names; got 2"),
    ({"name": 3}, "name of a data set must be a string; got 3"),
    ({"source": None}, "source of a data set must be a string; got None"),
]


@pytest.mark.parametrize("changes, message", REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_cannot_be_kept_is_refused_in_a_line(changes, message):
    with pytest.raises(DataError, match=message) as caught:
        given(**changes)
    text = str(caught.value)
    assert "\n" not in text and len(text) <= 200
    assert "mine (drawn here): " in text or "of a data set" in text


TAKEN = [
    (X.tolist(), np.float32),
    (X.astype(np.float64), np.float32),
    (X.astype(">f4"), np.float32),
    (X.astype(np.float16), np.float16),
    (jnp.asarray(X), np.float32),
    (jnp.asarray(X, jnp.bfloat16), np.float32),
    (X.astype(np.int8), np.int8),
    (X.astype(">u2"), np.uint16),
    (X.astype(np.int64), np.int32),
    (X.astype(np.uint64), np.int32),
    (X.astype(np.uint8), np.uint8),
    (X.astype(object), np.float32),
    (pandas.DataFrame(X), np.float32),
    (pandas.DataFrame({"a": X[:, 0].astype(int), "b": X[:, 1]}), np.float32),
    (np.ma.masked_array(X), np.float32),
]


@pytest.mark.parametrize("x, dtype", TAKEN, ids=lambda one: type(one).__name__)
def test_what_can_be_kept_is_taken_exactly(x, dtype):
    data = given(x)
    assert type(data.x) is np.ndarray and data.x.dtype == dtype and data.x.dtype.isnative
    np.testing.assert_array_equal(data.x, X)


@pytest.mark.parametrize(
    "y",
    [Y.tolist(), Y.astype(bool), Y.astype(float), Y[:, None], pandas.Series(Y, index=range(9, 15)), jnp.asarray(Y)],
)
def test_labels_of_any_whole_kind_are_taken(y):
    data = given(y=y)
    assert data.y.dtype == np.int32
    np.testing.assert_array_equal(data.y, Y)


def test_truth_values_are_images_and_names_are_texts():
    data = given(X > 3, class_names=np.array(["a", "b"]))
    assert data.x.dtype == np.uint8 and data.x.max() == 1
    assert data.class_names == ("a", "b") and all(type(name) is str for name in data.class_names)
    assert given(class_names=range(2)).class_names == ("0", "1")


def test_numbers_of_64_bits_are_rounded_as_said():
    x = X.astype(np.float64) + 0.1
    np.testing.assert_array_equal(given(x).x, x.astype(np.float32))
    # A few that vanish beside others are rounded; only if all do, nothing is left.
    assert given(at((0, 0), 1e-60, np.float64)).x[0, 0] == 0


def test_arrays_that_need_no_change_are_not_copied():
    x, y = X.copy(), Y.astype(np.int32)
    data = given(x, y)
    assert data.x is x and data.y is y


# --- settings that data of one's own do not set ---

MINE = given()
SMALL = d2djax.Config(classes_per_device=1, min_classes=1, points_per_device=2)


def filled(config=SMALL, data=MINE, recipe=None, **options):
    return fill_in(config, data, recipe, **options)


@pytest.mark.parametrize(
    "config, recipe, options, missing",
    [
        (d2djax.Config(), None, {}, "points_per_device, model and learning_rate"),
        (d2djax.Config(), d2djax.Recipe(Net()), {}, "points_per_device and learning_rate"),
        (SMALL, None, {}, "model and learning_rate"),
        (SMALL, d2djax.Recipe(Net()), {}, "learning_rate"),
        (SMALL, None, {"axes": {"learning_rate": [0.1]}}, "model"),
        (d2djax.Config(), None, {"trains": False}, "points_per_device"),
        (SMALL, None, {"trains": False, "needs_model": True}, "model"),
        (SMALL, d2djax.Recipe(Net(), server=optax.adam), {}, "learning_rate and server_learning_rate"),
    ],
)
def test_what_has_no_default_is_named_in_one_line(config, recipe, options, missing):
    with pytest.raises(
        ValueError, match=rf"^data .*of your own have no defaults for {missing}: Config\(\w+="
    ) as caught:
        filled(config, recipe=recipe, **options)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "recipe, missing",
    [
        (d2djax.Recipe(client=optax.adam), "learning_rate"),
        (d2djax.Recipe(server=optax.adam), "server_learning_rate"),
        (d2djax.Recipe(client=optax.adam, server=optax.adam), "learning_rate and server_learning_rate"),
    ],
)
def test_a_step_size_for_sgd_drives_no_other_optimiser(recipe, missing):
    # RadioML's 0.2 drove Adam, and 1.0 the server's.
    with pytest.raises(ValueError, match=f"^optimisers of your own have no defaults for {missing}: "):
        filled(d2djax.Config(), None, recipe)
    assert filled(d2djax.Config(), None, recipe, trains=False) == d2djax.Config()
    filled(d2djax.Config(learning_rate=0.01, server_learning_rate=0.01), None, recipe)


def test_what_can_be_derived_need_not_be_given():
    config = d2djax.validate(filled(replace(SMALL, learning_rate=0.01), recipe=d2djax.Recipe(Net())))
    assert (config.dataset, config.num_classes, config.points_per_device) == ("own", 2, 2)
    assert config.model == "auto" and config.learning_rate == 0.01
    # Nothing is needed for graphs but how many points there are.
    assert d2djax.validate(filled(trains=False)).learning_rate is None


def test_data_that_load_gave_keep_their_defaults():
    data = given(name="fashion_mnist")
    config = filled(d2djax.Config(), data)
    assert config.dataset == "own" and config.num_classes == 2
    preset = PRESETS["fashion_mnist"]
    assert {name: getattr(config, name) for name in preset if name != "num_classes"} == {
        name: value for name, value in preset.items() if name != "num_classes"
    }


def test_two_data_sets_are_one_too_many(tmp_path):
    with pytest.raises(ValueError, match=r"data and data_dir=.* name two data sets; give one of them"):
        filled(replace(SMALL, data_dir=str(tmp_path)))


def test_own_data_must_be_there():
    with pytest.raises(ValueError, match=r"dataset='own' stands for points of your own: --data mine.npz, or"):
        d2djax.run(d2djax.Config(dataset="own"), progress=False)


@pytest.mark.parametrize("axes", [{"learning_rate": [0.1, 0.2]}, [{"learning_rate": 0.1}, {"learning_rate": 0.2}]])
def test_axes_give_settings_too(axes):
    config = replace(SMALL, model="mlp", num_devices=2)
    assert len(plan_sweep(config, axes, 1, MINE).setups) == 1
    with pytest.raises(ValueError, match="no defaults for learning_rate"):
        plan_sweep(config, {"learning_rate": [0.1, None]}, 1, MINE)
    with pytest.raises(ValueError, match="no defaults for learning_rate"):
        plan_sweep(config, {"gamma": [0.1]}, 1, MINE)


def test_searches_ask_for_what_they_use(tmp_path):
    options = {"data": MINE, "progress": False, "out": tmp_path}
    with pytest.raises(ValueError, match="no defaults for model and learning_rate"):
        search(SMALL, {"gamma": Uniform(0, 1)}, ("accuracy",), **options)
    # The energy counts the uploads of a model.
    with pytest.raises(ValueError, match="no defaults for model: "):
        search(SMALL, {"gamma": Uniform(0, 1)}, ("energy",), **options)
    assert not list(tmp_path.iterdir())


def test_a_default_network_that_cannot_take_the_points_says_what_to_give():
    config = replace(SMALL, model="radio_cnn", learning_rate=0.1, num_devices=2)
    with pytest.raises(ValueError, match=r'RadioCNN cannot take points of shape \(2,\): give model="mlp", which'):
        set_up(config, MINE, None)


def test_results_name_own_data_and_no_other(tiny_config, tiny_dataset):
    config = replace(tiny_config, policies=("none",), dataset="radioml")
    found = d2djax.run(config, 1, data=tiny_dataset, training=False, progress=False)
    about = json.loads(found.attrs["manifest"])
    assert about["config"]["dataset"] == "own" and about["data"]["name"] == "tiny"
    assert "radioml" not in found.attrs["manifest"]


def test_graphs_of_own_data_need_no_network(tiny_config, tiny_dataset):
    config = replace(tiny_config, policies=("none",), model="auto", learning_rate=None)
    found = d2djax.run(config, 1, data=tiny_dataset, training=False, progress=False)
    assert (
        "upload_energy" not in found and "upload_bits" not in found and np.isfinite(found["exchange_energy"]).all()
    )
    assert runs.set_up(config, tiny_dataset, None, trains=False).sizes.num_parameters is None
