"""A straightforward first implementation of discovery: NumPy, one device after the other.

A contestant, not the reference: the reference is `tests/oracle.py`, whose scalar loops take several times as long.
"""

from __future__ import annotations

import numpy as np

from benchmarks.discovery_problem import Found, Problem, next_state


def likelihood(problem: Problem, reward: np.ndarray, tries: np.ndarray) -> np.ndarray:
    """Eq. 7 of one device in one state, [N], from its sums and tries, [N]."""
    value = np.where(tries > 0, reward / np.maximum(tries, 1), problem.initial_value) / problem.temperature
    weight = np.exp(value - np.max(value))
    return weight / np.sum(weight)


def draw(uniform: float, probability: np.ndarray) -> int:
    """Index drawn by inversion; rounding may leave the last sum next to 1."""
    cumulative = np.cumsum(probability)
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))


def exchange(problem: Problem, links: list[int], outage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1: requested points and counts afterwards, each [N, L]."""
    counts, thresholds = problem.counts, problem.thresholds
    surplus = np.maximum(counts - thresholds, 0.0)
    requested, received = np.zeros(counts.shape), np.zeros(counts.shape)
    for i, j in enumerate(links):
        if i != j:
            offered = np.where(problem.trust[j, i], surplus[j], 0.0)
            requested[i] = np.maximum(np.minimum(offered, thresholds[i] - counts[i]), 0.0)
    demand = np.zeros(counts.shape)
    for i, j in enumerate(links):
        demand[j] += requested[i]
    after = counts.astype(float)
    for i, j in enumerate(links):
        shared = requested[i] * surplus[j] / np.maximum(demand[j], 1e-9)
        transmitted = np.where(demand[j] > surplus[j], shared, requested[i])
        received[i] = (1.0 - outage[i, j]) * transmitted
        after[i] += received[i]
        after[j] -= received[i]
    return requested, after


def earned(
    problem: Problem, links: list[int], outage: np.ndarray, requested: np.ndarray, after: np.ndarray
) -> tuple[list[float], tuple[float, ...]]:
    """Total rewards [N] of section III-C, and the episode's row of the history without the entropy."""
    num_devices, min_classes = len(links), problem.min_classes
    num_clusters = int(np.max(problem.cluster)) + 1
    number, local, inter = [0] * num_devices, [0.0] * num_devices, [0.0] * num_clusters
    for i, j in enumerate(links):
        number[i] = int(np.sum(after[i] >= problem.needed[i]))
        score = number[i] if number[i] >= min_classes else 0
        local[i] = problem.alpha_diversity * score - problem.alpha_outage * float(outage[i, j])
        if problem.cluster[i] != problem.cluster[j]:
            inter[problem.cluster[i]] += float(np.sum(requested[i]))
    mean = sum(local) / num_devices
    total = []
    for i in range(num_devices):
        k = problem.cluster[i]
        above = mean + problem.alpha_budget * (float(problem.budget[k]) - inter[k])
        total.append(local[i] + problem.gamma * above)
    linked = [float(outage[i, j]) for i, j in enumerate(links) if i != j]
    return total, (
        sum(total) / num_devices,
        sum(n >= min_classes for n in number) / num_devices,
        sum(number) / num_devices,
        sum(linked) / max(len(linked), 1),
        sum(inter) / num_clusters,
        sum(max(inter[k] - float(problem.budget[k]), 0.0) for k in range(num_clusters)) / num_clusters,
    )


def greedy_links(reward: np.ndarray, tries: np.ndarray) -> np.ndarray:
    """The best tried link for each state and receiver, [S, N]; the device itself if none was tried."""
    links = np.zeros(reward.shape[:2], int)
    for s in range(len(reward)):
        for i in range(reward.shape[1]):
            mean = np.where(tries[s, i] > 0, reward[s, i] / np.maximum(tries[s, i], 1), -np.inf)
            links[s, i] = np.argmax(mean) if np.any(tries[s, i] > 0) else i
    return links


def discover(problem: Problem, uniform: np.ndarray) -> Found:
    """All episodes of section III; `uniform` [E, 2 + N] moves the channel and draws the links."""
    num_states, num_devices, _ = problem.sizes
    reward, tries = np.zeros((2, num_states, num_devices, num_devices))
    played, history, rows, state = [], [], [], 0
    for episode, draws in enumerate(uniform):
        state = next_state(problem, state, draws, episode)
        links = []
        for i in range(num_devices):
            links.append(draw(draws[2 + i], likelihood(problem, reward[state, i], tries[state, i])))
        outage = problem.outage[state]
        total, row = earned(problem, links, outage, *exchange(problem, links, outage))
        for i, j in enumerate(links):
            reward[state, i, j] += total[i]
            tries[state, i, j] += 1
        played.append(links)
        rows.append(row)
        if len(rows) == problem.record_every:
            likely = [likelihood(problem, reward[state, i], tries[state, i]) for i in range(num_devices)]
            entropy = np.mean([-np.sum(p * np.log(np.maximum(p, 1e-300))) for p in likely])
            history.append([*np.mean(rows, axis=0), entropy])
            rows = []
    return Found(np.array(played), greedy_links(reward, tries), reward, tries, np.array(history))
