"""The record of a built-in data set: all that other modules need of it, from its shape to its download."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from d2djax.data.types import Dataset


@dataclass(frozen=True)
class Download:
    """Official files that can be downloaded.

    Attributes:
        address: URL of their folder, without a trailing slash.
        sha256: SHA-256 of each file in hexadecimal digits, by file name.
    """

    address: str
    sha256: Mapping[str, str]


@dataclass(frozen=True)
class Maker:
    """How points are synthesised in process if no folder is given.

    Attributes:
        make: `(**options) -> Dataset`.
        options: names of the options of `make` that `load` accepts.
        amount: `(needed, **settings) -> options of make` that yield `needed` points of each class (a float), given
            the values of `Source.settings`.
        points_per_class: `(**options) -> int`, points of each class, from the settings and the options of `amount`.
        what: what is synthesised, in words for a message.
    """

    make: Callable[..., Dataset]
    options: tuple[str, ...]
    amount: Callable[..., dict[str, Any]]
    points_per_class: Callable[..., int]
    what: str


@dataclass(frozen=True)
class Source:
    """A built-in data set; `built_in` says how to add one.

    Attributes:
        name: its name in settings and folders, and the name of each `Dataset` that is read or made.
        title: its name in figures.
        class_names: `L` names, in label order; a file may hold fewer.
        shape: shape of a point.
        dtype: type of its numbers.
        points_per_device: default of the setting (Section IV-A).
        model: default model, by name.
        learning_rate: default step size, suited to the data and the model.
        find: `(folder or file) -> path` for `read`, or None if the data is not there.
        read: `(path, **options) -> Dataset`; raises DataError for damaged data.
        how_to_get: which files to get from where, in words for a message.
        options: names of the options of `read` that `load` accepts.
        settings: names of fields of `Config` that are options of `read` and of `maker.make`; runs with this data
            set depend on them.
        maker: synthesises points if no folder is given; None: `load` searches the usual folders.
        is_in_tfds: whether to read folders that TensorFlow Datasets prepared under this name, too.
        places: further folders to search.
        download: official files that can be downloaded.
        by_hand: if there is no download, what to fetch by hand and why; follows the name in a message.
        label: `str.format` template by which results distinguish data that was read with different options; empty:
            all options and their values.
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
        """Default settings that the data set decides, by name."""
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
        """Describes data that was read or made with some options, in words that distinguish the options.

        Args:
            options: of `read` or `maker.make`, by name; see `label`.
        """
        if self.label:
            return self.label.format(**options)
        return ", ".join(f"{name}={value}" for name, value in options.items()) or "all"
