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

from jaxcnn.training.precision import Precision, all_finite, cast, next_scale
from jaxcnn.training.precision import precision as precision_named
from jaxcnn.training.state import TrainState

Batch = dict[str, Array]
Metrics = dict[str, Array]
Prepare = Callable[[Array, Array | None], Array]


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
    """

    graphdef: nnx.GraphDef
    precision: Precision
    prepare: Prepare = unit_scale

    def apply(self, params, model_state, images, *, train: bool, axis_name: str | None):
        """Prepared images ``f32[N, H, W, C]`` to logits ``f32[N, classes]`` and the network's next state."""
        dtype = self.precision.compute
        model = nnx.merge(self.graphdef, cast(params, dtype), model_state, copy=True)
        model.train() if train else model.eval()
        model.set_attributes(axis_name=axis_name, raise_if_not_found=False)
        logits = model(images.astype(dtype)).astype(jnp.float32)
        return logits, nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.Param)))


@dataclass(frozen=True)
class EvalStep:
    """``step(state, batch) -> metrics``, without a change of state."""

    network: Network

    def __call__(self, state: TrainState, batch: Batch, spread: Spread = WHOLE) -> Metrics:
        """Masked sums over the global batch, to be added over batches and divided at the end (`means`).

        Args:
          state: the current state.
          batch: ``image`` u8 or f32 ``[N, H, W, C]``, ``label`` ``i32[N]``, and where some rows only fill up the batch
            ``mask`` ``f32[N]``, 0 for those.
          spread: given by the strategy.

        Returns:
          ``loss``, ``correct`` and ``count``, each ``f32[]``.
        """
        images = self.network.prepare(batch["image"], None)
        logits, _ = self.network.apply(state.params, state.model_state, images, train=False, axis_name=None)
        return spread.total(sums(logits, batch))


@dataclass(frozen=True)
class TrainStep:
    """``step(state, batch) -> (state, metrics)``: one update on the mean loss of the global batch.

    Attributes:
      network: see `Network`.
      optimizer: an `optax` transformation.
    """

    network: Network
    optimizer: optax.GradientTransformation

    @property
    def evaluation(self) -> EvalStep:
        """The evaluation step of the same network."""
        return EvalStep(self.network)

    def __call__(self, state: TrainState, batch: Batch, spread: Spread = WHOLE) -> tuple[TrainState, Metrics]:
        """One step; arguments and metrics as in `EvalStep`, the metrics those of training mode before the update."""
        keys = _example_keys(jax.random.fold_in(state.key, state.step), len(batch["label"]), spread.axis_name)
        images = self.network.prepare(batch["image"], keys)
        examples = spread.total(jnp.sum(_mask(batch)))

        def scaled_loss(params):
            logits, model_state = self.network.apply(params, state.model_state, images, train=True, axis_name=spread.axis_name)
            metrics = sums(logits, batch)
            return metrics["loss"] / examples * state.loss_scale, (metrics, model_state)

        grads, (metrics, model_state) = jax.grad(scaled_loss, has_aux=True)(state.params)
        grads = jax.tree.map(lambda g: g / state.loss_scale, spread.total(grads))
        return self._update(state, grads, model_state), spread.total(metrics)

    def _update(self, state: TrainState, grads, model_state) -> TrainState:
        updates, opt_state = self.optimizer.update(grads, state.opt_state, state.params)
        changed = {"params": optax.apply_updates(state.params, updates), "opt_state": opt_state, "model_state": model_state}
        if self.network.precision.scales_loss:  # a step whose gradients overflowed changes nothing but the scale
            finite = all_finite(grads)
            before = {name: getattr(state, name) for name in changed}
            changed = jax.tree.map(functools.partial(jnp.where, finite), changed, before)
            scale, finite_steps = next_scale(state.loss_scale, state.finite_steps, finite)
            changed |= {"loss_scale": scale, "finite_steps": finite_steps}
        return state.replace(step=state.step + 1, **changed)


def create(
    model: nnx.Module,
    optimizer: optax.GradientTransformation,
    *,
    seed: int = 0,
    precision: str = "float32",
    prepare: Prepare = unit_scale,
) -> tuple[TrainState, TrainStep]:
    """A module and an optimiser to a train state and the step that advances it.

    Args:
      model: any NNX module from images to logits, its weights drawn; it is read, not kept.
      optimizer: from `optax`.
      seed: of augmentation.
      precision: ``float32``, ``bfloat16`` or ``float16``.
      prepare: see `Network`.

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
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    params = nnx.to_pure_dict(params)
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state=nnx.to_pure_dict(rest),
        opt_state=optimizer.init(params),
        key=jax.random.key(seed),
        loss_scale=jnp.float32(policy.initial_scale),
        finite_steps=jnp.zeros((), jnp.int32),
    )
    # A copy: the step donates its state, and the caller's module must keep its weights.
    return jax.tree.map(jnp.copy, state), TrainStep(Network(graphdef, policy, prepare), optimizer)


def sums(logits: Array, batch: Batch) -> Metrics:
    """Cross-entropy in nats, correct answers and examples, summed over the rows that `batch` does not mask."""
    mask, labels = _mask(batch), batch["label"]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = jnp.argmax(logits, axis=-1) == labels
    return {"loss": jnp.sum(losses * mask), "correct": jnp.sum(correct * mask), "count": jnp.sum(mask)}


def means(metrics: Metrics) -> dict[str, float]:
    """Mean loss in nats and accuracy, 0 to 1, from summed metrics.

    >>> means({"loss": jnp.float32(3), "correct": jnp.float32(1), "count": jnp.float32(4)})
    {'loss': 0.75, 'accuracy': 0.25}
    """
    count = float(metrics["count"])
    return {"loss": float(metrics["loss"]) / count, "accuracy": float(metrics["correct"]) / count}


def _mask(batch: Batch) -> Array:
    return batch["mask"] if "mask" in batch else jnp.ones(batch["label"].shape, jnp.float32)


def _example_keys(key: Array, rows: int, axis_name: str | None) -> Array:
    """A key for each row of this share, by its place in the global batch: the same under every strategy."""
    first = lax.axis_index(axis_name) * rows if axis_name else 0
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(rows))
