"""Settings by name in which policies differ: from plenty, where no learning is needed, to scarcity."""

from __future__ import annotations

from typing import Any, Literal, get_args

from d2djax.settings import Config

RegimeName = Literal["paper", "contention", "scarce", "strangers"]

# Ours, except for `paper`. A transmitter of 120 points of a class and threshold 60 serves one device, not four.
REGIMES: dict[str, dict[str, Any]] = {
    "paper": {},
    "contention": {"points_per_device": 480},
    "scarce": {"points_per_device": 480, "min_classes": 7},
    "strangers": {"trust_probability": 0.4},
}


def preset(name: RegimeName, **settings: Any) -> Config:
    """The settings of a regime, `Config(**REGIMES[name])`, some of them replaced.

    Args:
        name: `paper`, the defaults; `contention`, devices with a surplus for one other device; `scarce`, the same
            with one more class to reach; or `strangers`, devices that trust few others.
        settings: of `Config`; they take precedence over those of the regime.

    Returns:
        The config, not validated.

    Raises:
        ValueError: there is no such regime.
    """
    if name not in get_args(RegimeName):
        # Imported here so that `--help` does not wait for NumPy.
        from d2djax.checks import shown

        raise ValueError(f"preset must be one of {', '.join(get_args(RegimeName))}; got {shown(name)}")
    return Config(**REGIMES[name] | settings)
