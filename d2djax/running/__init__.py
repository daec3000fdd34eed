"""From a config to results: many runs on all devices, what they are of, sweeps over settings."""
