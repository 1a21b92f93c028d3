"""Our train step and inference compared with PyTorch, Keras on TensorFlow and plain Flax, on a CPU.

Every library has the same network with the same weights, as many threads as there are processors,
and a batch in memory as float32. A train step is forward pass, cross-entropy, backward pass and
update. Ours is timed as users get it: many steps in one dispatch, which also gathers each batch
from the resident data and sums the metrics; and once more with one dispatch per step. A peer's step
is a Python call on one fixed batch. An inference is a call on one batch that returns logits. All
are timed in turn. The best peer is the PyTorch or Keras variant with the smallest median.

The optimizer is the recipe's: SGD, momentum SGD or Adam. RMSprop is replaced by Adam, as the
libraries place the ε of RMSprop differently. The learning rate is `LEARNING_RATE`, with which
training on noise does not diverge. Weight decay is the recipe's; the moving average is left out.
"""

import contextlib
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.peers.networks import network_layers
from experiments.peers.process import PEERS, PeerFailed, Worker, missing_packages
from experiments.peers.rounds import Rounds, Turn, time_interleaved
from experiments.peers.task import make_task, thread_count
from experiments.peers.verdict import check_agreement, compute_metrics
from jaxcnn import models
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, require_known
from jaxcnn.parallel.options import compiler_options

