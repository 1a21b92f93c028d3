"""Optimizers and learning-rate schedules by name, so that a recipe is data."""

import math
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from jaxcnn.errors import InputError, require_known
from jaxcnn.training.decoupled import adamw, lamb, muon
from jaxcnn.training.speedrun import speedrun

OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
    "nesterov": lambda rate: optax.sgd(rate, momentum=0.9, nesterov=True),
    "adam": optax.adam,
    # Keras's defaults
    "rmsprop": lambda rate: optax.rmsprop(rate, decay=0.9, eps=1e-7),
    # Szegedy et al. 2017, §4
    "rmsprop_1": lambda rate: optax.rmsprop(rate, decay=0.9, eps=1.0, initial_scale=1.0),
    # Tan & Le 2019, §5.2, and their program
    "rmsprop_momentum": lambda rate: optax.rmsprop(
        rate, decay=0.9, eps=1e-3, momentum=0.9, initial_scale=1.0
    ),
    "adamw": adamw,
    "lamb": lamb,
    "muon": muon,
    "speedrun": speedrun,
}
"""Optimizers by name, ``(learning_rate) -> optax.GradientTransformation``.

Those in `DECOUPLED` also take a weight decay, ``(learning_rate, weight_decay, layers)``.
"""

DECOUPLED = ("adamw", "lamb", "muon", "speedrun")

SCHEDULES = "constant, cosine, poly:POWER, step:EPOCHS:FACTOR, milestones:SHARE,…:FACTOR"
_NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"


def optimizer(
    name: str,
    learning_rate: float,
    schedule_name: str,
    *,
    steps: int,
    steps_per_epoch: int,
    warmup: float = 0.0,
    clip_norm: float = 0.0,
    weight_decay: float = 0.0,
    weight_decay_layers: tuple[str, ...] = (),
) -> optax.GradientTransformation:
    """Builds an optimizer with a learning-rate schedule.

    Args:
      name: a key of `OPTIMIZERS`.
      learning_rate: the initial learning rate; the largest one if there is a warm-up.
      schedule_name: see `schedule`.
      steps: the number of steps in the run, or in each of its stages.
      steps_per_epoch: the number of steps in an epoch, the unit of `warmup` and of the ``step``
        schedule.
      warmup: see `schedule`.
      clip_norm: gradients whose norm, over all parameters together, is larger are scaled down to
        this norm (Pascanu et al. 2013, §3.2); 0 for no clipping.
      weight_decay: decoupled weight decay, for the optimizers in `DECOUPLED` alone; the others have
        a penalty in the loss, see `training.create`.
      weight_decay_layers: names of the layers that decay; all if empty.

    Raises:
      InputError: an unknown optimizer or schedule, or a value that is not allowed.

    >>> sgd = optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
    >>> sgd.update(2.0, sgd.init(1.0))[0]
    -0.2
    """
    require_known("optimizer", name, OPTIMIZERS)
    for what, value in (("learning_rate", learning_rate), ("weight_decay", weight_decay)):
        if not 0 <= value < math.inf:
            raise InputError(f"{what} {value}: must be 0 or a positive number")
    if steps < 1 or steps_per_epoch < 1:
        raise InputError(
            f"steps {steps}, steps_per_epoch {steps_per_epoch}: both must be 1 or more"
        )
    if not 0 <= clip_norm < math.inf:
        raise InputError(f"clip_norm {clip_norm}: must be 0, for no clipping, or a positive number")
    rate = schedule(
        schedule_name, learning_rate, steps=steps, steps_per_epoch=steps_per_epoch, warmup=warmup
    )
    if name in DECOUPLED:
        transformation = OPTIMIZERS[name](rate, weight_decay, weight_decay_layers)
    elif weight_decay or weight_decay_layers:
        raise InputError(
            f"optimizer {name!r} has no decoupled weight decay: pass weight_decay to "
            f"training.create, which adds it to the loss, or choose {' or '.join(DECOUPLED)}"
        )
    else:
        transformation = OPTIMIZERS[name](rate)
    if clip_norm:
        return optax.chain(clip_by_norm(clip_norm), transformation)
    return transformation


