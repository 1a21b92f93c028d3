"""Files of models as users write them."""

from pathlib import Path

NETWORK = """
import jax.numpy as jnp
from flax import linen, nnx


class Net(nnx.Module):
    def __init__(self, num_classes: int, input_shape, *, rngs: nnx.Rngs):
        self.conv = nnx.Conv(input_shape[-1], 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.out = nnx.Linear(4, num_classes, rngs=rngs)

    def __call__(self, images):
        return self.out(nnx.relu(self.norm(self.conv(images))).mean((1, 2)))


class WithoutOut(nnx.Module):
    def __init__(self, num_classes: int, *, rngs: nnx.Rngs):
        self.last = nnx.Linear(1, num_classes, rngs=rngs)

    def __call__(self, images):
        return self.last(images.mean((1, 2)))


class Linen(linen.Module):
    num_classes: int

    @linen.compact
    def __call__(self, images, train: bool = True):
        x = linen.BatchNorm(use_running_average=not train)(images.mean((1, 2)))
        return linen.Dense(self.num_classes, name="out")(x)


linen_module = Linen(10)
"""

# What is wrong with a factory, and the first line of the error.
BROKEN = {
    "of_other_arguments": (
        "def of_other_arguments(num_classes, width, *, rngs): ...",
        "takes (num_classes, width, rngs): it requires width; a model takes the keywords "
        "num_classes and rngs",
    ),
    "without_rngs": ("def without_rngs(num_classes): ...", "it lacks rngs"),
    "number": ("number = 3", "is of type int: name a class or a function"),
    "of_no_module": (
        "def of_no_module(num_classes, rngs):\n    return 'text'",
        "is of type str, not a module of Flax NNX or Linen; jaxcnn.models.adapters",
    ),
    "seven": (
        "def seven(num_classes, rngs):\n    return Linen(7)",
        "returns an array [2, 7] for 2 images of 8×8×1; it must return logits [N, num_classes], "
        "here [2, 10]",
    ),
    "Pair": (
        "class Pair(Net):\n    def __call__(self, images):\n"
        "        return super().__call__(images), images",
        "returns a tuple of arrays [2, 10], [2, 8, 8, 1] for 2 images",
    ),
    "Named": (
        "class Named(Net):\n    def __call__(self, images):\n"
        "        return {'logits': super().__call__(images)}",
        "returns a dict of arrays [2, 10] for 2 images",
    ),
    "Empty": (
        "class Empty(nnx.Module):\n    def __init__(self, num_classes, rngs): ...\n"
        "    def __call__(self, images):\n        return images.sum((1, 2)) * jnp.ones(10)",
        "has no parameters (nnx.Param): there is nothing to train",
    ),
}


def write_models(path: Path, *more: str) -> Path:
    """Writes `NETWORK` and further definitions to a file."""
    path.write_text("\n\n".join([NETWORK, *more]))
    return path
