"""Precision policies: the dtype of the computation, and loss scaling for float16.

Parameters, optimizer state and losses are float32 under every policy (mixed precision: Micikevicius
et al. 2018, §3).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxcnn.errors import require_known


@dataclass(frozen=True)
class Precision:
    """A precision policy.

    Attributes:
      name: its key in `PRECISIONS`.
      compute: dtype of the activations and of the parameters as the network receives them.
      initial_scale: the initial loss scale, a power of two; 1.0 for no loss scaling.
    """

    name: str
    compute: Any
    initial_scale: float = 1.0

    @property
    def scales_loss(self) -> bool:
        """True if the policy uses dynamic loss scaling, see `next_scale`."""
        return self.initial_scale != 1.0


PRECISIONS: dict[str, Precision] = {
    "float32": Precision("float32", jnp.float32),
    "bfloat16": Precision("bfloat16", jnp.bfloat16),
    "float16": Precision("float16", jnp.float16, initial_scale=2.0**15),
}

# Finite steps after which the loss scale is doubled (Micikevicius et al. 2018, §3.2).
GROWTH_INTERVAL = 2000
_LARGEST_SCALE = 2.0**24


def precision(name: str) -> Precision:
    """The policy called `name`.

    Raises:
      InputError: an unknown name.

    >>> precision("float16").scales_loss
    True
    """
    require_known("precision", name, PRECISIONS)
    return PRECISIONS[name]


def cast(tree: Any, dtype: Any) -> Any:
    """Casts the floating-point leaves of a tree; the others (keys, counters) stay as they are.

    >>> cast({"scale": jnp.ones(2), "count": jnp.arange(2)}, jnp.bfloat16)["count"].dtype
    dtype('int32')
    """
    return jax.tree.map(
        lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree
    )


def all_finite(tree: Any) -> Array:
    """Whether no leaf of a tree contains a NaN or an infinity, ``bool[]``."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def next_scale(scale: Array, finite_steps: Array, finite: Array) -> tuple[Array, Array]:
    """The loss scale of the next step.

    The scale is doubled after `GROWTH_INTERVAL` consecutive steps with finite gradients and halved
    after every step with an overflow, between 1 and 2²⁴ (dynamic loss scaling: Micikevicius et al.
    2018, §3.2).

    Args:
      scale: ``f32[]``, the loss scale of this step.
      finite_steps: ``i32[]``, finite steps since the scale last changed.
      finite: ``bool[]``, whether the gradients of this step were finite.

    Returns:
      The next `scale` and `finite_steps`.

    >>> scale, finite_steps = next_scale(jnp.float32(8), jnp.int32(3), jnp.bool_(False))
    >>> float(scale), int(finite_steps)
    (4.0, 0)
    """
    finite_steps = jnp.where(finite, finite_steps + 1, 0)
    grow = finite_steps >= GROWTH_INTERVAL
    factor = jnp.where(finite, jnp.where(grow, 2.0, 1.0), 0.5)
    scale = jnp.clip(scale * factor, 1.0, _LARGEST_SCALE)
    return scale, jnp.where(grow, 0, finite_steps)
