"""The points of a sweep: a grid, a list of points, or random points."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import jax
import numpy as np

from d2djax.checks import check_count, cut, is_number, shown
from d2djax.config import Config
from d2djax.parts import is_whole as numbers_are_whole
from d2djax.parts import numbers_of, with_numbers
from d2djax.recipe import Recipe
from d2djax.validation import plain_number, validate

Point = Mapping[str, Any]
# Their values change the names of array entries: results of two data sets, or of different policies, do not form
# one array. Graphs valued by different reference weights cannot be compared.
NO_AXES = ("dataset", "data_dir", "policies", "num_classes", "reference_weights")


@dataclass(frozen=True)
class Uniform:
    """A uniform distribution from `low` to `high`; over whole numbers for an integer setting.

    Attributes:
        low: smallest value.
        high: largest value, above `low`.
    """

    low: float
    high: float

    def draw(self, rng: np.random.Generator, is_whole: bool = False) -> float:
        """Draws one number.

        Args:
            rng: generator, whose state advances.
            is_whole: whether to draw a whole number.

        Returns:
            A number in [`low`, `high`].
        """
        low, high = _limits(self, is_whole)
        return _drawn(rng.uniform(low, high), is_whole)


@dataclass(frozen=True)
class LogUniform:
    """A log-uniform distribution from `low` to `high`.

    Attributes:
        low: smallest value, above 0.
        high: largest value, above `low`.
    """

    low: float
    high: float

    def draw(self, rng: np.random.Generator, is_whole: bool = False) -> float:
        """Draws one number.

        Args:
            rng: generator, whose state advances.
            is_whole: whether to draw a whole number.

        Returns:
            A number in [`low`, `high`].
        """
        low, high = _limits(self, is_whole)
        # Rounding in exp may leave the interval slightly.
        return _drawn(min(max(np.exp(rng.uniform(np.log(low), np.log(high))), low), high), is_whole)


@dataclass(frozen=True)
class Choice:
    """A uniform choice among several values.

    Attributes:
        values: the values, each of any type that the setting takes.
    """

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator, is_whole: bool = False) -> Any:
        """Draws one value.

        Args:
            rng: generator, whose state advances.
            is_whole: has no effect, because the values already have their type.

        Returns:
            One of the values.
        """
        return self.values[rng.integers(len(self.values))]


Range = Uniform | LogUniform | Choice


def _limits(values: Uniform | LogUniform, is_whole: bool) -> tuple[float, float]:
    """Returns the limits of a draw, half a step wider for whole numbers, so that all values are equally likely."""
    return (math.ceil(values.low) - 0.5, math.floor(values.high) + 0.5) if is_whole else (values.low, values.high)


def _drawn(value: float, is_whole: bool) -> float:
    return math.floor(value + 0.5) if is_whole else float(value)


def check_ranges(ranges: Mapping[str, Range], own: Mapping[str, Any] = {}) -> None:
    """Checks the names and limits of ranges.

    Args:
        ranges: the range of each setting by name.
        own: the user's code with numbers, by name, see `Recipe.numbered`; its numbers may have ranges.

    Raises:
        ValueError: a name is unknown or a range is wrong; the line names the setting, the rule and the values.
    """
    if not isinstance(ranges, Mapping) or not ranges:
        raise ValueError(f"ranges must name at least one setting, such as gamma; got {shown(ranges)}")
    for name, values in ranges.items():
        check_name(name, own)
        _check_range(name, values, own)


def _check_range(name: str, values: Range, own: Mapping[str, Any]) -> None:
    if isinstance(values, Choice):
        if not isinstance(values.values, tuple | list):
            raise ValueError(f"axis {name} must be a Choice of a tuple of values; got {shown(values)}")
        if not values.values:
            raise ValueError(f"axis {name} must have at least one value")
        return
    if not isinstance(values, Uniform | LogUniform):
        raise ValueError(f"axis {name} must be a Uniform, LogUniform or Choice; got {shown(values)}")
    if isinstance(getattr(Config, name, None), str | tuple):
        raise ValueError(f"axis {name} must be a Choice, because it is not a number; got {shown(values)}")
    if not is_number(values.low) or not is_number(values.high):
        raise ValueError(f"axis {name} must go from a number to a larger one; got {shown(values)}")
    if not np.isfinite([values.low, values.high]).all() or values.low >= values.high:
        raise ValueError(f"axis {name} must go from a number to a larger one; got {values}")
    if isinstance(values, LogUniform) and values.low <= 0:
        raise ValueError(f"axis {name} must begin above 0 for a LogUniform range; got {values}")
    if is_whole(name, own) and math.ceil(values.low) > math.floor(values.high):
        raise ValueError(f"axis {name} must have a whole number between its limits; got {values}")


def check_name(name: str, own: Mapping[str, Any] = {}) -> None:
    """Checks that a setting, or a number of the user's code such as `my_ucb.width`, can be an axis.

    Args:
        name: name of the axis.
        own: the user's code with numbers, by name, see `Recipe.numbered`.

    Raises:
        ValueError: no such setting exists, or results for its values do not form one array.
    """
    names = [item.name for item in dataclasses.fields(Config)]
    if not isinstance(name, str):
        raise ValueError(f"axis {shown(name)} must be the name of a setting")
    names += [f"{part}.{number}" for part, one in own.items() for number in numbers_of(one)]
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        raise ValueError(f"axis {name!r} must be a setting{f'; did you mean {close[0]!r}?' if close else ''}")
    if name in NO_AXES:
        raise ValueError(f"{name} cannot be an axis; use one sweep for each value")


def random_points(
    ranges: Mapping[str, Range], count: int, seed: int = 0, own: Mapping[str, Any] = {}
) -> list[dict[str, Any]]:
    """Draws random points; a larger `count` starts with the points of a smaller one.

    Args:
        ranges: `Uniform`, `LogUniform` or `Choice` of each setting.
        count: number of points, at least 1.
        seed: seed of the draws.
        own: the user's code by name, whose numbers may be drawn, see `Recipe.numbered`.

    Returns:
        The value of each setting at each point.

    Raises:
        ValueError: a name is unknown, a range is empty or `count` is under 1.
    """
    count, seed = check_count("count of points", count), check_count("seed", seed, 0, 2**63 - 1)
    check_ranges(ranges, own)
    return [
        {name: values.draw(rng, is_whole(name, own)) for name, values in ranges.items()}
        for rng in (np.random.default_rng((seed, number)) for number in range(count))
    ]


def corners(ranges: Mapping[str, Range], own: Mapping[str, Any] = {}) -> list[dict[str, Any]]:
    """Returns test points of a search: the first end of every range, and each other end combined with these.

    Args:
        ranges: the range of each setting by name; every value of a `Choice` is an end.
        own: see `check_ranges`.
    """
    ends: dict[str, list[Any]] = {}
    for name, one in ranges.items():
        if isinstance(one, Choice):
            ends[name] = list(one.values)
        else:
            ends[name] = [math.ceil(one.low), math.floor(one.high)] if is_whole(name, own) else [one.low, one.high]
    first = {name: values[0] for name, values in ends.items()}
    return [first] + [first | {name: value} for name, values in ends.items() for value in values[1:]]


def is_whole(name: str, own: Mapping[str, Any] = {}) -> bool:
    """Tells whether a setting, or a number of the user's code, is a whole number.

    Args:
        name: name of the setting, or such as `my_ucb.width`.
        own: see `check_ranges`.
    """
    part, _, number = name.partition(".")
    if number:
        return part in own and numbers_are_whole(numbers_of(own[part])[number])
    return isinstance(getattr(Config, name), int)


@dataclass(frozen=True)
class Axes:
    """All points of a sweep, validated, and their dimensions.

    Attributes:
        dims: length of each dimension by name: one for each axis of a grid, or `point` for a list.
        coordinates: dimension and values of each setting that differs between points.
        configs: config of each point, in C order (the last dimension varies fastest).
        parts: the user's code with the numbers of each point, by name.
    """

    dims: dict[str, int]
    coordinates: dict[str, tuple[str, list[Any]]]
    configs: tuple[Config, ...]
    parts: tuple[dict[str, Any], ...]


def lay_out(
    config: Config, axes: Mapping[str, Sequence[Any]] | Sequence[Point], own: Mapping[str, Any] = {}
) -> Axes:
    """Validates every point of a sweep before anything is computed.

    Args:
        config: the settings that all points share.
        axes: values of each setting for a grid, or a list of points; empty: the config alone.
        own: the user's code with numbers, by name, see `Recipe.numbered`; its numbers can be axes.

    Returns:
        The points.

    Raises:
        ValueError: a point breaks a rule, or an axis of a grid repeats a value.
    """
    if isinstance(axes, Mapping):
        values = {name: _values(name, given) for name, given in axes.items()}
        dims = {name: len(given) for name, given in values.items()}
        points = [dict(zip(values, given, strict=True)) for given in product(*values.values())]
        coordinates = {name: (name, given) for name, given in values.items()}
    else:
        if not isinstance(axes, Sequence) or not all(isinstance(one, Mapping) for one in axes):
            raise ValueError(f"axes must be {{setting: values}} or a list of such points; got {shown(axes)}")
        points = [dict(point) for point in axes]
        names = list(points[0]) if points else []
        if not names or any(set(point) != set(names) for point in points):
            raise ValueError("every point of a list must set the same settings, at least one")
        dims = {"point": len(points)}
        coordinates = {name: ("point", [point[name] for point in points]) for name in names}
    for name in coordinates:
        check_name(name, own)
    found = [_at_point(config, own, point) for point in points]
    # The validated values: a NumPy number would differ from its copy in the store.
    for name, (dim, given) in coordinates.items():
        if dim == "point":
            coordinates[name] = (dim, [one.values[name] for one in found])
        else:
            plain = {repr(point[name]): one.values[name] for point, one in zip(points, found, strict=True)}
            coordinates[name] = (dim, _different(name, [plain[repr(value)] for value in given]))
    return Axes(dims, coordinates, tuple(one.config for one in found), tuple(one.parts for one in found))


def values_of(axes: Mapping[str, Sequence[Any]] | Sequence[Point]) -> dict[str, list[Any]]:
    """Returns the values of each setting on an axis, without checks; `lay_out` checks the axes."""
    if isinstance(axes, Mapping):
        return {name: list(values) if _is_list(values) else [] for name, values in axes.items()}
    points = [point for point in axes if isinstance(point, Mapping)] if _is_list(axes) else []
    return {name: [point.get(name) for point in points] for point in points[:1] for name in point}


def _is_list(given: Any) -> bool:
    """Tells whether the values are ordered and can be read more than once."""
    is_other = isinstance(given, str | bytes | Mapping | Set) or not np.iterable(given)
    return not is_other and hasattr(given, "__len__")


def _values(name: str, given: Sequence[Any]) -> list[Any]:
    if not _is_list(given):
        raise ValueError(f"axis {name} must be a list of values; got {shown(given)}")
    values = list(given)
    if not values:
        raise ValueError(f"axis {name} must have at least one value")
    return values


def _different(name: str, values: list[Any]) -> list[Any]:
    """Checks that values differ in the single precision in which traced settings are computed."""
    if len({float(np.float32(one)) if isinstance(one, float) else one for one in values}) < len(values):
        raise ValueError(f"axis {name} must not repeat a value; got {shown(values)}")
    return values


@dataclass(frozen=True)
class _Checked:
    """A validated point: its config, the user's code, and the plain value of each setting that differs."""

    config: Config
    parts: dict[str, Any]
    values: dict[str, Any]


