"""Discovery for one network in NumPy without a loop over devices."""

from __future__ import annotations

import numpy as np

from benchmarks.discovery_problem import Found, Problem, next_state


class Vectorised:
    """One discovery; constants are computed once, and the history once per block of episodes.

    Products with a one-hot matrix of the links replace the scatters of the exchange; at these sizes they are
    faster than `np.bincount` and `np.add.at`. A product with a triangle of ones gives the running
    sums. The means are stored next to the sums, since an episode changes only one of a device's N.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        num_states, num_devices, num_classes = problem.sizes
        self.receiver, self.one_hot = np.arange(num_devices), np.eye(num_devices, dtype=np.float32)
        self.row = self.receiver * num_devices
        self.triangle = np.triu(np.ones((num_devices, num_devices), np.float32))
        self.surplus = np.maximum(problem.counts - problem.thresholds, np.float32(0))
        # What i would request from j: one table row per entry of an [N, N] array, receiver first.
        offer = np.where(problem.trust.transpose(1, 0, 2), self.surplus[None], np.float32(0))
        offer[self.receiver, self.receiver] = 0
        wanted = np.maximum(problem.thresholds - problem.counts, np.float32(0))
        self.requests = np.minimum(offer, wanted[:, None]).reshape(-1, num_classes)
        is_inter = problem.cluster[:, None] != problem.cluster[None]
        self.inter_sums = np.where(is_inter.reshape(-1), self.requests.sum(1), np.float32(0))
        num_clusters = int(problem.cluster.max()) + 1
        self.members = (problem.cluster[None] == np.arange(num_clusters)[:, None]).astype(np.float32)
        self.budget = problem.budget[:num_clusters]
        self.above_budget = self.members.T * np.float32(problem.gamma * problem.alpha_budget)
        self.mean_weights = np.full(num_devices, problem.gamma / num_devices, np.float32)
        self.outage = problem.outage.reshape(num_states, -1)
        self.loss, self.arrives = problem.alpha_outage * self.outage, (1 - self.outage)[..., None]
        numbers = np.arange(num_classes + 1)
        self.scores = (problem.alpha_diversity * numbers * (numbers >= problem.min_classes)).astype(np.float32)
        shape = (num_states, num_devices**2)
        self.reward, self.tries = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.logit = np.full((num_states, num_devices, num_devices), self.start, np.float32)
        self.flat_logit = self.logit.reshape(shape)

    @property
    def start(self) -> float:
        """Logit of an untried link."""
        return self.problem.initial_value / self.problem.temperature

    def links(self, state: int, uniform: np.ndarray) -> np.ndarray:
        """One transmitter for each receiver, [N], drawn with eq. 7 by inversion."""
        logit = self.logit[state]
        cumulative = np.exp(logit - np.maximum.reduce(logit, 1)[:, None]) @ self.triangle
        # The sums increase, so the first sum above the draw is the first False.
        return (cumulative <= (uniform * cumulative[:, -1])[:, None]).argmin(1)

    def after(self, links: np.ndarray, own: np.ndarray, state: int) -> np.ndarray:
        """Counts after the exchange, [N, L]; `own` [N] is the index of each link in a flat [N, N] array."""
        requested = self.requests.take(own, 0)
        chosen = self.one_hot.take(links, 0).T
        demand = chosen @ requested
        share = np.minimum(self.surplus / np.maximum(demand, np.float32(1e-9)), np.float32(1))
        received = requested * share.take(links, 0) * self.arrives[state].take(own, 0)
        return self.problem.counts + received - chosen @ received

    def episode(self, state: int, uniform: np.ndarray) -> tuple[np.ndarray, ...]:
        """Plays one episode; returns links, indices, classes and total rewards, [N], and requests by cluster."""
        links = self.links(state, uniform)
        own = self.row + links
        is_reached = self.after(links, own, state) >= self.problem.needed
        number = np.add.reduce(is_reached, 1, dtype=np.intp)
        local = self.scores.take(number) - self.loss[state].take(own)
        inter = self.members @ self.inter_sums.take(own)
        total = local + (self.mean_weights @ local + self.above_budget @ (self.budget - inter))
        reward, tries = self.reward[state], self.tries[state]
        reward[own] = sums = reward.take(own) + total
        tries[own] = times = tries.take(own) + np.float32(1)
        self.flat_logit[state][own] = sums / (times * np.float32(self.problem.temperature))
        return links, own, number, total, inter

    def row_of_history(self, states: list[int], block: list[tuple[np.ndarray, ...]]) -> list[float]:
        """Means over a block of episodes, columns as in `CURVES`."""
        links, own, number, total, inter = (np.stack(part) for part in zip(*block, strict=True))
        lost = np.take_along_axis(self.outage[states], own, 1)
        linked = np.maximum((links != self.receiver).sum(1), 1)
        weight = np.exp(self.logit[states[-1]] - self.logit[states[-1]].max(1, keepdims=True))
        likely = weight / weight.sum(1, keepdims=True)
        entropy = -(likely * np.log(np.maximum(likely, np.float32(1e-38)))).sum(1).mean()
        is_diverse, over = number >= self.problem.min_classes, np.maximum(inter - self.budget, 0)
        outage = (lost.sum(1) / linked).mean()
        return [total.mean(), is_diverse.mean(), number.mean(), outage, inter.mean(), over.mean(), entropy]


def discover(problem: Problem, uniform: np.ndarray) -> Found:
    """All episodes of section III; `uniform` [E, 2 + N] moves the channel and draws the links."""
    one, history, played, state = Vectorised(problem), [], [], 0
    block: list[tuple[np.ndarray, ...]] = []
    states: list[int] = []
    for episode, draws in enumerate(uniform):
        states.append(state := next_state(problem, state, draws, episode))
        block.append(one.episode(state, draws[2:]))
        if len(block) == problem.record_every:
            history.append(one.row_of_history(states, block))
            played += [entry[0] for entry in block]
            block, states = [], []
    reward, tries = (part.reshape(problem.outage.shape) for part in (one.reward, one.tries))
    mean = np.where(tries > 0, reward / np.maximum(tries, 1), -np.inf)
    greedy = np.where((tries > 0).any(-1), mean.argmax(-1), one.receiver)
    return Found(np.array(played), greedy, reward, tries, np.array(history))
