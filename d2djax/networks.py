"""Custom networks for runs: whole or in part, one or several, or made by a function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.channel import model_of, model_settings
from d2djax.checks import check_values, cut, is_traced, shown
from d2djax.config import GRAPH_NUMBERS, TRAINING_NUMBERS, Config, complete, numbers_of
from d2djax.network import (
    PARTS,
    Network,
    check_inside,
    check_network,
    check_network_values,
    check_still,
    fitted,
    make_network,
    sizes_of,
)
from d2djax.partition import num_points
from d2djax.rng import run_key
from d2djax.validation import plain_number


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class GivenNetwork:
    """A network with some given parts; each run draws the others, see `make_network`.

    Any part may have a leading axis of G networks: the run with seed g uses network g mod G.

    Attributes:
        gain: [S, N, N] float, or [N, N] for one state, power gain of each channel, row = receiver.
        position: [N, 2] float, metres.
        trust: [N, N, L] bool; `trust[i, j, l]`: device i may send class l to device j.
        counts: [N, L] int, points of each class.
        file: the file that it was read from; None if it was made in Python.
    """

    gain: Any = None
    position: Any = None
    trust: Any = None
    counts: Any = None
    file: str | None = field(default=None, metadata={"static": True})

    def __call__(self, key: Array, config: Config) -> Network:
        """Makes the network of one run; see `make_network`."""
        return make_network(key, config, **parts_of(self))


# A `Network`, one or several with a leading axis; a `GivenNetwork`; or a function `(key, config) -> Network`.
Own = Any
_KINDS = {"position": np.float32, "rss": np.float32, "outage": np.float32, "cluster": np.int32}
_KINDS |= {"budget": np.float32, "trust": bool, "counts": np.int32, "thresholds": np.float32}


def is_made(network: Own) -> bool:
    """Whether a custom network, or None, is a function that makes networks."""
    return network is not None and not isinstance(network, (Network, GivenNetwork))


def parts_of(network: GivenNetwork) -> dict[str, Any]:
    """The parts of a network, by name (keys of `PARTS`); None for those that are not given."""
    return {name: getattr(network, name) for name in PARTS}


def arrays_of(network: Own) -> dict[str, np.ndarray]:
    """The arrays of a custom network.

    Args:
        network: a custom network, or None.

    Returns:
        Arrays of NumPy by field name, without traced fields; empty for a function or None.
    """
    found: Mapping[str, Any] = {}
    if isinstance(network, Network):
        found = {name: getattr(network, name) for name in _KINDS}
    elif isinstance(network, GivenNetwork):
        found = parts_of(network)
    return {name: np.asarray(part) for name, part in found.items() if part is not None and not is_traced(part)}


def num_given(network: Own) -> int | None:
    """The number of given networks, G; None without a leading axis of networks.

    Raises:
        ValueError: the parts have different numbers of networks.
    """
    if isinstance(network, Network):
        shape = np.shape(network.outage)
        return shape[0] if len(shape) == 4 else None
    numbers = {
        name: part.shape[0] for name, part in arrays_of(network).items() if part.ndim == len(PARTS[name]) + 1
    }
    if len(set(numbers.values())) > 1:
        raise ValueError(f"parts of a network must have the same number of networks; got {_listed(numbers)}")
    return next(iter(numbers.values()), None)


def _listed(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} of {number}" for name, number in numbers.items())


# --- checks ---


def check_own(network: Own) -> None:
    """Checks a custom network as far as possible without a config; computes nothing.

    Args:
        network: anything; a function is only checked to be callable.

    Raises:
        ValueError: it is of an unsupported type, or an array has a wrong shape or value; one line names the fault.
    """
    try:
        if isinstance(network, Network):
            _check_whole(network)
        elif isinstance(network, GivenNetwork):
            sizes_of(parts_of(network))
            if num_given(network) is None and not arrays_of(network):
                raise ValueError(f"GivenNetwork must have at least one of {', '.join(PARTS)}")
        elif isinstance(network, type) or not callable(network):
            raise ValueError(
                f"must be a Network, a GivenNetwork or a function (key, config) -> Network; got {shown(network)}"
            )
    except ValueError as error:
        raise ValueError(f"recipe.network: {str(error).removeprefix('network.')}") from None


def _check_whole(network: Network) -> None:
    count, shapes = num_given(network), {name: np.shape(getattr(network, name)) for name in _KINDS}
    if count is None:
        one = network
    else:
        lacking = [name for name, shape in shapes.items() if shape[:1] != (count,)]
        if lacking or count == 0:
            name = (lacking or ["outage"])[0]
            found = f"got shape {list(shapes[name])}"
            raise ValueError(f"{name} must have the {count} networks of outage along its first axis; {found}")
        # The values of all networks are checked below, together.
        one = Network(**{name: getattr(network, name)[0] for name in _KINDS})
    check_network(one)
    if count is not None:
        check_network_values(network)
    if min(np.shape(one.outage)) < 1 or np.shape(one.outage)[-1] < 2 or np.shape(one.counts)[-1] < 1:
        raise ValueError(
            f"outage must have a state, two devices and a class; got shape {list(np.shape(one.outage))}"
        )
    sizes_of({"counts": network.counts})


def _kind_of(network: Own, key: Array, config: Config) -> Network:
    made = network(key, config)
    if not isinstance(made, Network):
        raise TypeError(f"it returns {shown(made)}")
    check_network(made)
    for name, kind in _KINDS.items():
        dtype = jnp.asarray(getattr(made, name)).dtype
        if dtype.kind not in {"f": "f", "i": "iu", "b": "b"}[np.dtype(kind).kind]:
            raise TypeError(f"network.{name} must be {np.dtype(kind).name}; got {dtype}")
    return made


def _sizes(network: Own, config: Config) -> dict[str, tuple[int, str]]:
    """Settings that follow from a custom network; a function is traced for its shapes; see `sizes_of`."""
    if isinstance(network, GivenNetwork):
        return sizes_of(parts_of(network))
    if isinstance(network, Network):
        found: Any = network
    else:
        try:
            found = jax.eval_shape(partial(_kind_of, network), run_key(0), config)
        except Exception as error:
            what = "recipe.network must return a Network for a traced key and config"
            raise ValueError(f"{what}: {cut(str(error), 120)}") from error
    states, devices = np.shape(found.outage)[-3:-1]
    sizes = {"num_states": states, "num_devices": devices, "num_classes": np.shape(found.counts)[-1]}
    return {name: (int(size), "network") for name, size in sizes.items()}


def fixed_by(network: Own, config: Config) -> frozenset[str]:
    """Names of the settings that have no effect with a custom network, so that they cannot be axes.

    Args:
        network: a custom network, or None.
        config: `channel_model`.
    """
    of_channels = {"channel_model"} | model_settings()
    if isinstance(network, Network):
        # Includes settings that energies depend on, since only part of their effect would show.
        made = set(numbers_of(Config())) - GRAPH_NUMBERS - TRAINING_NUMBERS
        return frozenset(made | _OF_PLACES | of_channels | _OF_TRUST | _OF_COUNTS | {"num_devices", "num_states"})
    if not isinstance(network, GivenNetwork):
        return frozenset()
    given, found = arrays_of(network), {"num_devices"}
    found |= {"num_states"} | of_channels if "gain" in given else set()
    found |= _OF_PLACES if "position" in given else set()
    # `field_size` still matters to moving devices, which are reflected at the borders.
    found |= {"field_size"} if "position" in given and not model_of(config).moves else set()
    found |= _OF_TRUST if "trust" in given else set()
    return frozenset(found | (_OF_COUNTS if "counts" in given else set()))


_OF_PLACES = {"num_hotspots", "hotspot_spread"}
_OF_TRUST = {"trust_probability", "num_sensitive_classes", "sensitive_trust_probability"}
_OF_COUNTS = {"partition", "classes_per_device", "concentration", "shards_per_device", "points_per_device"}


def unread(network: Own, config: Config) -> frozenset[str]:
    """Names of the settings that nothing reads with a custom network; see `fixed_by` for the arguments."""
    return fixed_by(network, config) - _TOLD - _OF_ENERGIES


# Sizes and kinds that are reported whether set or derived.
_TOLD = {"num_devices", "num_states", "partition", "points_per_device", "channel_model"}
# Energies and scores depend on these, and the initial value of a link on the budget.
_OF_ENERGIES = {"rate", "noise_power", "reference_gain", "path_loss_exponent", "max_outage"}
_OF_ENERGIES |= {"cluster_budget"}


def fit(
    config: Config, network: Own, axes: Collection[str] = (), name: str | None = None, is_owned: bool = False
) -> Config:
    """Sets the settings of a config that follow from a custom network, if they are at their defaults.

    Args:
        config: not validated.
        network: of the recipe; checked by `check_own`, or None.
        axes: names of the settings that are axes.
        name: of the data set; None: the one that the config names.
        is_owned: whether points have owners, which then determine the counts.

    Returns:
        The config.

    Raises:
        ValueError: a setting contradicts the network, or is an axis that has no effect.
    """
    for one in ("field_size", "cluster_budget"):
        if not is_traced(getattr(config, one)):
            plain_number(one, float, getattr(config, one))
    on_axis = sorted(set(axes) & fixed_by(network, config))
    if on_axis:
        kind = "an array" if isinstance(network, Network) else "given"
        raise ValueError(
            f"{on_axis[0]} cannot be an axis: recipe.network is {kind} and does not change with it; "
            "use a function (key, config) -> Network"
        )
    arrays = arrays_of(network)
    if isinstance(network, Network) or "gain" in arrays:
        check_still(config, "gain" if "gain" in arrays else "recipe.network")
    elif "position" in arrays:
        check_inside(config, arrays["position"])
    sizes = _sizes(network, complete(config, name))
    sizes = {setting: size for setting, size in sizes.items() if setting not in axes}
    config = fitted(config, sizes)
    counts = _counts(network)
    if counts is not None and not is_owned:
        if config.partition not in ("own", Config.partition):
            raise ValueError(f"partition must be left out if counts are given; got {config.partition}")
        total = int(counts.sum((-2, -1)).max())
        mean = -(-total // config.num_devices)
        config = replace(config, partition="own")
        config = fitted(config, {"points_per_device": (mean, f"counts, whose sum is {total:,}")})
    if {"budget", "cluster"} <= set(arrays) and not is_traced(config.cluster_budget):
        config = _with_budget(config, arrays["budget"], arrays["cluster"])
    return config


def check_given(network: Own, owned: np.ndarray) -> None:
    """Checks that the given counts, if any, equal those of the owners of the points.

    Args:
        network: a custom network, or None.
        owned: [N, L] int, training points of each class of each owner.

    Raises:
        ValueError: they differ.
    """
    try:
        check_dealt_to(_counts(network), Config(), owned=owned)
    except ValueError as error:
        raise ValueError(f"recipe.network: {error}") from None


def check_sizes(config: Config, network: Own) -> None:
    """Checks that a function makes networks of the configured sizes.

    Args:
        config: a validated config.
        network: a custom network, or None; given networks are not checked.

    Raises:
        ValueError: a size differs.
    """
    if arrays_of(network):
        return
    for name, (size, _) in _sizes(network, config).items():
        if getattr(config, name) != size:
            raise ValueError(
                f"{name} must be {size}, as in the networks of recipe.network; got {getattr(config, name)}"
            )


def _with_budget(config: Config, budget: np.ndarray, cluster: np.ndarray) -> Config:
    """The config with the largest budget, which bounds the reward and so the initial value of a link."""
    used = np.arange(budget.shape[-1]) <= cluster.max(-1, keepdims=True)
    largest = float(budget[used].max())
    if config.cluster_budget == Config.cluster_budget:
        return replace(config, cluster_budget=largest)
    if config.cluster_budget < largest:
        raise ValueError(
            f"cluster_budget must be at least {largest:g}, the largest budget of recipe.network; "
            f"got {config.cluster_budget:g}"
        )
    return config


# --- the networks of runs ---


def of_seeds(network: Own, seeds: np.ndarray) -> Any:
    """The networks, or given parts, of some runs.

    Args:
        network: a custom network, or None.
        seeds: [U] int32.

    Returns:
        A `Network` or `GivenNetwork` with fields [U, ...]; None for a function or no network.
    """
    if not isinstance(network, (Network, GivenNetwork)):
        return None
    count = num_given(network)
    kinds = _KINDS if isinstance(network, Network) else _PART_KINDS

    def rows(name: str, array: np.ndarray) -> np.ndarray:
        one = len(PARTS[name]) if isinstance(network, GivenNetwork) else array.ndim - (count is not None)
        array = array.astype(kinds[name])
        if array.ndim > one:
            return array[seeds % array.shape[0]]
        return np.broadcast_to(array, (len(seeds), *array.shape))

    found: dict[str, Any] = {name: rows(name, array) for name, array in arrays_of(network).items()}
    return Network(**found) if isinstance(network, Network) else GivenNetwork(**found)


_PART_KINDS = {"gain": np.float32, "position": np.float32, "trust": bool, "counts": np.int32}


def network_of_run(
    rule: Callable[[Array, Config], Network] | None, key: Array, config: Config, counts: Array | None = None
) -> Network:
    """The network of one run; traced.

    Args:
        rule: a `GivenNetwork` without axis of networks, a custom function, or None: draw all parts.
        key: key of the run.
        config: a validated config.
        counts: [N, L] int32, points of the owners, if points have owners; a function must return these itself.

    Returns:
        The network, its fields in their types.
    """
    if rule is None:
        return make_network(key, config, counts=counts)
    if isinstance(rule, GivenNetwork) and rule.counts is None:
        rule = replace(rule, counts=counts)
    made = rule(key, config)
    return Network(**{name: jnp.asarray(getattr(made, name), kind) for name, kind in _KINDS.items()})


def only(network: Own) -> Callable[[Array, Config], Network] | None:
    """A custom network as a function for one run.

    Args:
        network: a custom network, or None.

    Returns:
        `(key, config) -> Network`, or None if there is no custom network.

    Raises:
        ValueError: several networks are given.
    """
    if network is not None and num_given(network) is not None:
        raise ValueError("recipe.network must be one network for one run; run, sweep and search take several")
    return (lambda key, config: network) if isinstance(network, Network) else network


def check_made(
    networks: Network,
    seeds: np.ndarray,
    config: Config,
    supply: np.ndarray | None = None,
    counts: np.ndarray | None = None,
) -> None:
    """Checks the values of networks that a custom function made, before they are used.

    Args:
        networks: fields [U, ...].
        seeds: [U] int32.
        config: a validated config.
        supply: [L] int, available training points of each class; None if no points are needed.
        counts: [N, L] int, training points of the owners, if points have owners.

    Raises:
        ValueError: a network has a fault; one line names the seed and the fault.
    """
    for seed, *arrays in zip(seeds.tolist(), *(getattr(networks, name) for name in _KINDS), strict=True):
        network = Network(**dict(zip(_KINDS, arrays, strict=True)))
        try:
            check_network(network)
            check_dealt_to(network.counts, config, supply, counts)
        except ValueError as error:
            raise ValueError(f"recipe.network for seed {seed}: {error}") from None


def check_dealt_to(
    counts: Any, config: Config, supply: np.ndarray | None = None, owned: np.ndarray | None = None
) -> None:
    """Checks counts against the owners' counts, or against the config and the available points.

    Args:
        counts: [..., N, L] int.
        config: `num_devices` N and `points_per_device` P; the counts must sum to `N P`.
        supply: [L] int, available training points of each class; None: not checked.
        owned: [N, L] int, training points of the owners, which the counts must equal.

    Raises:
        ValueError: the counts break one of these rules.
    """
    if owned is not None:
        what = "the training points of the owners, whose counts may be left out"
        check_values("counts", counts, what, lambda values: np.broadcast_to(values == owned, values.shape))
        return
    check_total(counts, num_points(config))
    if supply is not None:
        check_taken(counts, supply)


def check_total(counts: Any, total: int) -> None:
    """Checks that counts [N, L] sum to `total`.

    Raises:
        ValueError: they do not.
    """
    found = int(counts.sum(dtype=np.int64))
    if found != total:
        raise ValueError(f"sum of counts must be {total:,} (num_devices times points_per_device); got {found:,}")


def check_taken(counts: Any, supply: np.ndarray) -> None:
    """Checks that the data set has the points that counts [..., N, L] require; `supply` [L] int is available.

    Raises:
        ValueError: too few points of a class are available.
    """
    asked = counts.sum(-2, dtype=np.int64)
    within = lambda values: values <= supply  # noqa: E731
    rule = f"at most the training points of each class, {supply.tolist()}"
    check_values("sum of counts over the devices", asked, rule, within)


def places_of(network: Own, config: Config) -> int | None:
    """The length of the list of points; see `places` of `points.assign`.

    Args:
        network: a custom network, or None.
        config: `num_devices` N and `points_per_device` P.

    Returns:
        `N P` if given counts sum to less; otherwise None.
    """
    counts = _counts(network)
    if counts is None or (counts.sum((-2, -1)) == num_points(config)).all():
        return None
    return num_points(config)


def asked_of(network: Own) -> np.ndarray | None:
    """The largest need of points of each class over all given networks.

    Args:
        network: a custom network, or None.

    Returns:
        [L] int, points that all devices together need; None if no counts are given.
    """
    counts = _counts(network)
    return None if counts is None else counts.sum(-2).reshape(-1, counts.shape[-1]).max(0)


def _counts(network: Own) -> np.ndarray | None:
    """The given counts, if any, as int64, whose sums are exact."""
    counts = arrays_of(network).get("counts")
    return None if counts is None else counts.astype(np.int64)
