"""The paper in plain loops: the reference for the fast code.

Scalars, `math` and double precision; no JAX, nothing from the package, and no array expression where a loop
is plainer. One function per equation, so that a disagreement names the equation.
Axes are those of the specification: receiver first, transmitter second, except `trust`, whose first axis is
the owner of the data.

A network is a dict with `outage` [S, N, N], `counts` and `thresholds` [N, L], `trust` [N, N, L], `cluster`
and `budget` [N]. Settings are a dict with `min_classes`, `score_fraction`, `alpha_diversity`, `alpha_outage`,
`alpha_budget`, `gamma` and, for the episodes, `reference_weights` (those four weights once more) and optionally
`initial_value` (0), `temperature` (1) and `stay_probability` (0).
"""

import itertools
import math

import numpy as np


def outage_probability(rss, rate, noise_power):
    """Eq. 1 for one state, [N, N]."""
    num_devices = len(rss)
    outage = np.zeros((num_devices, num_devices))
    for i in range(num_devices):
        for j in range(num_devices):
            if i != j:
                power = float(rss[i][j])
                exponent = math.inf if power == 0 else (2.0**rate - 1) * noise_power / power
                outage[i, j] = -math.expm1(-exponent)
    return outage


def pair_distance(outage):
    """Largest outage of each pair over both directions and all states; [S, N, N] or [N, N] -> [N, N]."""
    states = [outage] if np.ndim(outage) == 2 else list(outage)
    num_devices = len(states[0])
    distance = np.zeros((num_devices, num_devices))
    for state in states:
        for i in range(num_devices):
            for j in range(num_devices):
                if i != j:
                    distance[i, j] = max(distance[i, j], float(state[i][j]), float(state[j][i]))
    return distance


def _closest_pair(distance, clusters):
    """Complete linkage: the pair of clusters whose furthest members are nearest; the first if equal."""
    best, pair = math.inf, None
    for a in range(len(clusters)):
        for b in range(a + 1, len(clusters)):
            furthest = max(distance[i, j] for i in clusters[a] for j in clusters[b])
            if furthest < best:
                best, pair = furthest, (a, b)
    return best, pair


def reliable_clusters(outage, alpha):
    """Section II-A.2: merge the closest pair of clusters until none may be merged. Returns labels, [N]."""
    distance = pair_distance(outage)
    # The list stays sorted by smallest member: a cluster is merged into the earlier one of the pair.
    clusters = [[i] for i in range(len(distance))]
    while len(clusters) > 1:
        best, (a, b) = _closest_pair(distance, clusters)
        if best > alpha:
            break
        clusters[a] = clusters[a] + clusters[b]
        del clusters[b]
    labels = np.zeros(len(distance), int)
    for label, members in enumerate(clusters):
        for i in members:
            labels[i] = label
    return labels


def link_value(reward, tries, initial_value):
    """Mean reward of one link; the paper's 0/0 of an untried link is `initial_value`."""
    return float(reward) / float(tries) if tries > 0 else initial_value


def policy_probabilities(reward, tries, state, initial_value=0.0, temperature=1.0):
    """Eq. 7 for every receiver, [N, N]; `reward` and `tries` are psi[..., 0] and psi[..., 1], [S, N, N]."""
    num_devices = len(reward[state])
    probabilities = np.zeros((num_devices, num_devices))
    for i in range(num_devices):
        logits = []
        for j in range(num_devices):
            value = link_value(reward[state][i][j], tries[state][i][j], initial_value)
            logits.append(value / temperature)
        # The shift cancels in the quotient; without it `math.exp` overflows at 710.
        weights = [math.exp(logit - max(logits)) for logit in logits]
        for j in range(num_devices):
            probabilities[i, j] = weights[j] / sum(weights)
    return probabilities


def available(counts, thresholds, trust, links, i, c):
    """Eq. 8: what the transmitter of `i` offers of class `c`. Nothing over a self link."""
    j = links[i]
    if j == i or not trust[j][i][c]:
        return 0.0
    return max(float(counts[j][c]) - float(thresholds[j][c]), 0.0)


def requested(counts, thresholds, offer, i, c):
    """Eq. 9, its three cases."""
    wanted = float(thresholds[i][c]) - float(counts[i][c])
    if wanted <= 0:
        return 0.0
    return offer if wanted >= offer else wanted


