"""What a device may compute in a train step, as functions of the number of its stage."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.parallel.packing import Buffers
from jaxcnn.parallel.schedule import Wire
from jaxcnn.parallel.staged_network import PACKED, StagedNetwork
from jaxcnn.training.microbatches import with_random_state
from jaxcnn.training.objective import Batch, Metrics
from jaxcnn.training.state import PyTree, Shapes, TrainState
from jaxcnn.training.step import TrainStep

Part = tuple[Batch, Array]  # a microbatch, and the positions of its rows in the batch


@dataclass(frozen=True)
class StageFunctions:
    """What a device may compute in a step, as functions of the number of its stage.

    Attributes:
      network, step, state: as in `staged_training.train`.
      parts: the microbatches, a `Part` of which each array is ``[M, N / M, …]``.
      examples: the number of examples in the batch, ``f32[]``.
      wire: between stages.
      metric_shapes: those of the objective's metrics.
    """

    network: StagedNetwork
    step: TrainStep
    state: TrainState
    parts: Any
    examples: Array
    wire: Wire
    metric_shapes: Shapes

    def params(self, stage: int) -> PyTree:
        """The parameters of a stage."""
        return self.network.packings["params"].unpack_part(stage, self.state.params)

    def call(
        self, stage: int, params: PyTree, x: Array, model_state: Buffers, part: Part
    ) -> tuple[Any, Buffers]:
        """The outputs of a stage and its next `model_state`.

        Keys and counters of random numbers are those before the step, as in
        `microbatches.accumulate`.
        """
        state = self.network.unpack(stage, self.state.replace(model_state=model_state))
        before = self.network.packings["model_state"].unpack_part(stage, self.state.model_state)
        paths = self.step.network.random_state
        state = state.replace(model_state=with_random_state(state.model_state, before, paths))
        batch, rows = part
        x = self.wire.read(stage - 1, x) if stage else self.step.inputs(state, batch, rows)[0]
        outputs, after = self.network.apply(
            self.step.network, stage, state.replace(params=params), x, train=True, batch_rows=rows
        )
        return outputs, self.network.packings["model_state"].pack_part(after)

    def loss(
        self, params: PyTree, x: Array, model_state: Buffers, part: Part
    ) -> tuple[Array, tuple[Metrics, Buffers]]:
        """The term of a microbatch in the scaled loss; then its metrics, and `model_state`."""
        outputs, model_state = self.call(self.network.last, params, x, model_state, part)
        _, batch = self.step.inputs(self.state, *part)
        metrics = self.step.training_objective(outputs, batch)
        scale = self.step.loss_scale(self.state)
        return metrics["loss"] / self.examples * scale, (metrics, model_state)

    def forward(
        self, stage: int, x: Array, model_state: Buffers, part: Part
    ) -> tuple[Array, Buffers]:
        """What a stage passes on, and its next `model_state`."""
        outputs, model_state = self.call(stage, self.params(stage), x, model_state, part)
        return self.wire.write(outputs), model_state

    def backward(
        self, stage: int, x: Array, model_state: Buffers, part: Part, cotangent: Array
    ) -> tuple[Array, tuple[Buffers, Metrics], Buffers]:
        """What a stage passes back, its gradients and metrics, and its next `model_state`."""
        params, pack = self.params(stage), self.network.packings["params"].pack_part
        if stage == self.network.last:
            differentiate = jax.grad(self.loss, argnums=(0, 1), has_aux=True)
            (grads, dx), (metrics, after) = differentiate(params, x, model_state, part)
            return dx, (pack(grads), metrics), after

        def call(params, x):
            return self.call(stage, params, x, model_state, part)

        _, pull_back, after = jax.vjp(call, params, x, has_aux=True)
        grads, dx = pull_back(self.wire.read(stage, cotangent))
        return dx, (pack(grads), self.zero_metrics()), after

    def zero_metrics(self) -> Metrics:
        """Zeros in place of the metrics of the objective."""
        return jax.tree.map(jnp.zeros_like, self.metric_shapes)

    def penalty(self, stage: int) -> tuple[Array, Buffers]:
        """The penalty of a stage's parameters, and its gradients."""
        penalty, grads = jax.value_and_grad(self.step.penalty)(self.params(stage))
        return penalty, self.network.packings["params"].pack_part(grads)

    def update(
        self,
        stage: int,
        *,
        grads: Buffers,
        model_state: Buffers,
        norm: Array,
        finite: Array,
    ) -> TrainState:
        """The next state of a stage, packed."""
        packings = self.network.packings
        state = self.step.update(
            self.network.unpack(stage, self.state),
            packings["params"].unpack_part(stage, grads),
            packings["model_state"].unpack_part(stage, model_state),
            norm=norm,
            finite=finite,
        )
        return state.replace(
            **{name: packings[name].pack_part(getattr(state, name)) for name in PACKED}
        )
