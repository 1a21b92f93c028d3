"""The train step and the evaluation step: pure functions of a state and a batch."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array, lax

from jaxcnn.training.objective import Batch, Metrics, classification, mask_of, weight_decay
from jaxcnn.training.precision import Precision, all_finite, cast, next_scale
from jaxcnn.training.precision import precision as precision_named
from jaxcnn.training.state import TrainState

Prepare = Callable[[Array, Array | None], Array]
Sums = Callable[[Any, Batch], Metrics]


@dataclass(frozen=True)
class Spread:
    """How the strategy that compiles a step spreads the batch; what code inside the step must know of it.

    Attributes:
      axis_name: the mapped axis to sum over, where each device runs the step on its own share (`pmap`).
      split: from the rows of the global batch to those that this program works on.
    """

    axis_name: str | None = None
    split: Callable[[Array], Array] = lambda rows: rows

    def total(self, tree: Any) -> Any:
        """Sums over all shares."""
        return lax.psum(tree, self.axis_name) if self.axis_name else tree


WHOLE = Spread()


def unit_scale(images: Array, keys: Array | None) -> Array:
    """Bytes 0 … 255 to f32 0 … 1; floating-point images as they are. The default `Prepare`."""
    return images.astype(jnp.float32) / 255 if images.dtype == jnp.uint8 else images


@dataclass(frozen=True)
class Network:
    """A network without its numbers, and how it is run: what both steps share.

    Attributes:
      graphdef: the network's structure, from `nnx.split`.
      precision: see `precision.Precision`.
      prepare: ``prepare(images, keys)`` inside the compiled step: normalisation, and augmentation when keys are given.
      sums: ``sums(outputs, batch)`` to ``loss``, which is minimised, ``correct`` and ``count``.
      trained: the layers that are trained, where not all are; the others run as in evaluation.
    """

    graphdef: nnx.GraphDef
    precision: Precision
    prepare: Prepare = unit_scale
    sums: Sums = classification
    trained: tuple[str, ...] = ()

    def apply(self, params, frozen, model_state, images, *, train: bool, axis_name: str | None):
        """Prepared images ``f32[N, H, W, C]`` to the network's outputs, in float32, and its next state."""
        dtype = self.precision.compute
        model = nnx.merge(self.graphdef, cast(params, dtype), cast(frozen, dtype), model_state, copy=True)
        model.eval()
        if train:
            for part in [getattr(model, name) for name in self.trained] or [model]:
                part.train()
        model.set_attributes(axis_name=axis_name, raise_if_not_found=False)
        outputs = cast(model(images.astype(dtype)), jnp.float32)
        return outputs, nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.Param)))


@dataclass(frozen=True)
class EvalStep:
    """``step(state, batch) -> metrics``, without a change of state."""

    network: Network
    metrics = ("loss", "correct", "count")

    def __call__(self, state: TrainState, batch: Batch, spread: Spread = WHOLE) -> Metrics:
        """Masked sums over the global batch, to be added over batches and divided at the end (`means`).

        Args:
          state: the current state; its moving average is used where it has one.
          batch: ``image`` u8 or f32 ``[N, H, W, C]``, ``label`` ``i32[N]``, and where some rows only fill up the batch
            ``mask`` ``f32[N]``, 0 for those.
          spread: given by the strategy.

        Returns:
          ``loss``, ``correct`` and ``count``, each ``f32[]``.
        """
        return spread.total(self.network.sums(self.outputs(state, batch["image"]), batch))

    def outputs(self, state: TrainState, images: Array) -> Array:
        """What the network makes of images ``[N, H, W, C]``: logits ``f32[N, classes]``."""
        params = state.average or state.params
        prepared = self.network.prepare(images, None)
        return self.network.apply(params, state.frozen, state.model_state, prepared, train=False, axis_name=None)[0]


