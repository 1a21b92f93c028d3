"""From a module and an optimizer to a train state and the step that advances it."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array

from jaxcnn import fast_layers
from jaxcnn.data.augment import unit_scale
from jaxcnn.errors import InputError, require_known
from jaxcnn.training.network import Mix, Network, Objective, Preprocess
from jaxcnn.training.objective import classification, weight_decay_penalty
from jaxcnn.training.precision import precision as precision_named
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import TrainStep


def create(
    model: nnx.Module,
    optimizer: optax.GradientTransformation,
    *,
    seed: int = 0,
    precision: str = "float32",
    preprocess: Preprocess = unit_scale,
    objective: Objective = classification,
    weight_decay: float = 0.0,
    weight_decay_layers: tuple[str, ...] = (),
    ema_decay: float = 0.0,
    trainable: tuple[str, ...] = (),
    label_smoothing: float = 0.0,
    mix: Mix | None = None,
    microbatches: int = 1,
    accelerate: bool = True,
) -> tuple[TrainState, TrainStep]:
    """Turns a module and an optimizer into a train state and the step that advances it.

    Args:
      model: any NNX module from images to logits, initialized; it is read, not kept.
      optimizer: from `optax`.
      seed: of augmentation.
      precision: ``float32``, ``bfloat16`` or ``float16``.
      preprocess: see `Network`.
      objective: see `Network`.
      weight_decay: factor of the penalty, 0 or more, see `objective.weight_decay_penalty`.
      weight_decay_layers: names of the layers that the penalty covers; all if empty.
      ema_decay: decay of the averaged parameters that evaluation uses, below 1; 0 for none.
      trainable: names of the layers to train; all if empty.
      label_smoothing: passed to the objective in training, see `objective.classification`;
        evaluation does without.
      mix: mixes the images of a batch in training, see `jaxcnn.data.mixing.Mixing`; None for no
        mixing.
      microbatches: each device computes its share of the batch in this many parts, one after the
        other, and sums their gradients: the same update with less memory. Batch norm takes the
        statistics of each part, from the rows that all devices together have in it. `nnx.Dropout`
        draws the same mask for every part, `jaxcnn.models.layers.Dropout` that of the whole batch.
      accelerate: compute Flax's own layers by fast ones, see `jaxcnn.accelerate`.

    Returns:
      The state and a `TrainStep`; ``step.evaluation`` is the evaluation step.

    Raises:
      InputError: a model or a trainable layer that is not an NNX module, an unknown precision or
        layer, a value that is not allowed, parameters of another precision than float32, a setting
        of a layer that cannot be hashed, or label smoothing with an objective without it.

    >>> from jaxcnn import models
    >>> state, step = create(models.build("logistic"), optax.sgd(0.1))
    >>> batch = {"image": jnp.ones((4, 28, 28, 1)), "label": jnp.arange(4)}
    >>> state, metrics = jax.jit(step, donate_argnums=0)(state, batch)
    >>> int(metrics["count"])
    4
    """
    if not 0 <= ema_decay < 1:
        raise InputError(f"ema_decay {ema_decay}: must be 0 or lie between 0 and 1, such as 0.999")
    policy = precision_named(precision)
    if not isinstance(model, nnx.Module):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise InputError(
            f"model {kind}: must be an instance of a Flax NNX module; jaxcnn.models.adapters turns "
            "networks of Linen, Equinox and plain functions into one"
        )
    model = nnx.clone(model)
    nnx.pop(model, nnx.Intermediate)  # of earlier calls
    if accelerate:
        model = fast_layers.accelerate(model)
    _make_settings_hashable(model)
    _require_float32(model)
    is_trainable = nnx.All(nnx.Param, lambda path, _: not trainable or path[0] in trainable)
    graphdef, *states = nnx.split(model, is_trainable, nnx.Param, ...)
    params, frozen, rest = map(nnx.to_pure_dict, states)
    random_state = tuple(
        path
        for path, variable in nnx.to_flat_state(states[-1])
        if isinstance(variable, nnx.Variable) and issubclass(variable.type, nnx.RngState)
    )
    layers = sorted(map(str, {**params, **frozen}))
    for name in (*trainable, *weight_decay_layers):
        require_known("layer", name, layers)
    for name in trainable:
        if not isinstance(getattr(model, name), nnx.Module | nnx.Variable):
            raise InputError(
                f"trainable layer {name!r} is not a Flax NNX module, so it has no training mode "
                "apart from the other layers; leave trainable empty"
            )
    state = TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        frozen=frozen,
        ema_params=params if ema_decay else {},
        model_state=rest,
        opt_state=optimizer.init(params),
        key=jax.random.key(seed),
        lr_scale=jnp.float32(1),
        loss_scale=jnp.float32(policy.initial_scale),
        finite_steps=jnp.zeros((), jnp.int32),
    )
    step = TrainStep(
        Network(graphdef, policy, preprocess, objective, trainable, random_state),
        optimizer,
        penalty=_penalty(weight_decay, weight_decay_layers),
        ema_decay=ema_decay,
        objective=_training_objective(objective, label_smoothing),
        mix=mix,
        microbatches=microbatches,
    )
    # A copy: the step donates its state, and the caller's module must keep its weights.
    return jax.tree.map(jnp.copy, state), step


def _penalty(factor: float, layers: tuple[str, ...]) -> Callable[[Any], Array] | None:
    """The penalty of `TrainStep`."""
    if not (factor >= 0 and math.isfinite(factor)):
        raise InputError(f"weight_decay {factor}: must be 0 or a positive number, such as 0.0005")
    if not factor:
        return None
    return functools.partial(weight_decay_penalty, factor=factor, layers=layers)


def _training_objective(objective: Objective, label_smoothing: float) -> Objective | None:
    """The objective of `TrainStep`."""
    if not 0 <= label_smoothing < 1:
        raise InputError(f"label smoothing {label_smoothing}: must be 0 or lie between 0 and 1")
    if not label_smoothing:
        return None
    parameters = inspect.signature(objective).parameters.values()
    if not any(
        parameter.name == "label_smoothing" or parameter.kind == parameter.VAR_KEYWORD
        for parameter in parameters
    ):
        raise InputError(
            f"label smoothing {label_smoothing}: the objective does not take label_smoothing; give "
            "it that argument, or leave label_smoothing 0"
        )
    return functools.partial(objective, label_smoothing=label_smoothing)


def _require_float32(model: nnx.Module) -> None:
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        for leaf in jax.tree.leaves(variable):
            if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != jnp.float32:
                raise InputError(
                    f"parameter {'.'.join(map(str, path))} is {leaf.dtype}: parameters are kept in "
                    "float32; precision='bfloat16' computes with them in another precision"
                )


def _make_settings_hashable(model: nnx.Module) -> None:
    """Turns lists among the settings of Flax's layers, such as a padding, into tuples.

    A compiled step is looked up by the structure of its model, settings included.
    """
    for path, module in nnx.iter_modules(model):
        for name, value in list(vars(module).items()):
            if isinstance(module, (nnx.Conv, nnx.ConvTranspose)) and isinstance(value, list):
                setattr(module, name, _to_tuple(value))
            elif isinstance(value, (list, dict, set)) and not nnx.has_data(value):
                layer = ".".join(map(str, path)) or "the model itself"
                raise InputError(
                    f"{name} of {layer} ({type(module).__name__}) is a {type(value).__name__}, "
                    "which JAX cannot hash; use a tuple, or nnx.List or nnx.Dict if it holds layers"
                )


def _to_tuple(value: Any) -> Any:
    return tuple(map(_to_tuple, value)) if isinstance(value, list) else value
