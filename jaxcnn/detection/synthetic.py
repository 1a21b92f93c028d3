"""Synthetic images of colored shapes with known boxes: to train a detector without a dataset."""

import numpy as np
from PIL import Image, ImageDraw

from jaxcnn.errors import InputError

# Name: color, and corners as fractions of the box; an ellipse where there are no corners.
SHAPES = {
    "rectangle": ("red", ((0, 0), (1, 0), (1, 1), (0, 1))),
    "disc": ("lime", ()),
    "triangle": ("deepskyblue", ((0.5, 0), (1, 1), (0, 1))),
    "diamond": ("yellow", ((0.5, 0), (1, 0.5), (0.5, 1), (0, 0.5))),
    "arrow": (
        "magenta",
        ((0, 0.3), (0.6, 0.3), (0.6, 0), (1, 0.5), (0.6, 1), (0.6, 0.7), (0, 0.7)),
    ),
    "hourglass": ("white", ((0, 0), (1, 0), (0, 1), (1, 1))),
}
MAX_SHAPES = 3  # in an image
NOISE_LEVELS = 128  # the noise has the values below; the shapes' colors are brighter

Corners = tuple[np.ndarray, np.ndarray]
"""The first and the last pixel of a rectangle, each ``(x, y)``."""


def synthetic_scenes(
    count: int, size: int, classes: int = len(SHAPES), seed: int = 0
) -> dict[str, np.ndarray]:
    """Images of one to three shapes on noise. A class is a shape and a color of `SHAPES`, in order.

    Shapes are a fifth to a half of the image high and wide and do not touch each other.

    Args:
      count: number of images, N.
      size: height and width in pixels, at least 16.
      classes: number of classes, 1 to 6.
      seed: random seed; equal arguments give equal images.

    Returns:
      A batch: ``image: u8[N, size, size, 3]``; ``boxes: f32[N, 3, 4]``, see `boxes`, exact to the
      pixel; ``label: i32[N, 3]``, −1 for unused rows of ``boxes``.

    Raises:
      InputError: an argument is out of range.

    >>> batch = synthetic_scenes(2, 64)
    >>> batch["image"].shape, batch["boxes"].shape, batch["label"].shape
    ((2, 64, 64, 3), (2, 3, 4), (2, 3))
    """
    _require_range("count", count, 0, 10**6)
    _require_range("size", size, 16, 10**4)
    _require_range("classes", classes, 1, len(SHAPES))
    rng = np.random.default_rng(seed)
    images = rng.integers(0, NOISE_LEVELS, (count, size, size, 3), np.uint8)
    boxes = np.zeros((count, MAX_SHAPES, 4), np.float32)
    labels = np.full((count, MAX_SHAPES), -1, np.int32)
    for row in range(count):
        rectangles = _random_rectangles(rng, size)
        labels[row, : len(rectangles)] = rng.integers(0, classes, len(rectangles))
        boxes[row, : len(rectangles)] = [_box(low, high, size) for low, high in rectangles]
        images[row] = _draw_shapes(images[row], rectangles, labels[row])
    return {"image": images, "boxes": boxes, "label": labels}


def _require_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InputError(f"synthetic_scenes: {name} must be {low} to {high}, got {value}")


def _random_rectangles(rng: np.random.Generator, size: int) -> list[Corners]:
    """Draws one to three rectangles and drops each one that touches an earlier one."""
    rectangles: list[Corners] = []
    for _ in range(rng.integers(1, MAX_SHAPES + 1)):
        sides = rng.integers(size // 5, size // 2, 2, endpoint=True)
        low = rng.integers(0, size - sides, endpoint=True)
        high = low + sides - 1
        if all(
            (high + 1 < other_low).any() or (other_high + 1 < low).any()
            for other_low, other_high in rectangles
        ):
            rectangles.append((low, high))
    return rectangles


def _box(low: np.ndarray, high: np.ndarray, size: int) -> np.ndarray:
    """``f[4]``: the box of a rectangle, see `boxes`."""
    return np.concatenate([low + high + 1, 2 * (high + 1 - low)]) / (2 * size)


def _draw_shapes(image: np.ndarray, rectangles: list[Corners], labels: np.ndarray) -> np.ndarray:
    """Draws the shape of each rectangle's class; `labels` may have unused rows at its end."""
    canvas_image = Image.fromarray(image)
    canvas = ImageDraw.Draw(canvas_image)
    shapes = list(SHAPES.values())
    for (low, high), label in zip(rectangles, labels, strict=False):
        color, outline = shapes[label]
        if outline:
            points = [tuple(low + np.round((high - low) * point)) for point in outline]
            canvas.polygon(points, fill=color)
        else:
            canvas.ellipse([*low.tolist(), *high.tolist()], fill=color)
    return np.asarray(canvas_image)
