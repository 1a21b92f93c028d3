"""The CPU and GPU lowerings of `jax.lax.conv_general_dilated` within `fast_on_cpu`.

A convolution with a form, see `jaxcnn.ops.conv_forms`, is computed by `jaxcnn.ops.conv_axes`; see
`jaxcnn.ops.cpu_lowering` for how operations are marked.

The kernels sum in float32; only the operands and the result are rounded. Half precisions are
converted to float32 for them, but bfloat16 is not where they have instructions for it.

GPUs keep JAX's convolutions, but for one gradient. XLA:GPU recognizes the gradient with respect to
a kernel by its sizes: the kernel is smaller than the result. Otherwise, as for the 7×7 kernels and
images at the end of a ConvNeXt, it compiles a convolution whose windows are whole images. If that
is depthwise, cuDNN has only a slow kernel for it: 4.3 ms on an H200 for 256 images with 768
channels. So both operands are padded with zeros, which add nothing to the sums; then it takes 0.17
ms.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from jaxcnn.ops import conv_axes, cpu_convolution, cpu_lowering, native
from jaxcnn.ops.conv_forms import Form, recognize
from jaxcnn.ops.conv_spec import NHWC, ConvSpec
from jaxcnn.ops.partitioning import Dimensions

MAX_SLICES = 11  # taps along the first of three axes: the images are copied that many times

# Dimensions for which there is a faster program without kernels too: those of a convolution of
# images [N, H, W, C] with a kernel [h, w, C, D], and of JAX's forms of its two gradients.
_USUAL_NUMBERS = (
    NHWC,
    lax.ConvDimensionNumbers((0, 3, 1, 2), (2, 3, 0, 1), (0, 3, 1, 2)),
    lax.ConvDimensionNumbers((3, 0, 1, 2), (3, 0, 1, 2), (2, 3, 0, 1)),
)


@dataclass(frozen=True)
class _Computation:
    """Computes what a recognized convolution does.

    Attributes:
      form, spec: see `recognize`.
      numbers: the dimensions of the operands and of the result.
      dtype: of the result.
    """

    form: Form
    spec: ConvSpec
    numbers: lax.ConvDimensionNumbers
    dtype: DTypeLike

    def __call__(self, first: Array, second: Array) -> Array:
        """The result of the operation for its operands."""
        if native.can_compute(first, second) and not self._is_direct(first, second):
            first, second = first.astype(jnp.float32), second.astype(jnp.float32)
        compute = {
            Form.FORWARD: self._convolve,
            Form.IMAGES: self._image_gradient,
            Form.KERNEL: self._kernel_gradient,
            Form.TRANSPOSED: self._transposed_kernel_gradient,
        }
        return compute[self.form](first, second).astype(self.dtype)

    def _is_direct(self, first: Array, second: Array) -> bool:
        """Whether the kernels compute it without conversion, and the result is rounded once.

        The gradient with respect to volumes is a sum of such results.
        """
        is_sum = self.form is Form.IMAGES and len(self.spec.strides) == 3
        is_native = cpu_convolution.can_be_native(self.spec, first, second)
        return is_native and self.dtype == first.dtype and not is_sum

    def _convolve(self, images: Array, kernel: Array) -> Array:
        images, kernel = self._channels_last(images, kernel)
        spec = self.spec.for_cropped_images()
        return self._arrange(conv_axes.convolve(spec, self._crop(images), kernel), 0, -1)

    def _image_gradient(self, cotangent: Array, kernel: Array) -> Array:
        cotangent, kernel = self._channels_last(cotangent, kernel)
        # The operand is the reversal of the kernel; the compiler removes both reversals.
        kernel = _exchange_channels(_reverse_taps(kernel), self.spec.groups)
        spec = self.spec.for_cropped_images()
        gradient = conv_axes.image_gradient(spec, kernel, cotangent)
        return self._arrange(_pad_in_front(gradient, self.spec.crops), 0, -1)

    def _kernel_gradient(self, images: Array, cotangent: Array) -> Array:
        images, cotangent = self._examples_first(images, cotangent)
        spec = self.spec.for_cropped_images()
        gradient = conv_axes.kernel_gradient(spec, self._crop(images), cotangent)
        return self._arrange(gradient, -2, -1)

    def _transposed_kernel_gradient(self, images: Array, cotangent: Array) -> Array:
        """The kernel gradient of the convolution from the result's side to the images' side.

        Its images are the cotangent, and its cotangent the images. The taps are in reverse order.
        """
        images, cotangent = self._examples_first(images, cotangent)
        spec = self.spec.for_cropped_images()
        gradient = conv_axes.kernel_gradient(spec, self._crop(cotangent), images)
        return self._arrange(jnp.swapaxes(_reverse_taps(gradient), -2, -1), -2, -1)

    def _channels_last(self, images: Array, kernel: Array) -> tuple[Array, Array]:
        """The operands of a convolution as ``[N, ..., C]`` and ``[..., C / groups, D]``."""
        batch, channels, *axes = self.numbers.lhs_spec
        outputs, inputs, *taps = self.numbers.rhs_spec
        return (
            jnp.transpose(images, (batch, *axes, channels)),
            jnp.transpose(kernel, (*taps, inputs, outputs)),
        )

    def _examples_first(self, images: Array, cotangent: Array) -> tuple[Array, Array]:
        """The operands of a kernel gradient as ``[N, ..., C]`` and ``[N, ..., D]``."""
        channels, batch, *axes = self.numbers.lhs_spec
        outputs, cotangent_batch, *pixels = self.numbers.rhs_spec
        return (
            jnp.transpose(images, (batch, *axes, channels)),
            jnp.transpose(cotangent, (cotangent_batch, *pixels, outputs)),
        )

    def _crop(self, images: Array) -> Array:
        return _pad_in_front(images, [-pixels for pixels in self.spec.crops])

    def _arrange(self, result: Array, first: int, second: int) -> Array:
        """Moves the result's dimensions to where `numbers` say.

        Args:
          result: whose other dimensions are those of the image axes, in order.
          first, second: the dimensions that a convolution calls batch and features.
        """
        roles = [first % result.ndim, second % result.ndim]
        roles += [each for each in range(result.ndim) if each not in roles]
        places = dict(zip(self.numbers.out_spec, roles, strict=True))
        return jnp.transpose(result, [places[i] for i in range(result.ndim)])

    @property
    def dimensions(self) -> Dimensions:
        """How devices can divide the work: by examples and, without groups, by channels."""
        examples, channels, outputs = "n", "c", "d"
        # The names of the two dimensions that a convolution calls batch and features, or outputs
        # and inputs, of both operands and of the result.
        names = {
            Form.FORWARD: ((examples, channels), (outputs, channels), (examples, outputs)),
            Form.IMAGES: ((examples, outputs), (channels, outputs), (examples, channels)),
            Form.KERNEL: ((channels, examples), (outputs, examples), (channels, outputs)),
            Form.TRANSPOSED: ((channels, examples), (outputs, examples), (channels, outputs)),
        }[self.form]
        arrays = []
        for spec, pair in zip(self.numbers, names, strict=True):
            array: list[str | None] = [None] * len(spec)
            for place, name in zip(spec, pair, strict=False):
                array[place] = name if name == examples or self.spec.groups == 1 else None
            arrays.append(tuple(array))
        return Dimensions((arrays[0], arrays[1]), arrays[2])


def _pad_in_front(images: Array, pixels: Sequence[int]) -> Array:
    """Pads ``[N, ..., C]`` with zeros along its image axes; a negative number crops."""
    if not any(pixels):
        return images
    pads = [(0, 0, 0), *((count, 0, 0) for count in pixels), (0, 0, 0)]
    return lax.pad(images, jnp.zeros((), images.dtype), pads)


def _reverse_taps(kernel: Array) -> Array:
    return lax.rev(kernel, range(kernel.ndim - 2))


def _exchange_channels(kernel: Array, groups: int) -> Array:
    """``[..., D / groups, C]`` to ``[..., C / groups, D]``."""
    *taps, inputs, outputs = kernel.shape
    split = kernel.reshape(*taps, inputs, groups, outputs // groups)
    last = split.ndim - 1
    moved = jnp.transpose(split, (*range(len(taps)), last, last - 1, last - 2))
    return moved.reshape(*taps, outputs // groups, groups * inputs)


def _rule(operands, result, parameters) -> cpu_lowering.Replacement | None:
    images, kernel = operands
    if not 3 <= result.ndim <= 5 or images.dtype != kernel.dtype:
        return None
    recognized = recognize(images, kernel, result, parameters)
    if recognized is None:
        return None
    computation = _Computation(*recognized, parameters["dimension_numbers"], result.dtype)
    if not _is_supported(computation, images, kernel):
        return None
    return cpu_lowering.Replacement(computation, computation.dimensions)


def _is_supported(computation: _Computation, images, kernel) -> bool:
    """Whether it is faster than JAX's own lowering."""
    spec = computation.spec
    if len(spec.kernel_size) == 3 and spec.kernel_size[0] > MAX_SLICES:
        return False
    is_usual = computation.numbers in _USUAL_NUMBERS and images.dtype == computation.dtype
    has_few_groups = spec.groups <= cpu_convolution.MAX_GROUPS
    return native.can_compute(images, kernel) or (is_usual and has_few_groups)


