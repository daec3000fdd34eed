"""The identity of results as plain JSON: runs with equal identities have equal results."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from d2djax.channel import unread_settings
from d2djax.config import Config
from d2djax.data import SOURCES
from d2djax.federated import SCHEMES
from d2djax.networks import arrays_of, unread
from d2djax.parts import numbers_of, without_numbers
from d2djax.running import machine
from d2djax.running.fingerprint import PACKAGE, Survey, fingerprint

# Entries that the manifest records but that are not part of the identity. The commit is one of them: fingerprints
# of the code detect every change that affects results, whereas a commit may only change a text or a test.
BESIDE = ("commit", "machine", "wall_seconds", "finished", "data.source", "data.file", "recipe.file")
BESIDE += ("recipe.network.file",)
_VERSIONS = ("d2djax", "jax", "jaxlib", "flax", "optax")
# Settings of JAX that change numbers. `rng` fixes the kind of keys, and `programs` the partitionable generator.
_JAX = (
    *("jax_default_matmul_precision", "jax_disable_jit", "jax_enable_x64", "jax_numpy_dtype_promotion"),
    *("jax_random_seed_offset", "jax_softmax_custom_jvp"),
)
# Flags of XLA that do not change numbers.
_HARMLESS_FLAGS = ("xla_force_host_platform_device_count", "xla_dump_", "xla_gpu_cuda_data_dir")
_TRAINING = frozenset(
    {
        *("scheme", "num_steps", "aggregation_interval", "evaluate_every", "batch_size", "learning_rate"),
        *("server_learning_rate", "proximal_weight", "straggler_draw", "test_fraction"),
    }
)
# Settings that only some runs read, and the condition. Runs without training read none of `_TRAINING`.
# `channel.MODELS`, `federated.SCHEMES` and `data.SOURCES` list those of channel models, schemes and data sets.
_READ_IF: dict[str, Callable[[Config], bool]] = {
    "classes_per_device": lambda config: config.partition == "k_classes",
    "points_per_device": lambda config: config.partition != "own",
    "concentration": lambda config: config.partition == "dirichlet",
    "shards_per_device": lambda config: config.partition == "shards",
    "d2d_power": lambda config: config.power_mode == "fixed",
    "d2s_power": lambda config: config.power_mode == "fixed",
    "best_response_restarts": lambda config: "best_response" in config.policies,
    "best_response_sweeps": lambda config: "best_response" in config.policies,
}


def settings_of(configs: Sequence[Config], recipe: Any, trains: bool) -> dict[str, Any]:
    """Returns the settings that some runs read, with the values of the first config.

    Settings of unused partitions, channel models and schemes are left out, as are settings that a given network
    replaces, the setting `model` if the recipe has a model, and the folder of the data, whose bytes count instead.
    If the user's code receives the config, all settings count.

    Args:
        configs: config of each point.
        recipe: the user's code.
        trains: whether the runs train.
    """
    found = dataclasses.asdict(configs[0])
    read = {name for name in found if any(_READ_IF.get(name, lambda config: True)(config) for config in configs)}
    by_model = {config.channel_model: config for config in configs}.values()
    read -= frozenset.intersection(*map(unread_settings, by_model))
    by_scheme = [SCHEMES[config.scheme].settings for config in configs]
    read -= {name for one in SCHEMES.values() for name in one.settings}.difference(*by_scheme)
    sources = [SOURCES[config.dataset] for config in configs if config.dataset in SOURCES]
    # A setting that only some data sets depend on counts only if one of them is used.
    read -= {name for source in SOURCES.values() for name in source.settings} - {
        name for source in sources if trains for name in source.settings
    }
    if not trains:
        # Points have owners, who do not exchange the points that they hold out.
        has_owners = any(config.partition == "own" for config in configs)
        read -= _TRAINING - ({"test_fraction"} if has_owners else set())
    if recipe.server is None:
        read -= {"server_learning_rate"}
    if recipe.reads_settings:
        read = set(found)
    elif recipe.network is not None:
        read -= frozenset.intersection(*(unread(recipe.network, config) for config in configs))
    if getattr(recipe.model, "__module__", "").partition(".")[0] != PACKAGE:
        read -= {"model"}
    read -= {"data_dir"}
    return {name: value for name, value in found.items() if name in read}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        # The cell is still empty.
        return None


def _numbers(value: Any) -> dict[str, Any]:
    """Returns the plain values that a part of a recipe was made with, by name."""
    if isinstance(value, functools.partial):
        found = {f"argument {number}": one for number, one in enumerate(value.args)} | value.keywords
    elif dataclasses.is_dataclass(value):
        found = {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
        found = {name: one for name, one in found.items() if name not in ("parent", "name")}
    elif code := getattr(value, "__code__", None):
        found = dict(zip(code.co_freevars, map(_content, value.__closure__ or ()), strict=True))
    else:
        found = getattr(value, "__dict__", {})
    return {str(name): one for name, one in found.items() if one is not None and _is_plain(one)}


def name_of(value: Any) -> str:
    """Returns module and name of a part of a recipe, such as `mine.UCB`."""
    named = value.func if isinstance(value, functools.partial) else value
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def describe(value: Any) -> dict[str, Any] | None:
    """Describes a part of a recipe.

    Args:
        value: a function, a class, an object, or None.

    Returns:
        `name` (module and name), `numbers` (plain values by name) and `hash` (fingerprint of all its code); None
        for None.
    """
    if value is None:
        return None
    return {"name": name_of(value), "numbers": _numbers(value), "hash": fingerprint(value)}


def _parameters(shapes: Any) -> dict[str, str]:
    """Returns dtype and shape of each parameter by path, such as `float32[784, 10]`; empty without a model."""
    return {
        "/".join(str(getattr(key, "key", key)) for key in path): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)
    }


def _numbered(name: str, part: Any, axes: Collection[str]) -> dict[str, Any]:
    """Describes a part with numbers, without the numbers that are on an axis."""
    numbers = {number: np.asarray(value) for number, value in numbers_of(part).items()}
    told = {number: value.item() if value.ndim == 0 else fingerprint(value) for number, value in numbers.items()}
    told = {number: value for number, value in told.items() if f"{name}.{number}" not in axes}
    return (describe(without_numbers(part)) or {}) | {"numbers": told}


def _network(network: Any) -> dict[str, Any] | None:
    """Describes the user's network: shape and digest of each array, or for a function what `describe` returns."""
    arrays = arrays_of(network)
    if not arrays:
        return describe(network)
    told = {name: f"{array.dtype}{list(array.shape)} {fingerprint(array)}" for name, array in arrays.items()}
    return told | {"file": getattr(network, "file", None)}


