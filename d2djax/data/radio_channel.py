"""The radio channel of RadioML 2016.10A: clock and carrier drift, fading, noise, window normalisation.

The model is GNU Radio's `dynamic_channel_model` with the parameters of the published generator, for many windows at
once, each with an independent channel.
"""

from __future__ import annotations

import numpy as np

from d2djax.data.modulations import SAMPLE_RATE

WINDOW = 128

_CLOCK_STEP, _CLOCK_MAX = 0.01, 50.0
_CARRIER_STEP, _CARRIER_MAX = 0.01, 500.0
_DOPPLER = 1.0
_SINUSOIDS = 8
_RICIAN_K = 4.0
_DELAYS = np.array([0.0, 0.9, 1.7])
_MAGNITUDES = np.array([1.0, 0.8, 0.3])
_FADING_TAPS = 8
_RESAMPLER_TAPS = 8

# How many samples longer a window must be before the channel than after it.
PADDING = (_RESAMPLER_TAPS - 1) + (_FADING_TAPS - 1)


def transmit(signal: np.ndarray, positions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Sends each window through an independent channel without noise: resampling, carrier shift, fading.

    Args:
        signal: [W, N + PADDING] complex64, the transmitted windows.
        positions: [W] int, samples since the start of the burst, during which the clock and the carrier drifted.
        generator: source of the channels.

    Returns:
        [W, N] complex64.
    """
    count = len(signal)
    # Deviation: the two walks are constant within a window (0.64 ms), where they would move by 0.1 Hz.
    clock, late = random_walk(generator, positions, _CLOCK_STEP, _CLOCK_MAX)
    carrier, turned = random_walk(generator, positions, _CARRIER_STEP, _CARRIER_MAX)
    start = late / SAMPLE_RATE % 1.0
    inside = signal.shape[1] - (_RESAMPLER_TAPS - 1)
    stop = start + inside * clock / SAMPLE_RATE
    signal = varying_filter(signal, _interpolator(start), _interpolator(stop))
    cycles = (turned[:, None] + carrier[:, None] * np.arange(inside)) / SAMPLE_RATE
    signal *= np.exp(2j * np.pi * cycles).astype(np.complex64)
    taps = fading_taps(generator, count, (0.0, (inside - _FADING_TAPS + 1) / SAMPLE_RATE))
    return varying_filter(signal, *taps)


def random_walk(
    generator: np.random.Generator, positions: np.ndarray, step: float, largest: float
) -> tuple[np.ndarray, np.ndarray]:
    """Position of a Gaussian random walk after many steps, and the sum over its path.

    With z, y standard normal and n steps of size s, value `s sqrt(n) z` and sum
    `s n^1.5 (z / 2 + y / sqrt(12))`: their joint distribution for large n.

    Args:
        generator: source of the walks.
        positions: [W] int, number of steps.
        step: standard deviation of one step.
        largest: the value is clipped to +-largest; the sum ignores this limit.

    Returns:
        `(value, sum)`, each [W] float64 in the unit of `step`.
    """
    first, second = generator.standard_normal((2, len(positions)))
    value = np.clip(step * np.sqrt(positions) * first, -largest, largest)
    return value, step * positions**1.5 * (first / 2 + second / np.sqrt(12))


def _interpolator(delay: np.ndarray) -> np.ndarray:
    """Windowed-sinc filters [W, taps] float64 of fractional delays: [W] in samples, 0 to 1."""
    lag = np.arange(_RESAMPLER_TAPS) - (_RESAMPLER_TAPS // 2 - 1) - delay[:, None]
    return np.sinc(lag) * np.cos(np.pi * lag / (_RESAMPLER_TAPS + 1)) ** 2


def fading_taps(generator: np.random.Generator, count: int, times: tuple[float, ...]) -> tuple[np.ndarray, ...]:
    """Impulse responses of frequency-selective fading channels at given times.

    Path j has gain `g_j(t) = sum_n [cos(a_n + w_n t) + i sin(b_n + w_n t)] / sqrt(8)`, with Doppler
    `w_n = 2 pi f_D cos((2 pi n - pi + theta) / 32)` and uniform a, b, theta; its mean power is 1. The first path is
    Rician: its direct wave has K times the scattered power. Tap k is
    `sum_j magnitude_j g_j sinc(k - delay_j)`, k = 0..7: the sinc is cut at tap 0, as in GNU Radio.

    Args:
        generator: source of the channels.
        count: W, number of channels.
        times: seconds since the start of the window.

    Returns:
        [W, 8] complex128 for each time.
    """
    paths = len(_DELAYS)
    turn = np.pi
    shape = (count, paths, _SINUSOIDS)
    cosine, sine = generator.uniform(-turn, turn, size=(2, *shape))
    theta = generator.uniform(-turn, turn, size=(count, paths, 1))
    angle = (2 * np.pi * np.arange(1, _SINUSOIDS + 1) - np.pi + theta) / (4 * _SINUSOIDS)
    direct_phase, direct_angle = generator.uniform(-turn, turn, size=(2, count))
    spread = np.sinc(np.arange(_FADING_TAPS) - _DELAYS[:, None]) * _MAGNITUDES[:, None]
    taps = []
    for time in times:
        shift = 2 * np.pi * _DOPPLER * time
        wave = np.cos(cosine + shift * np.cos(angle)) + 1j * np.sin(sine + shift * np.cos(angle))
        gain = wave.sum(axis=-1) / np.sqrt(_SINUSOIDS)
        direct = np.exp(1j * (direct_phase + shift * np.cos(direct_angle)))
        gain[:, 0] = (gain[:, 0] + np.sqrt(_RICIAN_K) * direct) / np.sqrt(_RICIAN_K + 1)
        taps.append(gain @ spread)
    return tuple(taps)


def varying_filter(signal: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Filters each row with taps that change linearly from `start` to `stop`, and drops the filter's transient.

    `y[n] = sum_k h_n[k] x[n + K - 1 - k]`, `h_n = start + (stop - start) n / N`.

    Args:
        signal: [W, N + K - 1] complex64.
        start: [W, K] complex or float, taps at the first output sample.
        stop: [W, K], taps one step after the last output sample.

    Returns:
        [W, N] complex64.
    """
    taps = start.shape[1]
    length = signal.shape[1] - taps + 1
    progress = (np.arange(length) / length).astype(np.float32)
    steady = start.astype(np.complex64)
    change = (stop - start).astype(np.complex64)
    result = np.zeros((len(signal), length), np.complex64)
    for tap in range(taps):
        weight = change[:, tap, None] * progress + steady[:, tap, None]
        result += weight * signal[:, taps - 1 - tap :][:, :length]
    return result


def mean_power(windows: np.ndarray) -> np.ndarray:
    """`mean_n |x[n]|^2` of each window: [W, N] complex64 -> [W, 1] float32."""
    return np.mean(np.real(windows) ** 2 + np.imag(windows) ** 2, axis=1, keepdims=True)


def white_noise(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Circular complex Gaussian noise of mean power 1: complex64 of the given shape."""
    pairs = generator.standard_normal((shape[0], 2 * shape[1]), dtype=np.float32)
    return pairs.view(np.complex64) * np.float32(np.sqrt(0.5))


def receive(windows: np.ndarray, snr: int, generator: np.random.Generator, *, published: bool) -> np.ndarray:
    """Adds the receiver's noise and normalises each window.

    By default the noise has 10^(-snr/10) times the received power of its window, and the sum is divided by its root
    mean square, so that a window has mean |x|^2 = 1. If `published`, the noise amplitude is 10^(-snr/10), whatever
    the received power, and the sum is divided by sum |x|.

    Args:
        windows: [W, N] complex64, received without noise.
        snr: the label, in dB.
        generator: source of the noise.
        published: reproduce the faults of the published generator.

    Returns:
        [W, N] complex64.
    """
    noise = white_noise(generator, windows.shape)
    if published:
        noisy = windows + np.float32(10.0 ** (-snr / 10)) * noise
        return noisy / np.sum(np.abs(noisy), axis=1, keepdims=True)
    # Deviation: with the published amplitude 10^(-snr/10), the power ratio grows by 2 dB per dB of the label, and
    # fading changes it by several dB from window to window.
    noisy = windows / np.sqrt(mean_power(windows)) + np.float32(10.0 ** (-snr / 20)) * noise
    # Deviation: the published file divides by sum |x|, so values are about 1/128; networks need values about 1.
    return noisy / np.sqrt(mean_power(noisy))
