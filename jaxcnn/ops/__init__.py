"""Operations with one lowering per platform: the same values and gradients, fast on each.

Every function keeps JAX's own program on GPU and TPU. Only the CPU programs differ.
"""

from jaxcnn.ops.channels import add_bias, channel_sums, normalize
from jaxcnn.ops.conv_spec import NHWC
from jaxcnn.ops.convolution import conv_general_dilated, conv_relu
from jaxcnn.ops.dense import dot_general
from jaxcnn.ops.normalization import local_contrast_norm, local_response_norm
from jaxcnn.ops.pooling import avg_pool, max_pool
from jaxcnn.ops.rbf import rbf

__all__ = [
    "NHWC",
    "add_bias",
    "avg_pool",
    "channel_sums",
    "conv_general_dilated",
    "conv_relu",
    "dot_general",
    "local_contrast_norm",
    "local_response_norm",
    "max_pool",
    "normalize",
    "rbf",
]