def transmitted(counts, thresholds, links, requests, i, c):
    """Eq. 10: the request, or a share in proportion to it when more is asked for than can be spared."""
    j = links[i]
    spare = max(float(counts[j][c]) - float(thresholds[j][c]), 0.0)
    demand = sum(requests[k][c] for k in range(len(links)) if links[k] == j)
    if demand <= spare:
        return requests[i][c]
    return requests[i][c] / demand * spare


def exchange(counts, thresholds, trust, links, outage):
    """Algorithm 1 with the expected number of received points, and eq. 11; `outage` of one state, [N, N]."""
    num_devices, num_classes = np.shape(counts)
    names = ("available", "requested", "transmitted", "received", "counts")
    out = {name: np.zeros((num_devices, num_classes)) for name in names}
    links = [int(j) for j in links]
    pairs = [(i, c) for i in range(num_devices) for c in range(num_classes)]
    for i, c in pairs:
        out["available"][i, c] = available(counts, thresholds, trust, links, i, c)
        out["requested"][i, c] = requested(counts, thresholds, out["available"][i, c], i, c)
    for i, c in pairs:
        out["transmitted"][i, c] = transmitted(counts, thresholds, links, out["requested"], i, c)
        out["received"][i, c] = (1 - float(outage[i][links[i]])) * out["transmitted"][i, c]
    for i, c in pairs:
        sent = sum(out["received"][k, c] for k in range(num_devices) if links[k] == i)
        out["counts"][i, c] = float(counts[i][c]) + out["received"][i, c] - sent
    return out


def diversity_score(counts, thresholds, min_classes):
    """The score f of section III-C; a count within 1e-5 of its threshold reaches it."""
    scores = np.zeros(len(counts))
    for i in range(len(counts)):
        reached = 0
        for have, need in zip(counts[i], thresholds[i], strict=True):
            if float(have) >= float(need) * (1 - 1e-5):
                reached += 1
        scores[i] = reached if reached >= min_classes else 0
    return scores


def requested_between_clusters(requested, links, cluster):
    """The left side of eq. 2, [N] by label: points that the cluster asks of devices outside it."""
    total = np.zeros(len(links))
    for k in range(len(links)):
        for i in range(len(links)):
            if cluster[i] == k and cluster[links[i]] != k:
                total[k] += sum(float(points) for points in requested[i])
    return total


def rewards(
    score, outage, requested, links, cluster, budget, *, alpha_diversity, alpha_outage, alpha_budget, gamma
):
    """Local, global and overall reward of section III-C; `outage` [N] is that of the chosen links."""
    num_devices = len(links)
    inter = requested_between_clusters(requested, links, cluster)
    out = {name: np.zeros(num_devices) for name in ("local", "global_", "total")}
    for i in range(num_devices):
        out["local"][i] = alpha_diversity * float(score[i]) - alpha_outage * float(outage[i])
    mean = sum(out["local"]) / num_devices
    for i in range(num_devices):
        k = cluster[i]
        out["global_"][i] = mean + alpha_budget * (float(budget[k]) - inter[k])
        out["total"][i] = out["local"][i] + gamma * out["global_"][i]
    return out | {"requested_inter": inter}


def update(reward, tries, state, links, received_reward):
    """Section III-D: the two sums of the chosen links change, nothing else. Returns new `(reward, tries)`."""
    reward, tries = np.array(reward, float), np.array(tries, float)
    for i, j in enumerate(links):
        reward[state, i, j] += received_reward[i]
        tries[state, i, j] += 1
    return reward, tries


def rewards_of(network, state, links, settings):
    """One episode's rewards of every device, by name, when `links` are chosen in `state`."""
    outage = network["outage"][state]
    moved = exchange(network["counts"], network["thresholds"], network["trust"], links, outage)
    need = [[settings["score_fraction"] * float(c) for c in row] for row in network["thresholds"]]
    score = diversity_score(moved["counts"], need, settings["min_classes"])
    chosen = [outage[i][links[i]] for i in range(len(links))]
    weights = {name: settings[name] for name in ("alpha_diversity", "alpha_outage", "alpha_budget", "gamma")}
    cluster, budget = network["cluster"], network["budget"]
    return rewards(score, chosen, moved["requested"], links, cluster, budget, **weights)


