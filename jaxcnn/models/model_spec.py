"""What is known about a network: the columns of the table of models."""

from collections.abc import Callable
from dataclasses import dataclass

from flax import nnx

from jaxcnn.models.recipe import Recipe

Shape = tuple[int, int, int]

IMAGENET: Shape = (224, 224, 3)  # images of most networks that were trained on it


@dataclass(frozen=True)
class ModelSpec:
    """A row of `MODELS`, or a user's own model, of which no sizes are published.

    Attributes:
      make: ``make(input_shape, num_classes, rngs=…)`` builds the module.
      input_shape: published height, width and channels of the images; None if not published.
      num_classes: published number of classes; None if not published.
      parameters: trainable parameters at the published input shape; None if not published.
      flops: FLOPs of the forward pass for one image at the published input shape: matrix products
        and convolutions, two for each multiply-add; None if not published.
      source: the publication that describes the network.
      recipe: how the network was trained.
      non_trainable: running means and variances, and other numbers that are not trained.
      width: published width of a network that can be built in any width, otherwise None.
      detects: True for an object detector, False for a classifier.
    """

    make: Callable[..., nnx.Module]
    input_shape: Shape | None
    num_classes: int | None
    parameters: int | None
    flops: int | None
    source: str
    recipe: Recipe
    non_trainable: int = 0
    width: int | None = None
    detects: bool = False

    def __post_init__(self):
        sizes = (*(self.input_shape or ()), self.num_classes, self.parameters, self.flops)
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError(f"sizes must be positive: {self}")
