"""The train state: everything that changes from step to step, as one pytree of arrays."""

import dataclasses
from typing import Any

import jax
from jax import Array

PyTree = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Plain dicts of arrays, not `nnx.State`, which would cost Python time on every call.

    Attributes:
      step: ``i32[]``, steps done.
      params: the trainable parameters, f32.
      frozen: the parameters that are not trained, f32; empty where all are.
      average: the moving average of `params`, which evaluation uses; empty where there is none.
      model_state: what the network itself changes: running statistics, dropout's keys and counters.
      opt_state: the optimiser's.
      key: a PRNG key, never advanced: step s draws from ``fold_in(key, s)``, so a resumed run draws the same.
      rate: ``f32[]``, factor of every update: that of the learning rate in this stage.
      loss_scale: ``f32[]``, see `precision.next_scale`.
      finite_steps: ``i32[]``, see `precision.next_scale`.
    """

    step: Array
    params: PyTree
    frozen: PyTree
    average: PyTree
    model_state: PyTree
    opt_state: PyTree
    key: Array
    rate: Array
    loss_scale: Array
    finite_steps: Array

    def replace(self, **changes: Any) -> "TrainState":
        return dataclasses.replace(self, **changes)
