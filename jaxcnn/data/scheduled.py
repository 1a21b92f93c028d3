"""Batches from a table of row indices.

The table is part of the data, so runs with other orders or other subsets share one program.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array

from jaxcnn.data.order import epoch_order
from jaxcnn.data.resident import Data
from jaxcnn.errors import InputError


@dataclass(frozen=True)
class ScheduledFeed:
    """Gathers batches from a dataset on the device, by the rows of a table.

    The dataset is a dict: ``data["image"]: u8[N, H, W, C]``, ``data["label"]: i32[N]`` and
    ``data["rows"]: i32[capacity, batch]``, see `batch_rows`.

    Attributes:
      capacity: number of steps in the table; after the last one it starts over.
    """

    capacity: int

    def order(self, data: Data, step: Array) -> Array:
        """``i32[capacity, batch]``: the table."""
        return data["rows"]

    def batch(self, data: Data, order: Array, step: Array, sharding: Any) -> Data:
        """The training batch of a step.

        Args:
          data: the dataset on the device.
          order: the table.
          step: ``i32[]``.
          sharding: its ``shard(rows)`` selects the rows of the batch that this program works on.

        Returns:
          ``image: u8[batch, H, W, C]`` and ``label: i32[batch]``.
        """
        rows = sharding.shard(order[step % self.capacity])
        return {"image": data["image"][rows], "label": data["label"][rows]}


def batch_rows(
    rows: Sequence[int] | np.ndarray, steps: int, batch_size: int, seed: int
) -> np.ndarray:
    """The rows of each step's batch: whole batches, each epoch in the order of `epoch_order`.

    Args:
      rows: rows of the dataset to train on.
      steps: number of train steps.
      batch_size: rows of a batch.
      seed: seed of the order.

    Returns:
      ``i32[steps, batch_size]``.

    Raises:
      InputError: there are fewer rows than a batch has.

    >>> np.sort(batch_rows([5, 6, 7, 8], 2, 2, seed=0), axis=None).tolist()
    [5, 6, 7, 8]
    """
    table, per_epoch = np.asarray(rows, np.int32), len(rows) // batch_size
    if not per_epoch:
        raise InputError(f"batch size {batch_size} is larger than the {len(rows)} rows to train on")
    orders = [epoch_order(len(rows), seed, epoch) for epoch in range(-(-steps // per_epoch))]
    batches = [order[: per_epoch * batch_size].reshape(per_epoch, batch_size) for order in orders]
    return table[np.concatenate(batches)[:steps]]
