"""The CPU lowering of JAX's own max and average pools within `fast_on_cpu`, and of their gradients.

These are the pools of Flax, Equinox and `jax.lax`, over any number of image axes: windows over
``[N, ..., C]`` without dilation. XLA:CPU computes the gradient of a max pool tens of times slower
than as a few strided slices (`jaxcnn.ops.pooling_lowerings`). See `jaxcnn.ops.cpu_lowering` for how
operations are marked. The gradient of an average pool is the sum of windows again.

GPUs keep JAX's pools, but not the gradient of max pools. XLA scatters it into an array of zeros in
float32; that of the slices takes 24 to 61 % of the time (seven pools of bfloat16 images of 26
to 411 MB, on an H200; 80 % for images of 3×3), and in most networks less memory.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.ops import cpu_lowering
from jaxcnn.ops.conv_spec import Pads, Sizes
from jaxcnn.ops.cpu_lowering import Replacement
from jaxcnn.ops.pooling_lowerings import MAX, SUM, Pool, max_on_gpu


@dataclass(frozen=True)
class _Windows:
    """The windows of a pool, by image axis."""

    window: Sizes
    strides: Sizes
    pads: Pads

    def largest(self, images: Array) -> Array:
        """The max pool."""
        return MAX(images, self.window, self.strides, self.pads)

    def total(self, images: Array) -> Array:
        """The sums of the windows."""
        return SUM(images, self.window, self.strides, self.pads)

    def gradient_of_largest(self, cotangent: Array, images: Array, *, pool: Pool) -> Array:
        """The cotangent of each window for the first of its largest values in row order."""

        def largest(images: Array) -> Array:
            return pool(images, self.window, self.strides, self.pads)

        return jax.vjp(largest, images)[1](cotangent)[0]


def _recognize(images, parameters: dict) -> _Windows | None:
    """The windows over ``[N, ..., C]``; None for others, and for numbers that are not floating."""
    window, strides = parameters["window_dimensions"], parameters["window_strides"]
    pads = parameters["padding"]
    dilations = (*parameters.get("base_dilation", ()), *parameters.get("window_dilation", ()))
    ends = ((1, 1, (0, 0)),) * 2
    at_ends = tuple((window[i], strides[i], tuple(pads[i])) for i in (0, -1)) if window else ()
    is_pool = len(window) > 2 and at_ends == ends and set(dilations) <= {1}
    if not is_pool or not jnp.issubdtype(images.dtype, jnp.floating) or 0 in images.shape:
        return None
    inner = tuple((int(low), int(high)) for low, high in pads[1:-1])
    if not all(
        0 <= pad < length for pair, length in zip(inner, window[1:-1], strict=True) for pad in pair
    ):
        return None  # windows of nothing but padding
    return _Windows(tuple(window[1:-1]), tuple(strides[1:-1]), inner)


def _max_rule(operands, result, parameters) -> Replacement | None:
    windows = _recognize(operands[0], parameters)
    return Replacement(windows.largest) if windows and result.size else None


def _sum_rule(operands, result, parameters) -> Replacement | None:
    windows = _recognize(operands[0], parameters)
    return Replacement(windows.total) if windows and result.size else None


def _max_gradient_rule(operands, result, parameters, *, pool: Pool) -> Replacement | None:
    """The gradient of the max pool that ``pool`` computes."""
    cotangent, images = operands
    windows = _recognize(images, parameters)
    if windows is None or parameters["select_prim"] is not lax.ge_p or not cotangent.size:
        return None
    return Replacement(functools.partial(windows.gradient_of_largest, pool=pool))


cpu_lowering.register(lax.reduce_window_max_p, _max_rule)
cpu_lowering.register(lax.reduce_window_sum_p, _sum_rule)
cpu_lowering.register(lax.select_and_scatter_add_p, functools.partial(_max_gradient_rule, pool=MAX))
_gpu_rule = functools.partial(_max_gradient_rule, pool=max_on_gpu)
cpu_lowering.register(lax.select_and_scatter_add_p, _gpu_rule, "cuda")
cpu_lowering.register(lax.select_and_scatter_add_p, _gpu_rule, "rocm")
