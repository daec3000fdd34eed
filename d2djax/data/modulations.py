"""Complex baseband signals of the eleven modulations of RadioML 2016.10A, for many windows at once."""

from __future__ import annotations

from functools import cache

import numpy as np

MODULATIONS = (
    "8PSK",
    "AM-DSB",
    "AM-SSB",
    "BPSK",
    "CPFSK",
    "GFSK",
    "PAM4",
    "QAM16",
    "QAM64",
    "QPSK",
    "WBFM",
)
ANALOG = ("AM-DSB", "AM-SSB", "WBFM")
SAMPLE_RATE = 200e3
SAMPLES_PER_SYMBOL = 8

_ROLLOFF = 0.35
_FSK_INDEX = 0.5
_GFSK_BANDWIDTH_TIME = 0.35
_GFSK_STEP = 0.1
_FM_DEVIATION = 75e3
_FM_EMPHASIS = 75e-6
_PUBLISHED_FM_RATE = 220.5e3
# Samples at the start of a burst during which the filters of the published modulators still fill.
_PULSE_DELAY = 352
_FM_DELAY = 137

_HARMONICS = 64
_FORMANTS = 10


def baseband(
    modulation: str, generator: np.random.Generator, positions: np.ndarray, length: int, *, published: bool
) -> np.ndarray:
    """Noise-free transmitted windows of one modulation.

    Args:
        modulation: one of `MODULATIONS`.
        generator: source of symbols and audio.
        positions: [W] int, sample within its burst at which each window starts; a burst starts silent.
        length: samples in each window.
        published: reproduce the faults of the published generator.

    Returns:
        [W, length] complex64. The mean power is 1 for the digital modulations (if `published`, that of the integer
        constellation) and for WBFM, and about 1 for AM-DSB; AM-SSB has the power of its audio (0 if `published`).
    """
    if modulation in ("CPFSK", "GFSK"):
        frequency = _pulse_train(generator, np.array([-1.0, 1.0]), _fsk_pulse(modulation), positions, length)
        return _frequency_modulated(np.real(frequency))
    if modulation == "WBFM":
        return _wideband_fm(generator, positions, length, published)
    if modulation == "AM-DSB":
        # As published: a carrier of amplitude 1, and audio with a full scale of 1/2.
        audio = np.real(speech(generator, len(positions), length, SAMPLE_RATE))
        return (1 + audio).astype(np.complex64)
    if modulation == "AM-SSB":
        if published:
            # The published oscillator is a sine at 0 Hz, which is 0, so only noise is left.
            return np.zeros((len(positions), length), np.complex64)
        # Deviation: the published carrier is omitted, so that the signal is one sideband only (with the carrier,
        # a window looks like AM-DSB); no window lies in a pause, during which nothing is sent.
        return speech(generator, len(positions), length, SAMPLE_RATE, pauses=False)
    points = constellation(modulation)
    if not published:
        # Deviation: published PAM4, QAM16 and QAM64 symbols have mean powers 5, 10 and 42 at the same noise.
        points = points / np.sqrt(np.mean(np.abs(points) ** 2))
    return _pulse_train(generator, points, _root_raised_cosine(), positions - _PULSE_DELAY, length)


def constellation(modulation: str) -> np.ndarray:
    """Symbols of a linear modulation: points of the unit circle, or odd integers.

    Args:
        modulation: 8PSK, BPSK, PAM4, QAM16, QAM64 or QPSK.

    Returns:
        [M] complex128, M the order of the modulation.
    """
    if modulation in ("BPSK", "QPSK", "8PSK"):
        order = {"BPSK": 2, "QPSK": 4, "8PSK": 8}[modulation]
        return np.exp(2j * np.pi * np.arange(order) / order)
    side = {"PAM4": 4, "QAM16": 4, "QAM64": 8}[modulation]
    level = np.arange(1.0 - side, side, 2)
    return level.astype(complex) if modulation == "PAM4" else (level[:, None] + 1j * level).ravel()


