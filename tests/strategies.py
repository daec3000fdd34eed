"""Hypothesis strategies for the method's inputs.

Shapes are fixed by the caller, because every new shape is a new compilation; only values are drawn. Floats
come out in single precision, so that the package and the oracle start from the same numbers.
"""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def floats(shape, low, high):
    """Single-precision array, uniform in what hypothesis thinks of as interesting, ends included."""
    # No subnormal numbers: XLA flushes them to zero.
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32, allow_subnormal=False))


def powers(shape, low_dbm=-140, high_dbm=-30):
    """Watts drawn as decibels: every magnitude is as likely as another."""
    decibels = arrays(np.float64, shape, elements=st.floats(low_dbm, high_dbm))
    return decibels.map(lambda x: (1e-3 * 10 ** (x / 10)).astype(np.float32))


def outages(shape):
    """Outage probabilities [..., N, N] with the exact values 0 and 1 among them and a zero diagonal."""
    element = st.one_of(st.sampled_from([0.0, 1.0, 0.0009765625]), st.floats(0, 1, width=32, allow_subnormal=False))
    off_diagonal = ~np.eye(shape[-1], dtype=bool)
    return arrays(np.float32, shape, elements=element).map(lambda x: x * off_diagonal)


def distinct_outages(num_states, num_devices):
    """Outages no two of which are equal, so that the complete-linkage partition is unique."""
    shape = (num_states, num_devices, num_devices)
    off_diagonal = ~np.eye(num_devices, dtype=bool)
    ranks = arrays(np.int32, shape, elements=st.integers(1, 10_000), unique=True)
    return ranks.map(lambda x: (x * off_diagonal / 10_001).astype(np.float32))


def quarters(shape, high):
    """Multiples of 1/4 up to `high`: numbers of points, exact in single precision."""
    return arrays(np.int32, shape, elements=st.integers(0, 4 * high)).map(lambda x: (x / 4).astype(np.float32))


def indices(shape, size):
    return arrays(np.int32, shape, elements=st.integers(0, size - 1))


def exchanges(num_devices, num_classes):
    """Arguments `(counts, thresholds, trust, links, outage)` of one exchange."""
    own = np.eye(num_devices, dtype=bool)[:, :, None]
    trust = arrays(bool, (num_devices, num_devices, num_classes)).map(lambda x: x | own)
    return st.tuples(
        quarters((num_devices, num_classes), 60),
        quarters((num_devices, num_classes), 20),
        trust,
        indices((num_devices,), num_devices),
        outages((num_devices, num_devices)),
    )


def reward_inputs(num_devices, num_classes):
    """Arguments `(score, outage, requested, links, cluster, budget)` of the reward."""
    # Labels without gaps, numbered by first appearance, as the clustering gives them.
    clusters = indices((num_devices,), num_devices).map(first_appearance)
    scores = indices((num_devices,), num_classes + 1).map(lambda x: x.astype(np.float32))
    return st.tuples(
        scores,
        floats((num_devices,), 0, 1),
        quarters((num_devices, num_classes), 60),
        indices((num_devices,), num_devices),
        clusters,
        quarters((num_devices,), 500),
    )


def first_appearance(labels):
    """The same partition with labels 0, 1, ... in the order in which they appear."""
    names = {}
    return np.array([names.setdefault(int(label), len(names)) for label in labels], np.int32)
