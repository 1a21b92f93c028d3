"""The train step: a pure function of a state and a batch."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxcnn.data.mixing import PAIR
from jaxcnn.errors import InputError
from jaxcnn.training.eval_step import EvalStep
from jaxcnn.training.microbatches import accumulate
from jaxcnn.training.network import Mix, Network, Objective
from jaxcnn.training.objective import Batch, Metrics, mask_of
from jaxcnn.training.precision import all_finite, next_scale
from jaxcnn.training.sharding import UNSHARDED, BatchSharding
from jaxcnn.training.state import PyTree, TrainState

_MIX = 2**32 - 1  # folded into the key of a step in place of a row, for what the whole batch shares


@dataclass(frozen=True)
class TrainStep:
    """``step(state, batch) -> (state, metrics)``: one update on the mean loss of the global batch.

    Attributes:
      network: see `Network`.
      optimizer: an `optax` transformation.
      penalty: ``penalty(params)``, a term of the loss that does not depend on the batch.
      ema_decay: decay of the averaged parameters; 0 for none.
      objective: what is minimized in training, if it is not that of the network, which evaluation
        uses.
      mix: ``mix(images, batch, key)``, see `jaxcnn.data.mixing.Mixing`; None for no mixing.
      microbatches: the number of parts of a batch that are computed one after the other.
    """

    network: Network
    optimizer: optax.GradientTransformation
    penalty: Callable[[PyTree], Array] | None = None
    ema_decay: float = 0.0
    objective: Objective | None = None
    mix: Mix | None = None
    microbatches: int = 1

    def __post_init__(self):
        if self.microbatches < 1:
            raise InputError(f"{self.microbatches} microbatches: the number must be 1 or more")

    @property
    def evaluation(self) -> EvalStep:
        """The evaluation step of the same network."""
        return EvalStep(self.network)

    def __call__(
        self, state: TrainState, batch: Batch, sharding: BatchSharding = UNSHARDED
    ) -> tuple[TrainState, Metrics]:
        """Takes one step.

        Arguments and metrics are those of `EvalStep.__call__`; the metrics are of training mode,
        before the update. With a penalty there is a further metric, ``penalty``.
        """
        if sharding.layers:
            return sharding.layers.train(self, state, batch)
        rows = _batch_rows(len(batch["image"]), sharding.axis_name)
        examples = sharding.psum(jnp.sum(mask_of(batch)))
        grads, metrics, model_state = accumulate(
            functools.partial(self._gradients, state, examples, sharding),
            state.model_state,
            batch,
            rows,
            count=self.microbatches,
            together=self.rows_together,
            random_state=self.network.random_state,
        )
        scale = self.loss_scale(state)
        grads = jax.tree.map(lambda g: g / scale, sharding.psum(grads))
        return self.update(state, grads, model_state), sharding.psum(metrics)

    @property
    def rows_together(self) -> int:
        """The number of neighboring rows that must be in the same microbatch."""
        return PAIR if self.mix else 1

    def inputs(self, state: TrainState, batch: Batch, rows: Array) -> tuple[Array, Batch]:
        """The network's input for some rows, augmented and mixed, and the batch to compare with.

        Args:
          state: its key and its step are used.
          batch: the rows.
          rows: ``i32[N]``, their positions in the global batch.
        """
        step_key = jax.random.fold_in(state.key, state.step)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, rows)
        images = self.network.preprocess(batch["image"], keys)
        if self.mix:
            return self.mix(images, batch, jax.random.fold_in(step_key, _MIX))
        return images, batch

    @property
    def training_objective(self) -> Objective:
        """The objective that is minimized."""
        return self.objective or self.network.objective

    def _gradients(
        self,
        state: TrainState,
        examples: Array,
        sharding: BatchSharding,
        model_state: PyTree,
        batch: Batch,
        rows: Array,
    ) -> tuple[PyTree, Metrics, PyTree]:
        """The part of some rows in the gradients of the scaled mean loss, and in the metrics.

        Args:
          state: the state before the step.
          examples: ``f32[]``, the number of examples in the global batch.
          sharding: supplied by the strategy.
          model_state: in place of that of `state`.
          batch: the rows.
          rows: ``i32[N]``, their positions in the global batch.

        Returns:
          Gradients, metrics, and the next `model_state`.
        """
        images, batch = self.inputs(state, batch, rows)

        def scaled_loss(params):
            outputs, next_model_state = self.network.apply(
                params,
                state.frozen,
                model_state,
                images,
                sharding,
                train=True,
                batch_rows=rows,
            )
            metrics = self.training_objective(outputs, batch)
            total = metrics["loss"]
            if self.penalty:
                metrics["penalty"] = self.penalty(params) * metrics["count"]
                total += metrics["penalty"]
            return total / examples * self.loss_scale(state), (metrics, next_model_state)

        grads, (metrics, model_state) = jax.grad(scaled_loss, has_aux=True)(state.params)
        return grads, metrics, model_state

    def loss_scale(self, state: TrainState) -> Array | float:
        """The factor of the loss in its gradients; constant where the precision needs none.

        A division by a constant 1 is no operation of the compiled program.
        """
        return state.loss_scale if self.network.precision.scales_loss else 1.0

    def restart(self, state: TrainState, *, step: int, lr_scale: float) -> TrainState:
        """The state at the start of a training stage: the same weights, a new optimizer state."""
        opt_state = self.optimizer.init(state.params)
        return state.replace(
            step=jnp.int32(step), lr_scale=jnp.float32(lr_scale), opt_state=opt_state
        )

    def update(
        self,
        state: TrainState,
        grads: PyTree,
        model_state: PyTree,
        *,
        norm: Array | None = None,
        finite: Array | None = None,
    ) -> TrainState:
        """The state after an update of all parameters, or of those of some layers.

        Args:
          state: before the step; its `params`, `ema_params` and `opt_state` may be those of some
            layers.
          grads: of `params`.
          model_state: the next one.
          norm: ``f32[]``, the norm of the gradients of all layers, where `grads` are of some.
          finite: ``bool[]``, whether the gradients of all layers are finite, where `grads` are of
            some.
        """
        optimizer = optax.with_extra_args_support(self.optimizer)
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes integers and floats
            updates, opt_state = optimizer.update(
                grads,
                state.opt_state,
                state.params,
                global_norm=norm,
                lr_scale=state.lr_scale,
            )
        updates = jax.tree.map(lambda update: state.lr_scale * update, updates)
        params = optax.apply_updates(state.params, updates)
        ema_params = state.ema_params
        if self.ema_decay:
            ema_params = _ema(ema_params, params, self.ema_decay, state.step)
        changed = {
            "params": params,
            "ema_params": ema_params,
            "opt_state": opt_state,
            "model_state": model_state,
        }
        if self.network.precision.scales_loss:  # an overflow changes nothing but the loss scale
            finite = all_finite(grads) if finite is None else finite
            before = {name: getattr(state, name) for name in changed}
            changed = jax.tree.map(functools.partial(jnp.where, finite), changed, before)
            scale, finite_steps = next_scale(state.loss_scale, state.finite_steps, finite)
            changed |= {"loss_scale": scale, "finite_steps": finite_steps}
        return state.replace(step=state.step + 1, **changed)


def _ema(ema_params: PyTree, params: PyTree, decay: float, step: Array) -> PyTree:
    """Exponential moving average with a shorter memory in the first steps.

    The decay is that of TensorFlow's `ExponentialMovingAverage` with ``num_updates``.
    """
    steps = step.astype(jnp.float32)
    factor = jnp.minimum(decay, (1.0 + steps) / (10.0 + steps))
    return jax.tree.map(lambda a, p: factor * a + (1 - factor) * p, ema_params, params)


def _batch_rows(count: int, axis_name: str | None) -> Array:
    """The position of each row in the global batch, from which its random numbers are drawn."""
    first = lax.axis_index(axis_name) * count if axis_name else 0
    return first + jnp.arange(count)
