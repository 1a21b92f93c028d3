"""The prediction of a network for every example of a split: an evaluation that keeps its rows."""

from collections.abc import Callable, Sequence
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

COLUMNS = {"label": jnp.int32, "predicted": jnp.int32, "probability": jnp.float32}


@dataclass(frozen=True)
class Predictions:
    """The predictions for the N examples of a split, in the order of the split.

    Attributes:
      label: ``i32[N]``, the true classes.
      predicted: ``i32[N]``, the most probable classes; the first of several with equal probability.
      probability: ``f32[N]``, the probabilities of the predicted classes.
      loss: the sum over all examples, in nats.
    """

    label: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    loss: float

    @property
    def means(self) -> dict[str, float]:
        """The ``accuracy``, computed from exactly these predictions, and the mean ``loss``."""
        count = len(self.label)
        return {
            "accuracy": int(np.sum(self.predicted == self.label)) / count,
            "loss": self.loss / count,
        }


@dataclass(frozen=True)
class PredictionStep:
    """``step(state, batch) -> columns``: the predictions for every row of a batch.

    Attributes:
      evaluation: the evaluation step whose network and objective are used.
    """

    evaluation: EvalStep

    def __call__(
        self, state: TrainState, batch: Batch, sharding: BatchSharding = UNSHARDED
    ) -> dict[str, Array]:
        """Predicts the rows of a batch.

        Args:
          state: of training.
          batch: see `jaxcnn.training.objective`.
          sharding: the share of the batch that this device has.

        Returns:
          ``label``, ``predicted`` and ``probability``, each ``[N]`` over the global batch, padding
          included, and ``loss: f32[]``, the sum without the padding.
        """
        outputs = self.evaluation.outputs(state, batch["image"], sharding)
        logits = class_logits(outputs)
        columns = {
            "label": batch["label"],
            "predicted": jnp.argmax(logits, axis=-1).astype(jnp.int32),
            "probability": jnp.max(jax.nn.softmax(logits), axis=-1),
        }
        if sharding.axis_name:  # gather the shares in the order of the devices
            columns = {
                name: lax.all_gather(values, sharding.axis_name, tiled=True)
                for name, values in columns.items()
            }
        sums = self.evaluation.network.objective(outputs, batch)
        return columns | {"loss": sharding.psum(sums["loss"])}


def predict_dataset(
    step: PredictionStep, feed: ResidentFeed, max_count: int
) -> Callable[..., dict[str, Array]]:
    """Builds a function that predicts a data set on the device in one dispatch.

    Args:
      step: predicts a batch.
      feed: gathers the batches.
      max_count: the largest number of examples.

    Returns:
      ``run(state, data, count) -> columns``, which predicts the first `count` examples. Its columns
      have a whole number of batches of rows; those after the first `count` are padding.
    """
    capacity = -(-max_count // feed.batch_size) * feed.batch_size

    def run(
        state: TrainState, data: Any, count: Array, sharding: BatchSharding = UNSHARDED
    ) -> dict[str, Array]:
        def body(i, totals):
            batch = step(state, feed.evaluation_batch(data, i, count, sharding), sharding)
            columns = {
                name: lax.dynamic_update_slice_in_dim(
                    totals[name], batch[name], i * feed.batch_size, 0
                )
                for name in COLUMNS
            }
            return columns | {"loss": totals["loss"] + batch["loss"]}

        zeros = {name: jnp.zeros(capacity, dtype) for name, dtype in COLUMNS.items()}
        zeros |= {"loss": jnp.zeros(())}
        return lax.fori_loop(0, feed.evaluation_batches(count), body, zeros)

    return run


def join(parts: Sequence[dict[str, Array]], count: int) -> Predictions:
    """Joins the results of one or more steps and cuts off the padding of the last batch.

    Args:
      parts: results of a `PredictionStep` or of `predict_dataset`, in order.
      count: the number of examples.
    """
    parts = jax.device_get(parts)
    columns = {name: np.concatenate([part[name] for part in parts])[:count] for name in COLUMNS}
    return Predictions(**columns, loss=sum(float(part["loss"]) for part in parts))
