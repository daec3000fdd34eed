import json
from itertools import product

import numpy as np
import pytest
import xarray

from d2djax.analysis.merging import merge
from d2djax.running import results

POLICIES = np.array(["none", "rl"], object)
ABOUT = {
    "config": {"gamma": 0.5, "num_stragglers": 0, "batch_size": 8, "scheme": "fedavg", "policies": ["none", "rl"]},
    "axes": {},
    "dimensions": [],
    "training": True,
    "data": {"name": "tiny", "source": "drawn", "digest": "12ab"},
    "recipe": {"model": {"name": "Linear", "hash": "1"}},
    "code": {"d2djax.policy": "2"},
    "versions": {"jax": "0.9"},
    "jax": {},
    "backend": "cpu",
    "commit": "abc",
}


def part(axes=None, seeds=range(3), rounds=(2, 4), done=None, config=None, **about):
    """Results that follow from point and seed alone; of a sweep where there are axes."""
    axes, seeds = axes or {}, list(seeds)
    config = {name: value for name, value in (ABOUT["config"] | (config or {})).items() if name not in axes}
    shape, dims = (*map(len, axes.values()), len(seeds)), [*axes, "run"]
    accuracy = np.full((*shape, 2, len(rounds)), np.nan, np.float32)
    moved = np.full((*shape, 2), -1, np.int64)
    done = np.ones(shape, np.int8) if done is None else np.broadcast_to(np.asarray(done, np.int8), shape)
    places = (range(length) for length in shape)
    for at, values in zip(product(*places), product(*axes.values(), seeds), strict=True):
        if done[at]:
            settings = config | dict(zip(axes, values, strict=False)) | {"seed": values[-1]}
            number = settings["gamma"] * 100 + settings["num_stragglers"] * 10 + settings["seed"]
            accuracy[at] = number + np.array([[0.25], [0.5]]) + np.array(rounds)
            moved[at] = number * 10
    digest = {"all": "12ab"} if axes else "12ab"
    manifest = ABOUT | {"config": config, "seeds": seeds, "data": ABOUT["data"] | {"digest": digest}} | about
    manifest |= {"axes": {name: list(values) for name, values in axes.items()}, "dimensions": list(axes)}
    variables = {
        "accuracy": ([*dims, "policy", "round"], accuracy, {"units": "1"}),
        "points_moved": ([*dims, "policy"], moved),
        "status": ([*dims, "policy"], np.where(done[..., None] > 0, 0, -1).repeat(2, -1).astype(np.int8)),
    }
    if axes:
        variables["done"] = (dims, done)
    text = {
        name: np.array(values, object) if isinstance(values[0], str) else values for name, values in axes.items()
    }
    coordinates = text | {"run": np.array(seeds, np.int32), "policy": POLICIES, "round": list(rounds)}
    return xarray.Dataset(variables, coordinates, {"manifest": json.dumps(manifest)})


def about(found):
    return json.loads(found.attrs["manifest"])


def same(found, expected):
    xarray.testing.assert_identical(found.drop_attrs(), expected.drop_attrs())


GAMMAS = {"gamma": [0.0, 0.5, 1.0]}


def test_seeds_and_values_in_any_order_are_one_sweep():
    whole = part(GAMMAS, range(4))
    left = part({"gamma": [1.0, 0.0]}, [3, 1])
    right = part({"gamma": [0.5]}, range(4))
    rest = part({"gamma": [0.0, 1.0]}, [0, 2])
    found = merge([left, right, rest])
    same(found, whole)
    assert about(found)["seeds"] == [0, 1, 2, 3] and about(found)["axes"] == GAMMAS
    assert "gamma" not in about(found)["config"]
    assert [one["seeds"] for one in about(found)["parts"]] == [[3, 1], [0, 1, 2, 3], [0, 2]]
    assert about(found)["parts"][1]["axes"] == {"gamma": [0.5]}


def test_what_no_part_has_is_missing():
    found = merge([part({"gamma": [0.0]}, [0]), part({"gamma": [1.0]}, [1])])
    assert found["done"].values.tolist() == [[1, 0], [0, 1]]
    assert np.isnan(found["accuracy"].sel(gamma=0.0, run=1)).all()
    assert (found["points_moved"].sel(gamma=1.0, run=0) == -1).all()


def test_runs_that_are_not_done_are_taken_from_where_they_are():
    done = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    same(merge([part(GAMMAS, done=done), part(GAMMAS, done=1 - done)]), part(GAMMAS))
    # Equal runs that occur twice count once.
    same(merge([part(GAMMAS), part(GAMMAS, done=done)]), part(GAMMAS))


def test_a_run_that_is_another_one_there_is_refused():
    other = part(GAMMAS)
    other["points_moved"][1, 2, 0] += 1
    with pytest.raises(
        ValueError, match="b: points_moved of a run differs from that of the same run in another part"
    ):
        merge([part(GAMMAS), other], ["a", "b"])