def _gpu_rule(operands, result, parameters) -> cpu_lowering.Replacement | None:
    """Pads the gradient of a depthwise kernel if the kernel is not smaller than the result."""
    images, cotangent = operands
    recognized = recognize(images, cotangent, result, parameters)
    if recognized is None:
        return None
    form, spec = recognized
    numbers = parameters["dimension_numbers"]
    channels = images.shape[numbers.lhs_spec[0]]
    is_depthwise = form is Form.KERNEL and spec.groups == channels > 1
    ones = (1,) * len(spec.kernel_size)
    if not is_depthwise or not spec.strides == spec.dilation == ones:
        return None
    axes = numbers.rhs_spec[2:]
    pads = {
        axis: max(taps + 1 - cotangent.shape[axis], 0)
        for axis, taps in zip(axes, spec.kernel_size, strict=True)
    }
    if not any(pads.values()):
        return None
    return cpu_lowering.Replacement(functools.partial(_pad_and_convolve, parameters, pads))


def _pad_and_convolve(
    parameters: dict, pads: dict[int, int], images: Array, cotangent: Array
) -> Array:
    """The same kernel gradient, with zeros behind the image axes of both operands.

    Args:
      parameters: of the operation.
      pads: how many zeros, by axis of `cotangent`, in the order of the image axes.
      images, cotangent: the operands.
    """
    behind = [(0, pads.get(axis, 0), 0) for axis in range(cotangent.ndim)]
    padded = lax.pad(cotangent, jnp.zeros((), cotangent.dtype), behind)
    paddings = zip(parameters["padding"], pads.values(), strict=True)
    padding = tuple((low, high + count) for (low, high), count in paddings)
    return lax.conv_general_dilated_p.bind(images, padded, **parameters | {"padding": padding})


cpu_lowering.register(lax.conv_general_dilated_p, _rule)
cpu_lowering.register(lax.conv_general_dilated_p, _gpu_rule, "cuda")
cpu_lowering.register(lax.conv_general_dilated_p, _gpu_rule, "rocm")
