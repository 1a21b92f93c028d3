"""Operations with one lowering per platform: the same values and gradients, fast on each.

TPU programs keep JAX's own operations, and GPU programs all but two gradients: those of max pools,
and of depthwise kernels as large as the images. The CPU programs differ.
"""

from jaxcnn.ops.batch_norm import NO_CLIP, RELU, RELU6, batch_norm
from jaxcnn.ops.channels import channel_sums
from jaxcnn.ops.conv_spec import NHWC
from jaxcnn.ops.convolution import conv_general_dilated, conv_relu
from jaxcnn.ops.dense import dot_general
from jaxcnn.ops.frozen_weights import freeze
from jaxcnn.ops.inference_fusion import fuse_layers
from jaxcnn.ops.native import Clip
from jaxcnn.ops.normalization import local_contrast_norm, local_response_norm
from jaxcnn.ops.pooling import avg_pool, max_pool
from jaxcnn.ops.rbf import rbf

__all__ = [
    "NHWC",
    "NO_CLIP",
    "RELU",
    "RELU6",
    "Clip",
    "avg_pool",
    "batch_norm",
    "channel_sums",
    "conv_general_dilated",
    "conv_relu",
    "dot_general",
    "freeze",
    "fuse_layers",
    "local_contrast_norm",
    "local_response_norm",
    "max_pool",
    "rbf",
]
