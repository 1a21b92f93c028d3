"""Precision policies: which dtype computes, and how float16 keeps its gradients in range.

Parameters, optimiser state and losses are float32 in every policy (mixed precision: Micikevicius et al. 2018, §3).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.errors import require_known


@dataclass(frozen=True)
class Precision:
    """A policy.

    Attributes:
      name: its key in `PRECISIONS`.
      compute: dtype of activations and of the parameters as the network sees them.
      initial_scale: first factor of the loss, a power of two; 1.0 where no scaling is needed.
    """

    name: str
    compute: Any
    initial_scale: float = 1.0

    @property
    def scales_loss(self) -> bool:
        return self.initial_scale != 1.0


PRECISIONS: dict[str, Precision] = {
    "float32": Precision("float32", jnp.float32),
    "bfloat16": Precision("bfloat16", jnp.bfloat16),
    "float16": Precision("float16", jnp.float16, initial_scale=2.0**15),
}

GROWTH_INTERVAL = (
    2000  # finite steps after which the scale is doubled (Micikevicius et al. 2018, §3.2)
)


def precision(name: str) -> Precision:
    """The policy called `name`; raises `InputError` for an unknown one."""
    require_known("precision", name, PRECISIONS)
    return PRECISIONS[name]


def cast(tree: Any, dtype: Any) -> Any:
    """Floating-point leaves to `dtype`; the others (keys, counters) as they are."""
    return jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )


def all_finite(tree: Any) -> Array:
    """``bool[]``: no leaf holds a NaN or an infinity."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def next_scale(scale: Array, finite_steps: Array, finite: Array) -> tuple[Array, Array]:
    """Dynamic loss scaling: doubled after `GROWTH_INTERVAL` finite steps in a row, halved at once after any other.

    Args:
      scale: ``f32[]``, the factor of this step's loss.
      finite_steps: ``i32[]``, finite steps since the scale last changed.
      finite: ``bool[]``, whether this step's gradients were finite.

    Returns:
      The next step's scale and count.
    """
    steps = jnp.where(finite, finite_steps + 1, 0)
    grow = steps >= GROWTH_INTERVAL
    factor = jnp.where(finite, jnp.where(grow, 2.0, 1.0), 0.5)
    return jnp.clip(scale * factor, 1.0, 2.0**24), jnp.where(grow, 0, steps)
