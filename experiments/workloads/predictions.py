"""What a network answers to each example of a split: an evaluation that keeps its rows, for whoever asks which were wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.data.resident import ResidentFeed
from jaxcnn.training import EvalStep, TrainState, class_logits
from jaxcnn.training.objective import Batch
from jaxcnn.training.step import UNSHARDED, BatchSharding

ROWS = {"label": jnp.int32, "predicted": jnp.int32, "probability": jnp.float32}


@dataclass(frozen=True)
class Predictions:
    """The answers to the N examples of a split, in its order.

    Attributes:
      label: ``i32[N]``, the true classes.
      predicted: ``i32[N]``, the likeliest classes; of equals the first.
      probability: ``f32[N]``, that the network gives them.
      loss: summed, in nats.
    """

    label: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    loss: float

    @property
    def means(self) -> dict[str, float]:
        """``accuracy`` and mean ``loss``: the accuracy of these very answers, to the last bit."""
        count = len(self.label)
        return {
            "accuracy": int(np.sum(self.predicted == self.label)) / count,
            "loss": self.loss / count,
        }


@dataclass(frozen=True)
class PredictionStep:
    """``step(state, batch) -> found``: like the evaluation that it is made of, but of every row."""

    evaluation: EvalStep

    def __call__(
        self, state: TrainState, batch: Batch, sharding: BatchSharding = UNSHARDED
    ) -> dict[str, Array]:
        """Rows of the global batch, those that only fill it up too, and the summed loss without them.

        Returns:
          ``label``, ``predicted`` and ``probability``, each ``[N]``, and ``loss`` ``f32[]``.
        """
        outputs = self.evaluation.outputs(state, batch["image"])
        logits = class_logits(outputs)
        rows = {
            "label": batch["label"],
            "predicted": jnp.argmax(logits, axis=-1).astype(jnp.int32),
            "probability": jnp.max(jax.nn.softmax(logits), axis=-1),
        }
        if sharding.axis_name:  # each device has its share, in the order of the devices
            rows = {
                name: lax.all_gather(values, sharding.axis_name, tiled=True)
                for name, values in rows.items()
            }
        return rows | {
            "loss": sharding.psum(self.evaluation.network.objective(outputs, batch)["loss"])
        }


def predict_dataset(step: PredictionStep, feed: ResidentFeed, most: int):
    """``run(state, data, count) -> found``: the answers to the first `count` of at most `most` examples on the device.

    The arrays are as long as whole batches of `most` examples; what lies after the first `count` is to be cut off.
    """
    capacity = -(-most // feed.batch_size) * feed.batch_size

    def run(
        state: TrainState, data: Any, count: Array, sharding: BatchSharding = UNSHARDED
    ) -> dict[str, Array]:
        def body(i, kept):
            found = step(state, feed.evaluation_batch(data, i, count, sharding), sharding)
            rows = {
                name: lax.dynamic_update_slice_in_dim(
                    kept[name], found[name], i * feed.batch_size, 0
                )
                for name in ROWS
            }
            return rows | {"loss": kept["loss"] + found["loss"]}

        empty = {name: jnp.zeros(capacity, dtype) for name, dtype in ROWS.items()} | {
            "loss": jnp.zeros(())
        }
        return lax.fori_loop(0, feed.evaluation_batches(count), body, empty)

    return run


def join(parts: Sequence[dict[str, Array]], count: int) -> Predictions:
    """What the steps found, one after the other, without what only filled up the last batch."""
    parts = jax.device_get(parts)
    rows = {name: np.concatenate([part[name] for part in parts])[:count] for name in ROWS}
    return Predictions(**rows, loss=sum(float(part["loss"]) for part in parts))
