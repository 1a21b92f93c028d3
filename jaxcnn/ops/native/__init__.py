"""Convolutions and matrix products by C++ kernels that are compiled when jaxcnn is installed.

The sources are in ``jaxcnn/ops/kernels``. There is one library per instruction set. XLA:CPU calls
them through its foreign function interface (FFI), on its own threads and in its own memory. If no
library was built, because there is no compiler, `available` is false and XLA's own operations are
used.

The compiler cannot partition a call over several devices: each device would get the whole batch.
See `without_native_kernels`.
"""

from jaxcnn.ops.native.calls import conv_relu, convolution, kernel_gradient, product, supports
from jaxcnn.ops.native.loader import (
    CALL_PREFIX,
    ENVIRONMENT_VARIABLE,
    available,
    instruction_set,
    without_native_kernels,
)
from jaxcnn.ops.native.winograd import winograd_tile

__all__ = [
    "CALL_PREFIX",
    "ENVIRONMENT_VARIABLE",
    "available",
    "conv_relu",
    "convolution",
    "instruction_set",
    "kernel_gradient",
    "product",
    "supports",
    "winograd_tile",
    "without_native_kernels",
]
