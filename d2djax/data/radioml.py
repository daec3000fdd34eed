"""Synthesises data like RadioML 2016.10A (Section IV-A): 11 modulations, 20 signal-to-noise ratios."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from d2djax.data.modulations import MODULATIONS, baseband
from d2djax.data.radio_channel import PADDING, WINDOW, receive, transmit
from d2djax.data.types import Dataset

_SNR_LIMIT = 100
# A published burst has 27 to 80 thousand samples; its settled windows begin once the filters are filled.
_SETTLED = (760, 40_000)
_STARTUP = (50, 501)
_STARTUP_SHARE = 1 / 35


def synthesise(
    windows_per_key: int = 160,
    *,
    seed: int = 2016,
    snrs: Sequence[int] = range(-20, 20, 2),
    modulations: Sequence[str] | None = None,
    imitate_published: bool = False,
) -> Dataset:
    """Synthesises modulated, faded and noisy radio windows with the recipe of RadioML 2016.10A.

    The windows of one (modulation, SNR) depend only on `seed` and `windows_per_key`, not on the other arguments.

    Args:
        windows_per_key: windows of each (modulation, SNR).
        seed: seed of the generators, 0 or more.
        snrs: signal-to-noise ratios in dB, distinct integers within +-100.
        modulations: distinct names from `MODULATIONS`; None for all.
        imitate_published: reproduce the faults of the published file (noise-only AM-SSB, 2 dB per dB of the label,
            unnormalised constellations, WBFM too fast for the channel, some start-up windows, sum |x| = 1);
            by default these are corrected and each window has mean power 1.

    Returns:
        `Dataset` with x float32 [n, 2, 128] (in-phase, quadrature), y int32 in the order of the sorted names;
        ordered by modulation, then by SNR as given.

    Raises:
        ValueError: an argument is out of its range.
    """
    return synthesise_with_snr(
        windows_per_key,
        seed=seed,
        snrs=snrs,
        modulations=modulations,
        imitate_published=imitate_published,
    )[0]


def synthesise_with_snr(
    windows_per_key: int = 160,
    *,
    seed: int = 2016,
    snrs: Sequence[int] = range(-20, 20, 2),
    modulations: Sequence[str] | None = None,
    imitate_published: bool = False,
) -> tuple[Dataset, np.ndarray]:
    """Synthesises windows as `synthesise` does, and returns the SNR of each point too.

    Args:
        windows_per_key: see `synthesise`.
        seed: see `synthesise`.
        snrs: see `synthesise`.
        modulations: see `synthesise`.
        imitate_published: see `synthesise`.

    Returns:
        The `Dataset` of n points, and their SNR labels in dB, [n] int32.

    Raises:
        ValueError: an argument is out of its range.
    """
    names = _checked_names(modulations)
    snrs = _checked_snrs(snrs)
    _check_integer("windows_per_key", windows_per_key, smallest=1)
    _check_integer("seed", seed, smallest=0)
    keys = [(name, snr) for name in names for snr in snrs]
    x = np.empty((len(keys), windows_per_key, 2, WINDOW), np.float32)
    for row, (name, snr) in zip(x, keys, strict=True):
        windows = one_key(name, snr, windows_per_key, seed=seed, imitate_published=imitate_published)
        row[:, 0], row[:, 1] = np.real(windows), np.imag(windows)
    kind = "imitating the published file" if imitate_published else "faults of the published file corrected"
    dataset = Dataset(
        x=x.reshape(-1, 2, WINDOW),
        y=np.repeat(np.arange(len(names), dtype=np.int32), len(snrs) * windows_per_key),
        class_names=names,
        name="radioml",
        source=f"synthesised in process, seed {seed}, {windows_per_key} windows per key, {kind}",
    )
    return dataset, np.repeat(np.tile(np.array(snrs, np.int32), len(names)), windows_per_key)


def one_key(
    modulation: str,
    snr: int,
    count: int,
    *,
    seed: int = 2016,
    imitate_published: bool = False,
    startup_share: float | None = None,
) -> np.ndarray:
    """Windows of one (modulation, SNR), each with an independent message, channel and noise.

    Args:
        modulation: one of `MODULATIONS`.
        snr: the label, in dB.
        count: W, number of windows.
        seed: see `synthesise`.
        imitate_published: see `synthesise`.
        startup_share: probability that a window starts while the transmitter's filters still fill; None for that
            of the published file if it is imitated, else 0.

    Returns:
        [W, 128] complex64.
    """
    # Deviation: each window has an independent channel; the published file uses one channel for all bursts.
    generator = np.random.default_rng([seed, MODULATIONS.index(modulation), snr + _SNR_LIMIT])
    if startup_share is None:
        startup_share = _STARTUP_SHARE if imitate_published else 0.0
    starting = generator.random(count) < startup_share
    positions = np.where(
        starting, generator.integers(*_STARTUP, size=count), generator.integers(*_SETTLED, size=count)
    )
    sent = baseband(modulation, generator, positions, WINDOW + PADDING, published=imitate_published)
    return receive(transmit(sent, positions, generator), snr, generator, published=imitate_published)


def _checked_names(modulations: Sequence[str] | None) -> tuple[str, ...]:
    """The chosen modulations, sorted."""
    if modulations is None:
        return MODULATIONS
    names = tuple(modulations) if not isinstance(modulations, str) else (modulations,)
    unknown = [name for name in names if name not in MODULATIONS]
    if unknown or not names or len(set(names)) < len(names):
        found = f"unknown {unknown[0]!r}" if unknown else repr(list(names))
        raise ValueError(f"modulations must be distinct names from {', '.join(MODULATIONS)}; got {found}")
    return tuple(sorted(names))


def _checked_snrs(snrs: Sequence[int]) -> tuple[int, ...]:
    """The SNRs as Python integers."""
    values = tuple(snrs)
    whole = all(isinstance(value, Integral) and abs(value) <= _SNR_LIMIT for value in values)
    if not values or not whole or len(set(values)) < len(values):
        raise ValueError(f"snrs must be distinct integers within +-{_SNR_LIMIT} dB; got {list(values)}")
    return tuple(int(value) for value in values)


def _check_integer(name: str, value: int, *, smallest: int) -> None:
    """Raises ValueError unless `value` is an integer of at least `smallest`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < smallest:
        raise ValueError(f"{name} must be an integer, at least {smallest}; got {value!r}")
