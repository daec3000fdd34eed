"""Federated averaging of a 784-200-10 network in NumPy, the common problem of all baselines, and its products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

NUM_CLASSES, NUM_PIXELS, NUM_HIDDEN = 10, 784, 200
# Points evaluated at a time, as in d2djax.
BLOCK = 2048

Array = np.ndarray
Model = tuple[Array, Array, Array, Array]


@dataclass(frozen=True)
class Setting:
    """Sizes of a problem; hashable, so that each process of Flower creates its own problem once.

    Attributes:
        clients: `N`.
        points: `P`, images of each client.
        held_out: images on which the global model is evaluated at each aggregation; 0: never.
        minibatch: `B`, images of a step.
        interval: `tau_a`, steps of a client between two aggregations.
        learning_rate: step size of SGD.
    """

    clients: int = 25
    points: int = 1200
    held_out: int = 14000
    minibatch: int = 32
    interval: int = 10
    learning_rate: float = 0.05


@dataclass(frozen=True)
class Problem:
    """Images of the shape of Fashion-MNIST and the client that holds each; equal in every process.

    Attributes:
        setting: the sizes.
        x: [n, 784] uint8, the images.
        y: [n] int64, class.
        mean: of all bytes.
        deviation: standard deviation of all bytes.
        held: [N, P] int64, numbers of the images of each client.
        test: numbers of the held-out images, int64; they come last, in one contiguous block.
    """

    setting: Setting
    x: Array
    y: Array
    mean: float
    deviation: float
    held: Array
    test: Array


@dataclass(frozen=True)
class Trained:
    """The results of training.

    Attributes:
        model: kernel [784, 200], bias [200], kernel [200, 10], bias [10]; the final global model.
        curves: [rounds, 12] accuracy, loss, accuracy per class after each aggregation; [0, 12] if never evaluated.
    """

    model: Model
    curves: Array


Baseline = Callable[[Problem, Model, Array], Trained]


def make_problem(setting: Setting) -> Problem:
    """Random images with a bright row of pixels for each class, which makes them learnable."""
    rng = np.random.default_rng(0)
    num_held = setting.clients * setting.points
    num_images = num_held + setting.held_out
    y = rng.integers(0, NUM_CLASSES, num_images)
    x = rng.integers(0, 200, (num_images, NUM_PIXELS), dtype=np.uint8)
    bright = 28 * (2 * y)[:, None] + np.arange(28)
    np.put_along_axis(x, bright, np.take_along_axis(x, bright, axis=1) + np.uint8(25), axis=1)
    held = rng.permutation(num_held).reshape(setting.clients, setting.points)
    test = np.arange(num_held, num_images)
    return Problem(setting, x, y, float(x.mean(dtype=float)), float(x.std(dtype=float)), held, test)


def first_model(rng: np.random.Generator) -> Model:
    """Kernels with the variance of Flax, biases of 0."""
    kernel = lambda rows, columns: (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)  # noqa: E731
    zeros = lambda size: np.zeros(size, np.float32)  # noqa: E731
    shapes = ((NUM_PIXELS, NUM_HIDDEN), (NUM_HIDDEN, NUM_CLASSES))
    return kernel(*shapes[0]), zeros(NUM_HIDDEN), kernel(*shapes[1]), zeros(NUM_CLASSES)


def draw_minibatches(problem: Problem, num_steps: int, rng: np.random.Generator) -> Array:
    """Image indices, [T, N, B], drawn with replacement from the images of each client."""
    setting = problem.setting
    place = rng.integers(0, setting.points, (num_steps, setting.clients, setting.minibatch))
    return problem.held[np.arange(setting.clients)[:, None], place]


def inputs(problem: Problem, numbers: Array | slice) -> Array:
    """Standardised images, [..., 784] float32."""
    x = problem.x[numbers].astype(np.float32)
    x -= np.float32(problem.mean)
    x *= np.float32(1.0 / problem.deviation)
    return x


def forward(model: Model, x: Array) -> tuple[Array, Array]:
    """The hidden layer after its ReLU, and the logits."""
    kernel, bias, last_kernel, last_bias = model
    hidden = x @ kernel
    hidden += bias
    np.maximum(hidden, 0.0, out=hidden)
    logits = hidden @ last_kernel
    logits += last_bias
    return hidden, logits


def step(model: Model, x: Array, y: Array, learning_rate: float) -> None:
    """One SGD step on a minibatch, in place."""
    kernel, bias, last_kernel, last_bias = model
    hidden, slope = forward(model, x)
    slope -= slope.max(axis=1, keepdims=True)
    np.exp(slope, out=slope)
    slope /= slope.sum(axis=1, keepdims=True)
    slope[np.arange(len(y)), y] -= 1.0
    # Multiply the smallest array by the step size, so that no kernel gradient is scaled.
    slope *= np.float32(learning_rate / len(y))
    back = slope @ last_kernel.T
    back *= hidden > 0
    last_kernel -= hidden.T @ slope
    last_bias -= slope.sum(axis=0)
    kernel -= x.T @ back
    bias -= back.sum(axis=0)


def evaluate(problem: Problem, model: Model) -> Array:
    """[12]: accuracy, loss and accuracy of each class on the held-out images."""
    first, last = problem.test[0], problem.test[-1] + 1
    right, seen, loss = np.zeros(NUM_CLASSES), np.zeros(NUM_CLASSES), 0.0
    for start in range(first, last, BLOCK):
        part = slice(start, min(start + BLOCK, last))
        y, (_, logits) = problem.y[part], forward(model, inputs(problem, part))
        right += np.bincount(y[logits.argmax(axis=1) == y], minlength=NUM_CLASSES)
        seen += np.bincount(y, minlength=NUM_CLASSES)
        logits -= logits.max(axis=1, keepdims=True)
        loss += float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]).sum())
    return np.concatenate([[right.sum() / len(problem.test), loss / len(problem.test)], right / seen])


def train(problem: Problem, model: Model, numbers: Array) -> Trained:
    """Federated averaging, one client after the other, vectorised over a minibatch.

    Args:
        problem: the images.
        model: the initial global model.
        numbers: [T, N, B] int, numbers of the images of each minibatch.
    """
    interval, rate, curves = problem.setting.interval, problem.setting.learning_rate, []
    for start in range(0, len(numbers), interval):
        total = [np.zeros_like(leaf) for leaf in model]
        for client in range(problem.setting.clients):
            local = tuple(leaf.copy() for leaf in model)
            for batch in numbers[start : start + interval, client]:
                step(local, inputs(problem, batch), problem.y[batch], rate)
            for leaf, mine in zip(total, local, strict=True):
                leaf += mine
        # Clients hold equally many images, so that all weights are equal.
        model = tuple(leaf / np.float32(problem.setting.clients) for leaf in total)
        if len(problem.test):
            curves.append(evaluate(problem, model))
    return Trained(model, np.array(curves).reshape(-1, 2 + NUM_CLASSES))


def products(setting: Setting, num_rounds: int) -> None:
    """Only the matrix products of one core in `num_rounds` aggregations, on constant operands."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32)  # noqa: E731
    x, kernel, last_kernel = draw(setting.minibatch, NUM_PIXELS), *first_model(rng)[::2]
    hidden, logits = x @ kernel, draw(setting.minibatch, NUM_CLASSES)
    found = [x @ kernel, hidden @ last_kernel, logits @ last_kernel.T, hidden.T @ logits, x.T @ hidden]
    test, test_hidden = draw(BLOCK, NUM_PIXELS), np.empty((BLOCK, NUM_HIDDEN), np.float32)
    for _ in range(num_rounds):
        for _ in range(setting.clients * setting.interval):
            np.matmul(x, kernel, out=found[0])
            np.matmul(hidden, last_kernel, out=found[1])
            np.matmul(logits, last_kernel.T, out=found[2])
            np.matmul(hidden.T, logits, out=found[3])
            np.matmul(x.T, hidden, out=found[4])
        for start in range(0, setting.held_out, BLOCK):
            size = min(BLOCK, setting.held_out - start)
            np.matmul(test[:size], kernel, out=test_hidden[:size])
            test_hidden[:size] @ last_kernel


def gflop(setting: Setting) -> float:
    """10^9 operations of the products of one client's step; the first layer needs no gradient of its input."""
    return 2e-9 * setting.minibatch * NUM_HIDDEN * (2 * NUM_PIXELS + 3 * NUM_CLASSES)
