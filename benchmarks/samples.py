"""Times several calls in turn, and keeps the samples of each row of a benchmark as a record."""

import importlib.metadata
import importlib.util
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from experiments import records
from experiments.cli import parse_options
from experiments.records import Record, provenance
from jaxcnn.backend import Backend

FOLDER = "benchmarks"  # in the results folder, and among the published records
ROUNDS = 11
WARM_UP = 2  # rounds, of which the first is not timed
SLOW = 5.0  # seconds

HAS_TORCH = importlib.util.find_spec("torch") is not None

Call = Callable[[], object]  # returns when the result is there
Key = TypeVar("Key")


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measures the rows of a benchmark and writes a record of each."""

    results: str = "results"
    """The results folder."""


def results_folder(module: str) -> str:
    """The results folder, which is created, from the command line of a benchmark.

    Raises:
      InputError: it cannot be written.
    """
    return str(records.prepare_folder(parse_options(BenchmarkConfig, module, None).results))


def sample(calls: Mapping[Key, Call], rounds: int = ROUNDS) -> dict[Key, list[float]]:
    """Seconds of each call, over rounds in which all are called in turn.

    The first rounds do not count, and in the very first a call may compile. One that takes longer
    than `SLOW` after that has one sample.
    """
    for call in calls.values():
        call()
    times: dict[Key, list[float]] = {name: [] for name in calls}
    skipped = WARM_UP - 1
    for _ in range(rounds + skipped):
        for name, call in calls.items():
            if times[name] and times[name][0] > SLOW:
                continue
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: values[skipped:] or values for name, values in times.items()}


def write(
    results: str,
    benchmark: str,
    backend: Backend,
    row: int,
    settings: Mapping[str, Any],
    samples: Mapping[str, Sequence[float]],
    metrics: Mapping[str, float] | None = None,
) -> Record:
    """Writes the record of a row.

    Args:
      results: the results folder.
      benchmark: its name, as that of a study.
      backend: on which it was measured.
      row: its place in the table.
      settings: what makes the row different from others; their values name it.
      samples: seconds of each side.
      metrics: other figures, by the names of `METRICS`.
    """
    name = "-".join(re.sub(r"[^a-z0-9.]+", "_", str(value).lower()) for value in settings.values())
    versions = {"torch": importlib.metadata.version("torch")} if HAS_TORCH else {}
    record = Record(
        benchmark,
        name,
        "ok",
        settings=dict(settings),
        metrics=dict(metrics or {}),
        samples={side: list(values) for side, values in samples.items()},
        provenance=provenance.describe(backend) | {"peer_versions": versions, "row": row},
    )
    records.write(record, records.prepare_folder(results) / FOLDER)
    return record


def torch_formats(axes: int) -> dict[str, Any]:
    """PyTorch's memory formats of images with two or three axes, by the names of their sides."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    last = {2: torch.channels_last, 3: torch.channels_last_3d}[axes]
    return {"torch, channels first": torch.contiguous_format, "torch, channels last": last}
