"""Strategies: how a step is placed on devices and compiled. Nothing else of a program changes with them."""

from collections.abc import Sequence

import jax

from jaxcnn.errors import require_known
from jaxcnn.parallel.data import Data
from jaxcnn.parallel.jit import Jit
from jaxcnn.parallel.pmap import Pmap

STRATEGIES: dict[str, type[Jit]] = {"jit": Jit, "pmap": Pmap, "data": Data}


def strategy(name: str, devices: Sequence[jax.Device] | None = None) -> Jit:
    """The strategy called `name` over the devices given, or over all of them.

    Raises:
      InputError: an unknown name.

    >>> from jaxcnn import models, training
    >>> import jax.numpy as jnp, optax
    >>> state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    >>> over = strategy("pmap")
    >>> batch = {"image": jnp.ones((8, 28, 28, 1)), "label": jnp.arange(8)}
    >>> state, metrics = over.compile(step)(over.place(state), over.place_batch(batch))
    >>> int(metrics["count"])
    8
    """
    require_known("strategy", name, STRATEGIES)
    return STRATEGIES[name](tuple(devices or jax.devices()))