@cache
def _root_raised_cosine(half_span: int = 11) -> np.ndarray:
    """Root-raised-cosine pulse of unit energy per symbol, over +-`half_span` symbols of 8 samples."""
    # Shifted off 0, where the formula is 0/0; its other pole, 1/(4 rolloff), is not on this grid.
    time = np.arange(-half_span * SAMPLES_PER_SYMBOL, half_span * SAMPLES_PER_SYMBOL + 1)
    time = time / SAMPLES_PER_SYMBOL + 1e-6
    slope = 4 * _ROLLOFF * time
    wave = np.sin(np.pi * time * (1 - _ROLLOFF)) + slope * np.cos(np.pi * time * (1 + _ROLLOFF))
    return wave / (np.pi * time * (1 - slope**2))


@cache
def _fsk_pulse(modulation: str) -> np.ndarray:
    """Phase step (radians per sample) of one CPFSK or GFSK bit, over an odd number of samples."""
    square = np.ones(SAMPLES_PER_SYMBOL)
    if modulation == "CPFSK":
        return np.append(square, np.zeros(9)) * np.pi * _FSK_INDEX / SAMPLES_PER_SYMBOL
    time = np.arange(-2 * SAMPLES_PER_SYMBOL + 1, 2 * SAMPLES_PER_SYMBOL + 1) / SAMPLES_PER_SYMBOL
    bell = np.exp(-((2 * np.pi * _GFSK_BANDWIDTH_TIME * time) ** 2) / (2 * np.log(2)))
    pulse = np.convolve(bell / bell.sum(), square)
    return np.pad(pulse, (5, 5)) * _GFSK_STEP