def _recipe(recipe: Any, parameters: Any, axes: Collection[str]) -> dict[str, Any]:
    parts = [one.name for one in dataclasses.fields(recipe) if one.name not in ("policies", "network", "file")]
    found: dict[str, Any] = {name: describe(getattr(recipe, name)) for name in parts}
    found["policies"] = {name: describe(rule) for name, rule in recipe.policies.items()}
    for name, part in recipe.numbered.items():
        (found if name == "reward" else found["policies"])[name] = _numbered(name, part, axes)
    found["network"] = _network(recipe.network)
    found["file"] = recipe.file
    return found | {"parameters": _parameters(parameters)}


def digest(datasets: Iterable[Any]) -> str:
    """Returns the digest of all points, labels and owners of some data sets: 32 hexadecimal digits."""
    return _digest(array for one in datasets for array in (one.x, one.y, one.owner))


def _digest(arrays: Iterable[np.ndarray | None]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for one in arrays:
        if one is not None:
            array = np.ascontiguousarray(one)
            found.update(f"{array.dtype} {array.shape}".encode())
            found.update(array.data)
    return found.hexdigest()


def _data(datasets: Sequence[Any], trains: bool) -> dict[str, Any]:
    """Describes the first data set; the digest covers all data sets of the points."""
    first = datasets[0]
    about = {"name": first.name, "source": first.source, "class_names": list(first.class_names)}
    about |= {"shape": list(first.shape), "dtype": str(first.dtype)}
    if first.file is not None:
        about["file"] = first.file
    # A graph depends on the number of points of each class on each device, which the settings or the owners fix.
    # Its energy depends on the bits per point.
    if first.owner is not None:
        about |= {"owners": _digest((first.y, first.owner))}
    return about | {"points": len(first.y), "digest": digest(datasets)} if trains else about


def _version(top: str) -> str | None:
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        found = getattr(sys.modules.get(top), "__version__", None)
        return None if found is None else str(found)


def _versions(packages: Collection[str]) -> dict[str, str]:
    """Returns the versions of Python, of the packages of every run, and of the libraries that a recipe uses."""
    tops = [*_VERSIONS, *sorted(set(packages) - set(_VERSIONS) - set(sys.stdlib_module_names))]
    found = {top: version for top in tops if (version := _version(top)) is not None}
    return {"python": "{}.{}".format(*platform.python_version_tuple()[:2])} | found


def _jax_settings() -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(jax.config, name) for name in _JAX}
    flags = os.environ.get("XLA_FLAGS", "").split()
    flags = [flag for flag in flags if not flag.lstrip("-").startswith(_HARMLESS_FLAGS)]
    return found | {"xla_flags": sorted(flags)}


