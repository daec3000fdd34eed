"""Policies from outside the package: their information, policies for one or all devices, and their faults."""

import math
import re
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from own_ideas import UCB, EpsilonGreedy, NeuralSoftmax, ring
from own_ideas import recipe as RECIPE  # noqa: N812
from test_discovery import as_oracle, draws

import d2djax
from d2djax import check_policy, per_device
from d2djax.discovery import best_links, discover, learn
from d2djax.episode import exchange_and_reward, prepare
from d2djax.information import feedback_of, known_of
from d2djax.parts import as_arrays
from d2djax.policies import candidates_of
from d2djax.policies.check import SMALL
from d2djax.rng import run_key
from d2djax.running import plan, programs, results
from d2djax.searching import searches


def policy_class(**parts):
    """A copy of `Mean` with some parts replaced."""
    kind = type("Changed", (Mean,), parts)
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(kind))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mean:
    """Softmax over mean rewards, written as plainly as possible."""

    temperature: Any = 1.0
    information = "own"

    def init(self, key, known, config):
        return {"sum": jnp.zeros((known.num_states, known.num_devices, known.num_devices))} | {
            "tries": jnp.zeros((known.num_states, known.num_devices, known.num_devices))
        }

    def weights(self, key, memory, state):
        mean = memory["sum"][state] / jnp.maximum(memory["tries"][state], 1)
        return jnp.exp((mean - mean.max(-1, keepdims=True)) / self.temperature)

    def update(self, memory, state, links, feedback):
        device = jnp.arange(links.shape[0])
        add = lambda name, what: memory[name].at[state, device, links].add(what)  # noqa: E731
        return {"sum": add("sum", feedback.reward), "tries": add("tries", 1.0)}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneDevice:
    """The same rule, written for one device."""

    temperature: Any = 1.0
    information = "own"

    def init(self, key, known, config):
        assert known.outage.shape == (known.num_states, known.num_devices) and known.counts.ndim == 1
        return jnp.zeros((2, known.num_states, known.num_devices))

    def weights(self, key, memory, state):
        mean = memory[0, state] / jnp.maximum(memory[1, state], 1)
        return jnp.exp((mean - mean.max()) / self.temperature)

    def update(self, memory, state, link, feedback):
        return memory.at[:, state, link].add(jnp.stack([feedback.reward, jnp.float32(1)]))


@pytest.fixture(scope="module")
def network(tiny_networks):
    return jax.tree.map(lambda leaf: leaf[3], tiny_networks)


def test_rule_for_one_device_is_the_rule_for_all(network, tiny_config):
    both = [
        jax.jit(lambda rule=rule: learn(rule, run_key(3), network, tiny_config))()
        for rule in (Mean(), per_device(OneDevice()))
    ]
    np.testing.assert_array_equal(both[0].links, both[1].links)
    np.testing.assert_allclose(both[0].history.reward, both[1].history.reward, rtol=1e-6)


def test_literal_reading_of_the_paper_is_a_mean_of_own_rewards(network, tiny_config):
    config = replace(tiny_config, initial_value=0.0)
    found = jax.jit(discover)(run_key(3), network, config)
    own = jax.jit(lambda: learn(Mean(), run_key(3), network, config))()
    np.testing.assert_allclose(found.buffer.reward, own.memory["sum"], rtol=1e-5)
    np.testing.assert_array_equal(found.buffer.tries, own.memory["tries"])


def test_level_of_information_decides_what_is_there(network, tiny_config):
    prepared = prepare(network, tiny_config)
    told = feedback_of(*exchange_and_reward(prepared, 0, jnp.array([1, 0, 0, 2, 3, 3]), tiny_config), "own")
    assert told.reward.shape == (6,)
    with pytest.raises(
        AttributeError, match="'received' is not visible to a policy with information='own'; level 'heard'"
    ):
        _ = told.received
    known = known_of(prepared, "heard")
    assert known.offers.shape == (6, 6, 5) and known.num_states == 3
    with pytest.raises(AttributeError, match="level 'all' has it"):
        _ = known.network
    assert known_of(prepared, "all").network.rss.shape == (3, 6, 6)
    np.testing.assert_array_equal(known.outage[4, 2], network.outage[2, 4])


def wrong(name, what):
    return lambda self, *arguments: what(getattr(Mean, name)(self, *arguments))


