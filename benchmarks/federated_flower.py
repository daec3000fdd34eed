"""Federated averaging of a 784-200-10 network in Flower's simulation, with PyTorch in the clients."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections import OrderedDict
from functools import cache
from typing import Any

# Set before the imports, which read them: the benchmark sends no telemetry.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# By default, Ray gives up after a minute, but on a busy machine its servers may need that long.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.federated_numpy import Model, Problem, Setting, draw_minibatches, make_problem
from benchmarks.federated_torch import (
    Images,
    evaluate,
    from_state,
    make_network,
    tensors,
    to_state,
    train_client,
)


@cache
def _images(setting: Setting) -> Images:
    """The problem, created once in each of Flower's processes; there are as many processes as cores."""
    torch.set_num_threads(1)
    return tensors(make_problem(setting))


@cache
def _client_state() -> tuple[Any, np.random.Generator]:
    return make_network(), np.random.default_rng(os.getpid())


def make_client(setting: Setting) -> ClientApp:
    """The client: its local steps from the global model, on minibatches of its own images."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        images, (network, rng) = _images(setting), _client_state()
        client = int(context.node_config["partition-id"])
        numbers = torch.from_numpy(draw_minibatches(images.problem, setting.interval, rng)[:, client])
        state = train_client(images, network, message.content["arrays"].to_torch_state_dict(), numbers)
        metrics = MetricRecord({"num-examples": setting.points})
        return Message(RecordDict({"arrays": ArrayRecord(state), "metrics": metrics}), reply_to=message)

    return app


class Simulation:
    """A simulation in a thread that starts once and then runs rounds on request, so that no start is timed."""

    def __init__(self, problem: Problem, model: Model, cores: int):
        """Starts Ray with one client process per core and waits for the server."""
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        self.images, self.network = tensors(problem), make_network()
        self.model = ArrayRecord(OrderedDict(to_state(model)))
        self.asked: queue.Queue = queue.Queue()
        self.found: queue.Queue = queue.Queue()
        server = ServerApp()
        server.main()(self._serve)
        backend = {
            "init_args": {"num_cpus": cores, "log_to_driver": False, "logging_level": "error"},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        setting = problem.setting
        arguments = (server, make_client(setting), setting.clients, "ray", backend)
        self.thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self.thread.start()
        atexit.register(self.stop)

    def _run(self, *arguments: Any) -> None:
        try:
            run_simulation(*arguments)
        except BaseException as error:
            self.found.put(error)

    def _serve(self, grid: Grid, context: Context) -> None:
        """The server: runs the requested rounds until no more are requested."""
        clients = self.images.problem.setting.clients
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        while (asked := self.asked.get()) is not None:
            num_rounds, evaluates = asked
            evaluation = self._evaluate if evaluates else None
            self.found.put(strategy.start(grid, self.model, num_rounds=num_rounds, evaluate_fn=evaluation))

    def _evaluate(self, number: int, arrays: ArrayRecord) -> MetricRecord | None:
        # Flower also evaluates the initial model; the others do not.
        if number == 0:
            return None
        self.network.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"curves": evaluate(self.images, self.network).tolist()})

    def train(self, num_rounds: int, evaluates: bool) -> Model:
        """Some aggregations from the initial model, with or without an evaluation after each.

        Raises:
            RuntimeError: the simulation has failed.
        """
        self.asked.put((num_rounds, evaluates))
        try:
            found = self.found.get(timeout=600)
        except queue.Empty as error:
            raise RuntimeError("Flower has not answered for ten minutes") from error
        if isinstance(found, BaseException):
            cause = found
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise RuntimeError(str(cause)) from found
        return from_state(found.arrays.to_torch_state_dict())

    def stop(self) -> None:
        """Ends the simulation and its processes."""
        self.asked.put(None)
        self.thread.join(timeout=30)
