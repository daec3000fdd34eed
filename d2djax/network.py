"""All that the method is given (Section II): one network, made by one pure function of key and config.

Parts of it may be given, such as gains that were measured: what is not given is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from d2djax.channel import MODELS, model_of, outage_probability, path_power, place, received_power
from d2djax.checks import check_in_order, check_shape, check_values, is_not_negative, is_share, is_traced, shown
from d2djax.clustering import reliable_clusters
from d2djax.config import Config, complete
from d2djax.partition import class_counts
from d2djax.trust import draw_trust
from d2djax.validation import check_config, check_settings


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Network:
    """Devices, the channels between them, and what each holds, trusts and wants.

    Attributes:
        position: [N, 2] float32, metres.
        rss: `W`, [S, N, N] float32, W; row = receiver, column = transmitter.
        outage: `P_D`, [S, N, N] float32 in [0, 1]; diagonal exactly 0.
        cluster: [N] int32, label of each device's reliable cluster, 0..K-1.
        budget: `B`, [N] float32, points; entry k belongs to cluster k, entries past K are unused.
        trust: `T`, [N, N, L] bool; `trust[i, j, l]`: device i may send class l to device j.
        counts: `D`, [N, L] int32, points of each class.
        thresholds: `c`, [N, L] float32, points of a class that make it count.
    """

    position: Array
    rss: Array
    outage: Array
    cluster: Array
    budget: Array
    trust: Array
    counts: Array
    thresholds: Array


def check_network(network: Network) -> None:
    """Checks that the parts of a network agree in their shapes, and outside `jit` in the kinds of their values.

    Args:
        network: one network, without leading axes.

    Raises:
        ValueError: one line with the field, the rule and what was found.
    """
    if len(jnp.shape(network.outage)) != 3 or len(jnp.shape(network.counts)) != 2:
        found = f"{list(jnp.shape(network.outage))} and {list(jnp.shape(network.counts))}"
        raise ValueError(f"network.outage must be [S, N, N] and network.counts [N, L]; got shapes {found}")
    states, (devices, classes) = jnp.shape(network.outage)[0], jnp.shape(network.counts)
    shapes = {
        "position": ("[N, 2]", (devices, 2)),
        "rss": ("[S, N, N]", (states, devices, devices)),
        "outage": ("[S, N, N]", (states, devices, devices)),
        "cluster": ("[N]", (devices,)),
        "budget": ("[N]", (devices,)),
        "trust": ("[N, N, L]", (devices, devices, classes)),
        "counts": ("[N, L]", (devices, classes)),
        "thresholds": ("[N, L]", (devices, classes)),
    }
    for name, (symbols, shape) in shapes.items():
        check_shape(f"network.{name}", getattr(network, name), shape, symbols)
    check_network_values(network)


def check_network_values(network: Network) -> None:
    """Checks the kinds of the values of one network or of several, whose fields have leading axes, outside `jit`.

    Args:
        network: one network, or several with leading axes.

    Raises:
        ValueError: one line with the field, the rule and what was found.
    """
    for name in ("rss", "budget", "counts", "thresholds"):
        check_values(f"network.{name}", getattr(network, name), "0 or more", is_not_negative)
    check_values("network.position", network.position, "finite", np.isfinite)
    check_values("network.outage", network.outage, "in [0, 1]", is_share)
    itself = np.eye(jnp.shape(network.outage)[-1], dtype=bool)
    check_values("network.outage", network.outage, "0 on the diagonal", lambda values: (values == 0) | ~itself)
    check_values("network.trust", network.trust, "truth values", lambda values: (values == 0) | (values == 1))
    check_in_order("network.cluster", network.cluster, jnp.shape(network.cluster)[-1], "clusters")


# --- parts that are given ---

# Axes of each part that can be given, and its rule.
PARTS = {"gain": "SNN", "position": "N2", "trust": "NNL", "counts": "NL"}
# Settings that are the length of an axis; left at their defaults, they follow from what is given.
SIZES = {"N": "num_devices", "S": "num_states", "L": "num_classes"}
# A field of more metres is no setting either.
FARTHEST = 1e7


def _off_diagonal(holds: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: holds(values) | np.eye(values.shape[-1], dtype=bool)


def _check_gain(gain: Any) -> None:
    """Off the diagonal, which is not read, a ratio of powers of a passive channel."""
    check_values("gain", gain, "finite off the diagonal", _off_diagonal(np.isfinite))
    decibels = "0 or more, a ratio of powers; 10 ** (gain / 10) makes one of decibels"
    check_values("gain", gain, decibels, _off_diagonal(lambda values: values >= 0))
    amplified = "at most 1, as a passive channel does not amplify"
    check_values("gain", gain, amplified, _off_diagonal(lambda values: values <= 1))


def _check_counts(counts: Any) -> None:
    whole = lambda values: (values >= 0) & (values < 2**31) & (values == np.floor(values))  # noqa: E731
    check_values("counts", counts, "whole numbers of points, 0 or more", whole)
    if not is_traced(counts):
        total = np.asarray(counts).astype(np.int64).sum((-2, -1))
        check_values("sum of counts", total, "from 1 to 2**31 - 1", lambda values: (values > 0) & (values < 2**31))


_RULES: dict[str, Callable[[Any], None]] = {
    "gain": _check_gain,
    "position": lambda position: check_values(
        "position",
        position,
        f"metres from -{FARTHEST:.0e} to {FARTHEST:.0e}",
        lambda values: np.abs(values) <= FARTHEST,
    ),
    "trust": lambda trust: check_values(
        "trust", trust, "true or false", lambda values: (values == 0) | (values == 1)
    ),
    "counts": _check_counts,
}


def _array(name: str, part: Any, symbols: str) -> Any:
    """A part as an array, traced or not."""
    if np.ma.is_masked(part):
        raise ValueError(f"{name} must have no masked values; got {shown(part)}")
    try:
        return part if hasattr(part, "dtype") else np.asarray(part)
    except ValueError:
        # Lists of several lengths.
        raise ValueError(f"{name} must be {symbols}; got {shown(part)}") from None


def sizes_of(parts: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Checks parts of a network and tells which settings follow from them.

    Args:
        parts: arrays by name; none is not given. Each may have a leading axis, of several networks.

    Returns:
        By setting its value and, for people, where it comes from.

    Raises:
        ValueError: a part has a wrong shape or value, or two do not agree; one line says which.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, part in parts.items():
        if part is None:
            continue
        axes = PARTS[name]
        symbols = f"[{', '.join(axes)}]"
        part = _array(name, part, symbols)
        shape = np.shape(part)
        if name == "gain" and len(shape) == 2:
            # One state.
            axes, symbols = axes[1:], f"[{', '.join(axes[1:])}] or {symbols}"
            found["num_states"] = (1, f"gain of shape {list(shape)}, one state")
        if len(shape) not in (len(axes), len(PARTS[name]) + 1) or 0 in shape:
            raise ValueError(f"{name} must be {symbols}; got {shown(part)}")
        for axis, size in zip(axes, shape[len(shape) - len(axes) :], strict=True):
            if axis == "2" and size != 2:
                raise ValueError(f"{name} must be {symbols}; got {shown(part)}")
            if axis == "2":
                continue
            setting, where = SIZES[axis], f"{name} of shape {list(shape)}"
            known, source = found.setdefault(setting, (size, where))
            if known != size:
                what = f"as {source}" if source != where else "square"
                raise ValueError(f"{name} must be {symbols} with {axis} = {known}, {what}; got shape {list(shape)}")
        _RULES[name](part)
    return found


def fitted(config: Config, sizes: Mapping[str, tuple[int, str]]) -> Config:
    """A config whose sizes follow from what is given, see `sizes_of`.

    Args:
        config: any config.
        sizes: length of each setting, and the part that it follows from, by the name of the setting.

    Returns:
        The config with these sizes.

    Raises:
        ValueError: a setting that is not at its default says something else.
    """
    defaults = {item.name: item.default for item in fields(Config)}
    for name, (size, where) in sizes.items():
        if getattr(config, name) not in (size, defaults[name]):
            raise ValueError(f"{name} must be {size}, as in the given {where}; got {getattr(config, name)}")
    return replace(config, **{name: size for name, (size, _) in sizes.items()})


def _power(gain: Array, config: Config) -> Array:
    """`W = P_tx gain`, [S, N, N]; on the diagonal, which no link uses, what a distance of 1 m gives."""
    gain = jnp.asarray(gain, jnp.float32)
    gain = gain[None] if gain.ndim == 2 else gain
    itself = jnp.eye(gain.shape[-1], dtype=bool)
    return jnp.where(itself, path_power(jnp.float32(1.0), config), config.transmit_power * gain)


def make_network(
    key: Array,
    config: Config,
    *,
    gain: Array | None = None,
    position: Array | None = None,
    trust: Array | None = None,
    counts: Array | None = None,
) -> Network:
    """Makes a network: places, channel states, clusters, budgets, trust, data counts and thresholds.

    What is not given is drawn, as it would be if nothing were given. `num_devices`, `num_states` and `num_classes`
    follow from what is given unless they are set. Other parts are replaced afterwards: `dataclasses.replace`.

    Args:
        key: key of the run.
        config: settings of Section II.
        gain: [S, N, N] float, or [N, N] for one state: mean power gain of each channel over small-scale fading, a
            ratio in [0, 1], row = receiver; `W = P_tx gain`. It need not be symmetric; the diagonal is not read.
            Give `position` with it where energies matter: they go by the distances.
        position: [N, 2] float, metres, in state 0.
        trust: [N, N, L] bool; `trust[i, j, l]`: device i may send class l to device j. The diagonal is not read:
            every device trusts itself.
        counts: [N, L] int, points of each class that each device has.

    Returns:
        The network; equal keys, configs and parts give equal networks.

    Raises:
        ValueError: a setting is out of its range, or what is given has a wrong shape or value, or does not agree
            with the rest; one line says which. Devices whose gains are given do not move.
    """
    check_config(config)
    config = fitted(config, sizes_of({"gain": gain, "position": position, "trust": trust, "counts": counts}))
    if counts is not None:
        # Nothing is dealt.
        config = replace(config, partition="own", points_per_device=config.points_per_device or 1)
    check_settings(config)
    config = complete(config)
    if gain is not None:
        check_still(config, "gain")
    elif position is not None:
        check_inside(config, position)
    position = place(key, config) if position is None else jnp.asarray(position, jnp.float32)
    rss = received_power(key, position, config) if gain is None else _power(gain, config)
    outage = outage_probability(rss, config.rate, config.noise_power)
    counts = class_counts(key, config) if counts is None else jnp.asarray(counts, jnp.int32)
    if trust is None:
        trust = draw_trust(key, config)
    else:
        trust = jnp.asarray(trust, bool) | jnp.eye(config.num_devices, dtype=bool)[:, :, None]
    return Network(
        position=position,
        rss=rss,
        outage=outage,
        cluster=reliable_clusters(outage, config.max_outage),
        budget=jnp.full(config.num_devices, config.cluster_budget, jnp.float32),
        trust=trust,
        counts=counts,
        thresholds=jnp.full(counts.shape, config.threshold, jnp.float32),
    )


def check_still(config: Config, what: str) -> None:
    """Checks that devices whose channels are given do not move: the gains would not move with them.

    Raises:
        ValueError: they move.
    """
    if model_of(config).moves:
        still = " or ".join(name for name, model in MODELS.items() if not model.moves)
        rule = f"{still}, as devices stand still where {what} is given"
        raise ValueError(f"channel_model must be {rule}; got {config.channel_model}")


def check_inside(config: Config, position: Any) -> None:
    """Checks that devices that move begin in the field, at whose borders they turn round.

    Raises:
        ValueError: one does not.
    """
    if model_of(config).moves and not is_traced(config.field_size):
        within = lambda values: (values >= 0) & (values <= config.field_size)  # noqa: E731
        check_values(
            "position", position, f"in [0, {config.field_size:g}], the field in which devices move", within
        )
