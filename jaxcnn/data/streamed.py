"""The streamed pipeline: worker processes read and fit images while the device computes.

Its batches equal those of the resident pipeline, byte for byte.
"""

import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jaxcnn.data.order import alternating_flips, epoch_order
from jaxcnn.data.source import Split

HostBatch = dict[str, np.ndarray]

# Python's resource tracker is a process of its own. It cleans up the shared memory of workers that
# were interrupted, and would warn about it.
_NO_TRACKER_WARNING = "ignore:resource_tracker:UserWarning"


@dataclass(frozen=True)
class TrainBatches:
    """Training batches by index: ``batches[i]`` is the batch of train step i.

    A batch has ``image: u8[n, h, w, c]`` and ``label: i32[n]``: the n rows of this process.

    Attributes:
      split: the training set; all its images have one shape.
      batch_size: rows of the global batch.
      seed: seed of the order.
      flips: mirror each image in every second epoch, see `order.alternating_flips`.
      local_rows: ``i[n]``, the rows of the global batch that this process reads; None for all.
    """

    split: Split
    batch_size: int
    seed: int = 0
    flips: bool = False
    local_rows: np.ndarray | None = None

    @property
    def per_epoch(self) -> int:
        """The number of whole batches in an epoch."""
        return len(self.split) // self.batch_size

    def __getitem__(self, step: int) -> HostBatch:
        epoch, index = divmod(step, self.per_epoch)
        order = _cached_epoch_order(len(self.split), self.seed, epoch)
        rows = order[index * self.batch_size + _local(self.local_rows, self.batch_size)]
        batch = _read_batch(self.split, rows)
        if self.flips:
            mirrored = alternating_flips(rows, self.seed, epoch)
            batch["image"][mirrored] = batch["image"][mirrored, :, ::-1]
        return batch


@dataclass(frozen=True)
class EvaluationBatches:
    """Evaluation batches by index: each example once, the last batch padded with masked rows.

    A batch has ``image: u8[n, h, w, c]``, ``label: i32[n]`` and ``mask: f32[n]``, 0 for padding:
    the n rows of this process.

    Attributes:
      split: the examples; all images have one shape.
      batch_size: rows of the global batch.
      local_rows: ``i[n]``, the rows of the global batch that this process reads; None for all.
    """

    split: Split
    batch_size: int
    local_rows: np.ndarray | None = None

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __getitem__(self, index: int) -> HostBatch:
        rows = index * self.batch_size + _local(self.local_rows, self.batch_size)
        batch = _read_batch(self.split, np.minimum(rows, len(self.split) - 1))
        return batch | {"mask": (rows < len(self.split)).astype(np.float32)}


def stream(
    batches: TrainBatches | EvaluationBatches, start: int, stop: int, workers: int
) -> Iterator[HostBatch]:
    """Reads the batches ``start … stop - 1`` ahead and yields them in order.

    Args:
      batches: the batches to read.
      start: first index; the step from which a resumed run continues.
      stop: one past the last index.
      workers: number of processes that read ahead; 0 uses threads of this process instead.
    """
    import grain
    from absl import flags

    dataset = grain.MapDataset.range(start, stop).map(batches.__getitem__)
    prefetched = dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
    if workers:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # grain reads absl flags, which this program does not use
        if _NO_TRACKER_WARNING not in sys.warnoptions:
            sys.warnoptions.append(_NO_TRACKER_WARNING)  # the tracker process inherits them
        options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
        prefetched = prefetched.mp_prefetch(options, worker_init_fn=_initialize_worker)
    for batch in prefetched:
        # Copies, because the originals lie in shared memory of the workers.
        yield {name: np.array(value) for name, value in batch.items()}


def _initialize_worker(worker: int, workers: int) -> None:
    """Ignores Ctrl-C, which the parent handles, and exits with the parent even if that was killed.

    Without the second, a worker would wait for a killed parent forever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # TFDS would recommend OpenCV once per worker.
    logging.getLogger("absl").setLevel(logging.ERROR)

    def exit_with_parent() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


@functools.lru_cache(maxsize=2)
def _cached_epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    return epoch_order(count, seed, epoch)


def _local(rows: np.ndarray | None, batch_size: int) -> np.ndarray:
    return np.arange(batch_size) if rows is None else rows


def _read_batch(split: Split, rows: np.ndarray) -> HostBatch:
    examples = split.read(rows.tolist())
    return {
        "image": np.stack([image for image, _ in examples]),
        "label": np.array([label for _, label in examples], np.int32),
    }
