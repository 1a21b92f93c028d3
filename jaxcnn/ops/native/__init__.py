"""Convolutions and matrix products by C++ kernels that are compiled when jaxcnn is installed.

The sources are in ``jaxcnn/ops/kernels``. There is one library per instruction set. XLA:CPU calls
them through its foreign function interface (FFI), on its own threads and in its own memory. If no
library was built, because there is no compiler, `available` is false and XLA's own operations are
used.

The compiler cannot partition a call over several devices: each device would get the whole batch.
See `jaxcnn.ops.partitioning`.
"""

from jaxcnn.ops.native.activation import NO_ACTIVATION, RELU, Activation, Kind
from jaxcnn.ops.native.calls import (
    activated_convolution,
    activated_depthwise,
    can_compute,
    can_compute_bfloat16,
    convolution,
    depthwise,
    depthwise_image_gradient,
    depthwise_kernel_gradient,
    kernel_gradient,
    product,
)
from jaxcnn.ops.native.loader import (
    CALL_PREFIX,
    ENVIRONMENT_VARIABLE,
    available,
    bfloat16_instructions,
    instruction_set,
    without_native_kernels,
)
from jaxcnn.ops.native.normalization import (
    Clip,
    moments,
    normalize_gradient,
    normalize_gradient_sums,
)
from jaxcnn.ops.native.packed import PackedConvolution
from jaxcnn.ops.native.window import Window
from jaxcnn.ops.native.winograd import winograd_tile

__all__ = [
    "CALL_PREFIX",
    "ENVIRONMENT_VARIABLE",
    "NO_ACTIVATION",
    "RELU",
    "Activation",
    "Clip",
    "Kind",
    "PackedConvolution",
    "Window",
    "activated_convolution",
    "activated_depthwise",
    "available",
    "bfloat16_instructions",
    "can_compute",
    "can_compute_bfloat16",
    "convolution",
    "depthwise",
    "depthwise_image_gradient",
    "depthwise_kernel_gradient",
    "instruction_set",
    "kernel_gradient",
    "moments",
    "normalize_gradient",
    "normalize_gradient_sums",
    "product",
    "winograd_tile",
    "without_native_kernels",
]
