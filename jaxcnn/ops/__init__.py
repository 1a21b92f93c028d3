"""Operations whose lowering differs by platform: the same values and gradients, spelt as each compiler likes it."""

from jaxcnn.ops.convolution import conv_general_dilated
from jaxcnn.ops.normalization import local_contrast_norm, local_response_norm
from jaxcnn.ops.pooling import avg_pool, max_pool
from jaxcnn.ops.rbf import rbf

__all__ = ["avg_pool", "conv_general_dilated", "local_contrast_norm", "local_response_norm", "max_pool", "rbf"]
