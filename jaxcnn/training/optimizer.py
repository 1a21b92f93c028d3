"""Optimisers and learning-rate schedules by name, so that a recipe is data."""

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
    "rmsprop": lambda rate: optax.rmsprop(rate, decay=0.9, eps=1e-7),  # Keras's defaults
    "rmsprop_1": lambda rate: optax.rmsprop(
        rate, decay=0.9, eps=1.0, initial_scale=1.0
    ),  # Szegedy et al. 2017, §4
}

SCHEDULES = "constant, cosine, poly:POWER, step:EPOCHS:FACTOR, milestones:SHARE,…:FACTOR"
_NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"


def optimizer(
    name: str, rate: float, schedule_name: str, *, steps: int, steps_per_epoch: int
) -> optax.GradientTransformation:
    """An optimiser with its schedule.

    Args:
      name: a key of `OPTIMIZERS`.
      rate: the learning rate at the start.
      schedule_name: see `schedule`.
      steps: of the whole run, or of the whole stage.
      steps_per_epoch: in which ``step`` counts.

    Raises:
      InputError: an unknown optimiser or schedule.
    """
    require_known("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name](
        schedule(schedule_name, rate, steps=steps, steps_per_epoch=steps_per_epoch)
    )


def schedule(name: str, rate: float, *, steps: int, steps_per_epoch: int) -> optax.ScalarOrSchedule:
    """The learning rate, by the number of steps done.

    Args:
      name: ``constant``; ``cosine``, half of one down to zero (Loshchilov & Hutter 2017); ``poly:4``, down to zero with the
        fourth power; ``step:30:0.1``, times 0.1 every 30 epochs; ``milestones:0.5,0.75:0.1``, times 0.1 after half and
        after three quarters of the run.
      rate: at the start.
      steps, steps_per_epoch: see `optimizer`.

    Raises:
      InputError: no such schedule.

    >>> rates = schedule("step:2:0.5", 8.0, steps=100, steps_per_epoch=10)
    >>> [float(rates(step)) for step in (0, 19, 20, 40)]
    [8.0, 8.0, 4.0, 2.0]
    """
    if name == "constant":
        return rate
    if name == "cosine":
        return optax.cosine_decay_schedule(rate, steps)
    if match := re.fullmatch(f"poly:{_NUMBER}", name):
        return optax.polynomial_schedule(rate, 0.0, float(match[1]), steps)
    if match := re.fullmatch(f"step:{_NUMBER}:{_NUMBER}", name):
        every = max(1, round(float(match[1]) * steps_per_epoch))
        return optax.exponential_decay(rate, every, float(match[2]), staircase=True)
    if match := re.fullmatch(f"milestones:({_NUMBER}(?:,{_NUMBER})*):{_NUMBER}", name):
        shares, factor = [float(share) for share in match[1].split(",")], float(match.groups()[-1])
        return optax.piecewise_constant_schedule(
            rate, {math.ceil(share * steps): factor for share in shares}
        )
    raise InputError(f"unknown schedule {name!r}; known: {SCHEDULES}")
