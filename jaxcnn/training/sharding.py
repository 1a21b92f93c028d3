"""What a step needs to know of its strategy: how devices divide the batch and the parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from jax import Array, lax

from jaxcnn.ops.layout import ChannelLayout
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.state import PyTree, TrainState


class LayerSharding(Protocol):
    """How a strategy computes a step whose layers are on several devices.

    The steps are a `TrainStep` and an `EvalStep`.
    """

    def train(self, step: Any, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """What `TrainStep.__call__` returns."""
        ...

    def outputs(self, step: Any, state: TrainState, images: Array) -> Array:
        """What `EvalStep.outputs` returns."""
        ...


@dataclass(frozen=True)
class BatchSharding:
    """How a strategy divides the work among devices: all that a step needs to know of it.

    Attributes:
      axis_name: the mapped axis to sum over where each device runs the step on its own share of
        the batch (`jax.pmap`); None where the program sees the whole batch.
      shard: maps row indices of the global batch, ``i32[N]``, to those that this program works on.
      gather: maps parameters as they are stored to those that the network computes with.
      channel_layout: where activations lie if devices divide their channels.
      layers: computes the step where devices have different layers of the network and not shares
        of the batch; None where each device has all layers.
    """

    axis_name: str | None = None
    shard: Callable[[Array], Array] = lambda rows: rows
    gather: Callable[[PyTree], PyTree] = lambda params: params
    channel_layout: ChannelLayout | None = None
    layers: LayerSharding | None = None

    def psum(self, tree: PyTree) -> PyTree:
        """Sums each leaf over all shares of the batch."""
        return lax.psum(tree, self.axis_name) if self.axis_name else tree


UNSHARDED = BatchSharding()
