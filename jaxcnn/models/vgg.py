"""VGG-11, VGG-16 and VGG-19."""

from functools import partial

from flax import nnx

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import ConvReLU, Dropout, he_normal
from jaxcnn.models.plan import chain
from jaxcnn.models.sequential import Layer, SequentialNetwork
from jaxcnn.models.shapes import flat_size, flatten

# Simonyan & Zisserman 2015, table 1, columns A, D and E.
PLANS = {
    11: "64 P  128 P  256 256 P  512 512 P  512 512 P",
    16: "64 64 P  128 128 P  256 256 256 P  512 512 512 P  512 512 512 P",
    19: "64 64 P  128 128 P  256 256 256 256 P  512 512 512 512 P  512 512 512 512 P",
}


class VGG(SequentialNetwork):
    """VGG with 11, 16 or 19 layers.

    The convolutions 3×3 with ReLU and the max pools 2×2 of `PLANS`; then two dense layers of 4096
    with ReLU and dropout 0.5, and a dense layer of 1000.

    References:
      Simonyan & Zisserman 2015, *Very Deep Convolutional Networks for Large-Scale Image
      Recognition*, §2.
    """

    def __init__(
        self, input_shape: tuple[int, int, int], num_classes: int, *, depth: int, rngs: nnx.Rngs
    ):
        self.convolve, _ = chain(PLANS[depth], input_shape[2], partial(ConvReLU, rngs=rngs))
        self.dense1 = Linear(
            flat_size(self.convolve, input_shape), 4096, kernel_init=he_normal, rngs=rngs
        )
        self.dropout1 = Dropout(0.5, rngs=rngs)
        self.dense2 = Linear(4096, 4096, kernel_init=he_normal, rngs=rngs)
        self.dropout2 = Dropout(0.5, rngs=rngs)
        self.out = Linear(4096, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        hidden1 = (self.dense1, nnx.relu, self.dropout1)
        hidden2 = (self.dense2, nnx.relu, self.dropout2)
        return (self.convolve, flatten, *hidden1, *hidden2, self.out)
