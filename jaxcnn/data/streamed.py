"""The streamed pipeline: worker processes read and fit images while the device computes.

Its batches are those of the resident pipeline, byte for byte.
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

from jaxcnn.data.order import epoch_order
from jaxcnn.data.source import Split

HostBatch = dict[str, np.ndarray]

_QUIET = "ignore:resource_tracker:UserWarning"  # of Python's own process that clears away what an interrupted worker left in shared memory


@dataclass(frozen=True)
class TrainBatches:
    """``batches[i]`` is the batch of train step i; the split's images all have one shape."""

    split: Split
    batch_size: int
    seed: int = 0

    @property
    def per_epoch(self) -> int:
        return len(self.split) // self.batch_size

    def __getitem__(self, step: int) -> HostBatch:
        epoch, place = divmod(step, self.per_epoch)
        rows = _order(len(self.split), self.seed, epoch)[place * self.batch_size :][
            : self.batch_size
        ]
        return _read(self.split, rows)


@dataclass(frozen=True)
class EvaluationBatches:
    """``batches[i]`` is the evaluation batch i of ``len(batches)``; the last is filled up with masked rows."""

    split: Split
    batch_size: int

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __getitem__(self, index: int) -> HostBatch:
        rows = index * self.batch_size + np.arange(self.batch_size)
        batch = _read(self.split, np.minimum(rows, len(self.split) - 1))
        return batch | {"mask": (rows < len(self.split)).astype(np.float32)}


def stream(
    batches: TrainBatches | EvaluationBatches, start: int, stop: int, workers: int
) -> Iterator[HostBatch]:
    """The batches from `start` to before `stop`, in order.

    Args:
      batches: what to read.
      start: first index; a resumed run starts at its step.
      stop: one past the last index.
      workers: processes that read ahead; 0 reads ahead in threads of this process.
    """
    import grain
    from absl import flags

    dataset = grain.MapDataset.range(start, stop).map(batches.__getitem__)
    reading = dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
    if workers:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # grain reads absl flags, which this program does not use
        if _QUIET not in sys.warnoptions:
            sys.warnoptions.append(_QUIET)  # that process is started with them
        options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
        reading = reading.mp_prefetch(options, worker_init_fn=_end_with_parent)
    for batch in reading:
        yield {
            name: np.array(value) for name, value in batch.items()
        }  # out of the workers' shared memory


def _end_with_parent(worker: int, workers: int) -> None:
    """Ctrl-C is the parent's affair, and a worker whose parent was killed would wait for it for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("absl").setLevel(logging.ERROR)  # TFDS would recommend OpenCV once a worker

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@functools.lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    return epoch_order(count, seed, epoch)


def _read(split: Split, rows: np.ndarray) -> HostBatch:
    examples = split.read(rows.tolist())
    return {
        "image": np.stack([image for image, _ in examples]),
        "label": np.array([label for _, label in examples], np.int32),
    }
