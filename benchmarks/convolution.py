"""SGD steps of the image network with separate weights per device: d2djax, nn.Conv, PyTorch, products alone."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.__main__ import main
from benchmarks.harness import Contestant, Report, Target, compiled, missing, race, ratio
from d2djax.models import ImageCNN
from d2djax.running.programs import make_mesh

NAME = "convolution"
OURS, OURS_MAP = "d2djax, vmap", "d2djax, lax.map"
FLAX, FLAX_ONE = "nn.Conv, vmap, no loop", "nn.Conv, one client, no loop"
FLAX_SCAN, FLAX_MAP = "nn.Conv, vmap in scan", "nn.Conv, lax.map in scan"
TORCH = "PyTorch, loop over clients"
XLA_PRODUCTS, NUMPY_PRODUCTS = "its products alone, XLA", "its products alone, NumPy"
CLASSES, LEARNING_RATE = 10, 0.01
# Largest difference between two steps, relative to a step, that rounding explains.
CLOSE = 1e-4
SPLIT = PartitionSpec("run")


@dataclass(frozen=True)
class Sizes:
    """How much is timed.

    Attributes:
        clients: devices that train, each with its own weights.
        minibatch: images of a step.
        side: pixels of an image's side.
        steps: steps of every client in one call; `nn.Conv` takes one, since it is slow.
        few: clients of `nn.Conv` in loops, where it is slowest.
        repeats: rounds.
    """

    clients: int
    few: int
    minibatch: int
    side: int
    steps: int
    repeats: int


FULL = Sizes(clients=10, few=5, minibatch=32, side=32, steps=4, repeats=5)
TOY = Sizes(clients=2, few=2, minibatch=2, side=8, steps=2, repeats=2)


class FlaxCNN(nn.Module):
    """`ImageCNN` written in plain Flax, with the same parameters."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Logits [B, L] of images [B, H, W, C]."""
        for features in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(CLASSES)(x)


def shifts(num_steps: int) -> np.ndarray:
    """Offsets added to the images in each step of a client, [num_steps] float32."""
    return np.linspace(0.0, 0.1, num_steps, dtype=np.float32)


def local_steps(network: nn.Module, over_clients: Callable, num_steps: int | None) -> Callable:
    """A function from (parameters, x, y), each with a leading axis of clients, to the parameters after the steps.

    Args:
        network: maps images to logits.
        over_clients: `jax.vmap`, or another transformation from a function of one client to one of all clients.
        num_steps: steps of each client, in a scan as in federated training; none: a single one, without a scan.
    """

    def loss(parameters: Any, x: Array, y: Array) -> Array:
        logits: Any = network.apply(parameters, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def step(parameters: Any, x: Array, y: Array) -> Any:
        gradient = jax.grad(loss)(parameters, x, y)
        return jax.tree.map(lambda leaf, slope: leaf - LEARNING_RATE * slope, parameters, gradient)

    def steps(parameters: Any, x: Array, y: Array) -> Any:
        # Shifted images make the steps differ, so that XLA cannot share work on the images between steps.
        shifted = lambda parameters, shift: (step(parameters, x + shift, y), None)  # noqa: E731
        return jax.lax.scan(shifted, parameters, jnp.asarray(shifts(num_steps or 1)))[0]

    return over_clients(step if num_steps is None else steps)


def looped(client: Callable) -> Callable:
    """As `jax.vmap(client)`, but one client after the other."""
    return lambda *arguments: jax.lax.map(lambda each: client(*each), arguments)


def first_alone(client: Callable) -> Callable:
    """As `jax.vmap(client)`, but of the first client only, without an axis of clients in the result."""
    return lambda *arguments: client(*jax.tree.map(lambda leaf: leaf[0], arguments))


def on_all(function: Callable, mesh: Mesh) -> Callable:
    """As in `map_runs`: each JAX device (on a CPU, each core) computes its own run."""

    def one_run(*arguments: Any) -> Any:
        found = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], found)

    return jax.jit(jax.shard_map(one_run, mesh=mesh, in_specs=SPLIT, out_specs=SPLIT, check_vma=False))


