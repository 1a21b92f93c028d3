"""The cats-versus-dogs network."""

from functools import partial

from flax import nnx

from jaxcnn.fast_layers import BatchNorm, Linear
from jaxcnn.models.layers import ConvReLU, Dropout, he_normal
from jaxcnn.models.plan import chain
from jaxcnn.models.sequential import Layer, SequentialNetwork
from jaxcnn.models.shapes import flat_size, flatten


class CatsVsDogs(SequentialNetwork):
    """Thirteen convolutions and five pools before two wide dense layers.

    For two classes it has one output, the logit of the second class (the notebook's sigmoid);
    otherwise one output per class.

    | layer                                       | output     |
    |---------------------------------------------|------------|
    | two conv 3×3 ReLU, max pool 2               | 128×128×32 |
    | two conv 3×3 ReLU, max pool 2               | 64×64×64   |
    | three conv 3×3 ReLU, max pool 2             | 32×32×128  |
    | three conv 3×3 ReLU, max pool 3             | 10×10×256  |
    | three conv 3×3 ReLU, max pool 3             | 3×3×512    |
    | dense ReLU, dropout 0.5, batch norm         | 2048       |
    | dense ReLU, dropout 0.4, batch norm         | 2048       |
    | dense                                       | 1          |

    References:
      S. Agrawal, the notebook *Cats_versus_Dogs*.
    """

    PLAN = "32 32 P  64 64 P  128 128 128 P  256 256 256 P3  512 512 512 P3"

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        self.convolve, _ = chain(self.PLAN, input_shape[2], partial(ConvReLU, rngs=rngs))
        self.dense1 = Linear(
            flat_size(self.convolve, input_shape), 2048, kernel_init=he_normal, rngs=rngs
        )
        self.dropout1 = Dropout(0.5, rngs=rngs)
        self.norm1 = BatchNorm(2048, epsilon=1e-3, rngs=rngs)
        self.dense2 = Linear(2048, 2048, kernel_init=he_normal, rngs=rngs)
        self.dropout2 = Dropout(0.4, rngs=rngs)
        self.norm2 = BatchNorm(2048, epsilon=1e-3, rngs=rngs)
        self.out = Linear(2048, 1 if num_classes == 2 else num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        hidden1 = (self.dense1, nnx.relu, self.dropout1, self.norm1)
        hidden2 = (self.dense2, nnx.relu, self.dropout2, self.norm2)
        return (self.convolve, flatten, *hidden1, *hidden2, self.out)
