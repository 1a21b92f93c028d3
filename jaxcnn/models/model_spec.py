"""What is published about a network: the columns of the table of models."""

from collections.abc import Callable
from dataclasses import dataclass

from flax import nnx

from jaxcnn.models.recipe import Recipe

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class ModelSpec:
    """A row of `MODELS`.

    Attributes:
      make: ``make(input_shape, num_classes, rngs=…)`` builds the module.
      input_shape: published height, width and channels of the images.
      num_classes: published number of classes.
      parameters: trainable parameters at the published input shape.
      flops: FLOPs of the forward pass for one image at the published input shape: matrix products
        and convolutions, two for each multiply-add.
      source: the publication that describes the network.
      recipe: how the network was trained.
      non_trainable: running means and variances, and other numbers that are not trained.
      width: published width of a network that can be built in any width, otherwise None.
      detects: True for an object detector, False for a classifier.
    """

    make: Callable[..., nnx.Module]
    input_shape: Shape
    num_classes: int
    parameters: int
    flops: int
    source: str
    recipe: Recipe
    non_trainable: int = 0
    width: int | None = None
    detects: bool = False

    def __post_init__(self):
        if min(*self.input_shape, self.num_classes, self.parameters, self.flops) < 1:
            raise ValueError(f"sizes must be positive: {self}")
