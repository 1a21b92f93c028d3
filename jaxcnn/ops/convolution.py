"""Convolution whose gradients XLA:CPU compiles well, inside loops too.

XLA:CPU hands a convolution to its fast library only in the layout NHWC × HWIO → NHWC. The two gradients that JAX
derives are in other layouts; XLA repairs that at the top level of a program but not in the body of a loop (jax issue
#12868), where they then run tens of times slower. Here the gradients are written in the fast layout to begin with.
The gradients of a grouped convolution are slow too: on a CPU a few groups are done as one convolution each.
GPU and TPU programs keep JAX's own.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

NHWC = lax.ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))

Pairs = tuple[tuple[int, int], ...]

MOST_GROUPS = 8  # AlexNet has 2; each adds three convolutions to the program


def conv_general_dilated(
    images: Array,
    kernel: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvDimensionNumbers | None = None,
    feature_group_count: int = 1,
    **options,
) -> Array:
    """`jax.lax.conv_general_dilated`, argument for argument, with CPU gradients in the fast layout.

    The fast gradients serve images ``[N, H, W, C]`` with a kernel ``[h, w, C / groups, D]``, up to eight groups and no
    dilated input, at any stride, padding and kernel dilation. All else is passed on to ``jax.lax`` unchanged.

    Returns:
      ``[N, H', W', D]``.

    Reverse mode and `vmap` work, also twice over; forward mode (`jax.jvp`) is refused by JAX, as for any `custom_vjp`.
    """
    strides = tuple(window_strides)
    dilation = tuple(rhs_dilation or (1,) * len(strides))
    divides = images.shape[-1] == feature_group_count * kernel.shape[-2] and kernel.shape[-1] % feature_group_count == 0
    plain = len(strides) == 2 and feature_group_count <= MOST_GROUPS and set(lhs_dilation or (1,)) == {1}
    asked = {name for name, value in options.items() if value is not None} - {"precision"}
    if not (plain and divides) or dimension_numbers != NHWC or asked:
        return lax.conv_general_dilated(
            images, kernel, strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, **options
        )
    if isinstance(padding, str):
        spans = [(size - 1) * step + 1 for size, step in zip(kernel.shape[:2], dilation, strict=True)]
        padding = lax.padtype_to_pads(images.shape[1:3], spans, strides, padding)
    pads = tuple((int(low), int(high)) for low, high in padding)
    return _conv(images, kernel, strides, pads, dilation, options.get("precision"), feature_group_count)


def _native(images: Array, kernel: Array, strides, pads: Pairs, dilation, precision, groups=1, input_dilation=(1, 1)) -> Array:
    return lax.conv_general_dilated(
        images,
        kernel,
        strides,
        pads,
        input_dilation,
        dilation,
        dimension_numbers=NHWC,
        feature_group_count=groups,
        precision=precision,
    )


def _in_groups(function: Callable, groups: int, *arrays: Array) -> Array:
    """The function on each group's share of the arrays' last axes, joined along the last axis."""
    shares = zip(*(jnp.split(array, groups, -1) for array in arrays), strict=True)
    return jnp.concatenate([function(*share) for share in shares], -1) if groups > 1 else function(*arrays)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5, 6))
def _conv(images: Array, kernel: Array, strides, pads: Pairs, dilation, precision, groups: int) -> Array:
    settings = (strides, pads, dilation, precision)
    if groups == 1:
        return _native(images, kernel, *settings)

    def native(images, kernel):
        return _native(images, kernel, *settings, groups)

    def fast(images, kernel):
        return _in_groups(lambda x, k: _native(x, k, *settings), groups, images, kernel)

    return lax.platform_dependent(images, kernel, cpu=fast, default=native)


def _forward(images, kernel, strides, pads, dilation, precision, groups):
    return _conv(images, kernel, strides, pads, dilation, precision, groups), (images, kernel)


def _backward(strides, pads, dilation, precision, groups, saved, cotangent):
    images, kernel = saved
    settings = (strides, pads, dilation, precision)

    def native(images, kernel, cotangent):
        return jax.vjp(lambda x, k: _native(x, k, *settings, groups), images, kernel)[1](cotangent)

    def fast(*arrays):
        gradients = (_image_gradient, _kernel_gradient)
        return tuple(_in_groups(lambda *share, of=of: of(*share, *settings), groups, *arrays) for of in gradients)

    return lax.platform_dependent(images, kernel, cotangent, cpu=fast, default=native)


_conv.defvjp(_forward, _backward)


def _image_gradient(images, kernel, cotangent, strides, pads, dilation, precision) -> Array:
    """The cotangent, spread by the strides, convolved with the kernel turned by 180° and its channels exchanged."""
    turned = jnp.transpose(lax.rev(kernel, (0, 1)), (0, 1, 3, 2))
    spans = [(size - 1) * step + 1 for size, step in zip(kernel.shape[:2], dilation, strict=True)]
    around = []
    for axis in range(2):
        spread = (cotangent.shape[1 + axis] - 1) * strides[axis] + 1
        low = spans[axis] - 1 - pads[axis][0]
        around.append((low, images.shape[1 + axis] + spans[axis] - 1 - spread - low))
    return _native(cotangent, turned, (1, 1), tuple(around), dilation, precision, input_dilation=strides)


def _kernel_gradient(images, kernel, cotangent, strides, pads, dilation, precision) -> Array:
    """The images convolved with the cotangent, examples in the place of channels and channels in that of examples."""
    around = []
    for axis in range(2):
        spread = (cotangent.shape[1 + axis] - 1) * strides[axis] + 1
        reach = (kernel.shape[axis] - 1) * dilation[axis] + spread
        around.append((pads[axis][0], reach - images.shape[1 + axis] - pads[axis][0]))
    channels_first = jnp.transpose(images, (3, 1, 2, 0))
    as_kernel = jnp.transpose(cotangent, (1, 2, 0, 3))
    gradient = _native(channels_first, as_kernel, dilation, tuple(around), strides, precision)
    return jnp.transpose(gradient, (1, 2, 0, 3))