@dataclass(frozen=True)
class TrainStep:
    """``step(state, batch) -> (state, metrics)``: one update on the mean loss of the global batch.

    Attributes:
      network: see `Network`.
      optimizer: an `optax` transformation.
      penalty: ``penalty(params)``, a term of the loss that does not hang on the batch.
      moving_average: decay of the averaged weights, 0 for none.
    """

    network: Network
    optimizer: optax.GradientTransformation
    penalty: Callable[[Any], Array] | None = None
    moving_average: float = 0.0

    @property
    def evaluation(self) -> EvalStep:
        """The evaluation step of the same network."""
        return EvalStep(self.network)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what a step returns."""
        return (*EvalStep.metrics, "penalty") if self.penalty else EvalStep.metrics

    def __call__(self, state: TrainState, batch: Batch, spread: Spread = WHOLE) -> tuple[TrainState, Metrics]:
        """One step; arguments and metrics as in `EvalStep`, the metrics those of training mode before the update.

        Where there is a penalty it is a metric of its own, ``penalty``.
        """
        keys = _example_keys(jax.random.fold_in(state.key, state.step), len(batch["image"]), spread.axis_name)
        images = self.network.prepare(batch["image"], keys)
        examples = spread.total(jnp.sum(mask_of(batch)))

        def scaled_loss(params):
            outputs, model_state = self.network.apply(
                params, state.frozen, state.model_state, images, train=True, axis_name=spread.axis_name
            )
            metrics = self.network.sums(outputs, batch)
            total = metrics["loss"]
            if self.penalty:
                metrics["penalty"] = self.penalty(params) * metrics["count"]
                total += metrics["penalty"]
            return total / examples * state.loss_scale, (metrics, model_state)

        grads, (metrics, model_state) = jax.grad(scaled_loss, has_aux=True)(state.params)
        grads = jax.tree.map(lambda g: g / state.loss_scale, spread.total(grads))
        return self._update(state, grads, model_state), spread.total(metrics)

    def restart(self, state: TrainState, *, step: int, rate: float) -> TrainState:
        """The state at the beginning of a stage: its weights, a new optimiser, another factor of the learning rate."""
        opt_state = self.optimizer.init(state.params)
        return state.replace(step=jnp.int32(step), rate=jnp.float32(rate), opt_state=opt_state)

    def _update(self, state: TrainState, grads, model_state) -> TrainState:
        updates, opt_state = self.optimizer.update(grads, state.opt_state, state.params)
        updates = jax.tree.map(lambda update: state.rate * update, updates)
        params = optax.apply_updates(state.params, updates)
        average = _moved(state.average, params, self.moving_average, state.step) if self.moving_average else state.average
        changed = {"params": params, "average": average, "opt_state": opt_state, "model_state": model_state}
        if self.network.precision.scales_loss:  # a step whose gradients overflowed changes nothing but the scale
            finite = all_finite(grads)
            before = {name: getattr(state, name) for name in changed}
            changed = jax.tree.map(functools.partial(jnp.where, finite), changed, before)
            scale, finite_steps = next_scale(state.loss_scale, state.finite_steps, finite)
            changed |= {"loss_scale": scale, "finite_steps": finite_steps}
        return state.replace(step=state.step + 1, **changed)


def _moved(average, params, decay: float, step: Array):
    """The moving average after a step, of fewer steps at the beginning, as TensorFlow's `ExponentialMovingAverage`."""
    decay = jnp.minimum(decay, (1.0 + step) / (10.0 + step))
    return jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, average, params)


def create(
    model: nnx.Module,
    optimizer: optax.GradientTransformation,
    *,
    seed: int = 0,
    precision: str = "float32",
    prepare: Prepare = unit_scale,
    sums: Sums = classification,
    decay: float = 0.0,
    decayed: tuple[str, ...] = (),
    moving_average: float = 0.0,
    trained: tuple[str, ...] = (),
) -> tuple[TrainState, TrainStep]:
    """A module and an optimiser to a train state and the step that advances it.

    Args:
      model: any NNX module from images to logits, its weights drawn; it is read, not kept.
      optimizer: from `optax`.
      seed: of augmentation.
      precision: ``float32``, ``bfloat16`` or ``float16``.
      prepare: see `Network`.
      sums: what is minimised and counted; classification if not given.
      decay: of the weights, see `objective.weight_decay`.
      decayed: the layers it holds for; all if empty.
      moving_average: decay of the averaged weights that evaluation uses, 0 for none.
      trained: names of the layers to train; all if empty. The others stay as they are.

    Returns:
      The state and a `TrainStep`; ``step.evaluation`` is its evaluation.

    Raises:
      InputError: an unknown precision.

    >>> from jaxcnn import models
    >>> state, step = create(models.build("logistic"), optax.sgd(0.1))
    >>> batch = {"image": jnp.ones((4, 28, 28, 1)), "label": jnp.arange(4)}
    >>> state, metrics = jax.jit(step, donate_argnums=0)(state, batch)
    >>> int(metrics["count"])
    4
    """
    policy = precision_named(precision)
    trainable = nnx.All(nnx.Param, lambda path, _: not trained or path[0] in trained)
    graphdef, params, frozen, rest = nnx.split(model, trainable, nnx.Param, ...)
    params = nnx.to_pure_dict(params)
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        frozen=nnx.to_pure_dict(frozen),
        average=params if moving_average else {},
        model_state=nnx.to_pure_dict(rest),
        opt_state=optimizer.init(params),
        key=jax.random.key(seed),
        rate=jnp.float32(1),
        loss_scale=jnp.float32(policy.initial_scale),
        finite_steps=jnp.zeros((), jnp.int32),
    )
    penalty = functools.partial(weight_decay, factor=decay, layers=decayed) if decay else None
    step = TrainStep(Network(graphdef, policy, prepare, sums, trained), optimizer, penalty, moving_average)
    # A copy: the step donates its state, and the caller's module must keep its weights.
    return jax.tree.map(jnp.copy, state), step


def _example_keys(key: Array, rows: int, axis_name: str | None) -> Array:
    """A key for each row of this share, by its place in the global batch: the same under every strategy."""
    first = lax.axis_index(axis_name) * rows if axis_name else 0
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(rows))