def _number(name: str, own: Mapping[str, Any], value: Any) -> int | float:
    """Converts a value for a number of the user's code; an integer number takes only whole values."""
    part, _, number = name.partition(".")
    before = numbers_of(own[part])[number]
    if np.ndim(before):
        raise ValueError(f"{name} is an array of shape {np.shape(before)}, which cannot be an axis")
    return plain_number(name, int if numbers_are_whole(before) else float, value)


def recipe_at(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Returns a recipe with new values for some numbers of its code.

    Args:
        recipe: the recipe.
        values: the values by name, such as `my_ucb.width`.

    Raises:
        ValueError: no such number exists, or a value does not fit its type.
    """
    own = recipe.numbered
    for name in values:
        if "." not in name:
            raise ValueError(f"{name!r} must be a number of the recipe's code, such as my_ucb.width")
        check_name(name, own)
    numbers = {name: _number(name, own, value) for name, value in values.items()}
    parts = {part: with_numbers(part, one, numbers) for part, one in own.items()}
    reward = parts.pop("reward", recipe.reward)
    return replace(recipe, policies={**recipe.policies, **parts}, reward=reward)


def _at_point(config: Config, own: Mapping[str, Any], point: Point) -> _Checked:
    try:
        numbers = {name: _number(name, own, value) for name, value in point.items() if "." in name}
        config = validate(replace(config, **{name: value for name, value in point.items() if name not in numbers}))
        values = {name: numbers[name] if name in numbers else getattr(config, name) for name in point}
        parts = {part: with_numbers(part, one, numbers) for part, one in own.items()}
        return _Checked(config, parts, values)
    except ValueError as error:
        where = ", ".join(f"{name}={cut(str(value), 20)}" for name, value in point.items())
        raise ValueError(f"at {where}: {error}" if where else str(error)) from None


def by_program(configs: Sequence[Config]) -> list[np.ndarray]:
    """Groups points that share a compiled program, because they differ only in traced settings.

    Args:
        configs: config of each point.

    Returns:
        The indices of the points of each program, int arrays.
    """
    groups: dict[Any, list[int]] = {}
    for number, config in enumerate(configs):
        groups.setdefault(jax.tree.structure(config), []).append(number)
    return [np.array(numbers) for numbers in groups.values()]
