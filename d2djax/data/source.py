"""What a built-in data set is: one record says all that is asked about it, from its shape to its download."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data.types import Dataset


@dataclass(frozen=True)
class Download:
    """Official files that may be fetched.

    Attributes:
        address: address of the folder that they are in, without a slash at its end.
        sha256: hash of each file, by its name.
    """

    address: str
    sha256: Mapping[str, str]


@dataclass(frozen=True)
class Maker:
    """How points are made in process, where no folder is given.

    Attributes:
        make: `(**options) -> Dataset`.
        options: names of the options of `make`, for whoever calls `load`.
        amount: `(needed, **settings) -> options of make` that give so many points a class, with the values of
            `Source.settings`; `needed` is a float.
        points_per_class: `(**options) -> int`, points of a class made with settings and amount.
        what: what is made, for people.
    """

    make: Callable[..., Dataset]
    options: tuple[str, ...]
    amount: Callable[..., dict[str, Any]]
    points_per_class: Callable[..., int]
    what: str


@dataclass(frozen=True)
class Source:
    """A built-in data set. What a new one touches is said in `built_in`.

    Attributes:
        name: what it is called in settings and folders; the data sets that are read or made have it as their name.
        title: what pictures call it.
        class_names: `L` names, in label order; a file may hold fewer.
        shape: shape of a point.
        dtype: kind of its numbers.
        points_per_device: of Section IV-A, where the setting is left to the data set.
        model: name of the network, likewise.
        learning_rate: step size that suits both, likewise.
        find: `(folder or file) -> path`, what `read` shall read there, or None.
        read: `(path, **options) -> Dataset`; raises DataError for what is damaged.
        how_to_get: which files from where, for a message.
        options: names of the options of `read`, for whoever calls `load`.
        settings: names of fields of `Config` that are options of `read` and of `maker.make`; runs of this data set
            depend on them.
        maker: how points are made where no folder is given; none: they are searched in the usual places.
        is_in_tfds: folders that TensorFlow Datasets prepared under this name are read, too.
        places: further folders in which it is searched.
        download: official files that may be fetched.
        by_hand: what has to be fetched by hand, and why, where there is no download; follows the name.
        label: how results tell apart what was read with different options, a template of `str.format`; empty: by
            the values of all options.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    points_per_device: int
    model: str
    learning_rate: float
    find: Callable[[Path], Path | None]
    read: Callable[..., Dataset]
    how_to_get: str
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    maker: Maker | None = None
    is_in_tfds: bool = False
    places: tuple[Path, ...] = ()
    download: Download | None = None
    by_hand: str = "has no download; its files have to be put by hand"
    label: str = ""

    @property
    def preset(self) -> dict[str, Any]:
        """Settings that are left to the data set, by name."""
        return {
            "num_classes": len(self.class_names),
            "points_per_device": self.points_per_device,
            "model": self.model,
            "learning_rate": self.learning_rate,
        }

    @property
    def depends_on_settings(self) -> bool:
        """Whether runs with different settings may use different points."""
        return bool(self.settings) or self.maker is not None

    def told(self, options: Mapping[str, Any]) -> str:
        """What was read or made with some options, in words: different ones, different words."""
        if self.label:
            return self.label.format(**options)
        return ", ".join(f"{name}={value}" for name, value in options.items()) or "all"
