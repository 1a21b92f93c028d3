"""The train state: everything that changes from step to step, as one pytree of arrays."""

import dataclasses
from typing import Any

import jax
from jax import Array

PyTree = Any
Shapes = Any  # a tree of `jax.ShapeDtypeStruct`


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """State of a training run, in plain dicts of arrays.

    `nnx.State` in their place would cost Python time on every call.

    Attributes:
      step: ``i32[]``, the number of steps taken.
      params: the trainable parameters, f32.
      frozen: the parameters that are not trained, f32; empty if all are.
      ema_params: the exponential moving average of `params`, which evaluation uses; empty if none.
      model_state: what the network itself updates: running statistics, dropout keys and counters.
      opt_state: the state of the optimizer.
      key: a PRNG key, never advanced: step s draws from ``fold_in(key, s)``, so that a resumed run
        draws the same numbers.
      lr_scale: ``f32[]``, factor of the learning rate in the current stage.
      loss_scale: ``f32[]``, see `precision.next_scale`.
      finite_steps: ``i32[]``, see `precision.next_scale`.
    """

    step: Array
    params: PyTree
    frozen: PyTree
    ema_params: PyTree
    model_state: PyTree
    opt_state: PyTree
    key: Array
    lr_scale: Array
    loss_scale: Array
    finite_steps: Array

    def replace(self, **changes: Any) -> "TrainState":
        return dataclasses.replace(self, **changes)
