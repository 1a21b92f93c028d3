"""Shapes of states and batches, without their arrays."""

from collections.abc import Callable

import jax
import numpy as np

from jaxcnn.errors import InputError
from jaxcnn.training.state import PyTree, Shapes, TrainState
from jaxcnn.training.step import TrainStep

Build = Callable[[], tuple[TrainState, TrainStep]]


def row_count(batch: PyTree) -> int:
    """The number of rows of a batch: of every array in it.

    Raises:
      InputError: there are none, or the arrays have different numbers of rows.
    """
    counts = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(batch)}
    if len(counts) != 1 or 0 in counts:
        rows = " and ".join(map(str, sorted(counts))) or "no"
        raise InputError(
            f"a batch whose arrays have {rows} rows: all must have the same number, at least one"
        )
    return counts.pop()


def abstract(build: Build) -> tuple[Shapes, TrainStep]:
    """The shapes of a train state, and its step; nothing is computed.

    Args:
      build: ``build() -> (state, step)``, which calls `training.create`.
    """
    steps: list[TrainStep] = []

    def build_state() -> TrainState:
        state, step = build()
        steps.append(step)  # a step is not a pytree, so it cannot be returned
        return state

    shapes = jax.eval_shape(build_state)
    return shapes, steps[0]


def batch_share(batch: Shapes, device_count: int) -> Shapes:
    """Shapes of the part of a global batch that each of `device_count` devices works on."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((x.shape[0] // device_count, *x.shape[1:]), x.dtype), batch
    )


def with_sharding(shapes: Shapes, sharding: jax.sharding.Sharding) -> Shapes:
    """The same shapes, each with this sharding."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shapes)
