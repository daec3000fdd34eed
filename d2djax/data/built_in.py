"""The built-in data sets, by name.

To add one, write a file in this folder, import it here and add a row to the table below. The file finds and reads,
or synthesises, the points, and ends with a `Source`, the record of everything that other modules need: shape,
classes, default settings, options, folders, download. Also add to `settings.py` its name, which the command line
checks without importing this module, and any setting that only its points depend on, such as `min_snr`.
"""

from __future__ import annotations

from d2djax.data import cifar, idx, radio
from d2djax.data.source import Source

_ALL = (
    radio.SOURCE,
    idx.SOURCE,
    cifar.SOURCE,
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
