"""Optimizers and learning-rate schedules by name, so that a recipe is data."""

import math
import re
from collections.abc import Callable

import optax

from jaxcnn.errors import InputError, require_known

OPTIMIZERS: dict[str, Callable[[optax.ScalarOrSchedule], optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
    "nesterov": lambda rate: optax.sgd(rate, momentum=0.9, nesterov=True),
    "adam": optax.adam,
    # Keras's defaults
    "rmsprop": lambda rate: optax.rmsprop(rate, decay=0.9, eps=1e-7),
    # Szegedy et al. 2017, §4
    "rmsprop_1": lambda rate: optax.rmsprop(rate, decay=0.9, eps=1.0, initial_scale=1.0),
}

SCHEDULES = "constant, cosine, poly:POWER, step:EPOCHS:FACTOR, milestones:SHARE,…:FACTOR"
_NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"


def optimizer(
    name: str, learning_rate: float, schedule_name: str, *, steps: int, steps_per_epoch: int
) -> optax.GradientTransformation:
    """Builds an optimizer with a learning-rate schedule.

    Args:
      name: a key of `OPTIMIZERS`.
      learning_rate: the initial learning rate.
      schedule_name: see `schedule`.
      steps: the number of steps in the run, or in each of its stages.
      steps_per_epoch: the number of steps in an epoch, the unit of the ``step`` schedule.

    Raises:
      InputError: an unknown optimizer or schedule.

    >>> sgd = optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1)
    >>> sgd.update(2.0, sgd.init(1.0))[0]
    -0.2
    """
    require_known("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name](
        schedule(schedule_name, learning_rate, steps=steps, steps_per_epoch=steps_per_epoch)
    )


def schedule(
    name: str, learning_rate: float, *, steps: int, steps_per_epoch: int
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
      learning_rate: the initial learning rate.
      steps, steps_per_epoch: see `optimizer`.

    Raises:
      InputError: an unknown schedule.

    >>> rates = schedule("step:2:0.5", 8.0, steps=100, steps_per_epoch=10)
    >>> [float(rates(step)) for step in (0, 19, 20, 40)]
    [8.0, 8.0, 4.0, 2.0]
    """
    if name == "constant":
        return learning_rate
    if name == "cosine":
        return optax.cosine_decay_schedule(learning_rate, steps)
    if match := re.fullmatch(f"poly:{_NUMBER}", name):
        return optax.polynomial_schedule(learning_rate, 0.0, float(match[1]), steps)
    if match := re.fullmatch(f"step:{_NUMBER}:{_NUMBER}", name):
        interval = max(1, round(float(match[1]) * steps_per_epoch))
        return optax.exponential_decay(learning_rate, interval, float(match[2]), staircase=True)
    if match := re.fullmatch(f"milestones:({_NUMBER}(?:,{_NUMBER})*):{_NUMBER}", name):
        factor = float(match.groups()[-1])
        boundaries = [math.ceil(float(share) * steps) for share in match[1].split(",")]
        return optax.piecewise_constant_schedule(learning_rate, dict.fromkeys(boundaries, factor))
    raise InputError(f"unknown schedule {name!r}; known: {SCHEDULES}")
