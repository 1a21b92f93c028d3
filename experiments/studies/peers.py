"""Our train step and inference compared with PyTorch, Keras on TensorFlow and plain Flax.

Every library has the same network with the same weights, as many threads as there are processors,
an allocator that keeps freed memory (`jaxcnn.keep_freed_memory`), and one batch in memory as
float32. A train step is forward pass, cross-entropy, backward pass and update. An inference is a
forward pass that returns logits. In every library, ours included, a step or an inference is one
Python call on that batch; a sample is several calls one after the other, up to the result of the
last one. Ours is timed once more as `jaxcnn.training.fit` runs it: many steps in one call, which
also gathers each batch from data on the device and sums the metrics (`many_steps`).

A launch starts all processes, checks that all compute the same, and times them in turn. There are
several launches (``--launches``), because a process keeps what it happened to get, such as the
place of its memory: medians and intervals are over launches (`measure.launches`). Plain Flax is
launched once, as are the variants of PyTorch and Keras in the work, training or inference, in which
they are far slower than the fastest one (`peers.ratios.contenders`). Programs are compiled in the
first launch and loaded from caches of compiled programs in the others. The best peer is the PyTorch
or Keras variant with the smallest median; PyTorch's variants are eager and compiled, in both memory
formats, for inference also compiled with frozen weights.

In bfloat16, PyTorch uses its autocast; the others are left out. On a GPU, ours is compared with
PyTorch in the layout that its convolutions are fastest in, eager and compiled. There, peers are
started one after the other, because each may need most of the memory, and every network has
several batch sizes, of which each library may use its best.

A network is one of `jaxcnn.models`, or a user's own in plain Flax (`peers.user_networks`), which
`jaxcnn.training.create` accelerates as it is.

The optimizer is the recipe's: SGD, momentum SGD or Adam. RMSprop is replaced by Adam, as the
libraries place the ε of RMSprop differently. Training on noise does not diverge with the learning
rate (`peers_cases.LEARNING_RATE`). Weight decay is the recipe's; the moving average is left out.
"""

import contextlib
import importlib.metadata
import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.launches import launch_medians
from experiments.peers import task_file
from experiments.peers.definition import make_task, thread_count
from experiments.peers.launch import Launch, LaunchFailed, run_launch
from experiments.peers.process import PEERS, Worker, missing_packages
from experiments.peers.ratios import compute_metrics, contenders
from experiments.studies.peers_cases import peers_of
from jaxcnn.parallel.options import compiler_options

T = TypeVar("T")
COLUMNS = (
    "step_time",
    "best_peer_step_time",
    "train_over_best_peer",
    "many_steps_over_best_peer",
    "inference_over_best_peer",
    "frozen_inference_over_best_peer",
    "train_over_flax",
    "mfu_measured_peak",
    "memory_over_pytorch",
    "time_to_first_step",
    "time_to_first_step_cached",
)
ROUNDS = {"quick": 7, "full": 5}
SAMPLE_SECONDS = {"quick": 0.1, "full": 0.3}


