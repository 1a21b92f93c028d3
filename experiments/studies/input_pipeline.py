"""The way of images from files to the device: how many per second, by the number of workers.

The pipeline is the streamed one of a training: worker processes read and decode files and fit the
images to the network's size, and the batch is copied to the device. Nothing computes meanwhile.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil

from experiments.analysis.input_rate import describe_workers
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.intervals import median_interval
from experiments.measure.noise import noise
from experiments.workloads import jpeg_files
from jaxcnn import data
from jaxcnn.backend import Backend
from jaxcnn.data.source import ArraySplit, Split
from jaxcnn.data.streamed import TrainBatches, stream
from jaxcnn.errors import InputError

GENERATED = f"generated JPEG, {jpeg_files.WIDTH}x{jpeg_files.HEIGHT}"
IMAGE_SIZE, CHANNELS = 224, 3
BATCH_SIZES = {"quick": 32, "full": 128}
FILES = {"quick": 128, "full": 1024}  # generated
BUDGETS = {"quick": 2.0, "full": 10.0}  # seconds of sampling
MIN_SAMPLES = 7
BUFFERED = 8  # batches for each worker that lie ready when the first one is taken, at most
_DEFAULT_DATASET = "digits"  # which has no files
COLUMNS = ("images_per_second", "call_time", "bytes_per_second")


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each number of workers: none, one, two, four, … up to the number of processors.

    ``--dataset`` names the images, ``--image-size`` their side on the device and ``--batch-size``
    their number in a batch.
    """
    config = config.with_defaults(
        {"image_size": IMAGE_SIZE, "batch_size": BATCH_SIZES[config.preset]}
    )
    is_generated = config.dataset == _DEFAULT_DATASET
    settings: dict[str, Any] = {
        "dataset": GENERATED if is_generated else config.dataset,
        "image_size": config.image_size,
        "batch_size": config.batch_size,
        "preset": config.preset,
    }
    fingerprint = "" if is_generated else data.fingerprint(config.dataset, data_dir=config.data_dir)
    return [
        Case(
            config.replace(workers=workers),
            settings | {"point": describe_workers(workers), "workers": workers},
            (f"{workers}-workers", f"{config.image_size}px", f"b{config.batch_size}"),
            fingerprint,
        )
        for workers in worker_counts(psutil.cpu_count() or 1)
    ]


def worker_counts(processors: int) -> list[int]:
    """None, the powers of two below the number of processors, and that number.

    >>> worker_counts(6)
    [0, 1, 2, 4, 6]
    """
    powers = {2**power for power in range(processors.bit_length()) if 2**power < processors}
    return sorted({0, processors} | powers)


def has_figures_of_merit(case: Case, backend: Backend) -> bool:
    """Its rates are those of the host."""
    return False


def measure(case: Case, context: Context) -> CaseResult:
    """Images per second that arrive on the first device, for one number of workers."""
    config, device = case.config, context.backend.devices[0]
    with tempfile.TemporaryDirectory(prefix="jaxcnn-") as folder:
        dataset = config.dataset
        if dataset == _DEFAULT_DATASET:
            jpeg_files.write_jpegs(Path(folder), FILES[config.preset], config.seed)
            dataset = f"folder:{folder}"
        shape = (config.image_size, config.image_size, CHANNELS)
        source = _open(dataset, shape, config)
        split = source.train
        if len(split) < config.batch_size:
            raise InputError(
                f"--batch-size={config.batch_size}: {config.dataset} has only {len(split)} "
                "training images; choose a batch size up to that"
            )
        batches = TrainBatches(data.FittedSplit(split, shape), config.batch_size, config.seed)
        arriving = _on_device(stream(batches, 0, 2**31, config.workers), device)
        samples = sample_batches(arriving, config.workers, BUDGETS[config.preset])
    seconds = float(np.median(samples))
    low, high = median_interval(samples)
    return CaseResult(
        {
            "call_time": seconds,
            "call_time_low": low,
            "call_time_high": high,
            "images_per_second": config.batch_size / seconds,
            "bytes_per_second": config.batch_size * int(np.prod(shape)) / seconds,
        },
        {"call_time": samples},
        provenance={
            "noise": noise(samples).verdict,
            "processors": os.cpu_count(),
            "notes": list(source.notes),
            "remarks": _remarks(split),
        },
    )


def _open(dataset: str, shape: tuple[int, int, int], config: RunConfig) -> data.Dataset:
    return data.open_dataset(
        dataset, shape=shape, data_dir=config.data_dir, skip_bad_images=config.skip_bad_images
    )


def sample_batches(
    batches: Iterator[Any],
    workers: int,
    budget: float,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds per batch, each sample the mean over a round of all workers.

    Args:
      batches: endless. The first ones lie ready in buffers: they are taken, and not timed.
      workers: that read them.
      budget: seconds of sampling; at least `MIN_SAMPLES` are taken.
      clock: returns seconds.
    """
    sources = max(workers, 1)
    for _ in itertools.islice(batches, BUFFERED * sources):
        pass
    samples: list[float] = []
    begin = last = clock()
    while len(samples) < MIN_SAMPLES or last - begin < budget:
        for _ in itertools.islice(batches, 2 * sources):
            pass
        now = clock()
        samples.append((now - last) / (2 * sources))
        last = now
    return samples


def _on_device(batches: Iterator[Any], device: jax.Device) -> Iterator[Any]:
    for batch in batches:
        yield jax.block_until_ready(jax.device_put(batch, device))


def _remarks(split: Split) -> list[str]:
    stored = split
    while hasattr(stored, "split"):
        stored = stored.split
    if isinstance(stored, ArraySplit):
        return ["these images lie in memory: nothing is decoded"]
    return []
