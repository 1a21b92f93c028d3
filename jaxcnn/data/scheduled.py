"""Batches by a table of rows that is data itself: runs in other orders, over other parts of a set, share one program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array

from jaxcnn.data.order import epoch_order
from jaxcnn.data.resident import Data


@dataclass(frozen=True)
class ScheduledFeed:
    """Batches of a set on the device: ``data["image"]``, ``data["label"]`` and ``data["rows"]: i32[capacity, batch]``.

    Attributes:
      capacity: rows of the table, a step each; after the last comes the first again.
    """

    capacity: int

    def order(self, data: Data, step: Array) -> Array:
        """The table."""
        return data["rows"]

    def batch(self, data: Data, order: Array, step: Array, sharding: Any) -> Data:
        """The training batch of a step, as far as this program works on it."""
        rows = sharding.shard(order[step % self.capacity])
        return {"image": data["image"][rows], "label": data["label"][rows]}


def table(rows: Sequence[int], steps: int, batch_size: int, seed: int) -> np.ndarray:
    """The rows of each step's batch, epoch by epoch in the order of `epoch_order`, whole batches alone.

    Returns:
      ``i32[steps, batch_size]``.

    >>> np.sort(table([5, 6, 7, 8], 2, 2, seed=0), axis=None).tolist()
    [5, 6, 7, 8]
    """
    rows, per_epoch = np.asarray(rows, np.int32), len(rows) // batch_size
    orders = [epoch_order(len(rows), seed, epoch) for epoch in range(-(-steps // per_epoch))]
    batches = [order[: per_epoch * batch_size].reshape(per_epoch, batch_size) for order in orders]
    return rows[np.concatenate(batches)[:steps]]