def _pulse_train(
    generator: np.random.Generator, points: np.ndarray, pulse: np.ndarray, positions: np.ndarray, length: int
) -> np.ndarray:
    """Sum of pulses, one per symbol: `x[n] = sum_k symbol[k] pulse(n - 8 k)`, no symbol before position 0.

    Args:
        generator: source of the symbols.
        points: [M] complex, equally likely symbols.
        pulse: [2 h 8 + 1] float, a pulse over +-h symbols.
        positions: [W] int, position of each window's first sample.
        length: samples in each window.

    Returns:
        [W, length] complex64.
    """
    step = SAMPLES_PER_SYMBOL
    half_span = len(pulse) // 2 // step
    samples = length + step - 1
    symbols = 2 * half_span + -(-samples // step)
    number = np.arange(symbols) - half_span
    # Deviation: the published symbols are a whitened text; these are independent and equally likely.
    drawn = points.astype(np.complex64)[generator.integers(len(points), size=(len(positions), symbols))]
    phase = positions % step
    drawn *= (positions - phase)[:, None] + step * number >= 0
    lag = np.arange(samples) - step * number[:, None] + len(pulse) // 2
    matrix = np.where((lag >= 0) & (lag < len(pulse)), pulse[np.clip(lag, 0, len(pulse) - 1)], 0.0)
    wave = drawn @ matrix.astype(np.complex64)
    return np.take_along_axis(wave, phase[:, None] + np.arange(length), axis=1)


def _frequency_modulated(step: np.ndarray) -> np.ndarray:
    """Unit carrier whose phase grows by `step` radians at each sample; complex64 of the same shape."""
    phase = np.cumsum(step, axis=1)
    return (np.cos(phase) + 1j * np.sin(phase)).astype(np.complex64)


def _wideband_fm(generator: np.random.Generator, positions: np.ndarray, length: int, published: bool) -> np.ndarray:
    """Broadcast FM: 75 kHz deviation at full scale, 75 us pre-emphasis."""
    rate = _PUBLISHED_FM_RATE if published else SAMPLE_RATE
    audio = np.real(speech(generator, len(positions), length, rate, emphasis=_FM_EMPHASIS))
    begun = positions[:, None] + np.arange(length) >= _FM_DELAY
    # Deviation: the published transmitter runs at 220.5 kS/s in a 200 kS/s channel and has no limiter; at full
    # scale, 75 kHz plus the audio's bandwidth then exceed half the sample rate.
    audio = audio * begun if published else np.clip(audio, -1, 1)
    return _frequency_modulated(2 * np.pi * _FM_DEVIATION / rate * audio)


def speech(
    generator: np.random.Generator,
    count: int,
    length: int,
    rate: float,
    *,
    emphasis: float = 0.0,
    pauses: bool = True,
) -> np.ndarray:
    """Speech-like audio; each window is an independent moment of speech, and its real part is the audio.

    `sum_h c_h exp(2 pi i h f_0 t)`, where `c_h` is the voice source times a cascade of formant resonances at
    `h f_0`. All frequencies are positive, so this is the audio's analytic signal. It is played at twice its speed
    and half its scale, as in the published recipe. A pause is exactly 0.

    Args:
        generator: source of all draws.
        count: W, number of windows.
        length: samples in each window.
        rate: samples per second.
        emphasis: `tau`, time constant of a pre-emphasis `1 + 2 pi i f tau`, in seconds.
        pauses: whether windows may lie in a pause.

    Returns:
        [W, length] complex64.
    """
    # Deviation: the published file uses one podcast; this source has the shares of pause and voice, the levels
    # and (through its formants' widths) the decay within a pitch period of a text read by espeak-ng.
    # A window is a seventh of a pitch period, so its pitch and formants are constant.
    voiced = generator.random(count) < 0.7
    pitch = np.where(voiced, generator.lognormal(np.log(105), 0.15, count), 165.0)
    frequency = pitch[:, None] * np.arange(1, _HARMONICS + 1)
    random_source = generator.standard_normal((2, count, _HARMONICS))
    hiss = _hiss_spectrum(generator, frequency) * (random_source[0] + 1j * random_source[1])
    coefficient = np.where(voiced[:, None], _voice_spectrum(generator, frequency), hiss)
    coefficient /= np.sqrt(np.sum(np.abs(coefficient) ** 2, axis=1, keepdims=True) / 2)
    level = np.where(voiced, generator.rayleigh(0.076, count), generator.gamma(1.6, 0.022, count))
    if pauses:
        level *= generator.random(count) >= 0.19
    coefficient *= (level / 2)[:, None] * (1 + 2j * np.pi * 2 * frequency * emphasis)
    cycles = 2 * pitch[:, None] / rate * np.arange(length) + generator.random(count)[:, None]
    turn = np.exp(2j * np.pi * cycles).astype(np.complex64)
    coefficient = coefficient.astype(np.complex64)
    wave = np.zeros_like(turn)
    for harmonic in range(_HARMONICS - 1, -1, -1):
        wave += coefficient[:, harmonic, None]
        wave *= turn
    return wave


def _voice_spectrum(generator: np.random.Generator, frequency: np.ndarray) -> np.ndarray:
    """Glottal pulses (-12 dB per octave) times lip radiation (+6) and the resonances of a vocal tract."""
    count = len(frequency)
    source = 1j * frequency / (1 + 1j * frequency / 120) ** 2
    centre = 500.0 * (2 * np.arange(_FORMANTS) + 1) * np.ones((count, 1))
    centre[:, :3] = generator.uniform((300, 900, 2100), (650, 2000, 2900), size=(count, 3))
    for formant in range(_FORMANTS):
        middle = centre[:, formant, None]
        width = 80 + middle / 20
        source = source * middle**2 / (middle**2 - frequency**2 + 1j * frequency * width)
    return source


def _hiss_spectrum(generator: np.random.Generator, frequency: np.ndarray) -> np.ndarray:
    """Spectrum of a fricative: one broad resonance between 2.5 and 7 kHz."""
    middle = generator.uniform(2500, 7000, size=(len(frequency), 1))
    return frequency / np.abs(middle**2 - frequency**2 + 1j * frequency * middle / 2)
