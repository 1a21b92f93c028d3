"""Shapes, parameters and multiply-adds of a network, by arithmetic alone."""

import math
from collections.abc import Callable


class Tally:
    """The totals of the layers added so far, and the shape of their output.

    Every method adds a layer and returns the tally itself.

    Attributes:
      rows, columns, channels: shape of the output.
      trainable: trainable parameters.
      fixed: numbers that are not trained, such as running statistics.
      macs: multiply-adds per image.
    """

    def __init__(self, rows: int, columns: int, channels: int):
        """Without layers, on images of this shape."""
        self.rows, self.columns, self.channels = rows, columns, channels
        self.trainable = self.fixed = self.macs = 0

    def conv(
        self,
        outputs: int,
        height: int = 3,
        width: int | None = None,
        *,
        stride: int = 1,
        valid: bool = False,
        norm: bool = False,
        bias: bool = True,
        groups: int = 1,
    ) -> "Tally":
        """A convolution with a kernel of ``height × width`` and a bias, or with batch norm.

        It has neither if not `bias`.

        Half the kernel is padded on every side, nothing if `valid`.
        """
        width = width or height
        padding = (0, 0) if valid else (height // 2, width // 2)
        self.rows = (self.rows + 2 * padding[0] - height) // stride + 1
        self.columns = (self.columns + 2 * padding[1] - width) // stride + 1
        weights = height * width * (self.channels // groups) * outputs
        self.macs += self.rows * self.columns * weights
        self.trainable += weights + (2 * outputs if norm else outputs if bias else 0)
        self.fixed += 2 * outputs if norm else 0
        self.channels = outputs
        return self

    def batch_norm(self) -> "Tally":
        self.fixed += 2 * self.channels
        return self.scale_and_shift()

    def scale_and_shift(self) -> "Tally":
        """Two parameters for each channel, as layer norm has them."""
        self.trainable += 2 * self.channels
        return self

    def layer_scale(self) -> "Tally":
        self.trainable += self.channels
        return self

    def pointwise(self, outputs: int) -> "Tally":
        """A dense layer over the channels of each pixel."""
        return self.conv(outputs, 1)

    def excite(self, reduced: int) -> "Tally":
        """Squeeze and excitation: two dense layers over the means of the channels."""
        self.trainable += (self.channels + 1) * reduced + (reduced + 1) * self.channels
        self.macs += 2 * self.channels * reduced
        return self

    def pool(
        self, window: int = 2, stride: int | None = None, *, padding: int = 0, ceil: bool = False
    ) -> "Tally":
        """A pool; `ceil` counts an incomplete last window."""
        stride = stride or window
        rounded = math.ceil if ceil else math.floor
        self.rows = rounded((self.rows + 2 * padding - window) / stride) + 1
        self.columns = rounded((self.columns + 2 * padding - window) / stride) + 1
        return self

    def flatten(self) -> "Tally":
        self.channels *= self.rows * self.columns
        self.rows = self.columns = 1
        return self

    def global_average(self) -> "Tally":
        self.rows = self.columns = 1
        return self

    def dense(self, outputs: int, *, norm: bool = False) -> "Tally":
        """A dense layer with a bias, and with batch norm behind it if `norm`."""
        self.trainable += (self.channels + 1) * outputs + (2 * outputs if norm else 0)
        self.fixed += 2 * outputs if norm else 0
        self.macs += self.channels * outputs
        self.channels = outputs
        return self

    def branches(self, *branches: Callable[["Tally"], "Tally"]) -> "Tally":
        """Branches over the same images: their channels, parameters and costs add up."""
        ends = [branch(Tally(self.rows, self.columns, self.channels)) for branch in branches]
        shapes = {(end.rows, end.columns) for end in ends}
        assert len(shapes) == 1, f"the branches end in different shapes: {shapes}"
        self.rows, self.columns = shapes.pop()
        self.channels = sum(end.channels for end in ends)
        self.add_costs(*ends)
        return self

    def add_costs(self, *others: "Tally") -> None:
        """Adds the parameters and multiply-adds of other tallies."""
        self.trainable += sum(other.trainable for other in others)
        self.fixed += sum(other.fixed for other in others)
        self.macs += sum(other.macs for other in others)