def total_reward_of(network, state, links, settings):
    """Sum of the overall rewards: the objective of a central planner."""
    return float(sum(rewards_of(network, state, links, settings)["total"]))


def best_response_exhaustive(network, state, settings):
    """The best of all N^N link vectors, the first in index order if several are. Returns `(links, total)`."""
    num_devices = len(network["counts"])
    if num_devices > 4:
        raise ValueError(f"at most 4 devices can be enumerated; got {num_devices}")
    best, chosen = -math.inf, None
    for links in itertools.product(range(num_devices), repeat=num_devices):
        total = total_reward_of(network, state, links, settings)
        if total > best:
            best, chosen = total, links
    return np.array(chosen), best


def draw(uniform, probabilities):
    """Index drawn with the given probabilities from a uniform number, by inversion."""
    cumulative = 0.0
    for j, probability in enumerate(probabilities):
        cumulative += probability
        if uniform < cumulative:
            return j
    # Rounding can leave the last sum a little below 1.
    return max(j for j, probability in enumerate(probabilities) if probability > 0)


def greedy_links(reward, tries):
    """Per state and receiver the best of the tried links, [S, N]; the first if equal, self if none."""
    num_states, num_devices, _ = np.shape(reward)
    links = np.zeros((num_states, num_devices), int)
    for s in range(num_states):
        for i in range(num_devices):
            best, links[s, i] = -math.inf, i
            for j in range(num_devices):
                value = link_value(reward[s][i][j], tries[s][i][j], -math.inf)
                if value > best:
                    best, links[s, i] = value, j
    return links


WEIGHTS = ("alpha_diversity", "alpha_outage", "alpha_budget", "gamma")


def outcome(network, state, links, settings):
    """One episode: the overall rewards, [N], and the scalars of it that the learning curves average, by name."""
    num_devices, num_clusters = len(links), max(network["cluster"]) + 1
    outage = network["outage"][state]
    moved = exchange(network["counts"], network["thresholds"], network["trust"], links, outage)
    need = [[settings["score_fraction"] * float(c) for c in row] for row in network["thresholds"]]
    # A score without its own threshold counts the classes.
    number = diversity_score(moved["counts"], need, 0)
    earned = rewards_of(network, state, links, settings)
    reference = dict(zip(WEIGHTS, settings["reference_weights"], strict=True))
    valued = rewards_of(network, state, links, settings | reference)
    linked = [float(outage[i][links[i]]) for i in range(num_devices) if links[i] != i]
    inter = earned["requested_inter"]
    over = [max(inter[k] - float(network["budget"][k]), 0.0) for k in range(num_clusters)]
    return earned["total"], {
        "reward": sum(earned["total"]) / num_devices,
        "local_reward": sum(earned["local"]) / num_devices,
        "global_reward": sum(earned["global_"]) / num_devices,
        "reference_reward": sum(valued["total"]) / num_devices,
        "diverse_share": sum(n >= settings["min_classes"] for n in number) / num_devices,
        "num_classes": sum(number) / num_devices,
        "outage": sum(linked) / max(len(linked), 1),
        "requested_inter": sum(inter) / num_clusters,
        "over_budget": sum(over) / num_clusters,
    }


def softmax(reward, tries, state, settings):
    """The paper's policy, eq. 7."""
    initial_value, temperature = settings.get("initial_value", 0.0), settings.get("temperature", 1.0)
    return policy_probabilities(reward, tries, state, initial_value, temperature)


def entropy(probabilities):
    """Mean entropy of the policies of all devices, nats."""
    return sum(-p * math.log(p) for row in probabilities for p in row if p > 0) / len(probabilities)


