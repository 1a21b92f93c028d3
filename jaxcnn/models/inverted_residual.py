"""The inverted residual block of MobileNet and EfficientNet, plain and fused."""

from collections.abc import Callable

from flax import nnx
from jax import Array

from jaxcnn.models.layers import ConvNorm
from jaxcnn.models.residual import StochasticDepth

Conv = Callable[..., ConvNorm]


class InvertedResidual(nnx.Module):
    """Convolutions 1×1 to more channels, depthwise, and 1×1 to fewer, with a residual.

    Args:
      inputs, outputs: numbers of channels.
      width: the number of channels of the depthwise convolution; if it is `inputs`, the block has
        no first convolution.
      kernel, strides: of the depthwise convolution.
      conv: `ConvNorm` with the network's activation and batch norm.
      excite: squeeze and excitation of the depthwise convolution's output.
      drop_rate: of stochastic depth.

    The input is added to the output if both have the same shape.

    References:
      Sandler et al. 2018, *MobileNetV2: Inverted Residuals and Linear Bottlenecks*, §3.3; Howard et
      al. 2019, *Searching for MobileNetV3*, figure 4.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int,
        kernel: int,
        strides: int,
        conv: Conv,
        excite: nnx.Module | None = None,
        drop_rate: float = 0.0,
        rngs: nnx.Rngs,
    ):
        self.expand = conv(inputs, width, 1) if width != inputs else None
        self.depthwise = conv(width, width, kernel, strides, groups=width)
        self.excite = excite
        self.project = conv(width, outputs, 1, activation=None)
        self.is_residual = (inputs, strides) == (outputs, 1)
        self.stochastic_depth = StochasticDepth(drop_rate, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        y = self.depthwise(self.expand(x) if self.expand else x)
        y = self.project(self.excite(y) if self.excite else y)
        return x + self.stochastic_depth(y) if self.is_residual else y


class FusedInvertedResidual(nnx.Module):
    """An inverted residual whose first two convolutions are one, which is not depthwise.

    The arguments are those of `InvertedResidual`. If `width` is `inputs`, that convolution is all.

    References:
      Tan & Le 2021, *EfficientNetV2: Smaller Models and Faster Training*, figure 2.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int,
        kernel: int,
        strides: int,
        conv: Conv,
        drop_rate: float = 0.0,
        rngs: nnx.Rngs,
    ):
        is_single = width == inputs
        self.expand = conv(inputs, outputs if is_single else width, kernel, strides)
        self.project = None if is_single else conv(width, outputs, 1, activation=None)
        self.is_residual = (inputs, strides) == (outputs, 1)
        self.stochastic_depth = StochasticDepth(drop_rate, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        y = self.expand(x)
        y = self.project(y) if self.project else y
        return x + self.stochastic_depth(y) if self.is_residual else y
