"""The built-in data sets, by name.

A new one is one new file in this folder and a row in the table below (and the import of the file, for the row). The
file finds and reads, or makes, the points, and ends with a `Source`, the record of all that others ask: shape,
classes, default settings, options, places, download. Its name also joins those in `settings.py`, which the command
line offers and checks without reading any of this; a setting that only its points depend on, such as `min_snr`, is
declared there.
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
