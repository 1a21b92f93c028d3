"""Inception-v4 and Inception-ResNet-v2, whose blocks are written as plans (see `plan`)."""

from collections.abc import Callable
from functools import partial

from flax import nnx
from jax import Array

from jaxcnn.fast_layers import Linear
from jaxcnn.models.layers import Branches, Conv, ConvNorm, Dropout, GlobalAvgPool
from jaxcnn.models.plan import chain
from jaxcnn.models.sequential import Layer, SequentialNetwork

# Inception-v4, Szegedy et al. 2017, figures 3 to 9: a string per branch.
STEM = "32:2v 32v 64"
STEM_4 = {
    "mixed3a": ("P3:2", "96:2v"),
    "mixed4a": ("64/1 96v", "64/1 64/1x7 64/7x1 96v"),
    "mixed5a": ("192:2v", "P3:2"),
}
INCEPTION_A = ("96/1", "64/1 96", "64/1 96 96", "A3:1s 96/1")
REDUCTION_A = ("384:2v", "192/1 224 256:2v", "P3:2")
INCEPTION_B = (
    "384/1",
    "192/1 224/1x7 256/7x1",
    "192/1 192/7x1 224/1x7 224/7x1 256/1x7",
    "A3:1s 128/1",
)
REDUCTION_B = ("192/1 192:2v", "256/1 256/1x7 320/7x1 320:2v", "P3:2")
INCEPTION_C = ("256/1", "384/1 fork", "384/1 448/3x1 512/1x3 fork", "A3:1s 256/1")
FORK = ("256/1x3", "256/3x1")

# Inception-ResNet-v2, figures 10 to 19, and the authors' published code where it differs from them.
STEM_RESNET = "32:2v 32v 64 P3:2 80/1 192v P3:2"
MIXED_5B = ("96/1", "48/1 64/5", "64/1 96 96", "A3:1s 64/1")
BLOCK_35 = ("32/1", "32/1 32", "32/1 48 64")
REDUCTION_6A = ("384:2v", "256/1 256 384:2v", "P3:2")
BLOCK_17 = ("192/1", "128/1 160/1x7 192/7x1")
REDUCTION_7A = ("256/1 384:2v", "256/1 288:2v", "256/1 288 320:2v", "P3:2")
BLOCK_8 = ("192/1", "192/1 224/1x3 256/3x1")