def spread_out(tree: Any, mesh: Mesh) -> Any:
    """A copy of every leaf for each JAX device, with a leading axis of runs."""
    copies = lambda leaf: np.broadcast_to(np.asarray(leaf), (mesh.size, *leaf.shape))  # noqa: E731
    return jax.device_put(jax.tree.map(copies, tree), NamedSharding(mesh, SPLIT))


def example(sizes: Sizes) -> tuple[Any, Array, Array]:
    """Initial parameters, different for every client, and a minibatch of random images and labels for each."""
    keys = jax.random.split(jax.random.key(0), sizes.clients)
    x = jax.random.normal(keys[0], (sizes.clients, sizes.minibatch, sizes.side, sizes.side, 3))
    y = jax.random.randint(keys[0], (sizes.clients, sizes.minibatch), 0, CLASSES)
    return jax.vmap(ImageCNN(CLASSES).init, in_axes=(0, None))(keys, x[0]), x, y


def shapes(sizes: Sizes) -> list[tuple[int, int, int]]:
    """(rows, inputs, outputs) of the matrix product that each layer computes for one client."""
    points = sizes.minibatch * sizes.side**2
    flat = (sizes.side // 4) ** 2 * 64
    return [
        (points, 9 * 3, 32),
        (points // 4, 9 * 32, 64),
        (sizes.minibatch, flat, 128),
        (sizes.minibatch, 128, CLASSES),
    ]


def gflop(sizes: Sizes) -> float:
    """10^9 operations of a client's step: three products per layer, two in the first, whose input is fixed."""
    layers = shapes(sizes)
    return sum(2e-9 * (3 if layer else 2) * m * k * n for layer, (m, k, n) in enumerate(layers))


def operands(sizes: Sizes) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs, weights [clients, ...] and gradients of the outputs of each layer; random."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32)  # noqa: E731
    return [(draw(m, k), draw(sizes.clients, k, n), draw(m, n)) for m, k, n in shapes(sizes)]


def xla_products(layers: list[Any]) -> Array:
    """The products of a step of every client, each in the orientation that XLA's CPU does fastest."""

    def client(weights: list[Array]) -> Array:
        found = []
        for number, ((x, _, slope), weight) in enumerate(zip(layers, weights, strict=True)):
            # Barriers keep XLA from hoisting a product out of the loop, or computing the number read from it alone.
            x, weight, slope = jax.lax.optimization_barrier((x, weight, slope))
            products = [x @ weight, jnp.einsum("mk,mn->nk", x, slope)] + ([slope @ weight.T] if number else [])
            found += [product[0, 0] for product in jax.lax.optimization_barrier(products)]
        return jnp.stack(found)

    return jax.lax.map(client, [weights for _, weights, _ in layers])


def numpy_products(layers: list[Any]) -> None:
    """As `xla_products`, with the BLAS of NumPy on all cores."""
    for number, (x, weights, slope) in enumerate(layers):
        for weight in weights:
            x @ weight
            slope.T @ x
            if number:
                slope @ weight.T


def torch_trainer(arguments: tuple, num_steps: int) -> Callable | None:
    """The PyTorch trainer of the clients of one run, see `convolution_torch.make_trainer`; none without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    module = importlib.import_module("benchmarks.convolution_torch")
    # All runs are equal, and PyTorch uses all cores for one run.
    one_run = jax.tree.map(lambda leaf: np.asarray(leaf[0]), arguments)
    return module.make_trainer(*one_run, shifts(num_steps), LEARNING_RATE)


def torch_step(arguments: tuple) -> Any:
    """The first client's parameters after one PyTorch step, in the layout of d2djax; none without PyTorch."""
    client = jax.tree.map(lambda leaf: leaf[:, :1], arguments)
    train = torch_trainer(client, 1)
    if train is None:
        return None
    return importlib.import_module("benchmarks.convolution_torch").from_state(train()[0], arguments[1].shape[3])


def check(arguments: tuple, mesh: Mesh) -> str:
    """Runs a step of the first client with d2djax, `nn.Conv` and, if present, PyTorch; reports that all agree.

    Raises:
        RuntimeError: one changes the parameters differently from d2djax.
    """
    step = lambda network: on_all(local_steps(network, first_alone, None), mesh)(*arguments)  # noqa: E731
    found = {name: jax.tree.map(lambda leaf: leaf[0], step(one)) for name, one in networks().items()}
    by_torch = torch_step(arguments)
    found |= {} if by_torch is None else {TORCH: by_torch}
    start = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0]), arguments[0])
    for name, after in found.items():
        # Compare the changes: after one short step, all parameters are close to the initial ones.
        error = jax.tree.map(_difference, found["d2djax"], after, start)
        if not max(jax.tree.leaves(error)) < CLOSE:
            raise RuntimeError(f"a step of d2djax is not one of {name}: they differ by {error}")
    return f"{NAME}: checked over one step, same change of the parameters as d2djax: {'; '.join(found)}"


