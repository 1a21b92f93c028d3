"""The evaluation step: a pure function of a state and a batch."""

from dataclasses import dataclass

from jax import Array

from jaxcnn import ops
from jaxcnn.training.network import Network
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.sharding import UNSHARDED, BatchSharding
from jaxcnn.training.state import PyTree, TrainState


@dataclass(frozen=True)
class EvalStep:
    """``step(state, batch) -> metrics``; the state is not changed."""

    network: Network

    def __call__(
        self, state: TrainState, batch: Batch, sharding: BatchSharding = UNSHARDED
    ) -> Metrics:
        """Computes masked sums over the global batch, to be added up over batches (`means`).

        Args:
          state: the current state; its averaged parameters are used where it has any.
          batch: ``image`` u8 or f32 ``[N, H, W, C]`` and ``label`` ``i32[N]``; in a batch with
            padding rows also ``mask`` ``f32[N]``, which is 0 for those.
          sharding: supplied by the strategy.

        Returns:
          The objective's metrics: ``loss``, ``correct``, ``count`` and any others, each ``f32[]``.
        """
        outputs = self.outputs(state, batch["image"], sharding)
        return sharding.psum(self.network.objective(outputs, batch))

    def outputs(
        self, state: TrainState, images: Array, sharding: BatchSharding = UNSHARDED
    ) -> Array:
        """The network's outputs for images ``[N, H, W, C]``: logits ``f32[N, classes]``."""
        if sharding.layers:
            return sharding.layers.outputs(self, state, images)
        params = state.ema_params or state.params
        images = self.network.preprocess(images, None)

        def apply(params: PyTree, frozen: PyTree, model_state: PyTree, images: Array) -> Array:
            return self.network.apply(params, frozen, model_state, images, sharding, train=False)[0]

        is_sharded = sharding is not UNSHARDED
        infer = apply if is_sharded else ops.fuse_layers(apply)
        return infer(params, state.frozen, state.model_state, images)
