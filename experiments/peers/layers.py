"""A network as a list of layers that every library can build.

Imports no deep-learning library. The numbers of channels and units and the sizes of kernels are
those of the weights. These have the names that they have in the network of `jaxcnn`, if it is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Conv:
    """Convolution over all axes of the images, with a bias if its weights have one.

    Attributes:
      name: of its weights; the kernel is ``[sides…, inputs / groups, outputs]``.
      padding: pixels on every side; half the kernel's side along each axis if not given.
      strides: along all axes.
      groups: of input channels; as many as channels for a depthwise convolution.
    """

    name: str
    padding: int | None = None
    strides: int = 1
    groups: int = 1

    def pads(self, sides: Sequence[int]) -> tuple[int, ...]:
        """Pixels at either end of each axis, for a kernel of these sides.

        >>> Conv("conv").pads((1, 7))
        (0, 3)
        """
        return tuple(side // 2 if self.padding is None else self.padding for side in sides)


@dataclass(frozen=True)
class Dense:
    """Dense layer with a bias."""

    name: str


@dataclass(frozen=True)
class Norm:
    """Batch norm; `momentum` is the share of the running statistics that an update keeps."""

    name: str
    epsilon: float
    momentum: float


@dataclass(frozen=True)
class LayerNorm:
    """Layer norm over the channels."""

    name: str
    epsilon: float


@dataclass(frozen=True)
class Scale:
    """A factor for each channel, ``scale`` among its weights."""

    name: str


@dataclass(frozen=True)
class Activation:
    """An elementwise function; the leaky ReLU has a slope of 0.1, and GELU is exact."""

    kind: Literal["relu", "leaky_relu", "relu6", "tanh", "sigmoid", "silu", "gelu"]


@dataclass(frozen=True)
class Pool:
    """Pooling.

    Attributes:
      kind: average pools have no padding.
      window: its side along all axes.
      strides: along all axes.
      padding: pixels on every side; ``same`` as in TensorFlow, ``ceil(side / strides)`` windows; or
        ``ceil``, which keeps a last incomplete window, as in Caffe.
    """

    kind: Literal["max", "average"]
    window: int = 2
    strides: int = 2
    padding: int | Literal["same", "ceil"] = 0

    def __post_init__(self):
        if self.kind == "average" and self.padding != 0:
            raise ValueError("average pools have no padding: libraries count its pixels or do not")

    def pads(self, side: int) -> tuple[int, int]:
        """Pixels at the start and at the end of an axis of this length.

        >>> Pool("max", 3, 2, "same").pads(8), Pool("max", 3, 2, "ceil").pads(8)
        ((0, 1), (0, 1))
        """
        if isinstance(self.padding, int):
            return self.padding, self.padding
        if self.padding == "same":
            windows = -(-side // self.strides)
        else:
            windows = 1 + max(0, -(-(side - self.window) // self.strides))
            windows -= (windows - 1) * self.strides >= side  # it would start beyond the images
        pixels = max(0, (windows - 1) * self.strides + self.window - side)
        start = pixels // 2 if self.padding == "same" else 0
        return start, pixels - start


@dataclass(frozen=True)
class ResponseNorm:
    """Local response normalization over ``2 * radius + 1`` channels.

    `alpha` is not divided by their number.
    """

    radius: int
    bias: float
    alpha: float
    beta: float


@dataclass(frozen=True)
class Dropout:
    """Dropout."""

    rate: float


@dataclass(frozen=True)
class Flatten:
    """``[N, H, W, C]`` to ``[N, H * W * C]``."""


@dataclass(frozen=True)
class GlobalAverage:
    """``[N, H, W, C]`` to ``[N, C]``, or to ``[N, 1, 1, C]`` if `keep_axes`."""

    keep_axes: bool = False


@dataclass(frozen=True)
class Residual:
    """``body(x) + shortcut(x)``; an empty shortcut is the identity."""

    body: tuple["Layer", ...]
    shortcut: tuple["Layer", ...] = ()


@dataclass(frozen=True)
class Gate:
    """``x * body(x)``, broadcast over the image, as in squeeze and excitation."""

    body: tuple["Layer", ...]


@dataclass(frozen=True)
class Concatenation:
    """The outputs of branches side by side along the channels; an empty one is the identity."""

    branches: tuple[tuple["Layer", ...], ...]


Layer = (
    Conv
    | Dense
    | Norm
    | LayerNorm
    | Scale
    | Activation
    | Pool
    | ResponseNorm
    | Dropout
    | Flatten
    | GlobalAverage
    | Residual
    | Gate
    | Concatenation
)
WithWeights = Conv | Dense | Norm | LayerNorm | Scale