COLUMNS = (
    "step_time",
    "best_peer_step_time",
    "train_over_best_peer",
    "inference_over_best_peer",
    "train_over_flax",
    "mfu_measured_peak",
    "memory_over_pytorch",
    "time_to_first_step",
    "time_to_first_step_cached",
)
# Network, batch size, and image size where it is not the published one.
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
QUICK_CASES = CASES[:1]
QUICK_PEERS = tuple(
    peer for peer in PEERS if "compiled" not in peer
)  # torch.compile takes a minute
ROUNDS = {"quick": 7, "full": 11}
SAMPLE_SECONDS = {"quick": 0.1, "full": 0.3}
LEARNING_RATE = 1e-3
OPTIMIZERS = ("sgd", "momentum", "adam")
DEFAULT_BATCH_SIZE = 64  # of a network that is not among `CASES`


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each row of `CASES`, or those of the requested network.

    Raises:
      InputError: the device is not a CPU, the precision is not float32, or the peers do not have
        the network or the optimizer.
    """
    if backend.platform != "cpu":
        raise InputError(
            f"study 'peers' compares libraries on a CPU, and this is a {backend.platform}: "
            "use --device=cpu"
        )
    if config.precision != "float32":
        raise InputError(f"study 'peers' compares in float32, got --precision={config.precision}")
    rows: Sequence[tuple[str, int, int | None]] = CASES if config.preset == "full" else QUICK_CASES
    if config.model != RunConfig.model:
        network_layers(config.model)
        rows = [row for row in CASES if row[0] == config.model]
        rows = rows or [(config.model, DEFAULT_BATCH_SIZE, None)]
        rows = rows[:1] if config.batch_size or config.image_size else rows
    return [_case(config, *row) for row in rows]


def _case(config: RunConfig, model: str, batch_size: int, image_size: int | None) -> Case:
    spec = models.spec(model)
    optimizer = config.optimizer or spec.recipe.optimizer.replace("rmsprop", "adam")
    require_known("optimizer for study 'peers'", optimizer, OPTIMIZERS)
    defaults = {
        "batch_size": batch_size,
        "image_size": image_size or spec.input_shape[0],
        "learning_rate": LEARNING_RATE,
        "weight_decay": spec.recipe.weight_decay,
    }
    config = config.replace(model=model, optimizer=optimizer, strategy="jit")
    config = config.with_defaults(defaults)
    names = ("model", *defaults, "optimizer", "seed")
    settings = {name: getattr(config, name) for name in names}
    # With more packages installed it is another case.
    settings["peers"] = [peer for peer in _peers(config) if not missing_packages(peer)]
    size = f"{config.image_size}x{config.image_size}"
    return Case(config, settings, (model, size, f"b{config.batch_size}"))


def _peers(config: RunConfig) -> tuple[str, ...]:
    return tuple(PEERS) if config.preset == "full" else QUICK_PEERS


def measure(case: Case, context: Context) -> CaseResult:
    """Starts a process for each peer, checks that they agree, and times them in turn."""
    task = make_task(case.config)
    with tempfile.TemporaryDirectory(prefix="jaxcnn-peers-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "task.pickle"
        file.write_bytes(pickle.dumps(task))
        start = partial(Worker, task=file, threads=task.threads, time_limit=case.config.time_limit)
        context.console.print(
            f"{case.config.model}: the first step, without and with a compilation cache",
            highlight=False,
        )
        first_steps = _time_first_steps(start, folder)
        with _start_workers(start, case.settings["peers"]) as workers:
            return _compare(case, context, workers, first_steps)


def _time_first_steps(start: Callable[..., Worker], folder: str) -> dict[str, float]:
    """Seconds from the start of our process to its first finished step.

    They include importing, building and compiling; first with an empty compilation cache, then with
    a full one.
    """
    environment = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}
    return {
        "time_to_first_step": _time_first_step(start, environment),
        "time_to_first_step_cached": _time_first_step(start, environment),
    }


def _time_first_step(start: Callable[..., Worker], environment: dict[str, str]) -> float:
    start_time = time.perf_counter()
    worker = start("ours", environment=environment)
    try:
        worker.call("first_step")
        return time.perf_counter() - start_time
    finally:
        worker.close()


@contextlib.contextmanager
def _start_workers(start: Callable[..., Worker], peers: Sequence[str]) -> Iterator[list[Worker]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(start(peer))) for peer in peers]


def _remarks(config: RunConfig) -> list[str]:
    missing = sorted({package for peer in _peers(config) for package in missing_packages(peer)})
    if not missing:
        return []
    return [
        f"not installed: {', '.join(missing)}; pip install -e '.[peers]' adds the missing peers"
    ]


def _compare(
    case: Case, context: Context, workers: list[Worker], first_steps: dict[str, float]
) -> CaseResult:
    """Checks that the peers agree with ours and times them in turn.

    The case fails if our worker fails, or if ours or half of the peers compute something else;
    fewer than half are excluded with a remark.
    """
    remarks = _remarks(case.config)
    try:
        outputs = _compile(case, context, workers, remarks)
    except PeerFailed as error:
        return CaseResult(status="failed", message=str(error))
    differences, disagreeing = check_agreement(outputs)
    provenance = {"differences": differences, "remarks": remarks}
    if "ours" in disagreeing or 2 * len(disagreeing) >= len(differences) > 0:
        message = "; ".join(disagreeing.values())
        return CaseResult(provenance=provenance, status="failed", message=message)
    for worker in [worker for worker in workers if worker.peer in disagreeing]:
        remarks.append(_exclude(workers, worker, disagreeing[worker.peer]))
        del outputs[worker.peer]
    ours = next(worker for worker in workers if worker.peer == "ours")
    turns = [Turn(worker, what) for worker in workers for what in ("train", "infer")]
    preset = case.config.preset
    rounds = time_interleaved(
        [*turns, Turn(ours, "once")], ROUNDS[preset], sample=SAMPLE_SECONDS[preset]
    )
    memory = {peer: result["memory"] for peer, result in outputs.items()}
    metrics, best_peers = compute_metrics(rounds.samples, memory)
    metrics |= first_steps | ours.call("step_metrics")
    metrics |= {
        "flops_per_second": metrics["flops_per_step"] / metrics["step_time"],
        "images_per_second": case.config.batch_size / metrics["step_time"],
    }
    provenance |= best_peers | _conditions(rounds, memory)
    return CaseResult(metrics, rounds.samples, provenance=provenance)


def _compile(
    case: Case, context: Context, workers: list[Worker], remarks: list[str]
) -> dict[str, dict[str, Any]]:
    """The logits, losses and memory of each peer; excludes those that fail, with a remark.

    Raises:
      PeerFailed: our worker failed.
    """
    outputs: dict[str, dict[str, Any]] = {}
    for worker in list(workers):
        context.console.print(f"{case.config.model}: {worker.peer} compiles", highlight=False)
        try:
            outputs[worker.peer] = worker.call("outputs") | {"memory": worker.call("peak_memory")}
        except PeerFailed as error:
            if worker.peer == "ours":
                raise
            remarks.append(_exclude(workers, worker, str(error)))
    return outputs


def _exclude(workers: list[Worker], worker: Worker, reason: str) -> str:
    """Ends a worker and removes it from the others; returns a remark."""
    workers.remove(worker)
    worker.close()
    return f"excluded: {reason}"


def _conditions(rounds: Rounds, memory: dict[str, int | None]) -> dict[str, Any]:
    return {
        "strategy_devices": 1,
        "threads": thread_count(),
        "compiler_options": compiler_options("cpu"),
        "calls_per_sample": rounds.calls,
        "idle_load": rounds.idle_load,
        "memory_peaks": memory,
    }