def beside_others(self, key, memory, state):
    """Weights by a function of NumPy, which takes the mean over all runs of a batch."""
    mean = memory["sum"][state] / jnp.maximum(memory["tries"][state], 1)
    above = lambda values: np.float32(0.1 + (values > np.mean(values)))  # noqa: E731
    return jax.pure_callback(above, jax.ShapeDtypeStruct(mean.shape, mean.dtype), mean, vmap_method="broadcast_all")


def colder(self, key, memory, state):
    """Softmax whose temperature falls below 0 after some hundred episodes."""
    mean = memory["sum"][state] / jnp.maximum(memory["tries"][state], 1)
    return jnp.exp((mean - mean.max(-1, keepdims=True)) / jnp.sqrt(300.0 - memory["tries"][state].sum(-1).max()))


def by_size(self, key, memory, state):
    return Mean.weights(self, key, memory, state) if self.temperature < 2 else jnp.ones((5, 5))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WholeUCB(UCB):
    width: int = 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Fixed(Mean):
    """A policy with a number that is not a leaf."""

    slope: float = field(default=1.0, metadata={"static": True})


@pytest.fixture(scope="module")
def checked():
    """`checked(policy, num_episodes)`: its faults."""
    return lambda policy, num_episodes=50: check_policy(
        policy, replace(SMALL, num_episodes=num_episodes, record_every=num_episodes)
    )


