"""SGD steps of the image network in PyTorch: client after client, autograd, `torch.optim.SGD`, all cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from d2djax.running.machine import num_cores

State = dict[str, Tensor]
# Indices in `make_network` of the layers with parameters, and their names in Flax.
LAYERS = {"0": "Conv_0", "3": "Conv_1", "7": "Dense_0", "9": "Dense_1"}
CHANNELS = 64


def make_network(side: int, num_classes: int) -> nn.Module:
    """`d2djax.models.ImageCNN` written in plain PyTorch, for images [B, 3, side, side]."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, CHANNELS, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear((side // 4) ** 2 * CHANNELS, 128), nn.ReLU(), nn.Linear(128, num_classes)),
    )


def _flip(kernel: np.ndarray, layer: str, side: int) -> np.ndarray:
    """A Flax kernel in the layout of PyTorch: outputs first, and channels before positions."""
    if layer.startswith("Conv"):
        return kernel.transpose(3, 2, 0, 1)
    if layer == "Dense_0":
        places = side // 4
        return kernel.reshape(places, places, CHANNELS, -1).transpose(3, 2, 0, 1).reshape(kernel.shape[1], -1)
    return kernel.T


def _flip_back(weight: np.ndarray, layer: str, side: int) -> np.ndarray:
    """The inverse of `_flip`."""
    if layer.startswith("Conv"):
        return weight.transpose(2, 3, 1, 0)
    if layer == "Dense_0":
        places = side // 4
        return weight.reshape(-1, CHANNELS, places, places).transpose(2, 3, 1, 0).reshape(-1, len(weight))
    return weight.T


def to_state(parameters: Any, side: int) -> State:
    """Parameters of one client by the names of `make_network`."""
    found = {}
    for place, layer in LAYERS.items():
        leaves = parameters["params"][layer]
        # Copies: PyTorch trains in place, and JAX arrays must not change.
        found[f"{place}.weight"] = torch.tensor(_flip(np.asarray(leaves["kernel"]), layer, side).copy())
        found[f"{place}.bias"] = torch.tensor(np.array(leaves["bias"]))
    return found


def from_state(state: State, side: int) -> Any:
    """The inverse of `to_state`."""
    layers = {
        layer: {
            "kernel": _flip_back(state[f"{place}.weight"].numpy(), layer, side),
            "bias": state[f"{place}.bias"].numpy(),
        }
        for place, layer in LAYERS.items()
    }
    return {"params": layers}


def make_trainer(parameters: Any, x: np.ndarray, y: np.ndarray, shifts: np.ndarray, rate: float) -> Callable:
    """A function without arguments that trains every client from its initial parameters, one after the other.

    Args:
        parameters: of all clients, in the layout of d2djax, with a leading axis of clients.
        x: [clients, B, side, side, 3] float32, the minibatch of each.
        y: [clients, B] int, its labels.
        shifts: [steps], added to the images, one in each step.
        rate: step size.

    Returns:
        A function that returns the states of all clients after their steps.
    """
    torch.set_num_threads(num_cores())
    clients, side = len(x), x.shape[2]
    layers = parameters["params"]
    of = lambda client: {"params": {k: {n: v[client] for n, v in one.items()} for k, one in layers.items()}}  # noqa: E731
    starts = [to_state(of(client), side) for client in range(clients)]
    images = torch.tensor(np.ascontiguousarray(x.transpose(0, 1, 4, 2, 3)))
    targets = torch.tensor(y, dtype=torch.int64)
    network = make_network(side, layers["Dense_1"]["bias"].shape[-1])

    def train_client(client: int) -> State:
        network.load_state_dict(starts[client])
        optimizer = torch.optim.SGD(network.parameters(), lr=rate)
        for shift in shifts.tolist():
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[client] + shift), targets[client]).backward()
            optimizer.step()
        # A copy per client: the next client overwrites the parameters of the network.
        return {name: leaf.clone() for name, leaf in network.state_dict().items()}

    return lambda: [train_client(client) for client in range(clients)]