def test_runs_of_other_settings_become_an_axis():
    found = merge([part(config={"gamma": 1.0}), part(config={"gamma": 0.0}), part({"gamma": [0.5]})])
    same(found, part(GAMMAS))
    assert about(found)["axes"] == GAMMAS and about(found)["dimensions"] == ["gamma"]
    found = merge([part(GAMMAS), part(GAMMAS, config={"num_stragglers": 2})])
    same(found, part({"num_stragglers": [0, 2]} | GAMMAS))
    # Selections of a sweep are results too.
    same(merge([part(GAMMAS).sel(gamma=gamma) for gamma in GAMMAS["gamma"]]), part(GAMMAS))
    found = merge([part(GAMMAS, config={"scheme": scheme}) for scheme in ("fedsgd", "fedavg")])
    assert found["scheme"].values.tolist() == ["fedsgd", "fedavg"] and found["scheme"].dtype == object


def test_runs_alone_stay_runs_of_no_axis():
    found = merge([part(seeds=[0, 5]), part(seeds=[2])])
    same(found.drop_vars("done"), part(seeds=[0, 2, 5]))


def test_points_that_were_drawn_are_told_apart_by_their_settings():
    def drawn(points):
        found = part({"gamma": points}).rename_dims(gamma="point").reset_index("gamma")
        return found.assign_attrs(manifest=json.dumps(about(found) | {"dimensions": ["point"]}))

    found = merge([drawn([0.7, 0.1]), drawn([0.1, 0.4])])
    assert found["gamma"].dims == ("point",) and found["gamma"].values.tolist() == [0.7, 0.1, 0.4]
    assert about(found)["axes"] == {"gamma": [0.7, 0.1, 0.4]} and found["done"].values.all()
    same(merge([found, drawn([0.7])]), found)


def test_points_may_have_other_rounds():
    found = merge([part(config={"gamma": 0.0}), part(config={"gamma": 1.0}, rounds=(1, 2, 3))])
    assert found["round"].values.tolist() == [1, 2, 3, 4]
    assert np.isfinite(found["accuracy"].isel(run=0, policy=0)).values.tolist() == [
        [False, True, False, True],
        [True, True, True, False],
    ]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"code": {"d2djax.policy": "3"}}, "code.d2djax.policy"),
        ({"backend": "gpu"}, 'backend: "cpu" there, "gpu" now'),
        ({"data": ABOUT["data"] | {"digest": {"all": "other"}}}, "data.digest.all"),
        ({"config": {"policies": ["rl"]}}, "config.policies"),
        ({"rounds": (2, 4), "axes": {"batch_size": [8, 16]}, "training": False}, "training: true there, false now"),
        ({"recipe": {"model": {"name": "Other", "hash": "1"}}}, "recipe.model.name"),
    ],
)
def test_all_else_that_differs_is_refused_by_name(change, words):
    with pytest.raises(ValueError, match="b cannot be merged with a: ") as caught:
        merge([part(GAMMAS), part(**{"axes": GAMMAS} | change)], ["a", "b"])
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_selections_that_do_not_fit_are_refused():
    whole = part(GAMMAS)
    for other in (whole.sel(policy="rl"), whole.sel(policy=["rl"]), whole.drop_vars("points_moved")):
        with pytest.raises(ValueError, match="cannot be merged"):
            merge([whole, other])
    with pytest.raises(ValueError, match="part 2: not the results of a run or a sweep"):
        merge([whole, whole.drop_attrs()])
    with pytest.raises(ValueError, match="part 2: the dimension round has no coordinate"):
        merge([whole, whole.drop_vars("round")])
    with pytest.raises(ValueError, match="at least one"):
        merge([])


def test_a_merged_result_is_saved_and_merged_again(tmp_path):
    found = merge([part(GAMMAS, [0]), part(GAMMAS, [1, 2])])
    read = results.read(results.save(found, tmp_path / "merged.zarr"))
    same(read.load(), found)
    again = merge([read, part(GAMMAS, [3])])
    assert about(again)["seeds"] == [0, 1, 2, 3]
    assert [one["seeds"] for one in about(again)["parts"]] == [[0], [1, 2], [3]]


def test_an_axis_that_was_dropped_is_missed_unless_it_has_one_value():
    found = part(GAMMAS, range(4))
    left, right = found.isel(gamma=0, run=[0, 1], drop=True), found.isel(gamma=2, run=[2, 3], drop=True)
    for parts in ([left, right], [found.mean("gamma", keep_attrs=True), left]):
        with pytest.raises(ValueError, match="part 1: axis gamma was dropped; select points without drop=True"):
            merge(parts)
    same(
        merge([part({"gamma": [1.0]}, [0]).isel(gamma=0, drop=True), part({"gamma": [0.5]}, [0])]),
        merge([part({"gamma": [1.0]}, [0]), part({"gamma": [0.5]}, [0])]),
    )
