"""The resident pipeline: the device holds the dataset as bytes, the compiled step gathers batches.

`ResidentFeed` takes a `sharding` from the strategy: an object whose ``shard(rows)`` maps row
indices of the global batch, ``i32[N]``, to those that this program works on.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxcnn.data.order import alternating_flips, epoch_order

Data = dict[str, Array]


@dataclass(frozen=True)
class ResidentFeed:
    """Gathers batches from a dataset on the device, in a new order each epoch.

    The dataset is a dict: ``data["image"]: u8[N, H, W, C]``, ``data["label"]: i32[N]`` and, for
    training, ``data["seed"]: u32[]``, the seed of the order. It is not a constant of the program,
    so that trainings with different seeds share one.

    Attributes:
      count: number of examples in the training set.
      batch_size: rows of the global batch.
      flips: mirror each image in every second epoch, see `order.alternating_flips`.
    """

    count: int
    batch_size: int
    flips: bool = False

    @property
    def capacity(self) -> int:
        """Train steps in an epoch; an epoch skips the examples after its last whole batch."""
        return self.count // self.batch_size

    def order(self, data: Data, step: Array) -> Array:
        """``i[count]``: the order of the epoch that `step` belongs to."""
        return epoch_order(self.count, data["seed"], step // self.capacity, jnp)

    def batch(self, data: Data, order: Array, step: Array, sharding: Any) -> Data:
        """The training batch of a step.

        Args:
          data: the dataset on the device.
          order: from `order`, for this step's epoch.
          step: ``i32[]``.
          sharding: selects the rows of the batch that this program works on.

        Returns:
          ``image: u8[batch, H, W, C]`` and ``label: i32[batch]``.
        """
        start = step % self.capacity * self.batch_size
        rows = order[sharding.shard(start + jnp.arange(self.batch_size))]
        images = data["image"][rows]
        if self.flips:
            mirrored = alternating_flips(rows, data["seed"], step // self.capacity, jnp)
            images = jnp.where(mirrored[:, None, None, None], images[:, :, ::-1], images)
        return {"image": images, "label": data["label"][rows]}

    def evaluation_batches(self, count: Array) -> Array:
        """The number of batches for `count` examples; the last one may be padded."""
        return -(-count // self.batch_size)

    def evaluation_batch(self, data: Data, index: Array, count: Array, sharding: Any) -> Data:
        """The evaluation batch at `index`, padded with masked copies of the last example.

        Args:
          data: the dataset on the device.
          index: ``i32[]``, below `evaluation_batches`.
          count: ``i32[]``, the number of examples to evaluate.
          sharding: selects the rows of the batch that this program works on.

        Returns:
          ``image: u8[batch, H, W, C]``, ``label: i32[batch]``, and ``mask: f32[batch]``, 0 for
          padding.
        """
        rows = sharding.shard(index * self.batch_size + jnp.arange(self.batch_size))
        clipped = jnp.minimum(rows, count - 1)
        return {
            "image": data["image"][clipped],
            "label": data["label"][clipped],
            "mask": (rows < count).astype(jnp.float32),
        }