def clip_by_norm(limit: float) -> optax.GradientTransformationExtraArgs:
    """`optax.clip_by_global_norm`, also for gradients of which some are on other devices.

    Its ``update`` takes ``global_norm``, ``f32[]``, the norm of all gradients together; None for
    that of the gradients it is called with.

    >>> update = clip_by_norm(1.0).update
    >>> float(update(jnp.float32(3), optax.EmptyState(), global_norm=jnp.float32(6))[0])
    0.5
    """
    whole = optax.clip_by_global_norm(limit)

    def update(updates, state, params=None, *, global_norm=None, **_):
        if global_norm is None:
            return whole.update(updates, state, params)
        is_small = global_norm < limit
        return jax.tree.map(
            lambda g: jnp.where(is_small, g, g / global_norm * limit), updates
        ), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def schedule(
    name: str, learning_rate: float, *, steps: int, steps_per_epoch: int, warmup: float = 0.0
) -> optax.ScalarOrSchedule:
    """The learning rate: a constant, or a function of the number of steps taken.

    Args:
      name: one of

        * ``constant``;
        * ``cosine``: half a period of the cosine, down to zero (Loshchilov & Hutter 2017);
        * ``poly:4``: a polynomial of degree 4, down to zero;
        * ``step:30:0.1``: multiplied by 0.1 every 30 epochs;
        * ``milestones:0.5,0.75:0.1``: multiplied by 0.1 after half and after three quarters of the
          steps.
      learning_rate: the initial learning rate; the largest one if there is a warm-up.
      steps, steps_per_epoch: see `optimizer`.
      warmup: epochs in which the learning rate grows linearly, by an equal amount in each step, up
        to `learning_rate` (Goyal et al. 2017, §2.2). The schedule follows, over the steps that are
        left.

    Raises:
      InputError: an unknown schedule, or a warm-up that is negative or takes all steps.

    >>> rates = schedule("step:2:0.5", 8.0, steps=100, steps_per_epoch=10)
    >>> [float(rates(step)) for step in (0, 19, 20, 40)]
    [8.0, 8.0, 4.0, 2.0]
    >>> rates = schedule("constant", 8.0, steps=100, steps_per_epoch=10, warmup=0.4)
    >>> [float(rates(step)) for step in (0, 1, 3, 4)]
    [2.0, 4.0, 8.0, 8.0]
    """
    warmup_steps = _warmup_steps(warmup, steps, steps_per_epoch)
    main = _main_schedule(name, learning_rate, steps - warmup_steps, steps_per_epoch)
    if not warmup_steps:
        return main
    growth = optax.linear_schedule(learning_rate / warmup_steps, learning_rate, warmup_steps - 1)
    if not callable(main):
        main = optax.constant_schedule(main)
    return optax.join_schedules([growth, main], [warmup_steps])


def _warmup_steps(warmup: float, steps: int, steps_per_epoch: int) -> int:
    """The length of a warm-up, which is at least one step unless it is 0."""
    if not 0 <= warmup < math.inf:
        raise InputError(f"warmup {warmup}: must be a number of epochs, 0 or more")
    warmup_steps = _round_up(warmup * steps_per_epoch)
    if warmup_steps and warmup_steps >= steps:
        raise InputError(
            f"warmup {warmup:g}: the warm-up must be shorter than the {steps / steps_per_epoch:g} "
            "epochs of training"
        )
    return warmup_steps


def _main_schedule(
    name: str, learning_rate: float, steps: int, steps_per_epoch: int
) -> optax.ScalarOrSchedule:
    """The schedule after the warm-up, see `schedule`."""
    if name == "constant":
        return learning_rate
    if name == "cosine":
        return optax.cosine_decay_schedule(learning_rate, steps)
    if match := re.fullmatch(f"poly:{_NUMBER}", name):
        return optax.polynomial_schedule(learning_rate, 0.0, float(match[1]), steps)
    if match := re.fullmatch(f"step:{_NUMBER}:{_NUMBER}", name):
        if not 0 < float(match[1]) < math.inf:
            raise InputError(f"schedule {name!r}: the number of epochs must be positive")
        interval = max(1, round(float(match[1]) * steps_per_epoch))
        factor = _require_factor(name, float(match[2]))
        return optax.exponential_decay(learning_rate, interval, factor, staircase=True)
    if match := re.fullmatch(f"milestones:({_NUMBER}(?:,{_NUMBER})*):{_NUMBER}", name):
        factor = _require_factor(name, float(match.groups()[-1]))
        shares = [float(share) for share in match[1].split(",")]
        if not all(0 < share < 1 for share in shares):
            raise InputError(f"schedule {name!r}: the shares of the steps must lie between 0 and 1")
        boundaries = [_round_up(share * steps) for share in shares]
        factors = {step: factor ** boundaries.count(step) for step in boundaries}
        return optax.piecewise_constant_schedule(learning_rate, factors)
    raise InputError(f"unknown schedule {name!r}; known: {SCHEDULES}")


def _round_up(steps: float) -> int:
    """Rounds up, but not for the rounding error of a product.

    >>> _round_up(0.55 * 100), _round_up(55.1)
    (55, 56)
    """
    return math.ceil(round(steps, 6))


def _require_factor(name: str, factor: float) -> float:
    """Raises `InputError` unless a factor of the learning rate lies between 0 and 1."""
    if not 0 < factor <= 1:
        raise InputError(
            f"schedule {name!r}: the factor {factor:g} must be above 0 and at most 1, as in "
            "step:30:0.1"
        )
    return factor