def measure(case: Case, context: Context) -> CaseResult:
    """Launches all peers several times, and compares ours with them over the launches."""
    platform = context.backend.platform
    one_at_a_time = platform != "cpu"  # peers on an accelerator take its memory
    task = make_task(case.config, platform)
    remarks = _remarks(case.config, platform)
    with tempfile.TemporaryDirectory(prefix="jaxcnn-peers-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "task.npz"
        task_file.save(task, file)
        start = partial(
            Worker,
            task=file,
            platform=platform,
            threads=task.threads,
            time_limit=case.config.time_limit,
            # Later launches load what the first one compiled.
            environment={
                "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            },
        )
        say = partial(context.console.print, highlight=False)
        for remark in remarks:
            say(remark)
        say(f"{case.config.model}: the first step, without and with a compilation cache")
        first_steps, winograd = _measure_first_steps(start)
        try:
            launches = _run_launches(case, start, say, one_at_a_time=one_at_a_time)
        except LaunchFailed as error:
            provenance = {"differences": error.differences, "remarks": remarks}
            return CaseResult(provenance=provenance, status="failed", message=str(error))
    return _result(
        case,
        platform,
        launches,
        first_steps,
        remarks,
        paired=not one_at_a_time,
        winograd=winograd,
    )


def _measure_first_steps(start: Callable[[str], Worker]) -> tuple[dict[str, float], bool]:
    """Seconds from the start of our process to its first finished step; the FLOPs of a step.

    The seconds include importing, building and compiling; first with an empty compilation cache,
    then with a full one.

    Returns:
      Metrics, and whether the step has convolutions by Winograd's method.
    """
    metrics = {}
    for name in ("time_to_first_step", "time_to_first_step_cached"):
        start_time = time.perf_counter()
        with contextlib.closing(start("ours")) as worker:
            worker.call("first_step")
            metrics[name] = time.perf_counter() - start_time
            step_metrics = worker.call("step_metrics")
            winograd = worker.call("uses_winograd")
    return metrics | step_metrics, winograd


def _run_launches(
    case: Case, start: Callable[[str], Worker], say: Callable[[str], None], *, one_at_a_time: bool
) -> list[Launch]:
    """After the first launch only `contenders`, without the peers that were excluded."""
    preset, count = case.config.preset, case.settings["launches"]
    works = {peer: PEERS[peer].works for peer in case.settings["peers"]}
    launches: list[Launch] = []
    for number in range(count):
        title = f"{case.config.model}, launch {number + 1} of {count}"
        launch = run_launch(
            start,
            works,
            ROUNDS[preset],
            precision=case.config.precision,
            one_at_a_time=one_at_a_time,
            sample=SAMPLE_SECONDS[preset],
            calls=launches[0].rounds.calls if launches else None,
            report=partial(_report, say, title),
        )
        remaining = contenders(launch.rounds.samples)
        works = {peer: each for peer, each in remaining.items() if peer not in launch.excluded}
        launches.append(launch)
    return launches


def _report(say: Callable[[str], None], title: str, peer: str) -> None:
    say(f"{title}: {peer} compiles")


def _result(
    case: Case,
    platform: str,
    launches: Sequence[Launch],
    first_steps: dict[str, float],
    remarks: Sequence[str],
    *,
    paired: bool,
    winograd: bool,
) -> CaseResult:
    excluded = {peer: reason for launch in launches for peer, reason in launch.excluded.items()}
    samples = _by_name([launch.rounds.samples for launch in launches])
    samples = {n: each for n, each in samples.items() if n.partition(":")[0] not in excluded}
    memory = _by_name([launch.memory for launch in launches])
    known = {peer: peaks for peer, peaks in memory.items() if None not in peaks}
    metrics, best_peers = compute_metrics(samples, known, paired=paired)
    metrics |= first_steps
    metrics |= {
        "flops_per_second": metrics["flops_per_step"] / metrics["step_time"],
        "images_per_second": case.config.batch_size / metrics["step_time"],
    }
    provenance = {
        **best_peers,
        "peer_versions": _versions(case.settings["peers"]),
        "strategy_devices": 1,
        "threads": thread_count(),
        "compiler_options": compiler_options(platform),
        "winograd": winograd,
        "rounds_per_launch": ROUNDS[case.config.preset],
        "calls_per_sample": {name: launches[0].rounds.calls[name] for name in samples},
        "launch_medians": {name: launch_medians(each) for name, each in samples.items()},
        "idle_load": max(launch.rounds.idle_load for launch in launches),
        "memory_peaks": memory,
        "freed_memory_kept_by_peer": launches[0].freed_memory_kept,
        "differences": launches[0].differences,
        "remarks": [
            *remarks,
            *(f"excluded: {reason}" for reason in excluded.values()),
        ],
    }
    flat = {name: [*itertools.chain(*each)] for name, each in samples.items()}
    return CaseResult(metrics, flat, provenance=provenance)


def _by_name(launches: Sequence[Mapping[str, T]]) -> dict[str, list[T]]:
    """The values of all launches that have them, by name."""
    names = dict.fromkeys(itertools.chain(*launches))
    return {name: [launch[name] for launch in launches if name in launch] for name in names}


def _versions(peers: Sequence[str]) -> dict[str, str]:
    packages = {package for peer in peers for package in PEERS[peer].packages}
    return {package: importlib.metadata.version(package) for package in sorted(packages)}


def _remarks(config: RunConfig, platform: str) -> list[str]:
    peers = peers_of(config, platform)
    missing = sorted({package for peer in peers for package in missing_packages(peer)})
    if not missing:
        return []
    return [
        f"not installed: {', '.join(missing)}; pip install -e '.[peers]' adds the missing peers"
    ]
