"""How good is the discovered graph? The default and two literal readings of the paper against the best response.

`python experiments/discovery_quality.py --seeds 8`
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from dataclasses import replace

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from d2djax import Config, baselines, discover, make_network, validate
from d2djax.discovery import summarise
from d2djax.episode import exchange_and_reward, prepare
from d2djax.reward import initial_value
from d2djax.rng import run_key

POLICIES = {
    "rl": lambda key, network, config: discover(key, network, config).links,
    "best_response": baselines.best_response,
    "nearest": baselines.nearest,
    "uniform": baselines.uniform,
}


@jax.jit
def qualities(seeds, config):
    """Reward and share of devices with enough classes for each policy, means over the states, each [seeds]."""

    def one(seed):
        key = run_key(seed)
        network = make_network(key, config)
        prepared = prepare(network, config)

        def quality(policy):
            links = POLICIES[policy](key, network, config)

            def worth(state, links):
                return summarise(exchange_and_reward(prepared, state, links, config)[1], links, network, config)

            found = jax.vmap(worth)(jnp.arange(config.num_states), links)
            return jnp.mean(found["reward"]), jnp.mean(found["diverse_share"])

        return {policy: quality(policy) for policy in POLICIES}

    return jax.lax.map(one, seeds)


def settings_of(num_episodes: int) -> dict[str, Config]:
    """The default setting and the two literal readings, by name."""
    base = validate(Config(dataset="fashion_mnist", num_episodes=num_episodes))
    # Every field is a number, so that all settings share one compiled program.
    optimistic = initial_value(base, base.num_classes)
    base = replace(base, initial_value=optimistic, score_fraction=1.0 - base.max_outage)
    return {
        "default": base,
        "initial_value=0 (literal)": replace(base, initial_value=0.0),
        "score_fraction=1 (literal)": replace(base, score_fraction=1.0),
    }


def main(num_seeds: int, num_episodes: int) -> None:
    table = Table(title=f"{num_seeds} seeds, {num_episodes} episodes, N=25, S=10")
    for heading in ("setting", "policy", "reward", "of best response", "worst seed", "devices with L-hat classes"):
        table.add_column(heading)
    for name, config in settings_of(num_episodes).items():
        found = qualities(jnp.arange(num_seeds), config)
        best = found["best_response"][0]
        for policy, (reward, share) in found.items():
            ratio = reward / best
            figures = (f"{ratio.mean():.1%}", f"{ratio.min():.1%}", f"{share.mean():.1%}")
            table.add_row(name, policy, f"{reward.mean():.3f}", *figures)
            name = ""
    Console(width=120).print(table)


if __name__ == "__main__":
    parser = ArgumentParser(
        description="Quality of greedy graphs, mean over seeds and states.",
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=8, help="networks")
    parser.add_argument("--episodes", type=int, default=4000, help="episodes of discovery")
    given = parser.parse_args()
    main(given.seeds, given.episodes)
