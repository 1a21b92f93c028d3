"""Evaluation of images together with their mirror images."""

from dataclasses import dataclass

from jax import Array

from jaxcnn.training import EvalStep, TrainState
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.step import UNSHARDED, BatchSharding


@dataclass(frozen=True)
class MirroredEvaluation:
    """``step(state, batch) -> metrics`` of the mean logits of each image and its mirror image.

    It takes twice the time of an evaluation, and its accuracy is not comparable with that of a
    network that sees each image once.

    Attributes:
      evaluation: the evaluation step of the network.
    """

    evaluation: EvalStep
    metrics = EvalStep.metrics

    def __call__(
        self, state: TrainState, batch: Batch, sharding: BatchSharding = UNSHARDED
    ) -> Metrics:
        """Computes masked sums over the global batch; see `EvalStep.__call__`."""
        logits = self.outputs(state, batch["image"], sharding)
        return sharding.psum(self.evaluation.network.objective(logits, batch))

    def outputs(
        self, state: TrainState, images: Array, sharding: BatchSharding = UNSHARDED
    ) -> Array:
        """The mean logits for images ``[N, H, W, C]``, ``f32[N, classes]``."""
        outputs = self.evaluation.outputs
        mirrored = outputs(state, images[:, :, ::-1], sharding)
        return (outputs(state, images, sharding) + mirrored) / 2
