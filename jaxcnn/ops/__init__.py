"""Operations whose lowering differs by platform: the same values and gradients, spelt as each compiler likes it."""

from jaxcnn.ops.convolution import conv_general_dilated
from jaxcnn.ops.pooling import avg_pool, max_pool

__all__ = ["avg_pool", "conv_general_dilated", "max_pool"]