FAULTS = {
    "shape": (
        policy_class(update=wrong("update", lambda memory: memory | {"sum": memory["sum"][0]})),
        "shape and type of every part of the memory; ['sum'] float32[2, 5, 5] becomes ['sum'] float32[5, 5]",
    ),
    "type": (
        policy_class(update=wrong("update", lambda memory: memory | {"sum": memory["sum"].astype(int)})),
        "['sum'] float32[2, 5, 5] becomes ['sum'] int32[2, 5, 5]",
    ),
    "negative": (
        policy_class(weights=wrong("weights", lambda weight: weight - 0.9)),
        "weights must be 0 or more; got -0.8",
    ),
    "no weight": (
        policy_class(weights=wrong("weights", lambda weight: weight.at[1].set(0.0))),
        "a finite sum above 0; some row does not within the first episodes",
    ),
    "neighbours": (
        policy_class(weights=beside_others),
        "weights under vmap must equal weights of each run alone",
    ),
    "numbers of devices": (
        policy_class(weights=wrong("weights", lambda weight: weight * jnp.arange(1.0, 6.0))),
        "weights must not depend on how devices are numbered",
    ),
    "a number is compared": (
        policy_class(weights=by_size),
        "numbers of a policy must stay traced",
    ),
    "a number is fixed": (Fixed, "slope is not, so each new value recompiles"),
    "no such device": (
        policy_class(best=lambda self, memory: jnp.full(memory["sum"].shape[:2], 5)),
        "links of best must be in 0..4 for 5 devices; got 5",
    ),
    "not a number": (lambda: Mean(math.nan), "temperature must be a finite number; got nan"),
    "not hashable": (policy_class(__hash__=None), "the policy must be hashable except for its numbers"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(checked, fault):
    kind, message = FAULTS[fault]
    found = checked(kind())
    assert len(found) == 1 and message in found[0], found


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Warm(Mean):
    """A policy whose memory starts with its number; its weights have a fault."""

    temperature: float = 1.0

    def init(self, key, known, config):
        return jax.tree.map(lambda leaf: jnp.full(leaf.shape, self.temperature), super().init(key, known, config))

    def weights(self, key, memory, state):
        return -jnp.ones(memory["sum"].shape[1:])


def test_a_whole_number_for_a_real_one_is_no_fault(checked):
    assert checked(Warm(2)) == ["weights must be 0 or more; got -1 within the first episodes"]


def test_per_device_names_what_it_takes():
    with pytest.raises(ValueError, match="per_device takes a policy with information 'own' or 'heard'; got 3"):
        per_device(3)


def test_numbers_that_are_lost_after_many_episodes_are_found(checked):
    kind = policy_class(weights=colder)
    assert checked(kind()) == []
    assert checked(kind(), 1000) == ["weights must be numbers; some are NaN after 1,000 episodes"]


@pytest.mark.parametrize(
    "policy",
    [Mean(), per_device(OneDevice()), EpsilonGreedy(), NeuralSoftmax()],
    ids=lambda one: type(one).__name__,
)
def test_sound_policies_have_no_faults(checked, policy):
    assert checked(policy) == []


# --- in runs, sweeps and searches ---


@pytest.fixture(scope="module")
def options(tiny_dataset):
    return {"data": tiny_dataset, "training": False, "progress": False}


@pytest.fixture(scope="module")
def two(tiny_config):
    return replace(tiny_config, policies=("uniform", "rl"))


@pytest.fixture(scope="module")
def found(two, options):
    return d2djax.run(two, 2, recipe=RECIPE, **options)


def test_own_policies_stand_beside_those_of_the_package(found, two):
    assert found["policy"].values.tolist() == ["uniform", "rl", "my_ucb", "greedy", "neural", "ring"]
    assert (found["status"] == 0).all()
    np.testing.assert_array_equal(found["links"].sel(policy="ring")[0, 0], [1, 2, 3, 4, 5, 0])
    learns = found["discovery_reward"].notnull().all(["run", "episode"])
    assert learns.values.tolist() == [False, True, True, True, True, False]
    # In discovery as often as rl, and once for the exchange.
    messages = found["control_energy"].mean("run")
    assert messages.sel(policy="my_ucb") == messages.sel(policy="rl")
    ratio = messages.sel(policy="my_ucb") / messages.sel(policy="ring")
    assert ratio.item() == pytest.approx(1 + two.num_episodes, rel=1e-5)


def test_own_policies_learn(found, two, options):
    entropy = found["discovery_entropy"]
    # With one best link of six, and a tenth of the weight for all of them.
    share = np.array([0.9 + 0.1 / 6, *[0.1 / 6] * 5])
    np.testing.assert_allclose(entropy.sel(policy="greedy").min(), -np.sum(share * np.log(share)), rtol=1e-5)
    # UCB1 asks for each link once before any twice, and then for one at a time, but for ties.
    assert (entropy.sel(policy="my_ucb")[:, -1] < 0.3).all()
    # The network whose steps are 0 stays as it began; the programs are the same.
    before = programs.num_compiled()
    recipe = d2djax.Recipe(policies={**RECIPE.policies, "neural": NeuralSoftmax(0.0)})
    still = d2djax.run(two, 2, recipe=recipe, **options)["discovery_entropy"]
    assert (still.sel(policy="neural") != entropy.sel(policy="neural")).all() and programs.num_compiled() == before
    np.testing.assert_array_equal(still.drop_sel(policy="neural"), entropy.drop_sel(policy="neural"))


def test_own_policies_change_nothing_for_the_others(found, two, options):
    alone = d2djax.run(two, 2, **options)
    for name, one in alone.items():
        beside = found[name].sel(policy=["uniform", "rl"]) if "policy" in one.dims else found[name]
        np.testing.assert_array_equal(one, beside, err_msg=str(name))


def plain_ucb(total, tries, state, settings):
    """UCB1 in plain loops, as `oracle.discover` asks for it: equal shares of the links with the largest bound."""
    probabilities = np.zeros(tries[state].shape)
    for device, (sums, counts) in enumerate(zip(total[state], tries[state], strict=True)):
        seen = math.log1p(sum(counts))
        bounds = [
            earned / count + settings["width"] * math.sqrt(seen / count) if count else math.inf
            for earned, count in zip(sums, counts, strict=True)
        ]
        best = [link for link, bound in enumerate(bounds) if bound == max(bounds)]
        probabilities[device, best] = 1 / len(best)
    return probabilities


def plain_discovery(network, key, config):
    """Discovery by UCB1 of width 1 in plain loops, and the mode of its weights in each state."""
    network, settings = as_oracle(network, config)
    settings |= {"width": 1.0}
    uniform = np.asarray(draws(key, config), float)
    plain = oracle.discover(network, settings, uniform, config.record_every, plain_ucb)
    states = range(config.num_states)
    return plain, [plain_ucb(plain["reward"], plain["tries"], state, settings).argmax(1) for state in states]


def test_ucb_is_the_plain_loop(network, tiny_config):
    got = jax.jit(lambda: learn(UCB(1.0), run_key(3), network, tiny_config))()
    plain, links = plain_discovery(network, run_key(3), tiny_config)
    np.testing.assert_array_equal(got.memory[1], plain["tries"])
    np.testing.assert_allclose(got.memory[0], plain["reward"], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got.links, links)
    for name, curve in plain["history"].items():
        np.testing.assert_allclose(getattr(got.history, name), curve, rtol=1e-4, atol=1e-5, err_msg=name)


def test_learning_curves_of_a_run_are_those_of_the_plain_loop(found, tiny_networks, two):
    for seed in (0, 1):
        network = jax.tree.map(lambda leaf, seed=seed: leaf[seed], tiny_networks)
        plain, links = plain_discovery(network, run_key(seed), two)
        ucb = found.sel(policy="my_ucb", run=seed)
        np.testing.assert_array_equal(ucb["links"], links)
        for name, curve in plain["history"].items():
            np.testing.assert_allclose(ucb[f"discovery_{name}"], curve, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def swept(found, two, tmp_path_factory, options):
    axes, out = {"my_ucb.width": [0.5, 1, 4], "gamma": [0.0, two.gamma]}, tmp_path_factory.mktemp("swept")
    before = programs.num_compiled()
    results = d2djax.sweep(two, axes, 2, out, recipe=RECIPE, **options)
    return out, axes, results, programs.num_compiled() - before


def test_numbers_of_own_policies_are_axes(swept, found):
    _, _, results, _ = swept
    one = results.sel({"my_ucb.width": 1, "gamma": results["gamma"][1]})
    for name in ("links", "discovery_reward", "control_energy"):
        np.testing.assert_array_equal(one[name], found[name], err_msg=name)
    ucb = results["discovery_reward"].sel(policy="my_ucb")
    assert (ucb.sel({"my_ucb.width": 0.5}) != ucb.sel({"my_ucb.width": 4})).any()
    assert (results["links"].sel(policy="rl").std("my_ucb.width") == 0).all()


def test_another_number_compiles_nothing(swept, found):
    # The programs are those of `found`.
    assert swept[3] == 0


def test_a_stopped_sweep_with_own_policies_goes_on(swept, two, tmp_path, options, monkeypatch, stopping):
    _, axes, whole, _ = swept
    monkeypatch.setattr(plan, "_most_runs", lambda *_: 4)
    with stopping(1), pytest.raises(KeyboardInterrupt):
        d2djax.sweep(two, axes, 2, tmp_path, recipe=RECIPE, **options)
    assert 0 < results.read(tmp_path / "results.zarr")["done"].sum() < 12
    again = d2djax.sweep(two, axes, 2, tmp_path, recipe=RECIPE, **options)
    for name in again.data_vars:
        np.testing.assert_array_equal(again[name], whole[name], err_msg=str(name))


def test_a_sweep_with_own_policies_grows_and_knows_its_code(swept, two, options):
    out, axes, _, _ = swept
    grown = d2djax.sweep(two, axes | {"my_ucb.width": [0.5, 1, 2, 4]}, 2, out, recipe=RECIPE, **options)
    assert grown.sizes["my_ucb.width"] == 4

    changed = policy_like(
        UCB, weights=lambda self, key, memory, state: UCB.weights(self, key, memory, state) + 1e-3
    )
    recipe = d2djax.Recipe(policies={**RECIPE.policies, "my_ucb": changed(1.0)})
    with pytest.raises(ValueError, match=r"holds the results of another sweep \(recipe.policies.my_ucb"):
        d2djax.sweep(two, axes, 2, out, recipe=recipe, **options)


def policy_like(base, **parts):
    """A copy of a policy with some parts replaced."""
    kind = type("Changed", (base,), parts)
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(kind))


def test_numbers_of_own_policies_are_sought(two, tmp_path, options):
    ranges = {"my_ucb.width": d2djax.Uniform(0, 3)}
    given = {"policy": "my_ucb", "recipe": RECIPE, "progress": False, "data": options["data"]}
    study = searches.search(two, ranges, ["reward"], 3, 2, tmp_path, batch=3, **given)
    trials = searches.trials_of(study)
    assert trials.sizes == {"trial": 3, "run": 2} and (trials["my_ucb.width"] >= 0).all()
    best = study.best_trial
    recipe = d2djax.Recipe(policies={"my_ucb": UCB(best.params["my_ucb.width"])})
    again = d2djax.run(replace(two, policies=()), 2, recipe=recipe, **options)
    assert again["graph_reference_reward"].mean().item() == pytest.approx(best.value, rel=1e-6)


@pytest.mark.parametrize(
    "policies, message",
    [
        ({"my_ucb": UCB}, "policies['my_ucb'] must be an object, such as UCB(); got the class itself"),
        ({"mine": 3}, "policies['mine'] must be a policy with init, weights and update, or a function"),
        ({"two words": ring}, "the name of a policy must be a word"),
        ([UCB()], "policies must be a dict of names and policies; got list"),
        (
            {"mine": policy_like(UCB, information="more")()},
            "must be one of own, heard, all; got 'more'",
        ),
        ({"mine": policy_like(UCB, update=None)()}, "must have init, weights and update; Changed lacks update"),
        ({"mine": dataclass(frozen=True)(type("Bare", (UCB,), {}))()}, "@jax.tree_util.register_dataclass"),
        ({"mine": UCB("wide")}, "must consist of numbers and arrays; got 'wide'"),
        ({"mine": UCB(jax.random.key(0))}, "must consist of numbers and arrays; got "),
        ({"mine": WholeUCB(2**31)}, "policies['mine'].width must be a whole number below 2**31; got 2147483648"),
        ({"mine": UCB(1e300)}, "policies['mine'].width must be a number that single precision holds; got 1e+300"),
        ({"mine": UCB(float("nan"))}, "policies['mine'].width must be a finite number; got nan"),
        ({"mine": UCB(np.array([1, 2**40]))}, "width must be numbers of 32 bits; got 1099511627776 at [1]"),
        ({"mine": UCB(np.array([1.0, np.inf]))}, "width must be finite numbers that single precision holds"),
    ],
)
def test_what_is_no_policy_is_refused(policies, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        d2djax.Recipe(policies=policies)
    assert "\n" not in str(caught.value)


def test_a_name_stands_for_one_policy():
    # A recipe keeps its meaning when the package gets a policy of the same name.
    own = {"ucb": UCB()}
    found = candidates_of(d2djax.Config(policies=("none",)), own)
    assert type(found["ucb"].rule) is UCB and list(found) == ["none", "ucb"]
    with pytest.raises(ValueError, match=r"policies\['ucb'\] must have another name: .* names the built-in ucb"):
        candidates_of(d2djax.Config(policies=("none", "ucb")), own)


@pytest.mark.parametrize(
    "axes, message",
    [
        ({"my_ucb.widht": [1.0]}, "did you mean 'my_ucb.width'"),
        ({"ring.width": [1.0]}, "must be a setting"),
        ({"my_ucb.width": ["wide"]}, "my_ucb.width must be a number; got 'wide'"),
        ({"my_ucb.width": [1.0, np.inf]}, "my_ucb.width must be a finite number"),
        ({"my_ucb.width": [1.0, 1.0]}, "must not repeat a value"),
    ],
)
def test_what_is_no_number_of_a_policy_is_refused(two, tmp_path, axes, message, options):
    with pytest.raises(ValueError, match=message):
        d2djax.sweep(two, axes, 1, tmp_path, recipe=RECIPE, **options)
    assert not any(tmp_path.iterdir())


def test_numbers_of_32_bits_stay_what_they_are():
    for number in (2**31 - 1, -(2**31) + 1, np.uint32(7), True, np.array([2**32 - 1], np.uint32), 1.5):
        kept = as_arrays(d2djax.Recipe(policies={"mine": WholeUCB(number)}).numbered)["mine"].width
        np.testing.assert_array_equal(kept, number)


def test_no_policy_at_all_is_refused(two, options):
    with pytest.raises(ValueError, match="policies must name at least one policy"):
        d2djax.run(replace(two, policies=()), 1, **options)


# --- faults of code from outside are reported before it compiles ---


@pytest.fixture(scope="module")
def refused(two, options):
    """`refused(rule)`: the line that a run says of a policy or function."""

    def refuse(rule):
        with pytest.raises(ValueError, match="policies") as caught:
            d2djax.run(replace(two, policies=()), 1, recipe=d2djax.Recipe(policies={"mine": rule}), **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refuse


WRONG_CODE = {
    "weights [N]": (
        policy_class(weights=wrong("weights", lambda weight: weight[0]))(),
        ".weights must be [N, N] = [6, 6]; got [6]",
    ),
    "no weights": (
        policy_class(weights=wrong("weights", lambda weight: None))(),
        ".weights must be [N, N] = [6, 6]; got None",
    ),
    "memory": (
        policy_class(update=wrong("update", lambda memory: memory | {"sum": memory["sum"][0]}))(),
        ".update must keep the shape and type of every part of the memory; ['sum'] float32[3, 6, 6] becomes",
    ),
    "best": (
        policy_class(best=lambda self, memory: jnp.zeros(6, int))(),
        ".best must return links, whole numbers [S, N] = [3, 6]; got int32[6]",
    ),
    "best of 64 bits": (
        policy_class(best=lambda self, memory: np.full((3, 6), 2**32 + 1))(),
        ".best must be in 0..5 for 6 devices; got 4294967297 at [0, 0]",
    ),
    "links of 64 bits": (
        lambda key, network, config: np.full((3, 6), 2**32 + 1),
        " must be in 0..5 for 6 devices; got 4294967297 at [0, 0]",
    ),
    "information of a number": (
        policy_class(information=property(lambda self: "all" if self.temperature > 1 else "own"))(),
        ".information: TracerBoolConversionError: Attempted boolean conversion of traced array",
    ),
    "error": (
        policy_class(init=lambda self, key, known, config: known.nothing)(),
        ".init: AttributeError: 'nothing' is not visible",
    ),
    "arguments": (lambda key: None, ": TypeError: <lambda>() takes 1 positional argument but 3 were given"),
}


@pytest.mark.parametrize("name", WRONG_CODE)
def test_wrong_code_is_told_in_one_line(refused, name):
    rule, message = WRONG_CODE[name]
    line = refused(rule)
    assert line.removeprefix("links of ").startswith("policies['mine']") and message in line, line


def test_weights_that_are_none_show_in_the_results(two, options):
    less = policy_like(EpsilonGreedy, weights=lambda self, *given: EpsilonGreedy.weights(self, *given) - 0.5)
    recipe = d2djax.Recipe(policies={"less": less(), "ring": ring})
    found = d2djax.run(replace(two, policies=()), 1, recipe=recipe, **options)
    assert found["status"].values.tolist() == [[2, 0]]
    assert found["discovery_reward"].isnull().all()
    # The mode of such weights is device 0, whose graph is worth something and is nothing that was learned.
    for name in ("graph_reward", "graph_outage", "graph_reference_reward", "exchange_energy"):
        assert found[name].sel(policy="less").isnull().all() and found[name].sel(policy="ring").notnull().all(), (
            name
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Exhausted:
    """Weights that are no numbers, after the last episode, in the states that it was not in; and a best graph."""

    information = "own"

    def init(self, key, known, config):
        return jnp.int32(config.num_episodes), jnp.int32(0)

    def weights(self, key, memory, state):
        left, last = memory
        return jnp.where((left > 0) | (state == last), 1.0 - jnp.eye(6), jnp.nan)

    def update(self, memory, state, links, feedback):
        return memory[0] - 1, state

    def best(self, memory):
        return jnp.broadcast_to((jnp.arange(6) + 1) % 6, (3, 6))


@pytest.mark.parametrize("deployment, status", [("greedy", 0), ("sampled", 2)])
def test_what_is_drawn_from_weights_that_are_none_is_no_graph(two, options, deployment, status):
    config = replace(two, policies=(), deployment=deployment, num_episodes=20, record_every=20)
    found = d2djax.run(
        config, 1, recipe=d2djax.Recipe(policies={"tired": Exhausted()}), **options | {"training": False}
    )
    assert found["status"].values.tolist() == [[status]]
    assert bool(found["graph_reward"].isnull().all()) is bool(status)
    assert bool((found["links"] == -1).all()) is bool(status)


def test_a_state_that_no_episode_was_in_has_a_graph_too():
    rule = SimpleNamespace(weights=lambda key, memory, state: jnp.eye(3) * (state < memory))
    links, is_graph = best_links(rule, None, 2, 2)
    assert links.tolist() == [[0, 1, 2]] * 2 and is_graph
    assert not best_links(rule, None, 1, 2)[1]


def test_a_whole_number_in_a_real_field_is_real():
    recipe = d2djax.Recipe(
        policies={"my_ucb": UCB(2), "one": per_device(UCB(3)), "ring": ring, "whole": WholeUCB(2)}
    )
    assert type(recipe.numbered["whole"].width) is int
    assert recipe.numbered["my_ucb"] == UCB(2.0) and type(recipe.numbered["my_ucb"].width) is float
    assert recipe.policies["ring"] is ring
    drawn = d2djax.random_points({"my_ucb.width": d2djax.Uniform(0, 4)}, 5, 0, recipe.numbered)
    assert any(point["my_ucb.width"] % 1 for point in drawn)
    drawn = d2djax.random_points({"one.width": d2djax.Uniform(0, 4)}, 5, 0, recipe.numbered)
    assert any(point["one.width"] % 1 for point in drawn)