class InceptionV4(SequentialNetwork):
    """Inception-v4.

    | blocks                        | output     |
    |-------------------------------|------------|
    | `STEM`, `STEM_4`              | 35×35×384  |
    | 4 × `INCEPTION_A`             | 35×35×384  |
    | `REDUCTION_A`                 | 17×17×1024 |
    | 7 × `INCEPTION_B`             | 17×17×1024 |
    | `REDUCTION_B`                 | 8×8×1536   |
    | 3 × `INCEPTION_C`             | 8×8×1536   |
    | global average, dropout 0.2   | 1536       |
    | dense                         | 1000       |

    References:
      Szegedy et al. 2017, *Inception-v4, Inception-ResNet and the Impact of Residual Connections on
      Learning*, §3.1.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        conv = partial(ConvNorm, epsilon=1e-3, rngs=rngs)
        stem, channels = chain(STEM, input_shape[2], conv)
        blocks = [
            *STEM_4.values(),
            *[INCEPTION_A] * 4,
            REDUCTION_A,
            *[INCEPTION_B] * 7,
            REDUCTION_B,
            *[INCEPTION_C] * 3,
        ]
        layers: list[nnx.Module] = [stem]
        for plans in blocks:
            block, channels = branches(plans, channels, conv)
            layers.append(block)
        self.blocks = nnx.Sequential(*layers)
        self.pool = GlobalAvgPool()
        self.dropout = Dropout(0.2, rngs=rngs)
        self.out = Linear(channels, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.blocks, self.pool, self.dropout, self.out)


class InceptionResNetV2(SequentialNetwork):
    """Inception-ResNet-v2.

    | blocks                             | output     |
    |------------------------------------|------------|
    | `STEM_RESNET`                      | 35×35×192  |
    | `MIXED_5B`                         | 35×35×320  |
    | 10 × `BLOCK_35`, scaled by 0.17    | 35×35×320  |
    | `REDUCTION_6A`                     | 17×17×1088 |
    | 20 × `BLOCK_17`, scaled by 0.1     | 17×17×1088 |
    | `REDUCTION_7A`                     | 8×8×2080   |
    | 9 × `BLOCK_8`, scaled by 0.2       | 8×8×2080   |
    | `BLOCK_8`, no ReLU                 | 8×8×2080   |
    | conv 1×1                           | 8×8×1536   |
    | global average, dropout 0.2        | 1536       |
    | dense                              | 1000       |

    References:
      Szegedy et al. 2017, *Inception-v4, Inception-ResNet and the Impact of Residual Connections on
      Learning*, §3.2 and §3.3.
    """

    def __init__(self, input_shape: tuple[int, int, int], num_classes: int, *, rngs: nnx.Rngs):
        conv = partial(ConvNorm, epsilon=1e-3, rngs=rngs)
        stem, channels = chain(STEM_RESNET, input_shape[2], conv)
        mixed, channels = branches(MIXED_5B, channels, conv)
        blocks_35 = [Residual(BLOCK_35, channels, conv, 0.17, rngs=rngs) for _ in range(10)]
        reduction_a, channels = branches(REDUCTION_6A, channels, conv)
        blocks_17 = [Residual(BLOCK_17, channels, conv, 0.1, rngs=rngs) for _ in range(20)]
        reduction_b, channels = branches(REDUCTION_7A, channels, conv)
        blocks_8 = [Residual(BLOCK_8, channels, conv, 0.2, rngs=rngs) for _ in range(9)]
        last_8 = Residual(BLOCK_8, channels, conv, 1.0, activation=False, rngs=rngs)
        last, channels = chain("1536/1", channels, conv)
        self.blocks = nnx.Sequential(
            stem, mixed, *blocks_35, reduction_a, *blocks_17, reduction_b, *blocks_8, last_8, last
        )  # fmt: skip
        self.pool = GlobalAvgPool()
        self.dropout = Dropout(0.2, rngs=rngs)
        self.out = Linear(channels, num_classes, rngs=rngs)

    def sequence(self) -> tuple[Layer, ...]:
        return (self.blocks, self.pool, self.dropout, self.out)


class Residual(nnx.Module):
    """Branches, joined by a 1×1 convolution with a bias, scaled, and added to the input (§3.3)."""

    def __init__(
        self,
        plans: tuple[str, ...],
        channels: int,
        conv: Callable,
        scale: float,
        *,
        activation: bool = True,
        rngs: nnx.Rngs,
    ):
        self.branches, joined = branches(plans, channels, conv)
        self.join = Conv(joined, channels, 1, rngs=rngs)
        self.scale = scale
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        x = x + self.scale * self.join(self.branches(x))
        return nnx.relu(x) if self.activation else x


def branches(plans: tuple[str, ...], channels: int, conv: Callable) -> tuple[Branches, int]:
    """Builds a chain for each plan, over the same images; ``fork`` ends a chain with `FORK`.

    Returns:
      The branches, and the number of their output channels together.
    """
    chains = [chain(plan.removesuffix(" fork"), channels, conv) for plan in plans]
    for index, plan in enumerate(plans):  # after all chains: the order determines the weights
        if plan.endswith(" fork"):
            chains[index] = _append_fork(*chains[index], conv)
    return Branches(*(layers for layers, _ in chains)), sum(outputs for _, outputs in chains)


def _append_fork(
    layers: nnx.Sequential, channels: int, conv: Callable
) -> tuple[nnx.Sequential, int]:
    fork, outputs = branches(FORK, channels, conv)
    return nnx.Sequential(layers, fork), outputs
