"""Federated averaging of a 784-200-10 network in PyTorch: a plain loop over clients, and `torch.func.vmap`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.federated_numpy import BLOCK, NUM_CLASSES, NUM_HIDDEN, NUM_PIXELS, Model, Problem, Trained

State = dict[str, Tensor]


@dataclass(frozen=True)
class Images:
    """The arrays of a problem as tensors that share their memory."""

    x: Tensor
    y: Tensor
    problem: Problem

    def inputs(self, numbers: Tensor | slice) -> Tensor:
        """Standardised images, [..., 784] float32."""
        return (self.x[numbers].float() - self.problem.mean) / self.problem.deviation


def tensors(problem: Problem) -> Images:
    """A view of the problem; copies nothing."""
    return Images(torch.from_numpy(problem.x), torch.from_numpy(problem.y), problem)


def make_network() -> nn.Module:
    """784-200-10 with a ReLU."""
    return nn.Sequential(nn.Linear(NUM_PIXELS, NUM_HIDDEN), nn.ReLU(), nn.Linear(NUM_HIDDEN, NUM_CLASSES))


def to_state(model: Model) -> State:
    """Parameters by the names of `make_network`, with transposed kernels."""
    kernel, bias, last_kernel, last_bias = (torch.tensor(np.ascontiguousarray(leaf.T)) for leaf in model)
    return {"0.weight": kernel, "0.bias": bias, "2.weight": last_kernel, "2.bias": last_bias}


def from_state(state: State) -> Model:
    """The inverse of `to_state`."""
    kernel, bias, last_kernel, last_bias = (state[name].numpy().T for name in to_state_names())
    return kernel, bias, last_kernel, last_bias


def to_state_names() -> tuple[str, ...]:
    """Names of the parameters in the order of a `Model`."""
    return ("0.weight", "0.bias", "2.weight", "2.bias")


@torch.no_grad()
def evaluate(images: Images, network: nn.Module) -> np.ndarray:
    """[12]: accuracy, loss and accuracy of each class on the held-out images."""
    test = images.problem.test
    first, last = int(test[0]), int(test[-1]) + 1
    right, seen, loss = torch.zeros(NUM_CLASSES), torch.zeros(NUM_CLASSES), 0.0
    for start in range(first, last, BLOCK):
        part = slice(start, min(start + BLOCK, last))
        y, logits = images.y[part], network(images.inputs(part))
        right += torch.bincount(y[logits.argmax(1) == y], minlength=NUM_CLASSES)
        seen += torch.bincount(y, minlength=NUM_CLASSES)
        loss += nn.functional.cross_entropy(logits, y, reduction="sum").item()
    overall = [right.sum().item() / len(test), loss / len(test)]
    return np.concatenate([overall, (right / seen).numpy()])


def train_client(images: Images, network: nn.Module, start: State, batches: Tensor) -> State:
    """Runs the local steps of one client, batches [tau, B]; returns its state, which the next client overwrites."""
    network.load_state_dict(start)
    optimizer = torch.optim.SGD(network.parameters(), lr=images.problem.setting.learning_rate)
    for batch in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images.inputs(batch)), images.y[batch]).backward()
        optimizer.step()
    return network.state_dict()


def _rounds(problem: Problem, model: Model, numbers: np.ndarray, aggregate: Callable) -> Trained:
    """Aggregations by `aggregate(images, network, state, batches [tau, N, B])`, each followed by an evaluation."""
    images, network, state, curves = tensors(problem), make_network(), to_state(model), []
    for batches in torch.from_numpy(numbers).split(problem.setting.interval):
        state = aggregate(images, network, state, batches)
        if len(problem.test):
            network.load_state_dict(state)
            curves.append(evaluate(images, network))
    return Trained(from_state(state), np.array(curves).reshape(-1, 2 + NUM_CLASSES))


def _loop(images: Images, network: nn.Module, state: State, batches: Tensor) -> State:
    total = {name: torch.zeros_like(leaf) for name, leaf in state.items()}
    for client in range(batches.shape[1]):
        for name, leaf in train_client(images, network, state, batches[:, client]).items():
            total[name] += leaf
    return {name: leaf / batches.shape[1] for name, leaf in total.items()}


@cache
def _client_gradients() -> Callable[..., Any]:
    """Gradients of all clients at once; parameters, images and labels have a leading axis of clients."""
    network = make_network()

    def loss(state: State, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(network, state, (x,)), y)

    return vmap(grad(loss))


@torch.no_grad()
def _vmap(images: Images, network: nn.Module, state: State, batches: Tensor) -> State:
    local = {name: leaf.expand(batches.shape[1], *leaf.shape).clone() for name, leaf in state.items()}
    for batch in batches:
        gradients = _client_gradients()(local, images.inputs(batch), images.y[batch])
        for name, leaf in local.items():
            leaf.sub_(gradients[name], alpha=images.problem.setting.learning_rate)
    return {name: leaf.mean(0) for name, leaf in local.items()}


def train_loop(problem: Problem, model: Model, numbers: np.ndarray) -> Trained:
    """A straightforward loop over the clients, with autograd and `torch.optim.SGD`."""
    return _rounds(problem, model, numbers, _loop)


def train_vmap(problem: Problem, model: Model, numbers: np.ndarray) -> Trained:
    """Federated averaging with all clients in one call of `vmap(grad(functional_call))`."""
    return _rounds(problem, model, numbers, _vmap)
