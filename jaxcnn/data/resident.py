"""The resident pipeline: the whole set lies on the device as bytes, and the compiled step picks its own batch."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxcnn.data.order import epoch_order

Data = dict[str, Array]


@dataclass(frozen=True)
class ResidentFeed:
    """Batches of a set that is on the device: ``data["image"]: u8[N, H, W, C]``, ``data["label"]: i32[N]``.

    Attributes:
      count: examples in the training set.
      batch_size: rows of the global batch.
      seed: of the order.
    """

    count: int
    batch_size: int
    seed: int = 0

    @property
    def capacity(self) -> int:
        """Training steps in an epoch; what is left after the last whole batch waits for another epoch's order."""
        return self.count // self.batch_size

    def order(self, data: Data, step: Array) -> Array:
        """``i[count]``: the order of the epoch that a step falls into."""
        return epoch_order(self.count, self.seed, step // self.capacity, jnp)

    def batch(self, data: Data, order: Array, step: Array, sharding: Any) -> Data:
        """The training batch of a step, as far as this program works on it."""
        first = step % self.capacity * self.batch_size
        rows = order[sharding.shard(first + jnp.arange(self.batch_size))]
        return {"image": data["image"][rows], "label": data["label"][rows]}

    def evaluation_batches(self, count: Array) -> Array:
        """Batches in an evaluation of `count` examples, the last one filled up with masked rows."""
        return -(-count // self.batch_size)

    def evaluation_batch(self, data: Data, index: Array, count: Array, sharding: Any) -> Data:
        """One of them: rows from `count` on repeat the last example and are masked."""
        rows = sharding.shard(index * self.batch_size + jnp.arange(self.batch_size))
        inside = jnp.minimum(rows, count - 1)
        return {
            "image": data["image"][inside],
            "label": data["label"][inside],
            "mask": (rows < count).astype(jnp.float32),
        }
