"""The gradient of a strided convolution with respect to its images, without multiplying zeros.

The two image axes are treated alike and independently. Along one of them, let

- ``x[p]`` be the padded image, ``0 <= p < P``, in which the image begins at ``p = low``,
- ``w[k]`` the kernel of ``t`` taps, ``0 <= k < t``,
- ``s`` the stride,
- ``y[m] = sum(x[s * m + k] * w[k] for k)`` the result, ``0 <= m < M``, and ``dy`` its cotangent.

Tap ``k`` of output ``m`` reads position ``p = s * m + k``, so the gradient is ::

    dx[p] = sum(dy[m] * w[k] for all m, k with s * m + k == p)

Write ``p = s * q + r`` with ``0 <= r < s``. From ``s * m + k == s * q + r`` follows
``k = r + s * u`` and ``m = q - u`` for a whole number ``u``. A position with remainder ``r``
therefore meets only the taps ``w_r = w[r::s]``, of which there are ``U = ceil((t - r) / s)``::

    dx[s * q + r] = sum(dy[q - u] * w_r[u] for 0 <= u < U)

For each remainder this is a convolution of stride 1. As JAX's convolution does not flip its
kernel, it is the convolution of ``dy``, padded by ``U - 1`` zeros in front, with the flipped
``w_r``. To give ``Q`` results it needs ``Q - M`` zeros behind. The usual form, one convolution of
``dy`` with ``s - 1`` zeros between its elements, has ``s`` times as many multiplications per axis.

``Q`` is the smallest number of blocks of ``s`` positions that covers the end of the image,
``low + H``, and the last window's end, ``(M - 1) * s + t``. As ``t >= 1``, ``Q >= M``: no padding
is negative. If ``s > t``, the remainders ``r >= t`` have no taps, and their gradient is zero.

By hand, for ``s = 2``, ``t = 3``, ``M = 2``::

    dx[0] = dy[0] * w[0]                       q = 0, r = 0, w_0 = (w[0], w[2])
    dx[1] = dy[0] * w[1]                       q = 0, r = 1, w_1 = (w[1],)
    dx[2] = dy[1] * w[0] + dy[0] * w[2]        q = 1, r = 0
    dx[3] = dy[1] * w[1]                       q = 1, r = 1
    dx[4] = dy[1] * w[2]                       q = 2, r = 0

Shapes, with strides ``(s, s')``: each pair of remainders gives ``[N, Q, Q', C]``. Stacked, all are
``[N, Q, s, Q', s', C]``, which is the padded gradient ``[N, Q * s, Q' * s', C]`` with its axes
split. Cropping the padding leaves ``[N, H, W, C]``.
"""

import jax.numpy as jnp
from jax import Array

from jaxcnn.ops import native
from jaxcnn.ops.conv_spec import ConvSpec, Sizes


def supports(spec: ConvSpec) -> bool:
    """Whether the kernel is not dilated."""
    return spec.dilation == (1, 1)


def image_gradient(spec: ConvSpec, kernel: Array, cotangent: Array) -> Array:
    """The gradient with respect to the images, by `jaxcnn.ops.native`, which must be available.

    Args:
      spec: one for which ``supports(spec)`` is true.
      kernel: ``f32[h, w, C / groups, D]``.
      cotangent: ``f32[N, M, M', D]``.

    Returns:
      ``f32[N, H, W, C]``.
    """
    blocks = _block_counts(spec, cotangent)
    down, across = spec.strides
    rows = []
    for i in range(down):
        columns = [
            _gradient_at_remainder(spec, kernel, cotangent, blocks, (i, j)) for j in range(across)
        ]
        rows.append(jnp.stack(columns, 3))
    stacked = jnp.stack(rows, 2)
    channels = kernel.shape[2] * spec.groups
    shape = (len(cotangent), blocks[0] * down, blocks[1] * across, channels)
    padded = stacked.reshape(shape)
    (top, _), (left, _) = spec.pads
    height, width = spec.image_size
    return padded[:, top : top + height, left : left + width]


def _block_counts(spec: ConvSpec, cotangent: Array) -> Sizes:
    """``Q`` of each axis: blocks of ``stride`` positions that cover the image and all windows."""
    counts = []
    for axis in range(2):
        stride, (low, _) = spec.strides[axis], spec.pads[axis]
        image_end = low + spec.image_size[axis]
        windows_end = (cotangent.shape[1 + axis] - 1) * stride + spec.kernel_size[axis]
        counts.append(-(-max(image_end, windows_end) // stride))
    return tuple(counts)


def _gradient_at_remainder(
    spec: ConvSpec, kernel: Array, cotangent: Array, blocks: Sizes, remainder: Sizes
) -> Array:
    """``[N, Q, Q', C]``: the gradient at the positions with these remainders by the strides."""
    taps = kernel[remainder[0] :: spec.strides[0], remainder[1] :: spec.strides[1]]
    if 0 in taps.shape:
        shape = (len(cotangent), *blocks, kernel.shape[2] * spec.groups)
        return jnp.zeros(shape, cotangent.dtype)
    pads = tuple(
        (count - 1, block_count - output_count)
        for count, block_count, output_count in zip(
            taps.shape[:2], blocks, cotangent.shape[1:3], strict=True
        )
    )
    window = native.Window(pads=pads, groups=spec.groups, allows_winograd=spec.allows_winograd)
    return native.convolution(cotangent, taps, window, flipped=True)
