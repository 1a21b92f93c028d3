"""Strategies: how a step is placed on devices and compiled. Nothing else of a program changes."""

from collections.abc import Sequence

import jax

from jaxcnn.errors import require_known
from jaxcnn.parallel.data import Data
from jaxcnn.parallel.jit import Jit
from jaxcnn.parallel.pipeline import Pipeline
from jaxcnn.parallel.pmap import Pmap
from jaxcnn.parallel.strategy import Strategy, batch_share

__all__ = [
    "AUTO",
    "FOR_ANY_NETWORK",
    "REFERENCE",
    "STRATEGIES",
    "Strategy",
    "batch_multiple",
    "batch_share",
    "device_count",
    "resolve",
    "state_copies",
    "strategy",
]

STRATEGIES: dict[str, type[Strategy]] = {
    "jit": Jit,
    "pmap": Pmap,
    "data": Data,
    "pipeline": Pipeline,
}
FOR_ANY_NETWORK = tuple(name for name, row in STRATEGIES.items() if row.any_network)
REFERENCE = "jit"  # the strategy whose results every other one must reproduce
AUTO = "auto"


def resolve(name: str, device_count: int) -> str:
    """The key of `STRATEGIES` that `name` stands for; ``auto`` depends on the number of devices.

    Raises:
      InputError: an unknown name.

    >>> resolve("auto", 1), resolve("auto", 8), resolve("pmap", 8)
    ('jit', 'data', 'pmap')
    """
    if name == AUTO:
        return "jit" if device_count == 1 else "data"
    require_known("strategy", name, STRATEGIES)
    return name


def device_count(name: str, available: int) -> int:
    """The number of devices that a strategy, or ``auto``, uses out of `available`.

    >>> device_count("jit", 8), device_count("auto", 8)
    (1, 8)
    """
    return STRATEGIES[resolve(name, available)].device_count(available)


def batch_multiple(name: str, available: int) -> int:
    """What the batch sizes of a strategy, or ``auto``, are multiples of on `available` devices.

    >>> batch_multiple("jit", 8), batch_multiple("pmap", 8)
    (1, 8)
    """
    return STRATEGIES[resolve(name, available)].batch_multiple(available)


def state_copies(name: str, available: int) -> int:
    """The number of copies of the train state that a strategy, or ``auto``, has on its devices.

    >>> state_copies("data", 8), state_copies("pipeline", 8)
    (8, 1)
    """
    return STRATEGIES[resolve(name, available)].state_copies(available)


def strategy(name: str, devices: Sequence[jax.Device] | None = None) -> Strategy:
    """The strategy called `name` over the devices given, or over all devices.

    Raises:
      InputError: an unknown name.

    >>> from jaxcnn import models, training
    >>> import jax.numpy as jnp, optax
    >>> state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    >>> pmap = strategy("pmap")
    >>> batch = {"image": jnp.ones((8, 28, 28, 1)), "label": jnp.arange(8)}
    >>> state, metrics = pmap.compile(step)(pmap.place(state), pmap.place_batch(batch))
    >>> int(metrics["count"])
    8
    """
    require_known("strategy", name, STRATEGIES)
    return STRATEGIES[name](tuple(devices or jax.devices()))
