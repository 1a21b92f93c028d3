"""The GPipe schedule: in which tick a device computes which microbatch, and what it passes on.

In a tick every device computes its stage on one microbatch and passes the result on. Of S stages,
stage s computes microbatch m in forward tick m + s and, after all forward ticks, in backward tick
m + S - 1 - s. A device without a microbatch waits: the bubble.

Between the two a device keeps no activations but the inputs of its stage, and computes the others
again in the backward tick. The last stage has no forward ticks: its backward tick would follow at
once.

References:
  Huang et al. 2019, *GPipe: Efficient Training of Giant Neural Networks using Pipeline
  Parallelism*, arXiv 1811.06965, §2.3.
"""

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.parallel.staged_network import AXIS
from jaxcnn.training.state import PyTree, Shapes


def forward_ticks(stages: int, microbatches: int) -> int:
    """The number of ticks until the last stage has all its inputs.

    >>> forward_ticks(4, 8), forward_ticks(1, 8)
    (10, 0)
    """
    return microbatches + stages - 2 if stages > 1 else 0


def backward_ticks(stages: int, microbatches: int) -> int:
    """The number of ticks from the first loss to the last gradient of the first stage.

    >>> backward_ticks(4, 8), backward_ticks(1, 8)
    (11, 8)
    """
    return microbatches + stages - 1


def microbatch(tick: Array, delay: Array, count: int) -> tuple[Array, Array]:
    """What a device computes in a tick.

    Args:
      tick: its number, ``i32[]``.
      delay: the tick of the device's first microbatch, ``i32[]``.
      count: the number of microbatches.

    Returns:
      The number of the microbatch, and whether there is one; without, the number is any valid one.

    >>> [tuple(map(int, microbatch(jnp.int32(tick), jnp.int32(1), 2))) for tick in range(4)]
    [(0, 0), (0, 1), (1, 1), (1, 0)]
    """
    number = tick - delay
    return jnp.clip(number, 0, count - 1), (number >= 0) & (number < count)


def to_next(buffer: Array, stages: int) -> Array:
    """Passes a buffer from each stage to the next one; the first receives zeros."""
    return lax.ppermute(buffer, AXIS, [(stage, stage + 1) for stage in range(stages - 1)])


def to_previous(buffer: Array, stages: int) -> Array:
    """Passes a buffer from each stage to the one before; the last receives zeros."""
    return lax.ppermute(buffer, AXIS, [(stage + 1, stage) for stage in range(stages - 1)])


@dataclass(frozen=True)
class Wire:
    """Arrays between neighboring stages, as flat buffers of one size and dtype.

    Attributes:
      shapes: of the outputs of all stages but the last.

    >>> wire = Wire((jax.ShapeDtypeStruct((2, 1), jnp.float32), jax.ShapeDtypeStruct((3,),
    ...     jnp.float32)))
    >>> wire.write(jnp.ones((2, 1))).tolist()
    [1.0, 1.0, 0.0]
    """

    shapes: tuple[Shapes, ...]

    def empty(self, count: int = 1) -> Array:
        """Buffers of zeros, ``[count, n]``."""
        size = max((math.prod(shape.shape) for shape in self.shapes), default=0)
        dtypes = [shape.dtype for shape in self.shapes] or [jnp.dtype("float32")]
        return jnp.zeros((count, size), functools.reduce(jnp.promote_types, dtypes))

    def write(self, x: Array) -> Array:
        """The buffer ``[n]`` that contains an array."""
        buffer = self.empty()[0]
        return lax.dynamic_update_slice(buffer, x.ravel().astype(buffer.dtype), (0,))

    def read(self, stage: int, buffer: Array) -> Array:
        """The outputs of a stage in its buffer ``[n]``, or their gradients."""
        shape = self.shapes[stage]
        return buffer[: math.prod(shape.shape)].reshape(shape.shape).astype(shape.dtype)


def row(tree: PyTree, index: Array | int) -> PyTree:
    """One row of each array."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def set_row(rows: Array, index: Array, values: Array, condition: Array) -> Array:
    """The rows with one of them replaced, if `condition` is true."""
    values = jnp.where(condition, values, rows[index])
    return lax.dynamic_update_index_in_dim(rows, values, index, 0)
