"""All settings of a run in one record of plain Python, so that `--help` works without importing JAX."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def static(default: Any, rule: str = "") -> Any:
    """Declares a static field, whose value is part of the compiled program.

    Args:
        default: default value.
        rule: range of the value, in the form of `validation.keeps`; empty: no range.
    """
    return field(default=default, metadata={"static": True, "rule": rule})


def leaf(default: Any, rule: str = "") -> Any:
    """Declares a traced field, a leaf of the pytree; see `static` for the arguments."""
    return field(default=default, metadata={"rule": rule})


# Names in `data.built_in`; those with official files that `download` fetches are listed separately.
DownloadName = Literal["fashion_mnist", "cifar10"]
# `own`: custom data, `run(config, data=...)`.
DatasetName = Literal["radioml", DownloadName, "own"]
# The keys of `channel.MODELS`.
ChannelName = Literal["shadowing", "mobility"]
# The keys of `federated.SCHEMES`.
SchemeName = Literal["fedavg", "fedprox", "fedsgd"]
# The keys of `policies.BUILT_IN`.
PolicyName = Literal[
    "none",
    "uniform",
    "rl",
    "nearest",
    "best_response",
    "pooled",
    "exponential",
    "epsilon_greedy",
    "ucb",
    "thompson",
    "gumbel",
    "exp3",
    "commit",
    "offers",
    "informed",
    "matching",
    "exact",
]


# Current names of settings that had another name in earlier versions.
RENAMED = {
    "methods": "policies",
    "shadowing_deviation": "shadowing_std",
    "reliability_threshold": "max_outage",
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of one run; symbols as in the paper.

    Fields marked static fix a shape or pick code: each combination of them is one compiled program.
    All others are leaves of the pytree, so `vmap` over them is a sweep and no new number recompiles.
    A default that the paper gives says "As in the paper"; the paper does not give the others, which are ours.

    Attributes:
        dataset: Data set that the devices hold; own: your own data, given by `--data mine.npz` or in Python by
            `run(config, data=...)`. Static.
        data_dir: Folder of the data set; none: the usual folders, or synthesised in process (radioml). Static.
        min_snr: Lowest signal-to-noise ratio of the radio windows, dB; it has no effect on images. Static.
        policies: Policies that are compared in each run: how the devices choose their links. As in
            the paper. Static.
        num_devices: Number of devices `N`; by default that of the owners of points or of your own network, if
            given. As in the paper. Static.
        num_classes: Number of classes `L`; 0: those of the data set. As in the paper. Static.
        num_states: Number of channel states `S`; by default that of the given gains, if any. Static.
        field_size: Side of the square field, m.
        num_hotspots: Number of hot spots, around which the devices are placed. Static.
        hotspot_spread: Standard deviation of a device's distance to its hot spot along each axis, m.
        channel_model: What a channel state is: a draw of the shadowing, or a snapshot of moving devices. Static.
        shadowing_std: Standard deviation of the log-normal shadowing, dB.
        mobility_step: Standard deviation of a device's move between two snapshots along each axis, m.
        transmit_power: Transmit power `P_tx`, W; it sets the outage.
        reference_gain: Path gain `beta0` at 1 m, a ratio of powers.
        path_loss_exponent: Path loss exponent `a`: how fast the received power falls with distance.
        noise_power: Noise power `sigma^2`, W; by default -174 dBm/Hz over 1 MHz.
        rate: Rate `r` of a transmission, bit/s/Hz.
        stay_probability: Probability that the channel keeps its state from one episode to the next.
        max_outage: Largest outage probability `alpha_D` within a cluster.
        cluster_budget: Budget `B`: data points that each cluster may request over links from outside it.
        trust_probability: Probability that a device trusts another with a class.
        num_sensitive_classes: Number of classes that are trusted with `sensitive_trust_probability`, drawn per run.
        sensitive_trust_probability: Probability that a device trusts another with a sensitive class.
        partition: How points are distributed: some classes to each device, shares of each class drawn from a
            Dirichlet distribution, shards of a list sorted by class, or i.i.d.; own: set automatically if points
            have owners or your own network has counts. As in the paper. Static.
        classes_per_device: Classes that each device starts with, in partition k_classes. As in the paper. Static.
        concentration: Parameter `alpha` of partition dirichlet; the smaller, the fewer classes a device has.
        shards_per_device: Shards that each device starts with, in partition shards. Static.
        points_per_device: Data points that a device starts with, in partition dirichlet on average; 0: 990 for
            radioml, 1,200 for images, or the mean over the owners. As in the paper. Static.
        test_fraction: Share of each class, or of the points of each owner, that is held out for testing. As in
            the paper. Static.
        threshold: Threshold `c_i[l]`: data points that a device needs of each class, the same for all.
        min_classes: Number of classes `L-hat` that every device should hold.
        score_fraction: Fraction of the threshold that the score f requires; none: `1 - alpha_D`.
        num_episodes: Number of episodes `E` of policy training. Static.
        record_every: Episodes between two points of the recorded history, over which each is averaged; a divisor of
            `num_episodes`. Static.
        temperature: Divides the values in the softmax of eq. 7. As in the paper.
        initial_value: Value of an untried link; none: an upper bound of the reward. 0 is the literal reading.
        alpha_diversity: Weight `alpha_1` of the diversity score f in the reward.
        alpha_outage: Weight `alpha_2` of the outage of the chosen link.
        alpha_budget: Weight `alpha_3` of each data point above or below the cluster's budget.
        gamma: Weight `gamma` of the global reward.
        reference_weights: `alpha_1`, `alpha_2`, `alpha_3` and `gamma` of the reference reward, which compares
            graphs learned with different weights; no device learns from it.
        deployment: Whether the learned graph is the greedy one or a sample of the policy. Static.
        delivery: How many whole points arrive: the expected number, rounded down, or a binomial draw. Static.
        best_response_restarts: Number of starting graphs of the centralised best response. Static.
        best_response_sweeps: Passes over all devices from each starting graph. Static.
        power_mode: Whether energies use power control with an outage of `alpha_D`, or fixed powers. Static.
        bandwidth: Bandwidth `W`, Hz; it sets how long a transmission takes.
        d2d_power: Transmit power `P_D2D` between devices in mode fixed, W.
        d2s_power: Transmit power `P_D2S` to the server in mode fixed, W.
        amplifier_efficiency: Efficiency `eta` of the power amplifier: radiated over consumed power.
        circuit_power: Power `P_c` that the circuits of a transmitter consume, W.
        receive_power: Power `P_rx` that a receiver consumes, W.
        d2s_distance_ratio: Distance to the server over the mean distance between two devices. As in the paper.
        model: Model to train; auto: the default of the data set, of the kind that the paper names. Static.
        scheme: What is aggregated: models (fedavg), models held near the global one (fedprox), or gradients at
            every step (fedsgd). As in the paper. Static.
        num_steps: Number of local training steps `T`. Static.
        aggregation_interval: Local steps `tau_a` between two aggregations; a divisor of `num_steps`. Static.
        evaluate_every: Aggregations between two evaluations of the global model. Static.
        batch_size: Points in a minibatch. Static.
        learning_rate: Step size of the devices' optimiser; none: 0.05 for images, 0.2 for radio windows. Your own
            data or optimiser has no default.
        server_learning_rate: Step size of the server's optimiser; required if the recipe has one.
        proximal_weight: Weight `mu` of FedProx's proximal term.
        num_stragglers: Number of devices `m` whose update does not reach the server. As in the paper.
        straggler_draw: Whether the stragglers are drawn once per run or for each aggregation. Static.
    """

    dataset: DatasetName = static("radioml")
    data_dir: str | None = static(None)
    min_snr: int = static(0)
    policies: tuple[PolicyName, ...] = static(("none", "uniform", "rl"))

    num_devices: int = static(25, "at least 2")
    num_classes: int = static(0, "at least 1")
    num_states: int = static(10, "at least 1")
    field_size: float = leaf(400.0, "in (0, 1e7]")
    num_hotspots: int = static(5, "at least 1")
    hotspot_spread: float = leaf(45.0, "0 or more")
    channel_model: ChannelName = static("shadowing")
    shadowing_std: float = leaf(4.0, "in [0, 50]")
    mobility_step: float = leaf(20.0, "0 or more")
    transmit_power: float = leaf(0.01, "in [1e-12, 1e6]")
    reference_gain: float = leaf(1e-3, "in [1e-12, 1e3]")
    path_loss_exponent: float = leaf(3.75, "in (0, 10]")
    noise_power: float = leaf(3.981072e-15, "in [1e-25, 1e3]")
    rate: float = leaf(1.0, "in [0.001, 64]")
    stay_probability: float = leaf(0.0, "in [0, 1)")
    max_outage: float = leaf(0.1, "in [1e-12, 1)")
    cluster_budget: float = leaf(300.0, "0 or more")
    trust_probability: float = leaf(0.75, "in [0, 1]")
    num_sensitive_classes: int = leaf(0, "0 or more")
    sensitive_trust_probability: float = leaf(0.2, "in [0, 1]")

    partition: Literal["k_classes", "dirichlet", "shards", "iid", "own"] = static("k_classes")
    classes_per_device: int = static(4, "at least 1")
    concentration: float = leaf(0.5, "positive")
    shards_per_device: int = static(2, "at least 1")
    points_per_device: int = static(0, "at least 1")
    test_fraction: float = static(0.2, "inside (0, 1)")
    threshold: float = leaf(60.0, "in [0.001, 1e9]")
    min_classes: int = leaf(6, "0 or more")
    score_fraction: float | None = leaf(None, "in [0.001, 1]")

    num_episodes: int = static(4000, "at least 1")
    record_every: int = static(40, "at least 1")
    temperature: float = leaf(1.0, "positive")
    initial_value: float | None = None
    alpha_diversity: float = leaf(1.0, "0 or more")
    alpha_outage: float = leaf(2.0, "0 or more")
    alpha_budget: float = leaf(0.001, "0 or more")
    gamma: float = leaf(0.5, "0 or more")
    reference_weights: tuple[float, float, float, float] = leaf((1.0, 2.0, 0.001, 0.5), "0 or more")
    deployment: Literal["greedy", "sampled"] = static("greedy")
    delivery: Literal["expected", "sampled"] = static("expected")
    best_response_restarts: int = static(16, "at least 1")
    best_response_sweeps: int = static(6, "at least 1")

    power_mode: Literal["power_control", "fixed"] = static("power_control")
    bandwidth: float = leaf(1e6, "in [1, 1e12]")
    d2d_power: float = leaf(0.01, "in (0, 1e6]")
    d2s_power: float = leaf(0.25, "in (0, 1e6]")
    amplifier_efficiency: float = leaf(1.0, "in [0.001, 1]")
    circuit_power: float = leaf(0.0, "in [0, 1e6]")
    receive_power: float = leaf(0.0, "in [0, 1e6]")
    d2s_distance_ratio: float = leaf(3.0, "in [0.001, 1e6]")

    model: Literal["auto", "mlp", "image_cnn", "radio_cnn", "vt_cnn2"] = static("auto")
    scheme: SchemeName = static("fedavg")
    num_steps: int = static(500, "at least 1")
    aggregation_interval: int = static(50, "at least 1")
    evaluate_every: int = static(1, "at least 1")
    batch_size: int = static(32, "at least 1")
    learning_rate: float | None = leaf(None, "positive")
    server_learning_rate: float | None = leaf(None, "positive")
    proximal_weight: float = leaf(0.01, "0 or more")
    num_stragglers: int = leaf(0, "0 or more")
    straggler_draw: Literal["run", "aggregation"] = static("run")
