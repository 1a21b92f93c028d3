"""Our train step and inference against PyTorch, Keras on TensorFlow and plain Flax, on a CPU, in turn.

Every side has the same network with the same weights, as many threads as there are processors, and a batch in memory as
float32. A step is forward pass, cross-entropy, backward pass and update: ours as users get it, many steps in one dispatch, which also
gathers its batch from the resident data and sums its metrics; ours once, a dispatch a step; a peer's, a Python call a step, on one fixed batch. An
inference is a call on one batch, to logits. The best peer is the PyTorch or Keras variant with the least median.

The optimiser is the recipe's, momentum SGD, SGD or Adam, RMSprop replaced by Adam, as the libraries do not agree on where RMSprop's ε stands;
the rate is `RATE`, at which noise does not diverge; weight decay is the recipe's, the moving average is left out.
"""

import contextlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.peers.layers import Task
from experiments.peers.networks import described
from experiments.peers.process import PEERS, PeerFailed, Worker, missing
from experiments.peers.rounds import Rounds, Turn, interleaved
from experiments.peers.verdict import agreed, figures
from jaxcnn import models
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, require_known
from jaxcnn.parallel.options import compiler_options

COLUMNS = (
    "step_time", "best_peer_step_time", "train_over_best_peer", "inference_over_best_peer", "train_over_flax", "mfu_measured_peak",
    "memory_over_pytorch", "time_to_first_step", "time_to_first_step_cached",
)  # fmt: skip
# Network, batch size, side of the images where it is not the published one.
CASES: tuple[tuple[str, int, int | None], ...] = (
    ("lenet_like", 128, None),
    ("mlp:1024", 128, None),
    ("mnist_cnn", 128, None),
    ("deep_mnist", 64, None),
    ("cifar_tutorial", 128, None),
    ("cats_vs_dogs", 16, 128),
    ("cats_vs_dogs", 4, 256),
    ("resnet18_cifar", 64, None),
    ("darknet19", 8, 128),
)
QUICK = CASES[:1]
QUICK_PEERS = tuple(
    peer for peer in PEERS if "compiled" not in peer
)  # torch.compile takes a minute
ROUNDS = {"quick": 7, "full": 11}
SAMPLE = {"quick": 0.1, "full": 0.3}  # seconds
RATE = 1e-3
OPTIMIZERS = ("sgd", "momentum", "adam")
BATCH = 64  # of a network that is not in the list


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each network of the list, or the one that is asked for.

    Raises:
      InputError: not a CPU, not float32, or a network or an optimiser that the peers do not have here.
    """
    if backend.platform != "cpu":
        raise InputError(
            f"study 'peers' compares libraries on a CPU, and this is a {backend.platform}: give --device=cpu"
        )
    if config.precision != "float32":
        raise InputError(f"study 'peers' compares in float32, got --precision={config.precision}")
    listed = CASES if config.preset == "full" else QUICK
    if config.model != RunConfig.model:
        described(config.model)
        listed = [row for row in CASES if row[0] == config.model] or [(config.model, BATCH, None)]
        listed = listed[:1] if config.batch_size or config.image_size else listed
    return [_case(config, *row) for row in listed]


def _case(config: RunConfig, model: str, batch: int, side: int | None) -> Case:
    row = models.spec(model)
    wanted = config.optimizer or row.recipe.optimizer.replace("rmsprop", "adam")
    require_known("optimizer for study 'peers'", wanted, OPTIMIZERS)
    own = {
        "batch_size": batch,
        "image_size": side or row.input_shape[0],
        "learning_rate": RATE,
        "weight_decay": row.recipe.weight_decay,
    }
    config = config.replace(model=model, optimizer=wanted, strategy="jit").with_defaults(own)
    kept = (
        "model",
        "batch_size",
        "image_size",
        "optimizer",
        "learning_rate",
        "weight_decay",
        "seed",
    )
    peers = [
        peer for peer in _peers(config) if not missing(peer)
    ]  # once more are installed it is another case
    settings = {option: getattr(config, option) for option in kept} | {"peers": peers}
    return Case(
        config,
        settings,
        (model, f"{config.image_size}x{config.image_size}", f"b{config.batch_size}"),
    )


def _peers(config: RunConfig) -> tuple[str, ...]:
    return tuple(PEERS) if config.preset == "full" else QUICK_PEERS


def measure(case: Case, context: Context) -> CaseResult:
    """Starts a process for each peer, checks that they agree, and times them in turn."""
    task = task_of(case.config)
    with tempfile.TemporaryDirectory(prefix="jaxcnn-peers-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "task.pickle"
        file.write_bytes(pickle.dumps(task))
        start = partial(Worker, task=file, threads=task.threads, time_limit=case.config.time_limit)
        context.console.print(
            f"{case.config.model}: the first step, with nothing compiled before and again",
            highlight=False,
        )
        first = _first_steps(start, folder)
        with _started(start, case.settings["peers"]) as workers:
            return _compared(case, context, workers, first, _remarks(case.config))


def task_of(config: RunConfig) -> Task:
    """What every peer is to do, its numbers drawn from the seed."""
    row = models.spec(config.model)
    shape = (config.image_size, config.image_size, row.input_shape[2])
    model = models.build(config.model, input_shape=shape, seed=config.seed)
    state = nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))
    rng = np.random.default_rng(config.seed)
    return Task(
        config.model, described(config.model), {".".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in state},
        rng.normal(size=(config.batch_size, *shape)).astype(np.float32),
        rng.integers(0, row.num_classes, config.batch_size).astype(np.int32),
        row.num_classes, config.optimizer, config.learning_rate, config.weight_decay, row.recipe.weight_decay_layers, threads(),
    )  # fmt: skip


def threads() -> int:
    """Processors that this process may use, which is how many threads XLA takes on its own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _first_steps(start: Callable[..., Worker], folder: str) -> dict[str, float]:
    """Seconds from starting our process to its first finished step: import, build, compile; with an empty cache, then with a full one."""
    return {
        name: _until_answer(start, {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"})
        for name in ("time_to_first_step", "time_to_first_step_cached")
    }


def _until_answer(start: Callable[..., Worker], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    worker = start("ours", environment=environment)
    try:
        worker.ask("first")
        return time.perf_counter() - began
    finally:
        worker.close()


@contextlib.contextmanager
def _started(start: Callable[..., Worker], peers: Sequence[str]) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        for peer in peers:
            workers.append(start(peer))
        yield workers
    finally:
        for worker in workers:
            worker.close()


def _remarks(config: RunConfig) -> list[str]:
    absent = sorted({package for peer in _peers(config) for package in missing(peer)})
    return (
        [
            f"not installed: {', '.join(absent)}; pip install -e '.[peers]' brings what there is to compare with"
        ]
        if absent
        else []
    )


def _compared(
    case: Case, context: Context, workers: list[Worker], first: dict[str, float], remarks: list[str]
) -> CaseResult:
    """Checks that the peers agree with ours and times them in turn.

    The case fails if our worker fails, or if ours or half of the peers compute something else; fewer
    than half are excluded with a remark.
    """
    answers: dict[str, dict[str, Any]] = {}
    for worker in list(workers):
        context.console.print(f"{case.config.model}: {worker.peer} compiles", highlight=False)
        try:
            answers[worker.peer] = worker.ask("agreement") | {"memory": worker.ask("memory")}
        except PeerFailed as error:
            if worker.peer == "ours":
                return CaseResult(status="failed", message=str(error))
            remarks.append(_left_out(workers, worker, str(error)))
    differences, disagreeing = agreed(answers)
    told = {"differences": differences, "remarks": remarks}
    if "ours" in disagreeing or 2 * len(disagreeing) >= len(differences) > 0:
        message = "; ".join(disagreeing.values())
        return CaseResult(provenance=told, status="failed", message=message)
    for worker in [worker for worker in workers if worker.peer in disagreeing]:
        remarks.append(_left_out(workers, worker, disagreeing[worker.peer]))
        del answers[worker.peer]
    ours = next(worker for worker in workers if worker.peer == "ours")
    turns = [Turn(worker, what) for worker in workers for what in ("train", "infer")] + [
        Turn(ours, "once")
    ]
    found = interleaved(turns, ROUNDS[case.config.preset], sample=SAMPLE[case.config.preset])
    memory = {peer: answer["memory"] for peer, answer in answers.items()}
    metrics, best = figures(found.samples, memory)
    metrics |= first | ours.ask("facts")
    metrics |= {
        "flops_per_second": metrics["flops_per_step"] / metrics["step_time"],
        "images_per_second": case.config.batch_size / metrics["step_time"],
    }
    return CaseResult(metrics, found.samples, provenance=told | best | _how(found, memory))


def _left_out(workers: list[Worker], worker: Worker, why: str) -> str:
    """Ends a worker, takes it from the others, and says so."""
    workers.remove(worker)
    worker.close()
    return f"left out, {why}"


def _how(found: Rounds, memory: dict[str, int | None]) -> dict[str, Any]:
    return {
        "strategy_devices": 1,
        "threads": threads(),
        "compiler_options": compiler_options("cpu"),
        "calls_per_sample": found.calls,
        "idle_load": found.idle_load,
        "memory_peaks": memory,
    }