def _difference(wanted: Any, found: Any, start: np.ndarray) -> float:
    """Norm of the difference between two sets of parameters after a step, relative to the norm of the step."""
    norm = lambda leaf: float(np.linalg.norm(np.asarray(leaf)))  # noqa: E731
    return norm(wanted - found) / norm(wanted - start)


def networks() -> dict[str, nn.Module]:
    """The network of d2djax, and the one with `nn.Conv`."""
    return {"d2djax": ImageCNN(CLASSES), "nn.Conv": FlaxCNN()}


def torch_contestant(arguments: tuple, sizes: Sizes) -> Contestant:
    """PyTorch on one run, with as many steps per client as d2djax."""
    train = torch_trainer(arguments, sizes.steps)
    return Contestant(TORCH, train, sizes.clients * sizes.steps) if train else missing(TORCH, "torch")


def contestants(sizes: Sizes, arguments: tuple, mesh: Mesh) -> list[Contestant]:
    """All contestants, with their work in client steps; the products of one step count as one step."""
    (ours, flax), made = networks().values(), []
    for name, network, over, num_steps, clients in (
        (OURS, ours, jax.vmap, sizes.steps, sizes.clients),
        (OURS_MAP, ours, looped, sizes.steps, sizes.clients),
        (FLAX, flax, jax.vmap, None, sizes.clients),
        (FLAX_ONE, flax, first_alone, None, 1),
        (FLAX_SCAN, flax, jax.vmap, 1, sizes.few),
        (FLAX_MAP, flax, looped, 1, sizes.few),
    ):
        some = jax.tree.map(lambda leaf, clients=clients: leaf[:, :clients], arguments)
        work = clients * (num_steps or 1) * mesh.size
        made.append(compiled(name, on_all(local_steps(network, over, num_steps), mesh), some, work))
    made.append(torch_contestant(arguments, sizes))
    layers = operands(sizes)
    work = sizes.clients * mesh.size
    made.append(compiled(XLA_PRODUCTS, on_all(xla_products, mesh), (spread_out(layers, mesh),), work))
    return [*made, Contestant(NUMPY_PRODUCTS, lambda: numpy_products(layers), sizes.clients)]


def run(toy: bool = False) -> Report:
    """The convolution benchmark."""
    sizes, mesh = TOY if toy else FULL, make_mesh()
    case = {"clients": sizes.clients, "minibatch": sizes.minibatch, "image": f"{sizes.side} x {sizes.side} x 3"}
    arguments = spread_out(example(sizes), mesh)
    checked = check(arguments, mesh)
    raced = race(NAME, case, contestants(sizes, arguments, mesh), unit="steps", repeats=sizes.repeats)
    by_name = {one.contestant: one for one in raced}
    # The way in which federated training runs the clients on this backend.
    ours = OURS_MAP if jax.default_backend() == "cpu" else OURS
    targets = []
    # Against nn.Conv at its best under vmap: XLA's CPU runs a convolution in a loop several times slower.
    for base, wanted in ((FLAX, 4.5), (TORCH, 1.5), (XLA_PRODUCTS, 0.4)):
        measured, spread = ratio(by_name[ours], by_name[base])
        targets.append(Target(NAME, f"({ours}) / ({base})", wanted, measured, spread=spread))
    rate = by_name[XLA_PRODUCTS].rate
    note = f"{NAME}: a step is {gflop(sizes):.3g} GFLOP; XLA multiplies at {rate * gflop(sizes):.3g} GFLOP/s"
    return Report(raced, targets, [checked, note])


if __name__ == "__main__":
    main(["--only", NAME, *sys.argv[1:]])