def discover(network, settings, uniform, record_every, rule=softmax):
    """Section III, the whole of it: link formation, message passing, reward, update, episode after episode.

    `uniform` [E, 2 + N] holds numbers in [0, 1): of each episode, whether the channel stays in its state, which
    it goes to otherwise, and one for the link of each device. `rule` gives the probabilities [N, N] of the links.

    Returns the greedy `links` [S, N], `reward` and `tries` [S, N, N] and `history`: by name, the mean over each
    `record_every` episodes of what `outcome` gives, and the `entropy` of the policies after the last of them.
    """
    num_states, num_devices, _ = np.shape(network["outage"])
    reward, tries = np.zeros((2, num_states, num_devices, num_devices))
    state, scalars, history = 0, [], {}
    for episode, (stay, fresh, *draws) in enumerate(uniform):
        if episode == 0 or stay >= settings.get("stay_probability", 0.0):
            state = int(fresh * num_states)
        links = [draw(*pair) for pair in zip(draws, rule(reward, tries, state, settings), strict=True)]
        gained, of_episode = outcome(network, state, links, settings)
        reward, tries = update(reward, tries, state, links, gained)
        scalars.append(of_episode)
        if len(scalars) == record_every:
            means = {name: sum(one[name] for one in scalars) / record_every for name in of_episode}
            means["entropy"] = entropy(rule(reward, tries, state, settings))
            for name, value in means.items():
                history.setdefault(name, []).append(value)
            scalars = []
    return {"links": greedy_links(reward, tries), "reward": reward, "tries": tries, "history": history}


def transfer(labels, links, received, num_classes):
    """Number of points of each class that each device holds once whole points have moved, [N, L].

    `labels[i]` lists the class in each slot of device `i`, negative where the slot is empty; `received`
    [N, L] holds whole numbers. What arrives is not passed on: a device can send only what it had before.
    """
    holds = [[0] * num_classes for _ in labels]
    for i, slots in enumerate(labels):
        for label in slots:
            if label >= 0:
                holds[i][label] += 1
    left = [list(row) for row in holds]
    for i, j in enumerate(links):
        for c in range(num_classes):
            for _ in range(int(received[i][c])):
                if left[j][c] == 0:
                    raise ValueError(f"device {j} has no more points of class {c} to send")
                left[j][c] -= 1
                holds[j][c] -= 1
                holds[i][c] += 1
    return np.array(holds)


def transmit_power(distance, *, rate, noise_power, path_gain, path_exponent, outage):
    """Power control: eq. 1 solved for the power whose outage over `distance` is `outage`, W."""
    return (2.0**rate - 1) * noise_power * distance**path_exponent / (path_gain * -math.log1p(-outage))


def transmit_energy(bits, distance, *, rate, bandwidth, power=None, efficiency=1.0, circuit_power=0.0, **channel):
    """Energy to send `bits` over `distance`, J; `bandwidth` in Hz, so that `rate * bandwidth` is in bit/s.

    `power` is the fixed transmit power in W; without it the power is `transmit_power(distance, **channel)`.
    """
    if power is None:
        power = transmit_power(distance, rate=rate, **channel)
    seconds = bits / (rate * bandwidth)
    return seconds * (power / efficiency + circuit_power)


def weighted_average(models, weights):
    """Aggregation at the server: mean of the models, each weighted by its number of points."""
    total = sum(float(weight) for weight in weights)
    average = np.zeros(np.shape(models[0]))
    for index in np.ndindex(average.shape):
        for model, weight in zip(models, weights, strict=True):
            average[index] += float(weight) / total * float(np.asarray(model)[index])
    return average


def softmax_gradient(kernel, bias, x, y):
    """Gradient of the mean cross entropy of a linear model; `kernel` [F, L], `x` [B, F], `y` [B]."""
    num_features, num_classes = np.shape(kernel)
    d_kernel, d_bias = np.zeros((num_features, num_classes)), np.zeros(num_classes)
    for point, label in zip(x, y, strict=True):
        logits = [bias[c] + sum(point[f] * kernel[f][c] for f in range(num_features)) for c in range(num_classes)]
        weights = [math.exp(logit - max(logits)) for logit in logits]
        for c in range(num_classes):
            error = (weights[c] / sum(weights) - (c == label)) / len(y)
            d_bias[c] += error
            for f in range(num_features):
                d_kernel[f, c] += error * point[f]
    return d_kernel, d_bias


def sgd_step(kernel, bias, x, y, learning_rate, mu=0.0, anchor=None):
    """One local step of a linear softmax model; FedProx pulls it by `mu` towards `anchor`, (kernel, bias)."""
    kernel, bias = np.asarray(kernel, float), np.asarray(bias, float)
    anchor = (kernel, bias) if anchor is None else anchor
    d_kernel, d_bias = softmax_gradient(kernel, bias, x, y)
    new_kernel = kernel - learning_rate * (d_kernel + mu * (kernel - np.asarray(anchor[0], float)))
    return new_kernel, bias - learning_rate * (d_bias + mu * (bias - np.asarray(anchor[1], float)))
