"""What every data set looks like once it is in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


class DataError(ValueError):
    """A data set cannot be read: names the file, what was expected and what was found."""


@dataclass(frozen=True)
class Dataset:
    """All points of a labelled data set, training and test files merged (Section IV-A).

    Attributes:
        x: [n, ...] uint8 for images (scaled where they are used), float32 for radio windows [n, 2, 128].
        y: [n] int32, class of each point, in 0..L-1.
        class_names: `L` names, in label order.
        name: the name that `d2djax.data.load` was called with.
        source: where the points come from, for people (a folder, or how they were made).
    """

    x: np.ndarray
    y: np.ndarray
    class_names: tuple[str, ...]
    name: str
    source: str

    @property
    def num_classes(self) -> int:
        """`L`, the number of classes."""
        return len(self.class_names)