def identify(
    configs: Sequence[Config],
    seeds: Iterable[int],
    datasets: Sequence[Any],
    recipe: Any,
    parameters: Any,
    functions: Iterable[Callable],
    *,
    trains: bool = True,
    axes: Mapping[str, Sequence[Any]] = {},
    dimensions: Sequence[str] = (),
) -> dict[str, Any]:
    """Collects everything that results depend on, as plain JSON that is equal in every process.

    Args:
        configs: the validated config of each point; a single one without axes.
        seeds: seeds of the runs.
        datasets: the distinct data sets of the points; the bytes count only if the runs train.
        recipe: the user's code.
        parameters: parameters of its model as `jax.ShapeDtypeStruct`; None without a model.
        functions: entry points of the code that computes the results.
        trains: whether the runs train.
        axes: values of each setting that differs between points.
        dimensions: names of the dimensions of the points, in order.

    Returns:
        config, axes, dimensions, seeds, training, data, recipe, code (one fingerprint for each module, over all
        functions used), versions, jax, backend; and the commit, which `differences` ignores.
    """
    survey = Survey()
    for one in functions:
        survey.add(one)
    own = Survey()
    own.add(recipe)
    found = {
        "config": {name: value for name, value in settings_of(configs, recipe, trains).items() if name not in axes},
        "axes": {name: list(values) for name, values in axes.items()},
        "dimensions": list(dimensions),
        "seeds": [int(seed) for seed in seeds],
        "training": trains,
        "data": _data(datasets, trains),
        "recipe": _recipe(recipe, parameters, axes),
        "code": survey.by_module(),
        "versions": _versions(own.packages),
        "jax": _jax_settings(),
        "backend": jax.default_backend(),
        "commit": machine.git_commit(),
    }
    return json.loads(json.dumps(found))


# --- differences in words ---

MOST_NAMED = 6
MOST_SHOWN = 60


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any], besides: Collection[str] = ()) -> str:
    """Describes in one line which entries of two identities differ.

    Args:
        found: the stored identity.
        wanted: the requested identity.
        besides: entries that may differ, such as "seeds" or "axes"; entries in `BESIDE` always may.

    Returns:
        `name: this there, that now` for each entry, lists without common elements; empty if nothing differs.
    """
    there, now = _flat(found), _flat(wanted)
    allowed = (*BESIDE, *besides)
    names = [
        name
        for name in there | now
        if there.get(name, _NOTHING) != now.get(name, _NOTHING)
        and not any(name == one or name.startswith(f"{one}.") for one in allowed)
    ]
    # Entries of both come first: entries of only one often follow from them.
    names.sort(key=lambda name: name not in there or name not in now)
    texts = [_difference(name, there.get(name, _NOTHING), now.get(name, _NOTHING)) for name in names[:MOST_NAMED]]
    if len(names) > MOST_NAMED:
        texts.append(f"and {len(names) - MOST_NAMED} more")
    return "; ".join(texts)


_NOTHING = object()


def _flat(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested entries to dotted names, so that a difference names the setting."""
    found: dict[str, Any] = {}
    for name, value in entries.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{name}.{key}": one for key, one in _flat(value).items()}
        else:
            found[name] = value
    return found


def _difference(name: str, there: Any, now: Any) -> str:
    if isinstance(there, list) and isinstance(now, list):
        return f"{name}: {_of_lists(there, now)}"
    if isinstance(there, str) and isinstance(now, str):
        there, now = _around_the_first_difference(there, now)
    return f"{name}: {_short(there)} there, {_short(now)} now"


def _of_lists(there: list[Any], now: list[Any]) -> str:
    """Describes what only one of two lists has, or else the first difference of their order."""
    in_there, in_now = set(map(_text, there)), set(map(_text, now))
    only_there = [one for one in there if _text(one) not in in_now]
    only_now = [one for one in now if _text(one) not in in_there]
    if not only_there and not only_now:
        places = (place for place, pair in enumerate(zip(there, now, strict=False)) if pair[0] != pair[1])
        place = next(places, None)
        if place is None:
            return f"{len(there)} entries there, {len(now)} now"
        return f"in another order, {_text(there[place])} there and {_text(now[place])} now at position {place + 1}"
    parts = [(only_there, "only there"), (only_now, "only now")]
    return ", ".join(f"{_entries(one)} {where}" for one, where in parts if one)


def _entries(values: list[Any]) -> str:
    """Lists a few entries; writes consecutive whole numbers as `4 to 99`."""
    whole = all(type(value) is int for value in values)
    if whole and len(values) > 2 and values == list(range(values[0], values[0] + len(values))):
        return f"{values[0]} to {values[-1]}"
    shown = [_clipped(_text(value)) for value in values[:MOST_NAMED]]
    return ", ".join(shown) + (f" and {len(values) - len(shown)} more" if len(shown) < len(values) else "")


def _around_the_first_difference(first: str, second: str) -> tuple[str, str]:
    """Cuts the common beginning of two long texts."""
    pairs = enumerate(zip(first, second, strict=False))
    same = next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))
    start = max(0, same - 10) if max(len(first), len(second)) > MOST_SHOWN else 0
    lead = "..." if start else ""
    return lead + first[start:], lead + second[start:]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def _short(value: Any) -> str:
    return "nothing" if value is _NOTHING else _clipped(_text(value))
