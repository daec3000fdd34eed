"""From a config to results: many runs on all devices, the identity of results, sweeps over settings."""
