"""Made-up pictures of coloured shapes whose boxes are known: for learning to detect with no data at hand."""

import numpy as np
from PIL import Image, ImageDraw

from jaxcnn.errors import InputError

# Name: colour, and corners as fractions of the box; no corners, an ellipse.
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
MOST = 3
NOISE = 128


def synthetic_pictures(
    count: int, size: int, classes: int = len(SHAPES), seed: int = 0
) -> dict[str, np.ndarray]:
    """Pictures of one to three shapes on noise, each class a shape and a colour of `SHAPES`, in its order.

    Shapes are a fifth to a half of the picture high and wide and do not touch one another.

    Args:
      count: pictures, N.
      size: height and width, in pixels, 16 or more.
      classes: 1 to 6.
      seed: the same numbers give the same pictures.

    Returns:
      A batch: ``image`` ``u8[N, size, size, 3]``, ``boxes`` ``f32[N, 3, 4]`` (`boxes`), exact to the pixel, and ``label``
      ``i32[N, 3]``, −1 where there is no shape.

    Raises:
      InputError: a number out of its range.

    >>> batch = synthetic_pictures(2, 64)
    >>> batch["image"].shape, batch["boxes"].shape, batch["label"].shape
    ((2, 64, 64, 3), (2, 3, 4), (2, 3))
    """
    for name, value, least, most in (
        ("count", count, 0, 10**6),
        ("size", size, 16, 10**4),
        ("classes", classes, 1, len(SHAPES)),
    ):
        if not least <= value <= most:
            raise InputError(f"synthetic pictures: {name} {value} is not within {least} … {most}")
    rng = np.random.default_rng(seed)
    images = rng.integers(0, NOISE, (count, size, size, 3), np.uint8)
    boxes, labels = np.zeros((count, MOST, 4), np.float32), np.full((count, MOST), -1, np.int32)
    for row in range(count):
        corners = _places(rng, size)
        labels[row, : len(corners)] = rng.integers(0, classes, len(corners))
        boxes[row, : len(corners)] = [_centred(low, high, size) for low, high in corners]
        images[row] = _painted(images[row], corners, labels[row])
    return {"image": images, "boxes": boxes, "label": labels}


def _places(rng: np.random.Generator, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """One to three places, first and last pixel (x, y) of each; one that would touch an earlier one is left out."""
    chosen = []
    for _ in range(rng.integers(1, MOST + 1)):
        sides = rng.integers(size // 5, size // 2, 2, endpoint=True)
        low = rng.integers(0, size - sides, endpoint=True)
        high = low + sides - 1
        if all(
            (high + 1 < other_low).any() or (other_high + 1 < low).any()
            for other_low, other_high in chosen
        ):
            chosen.append((low, high))
    return chosen


def _centred(low: np.ndarray, high: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([low + high + 1, 2 * (high + 1 - low)]) / (2 * size)


def _painted(
    image: np.ndarray, corners: list[tuple[np.ndarray, np.ndarray]], labels: np.ndarray
) -> np.ndarray:
    picture = Image.fromarray(image)
    canvas = ImageDraw.Draw(picture)
    shapes = list(SHAPES.values())
    for (low, high), label in zip(corners, labels, strict=False):
        colour, outline = shapes[label]
        if outline:
            canvas.polygon(
                [tuple(low + np.round((high - low) * point)) for point in outline], fill=colour
            )
        else:
            canvas.ellipse([*low.tolist(), *high.tolist()], fill=colour)
    return np.asarray(picture)
