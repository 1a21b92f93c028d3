"""Boxes: from raw predictions, their overlap, and one for each object.

A box is ``(centre x, centre y, width, height)``, fractions of the picture's width and height.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.errors import InputError

Anchors = Sequence[tuple[float, float]] | np.ndarray | Array

# Width and height in grid cells: the sizes that most boxes of Pascal VOC have, from k-means (Darknet's yolov2-voc.cfg).
VOC_ANCHORS = (
    (1.3221, 1.73145),
    (3.19275, 4.00944),
    (5.05587, 8.09892),
    (9.47112, 4.84053),
    (11.2364, 10.0071),
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Detections:
    """What was found, the surest first; rows beyond the last have class −1, score 0 and a box of zeros.

    Attributes:
      boxes: ``f32[..., K, 4]``.
      scores: ``f32[..., K]``, 0 to 1: objectness times the class's probability.
      classes: ``i32[..., K]``.
    """

    boxes: Array
    scores: Array
    classes: Array

    @property
    def valid(self) -> Array:
        """``bool[..., K]``: rows that hold a detection."""
        return self.classes >= 0

    def picture(self, row: int) -> "Detections":
        """One picture's detections out of a batch's, as NumPy arrays without the padding."""
        found = np.asarray(self.valid[row])
        return jax.tree.map(lambda values: np.asarray(values[row])[found], self)


def decode(predictions: Array, anchors: Anchors = VOC_ANCHORS) -> tuple[Array, Array, Array]:
    """Boxes, objectness and class probabilities from raw predictions.

    In cell (i, j) of a grid W cells wide, with an anchor p_w wide: ``x = (i + σ(t_x)) / W``, ``w = p_w exp(t_w) / W``,
    height likewise. Redmon and Farhadi, *YOLO9000: Better, Faster, Stronger*, 2017, §2, direct location prediction.

    Args:
      predictions: ``[..., H, W, A, 5 + C]``, the last axis (t_x, t_y, t_w, t_h, t_o, class logits); half precision is
        computed in f32.
      anchors: A pairs of width and height, in grid cells.

    Returns:
      Boxes ``f32[..., H, W, A, 4]``, objectness ``f32[..., H, W, A]`` and probabilities ``f32[..., H, W, A, C]``.

    Raises:
      InputError: the shapes do not fit.

    >>> boxes, objectness, probabilities = decode(jnp.zeros((1, 13, 13, 5, 25)))
    >>> [round(float(value) * 13, 4) for value in boxes[0, 2, 6, 0]], float(objectness[0, 2, 6, 0])
    ([6.5, 2.5, 1.3221, 1.7314], 0.5)
    """
    predictions = full_precision(predictions)
    anchors = checked(predictions, anchors)
    height, width = predictions.shape[-4:-2]
    columns, rows = (jnp.arange(cells, dtype=predictions.dtype) for cells in (width, height))
    corners = jnp.stack(jnp.meshgrid(columns, rows), axis=-1)[:, :, None]
    grid = jnp.asarray([width, height], predictions.dtype)
    centres = (corners + jax.nn.sigmoid(predictions[..., :2])) / grid
    sizes = anchors * jnp.exp(predictions[..., 2:4]) / grid
    boxes = jnp.concatenate([centres, sizes], axis=-1)
    return boxes, jax.nn.sigmoid(predictions[..., 4]), jax.nn.softmax(predictions[..., 5:])


def iou(a: Array, b: Array) -> Array:
    """Intersection over union of boxes ``[..., 4]``, leading axes broadcast; 0 where both are empty.

    >>> float(iou(jnp.array([0.5, 0.5, 0.5, 0.5]), jnp.array([0.5, 0.5, 0.25, 0.25])))
    0.25
    """
    low = jnp.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = jnp.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    shared = jnp.prod(jnp.maximum(high - low, 0), axis=-1)
    union = jnp.prod(a[..., 2:], axis=-1) + jnp.prod(b[..., 2:], axis=-1) - shared
    return jnp.where(union > 0, shared / jnp.where(union > 0, union, 1), 0)


def non_maximum_suppression(
    boxes: Array, scores: Array, iou_threshold: float = 0.45, limit: int = 100
) -> Detections:
    """The best box, then the best of those that do not overlap it, and so on; each class for itself.

    Greedy as in Darknet's ``do_nms_sort``, one box for several classes where its scores say so. Shapes are fixed: the
    loop takes the largest score `limit` times, so nothing is sorted and no candidate is left out beforehand.

    Args:
      boxes: ``f32[K, 4]``.
      scores: ``f32[K, C]``; 0 or less is no candidate. Equal scores go by box, then by class.
      iou_threshold: a box that overlaps a better one of its class by more is dropped.
      limit: at most so many detections, over all classes.

    Returns:
      `Detections` of `limit` rows.
    """
    if not boxes.shape[0]:  # an argmax over nothing is an error
        boxes, scores = jnp.zeros((1, 4)), jnp.zeros((1, 1))

    def pick(scores, _):
        row, label = jnp.unravel_index(jnp.argmax(scores), scores.shape)
        box, score = boxes[row], scores[row, label]
        dropped = (iou(box, boxes) > iou_threshold) | (
            jnp.arange(len(boxes)) == row
        )  # itself too, whatever its size
        gone = dropped[:, None] & (jnp.arange(scores.shape[1]) == label)
        found = score > 0
        kept = Detections(
            jnp.where(found, box, 0),
            jnp.where(found, score, 0),
            jnp.where(found, label, -1).astype(jnp.int32),
        )
        return jnp.where(gone, 0, scores), kept

    return lax.scan(pick, scores, length=limit)[1]


def detect(
    predictions: Array,
    anchors: Anchors = VOC_ANCHORS,
    *,
    score_threshold: float = 0.24,
    iou_threshold: float = 0.45,
    limit: int = 100,
) -> Detections:
    """Raw predictions to detections: `decode`, score, `non_maximum_suppression`. To be compiled where it is called often.

    Args:
      predictions: ``[N, H, W, A, 5 + C]``, see `decode`.
      anchors: see `decode`.
      score_threshold: scores must be above; Darknet shows what is above 0.24 and judges by what is above 0.005.
      iou_threshold: see `non_maximum_suppression`; 0.45 is Darknet's.
      limit: see `non_maximum_suppression`.

    Returns:
      `Detections` with shapes ``[N, limit, …]``.

    >>> detections = detect(jnp.full((1, 2, 2, 5, 6), -9.0).at[0, 1, 0, 2].set(0.0))
    >>> detections.picture(0).scores
    array([0.5], dtype=float32)
    """
    boxes, objectness, probabilities = decode(predictions, anchors)
    scores = objectness[..., None] * probabilities
    scores = jnp.where(scores > score_threshold, scores, 0)
    rows = len(predictions)
    suppress = jax.vmap(
        lambda boxes, scores: non_maximum_suppression(boxes, scores, iou_threshold, limit)
    )
    return suppress(boxes.reshape(rows, -1, 4), scores.reshape(rows, -1, scores.shape[-1]))


def full_precision(values: Array) -> Array:
    """Half precision to f32; f32 and f64 as they are."""
    values = jnp.asarray(values)
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def checked(predictions: Array, anchors: Anchors) -> Array:
    """The anchors as an array ``[A, 2]``, if they fit the predictions.

    Raises:
      InputError: if they do not.
    """
    anchors = jnp.asarray(anchors, predictions.dtype)
    shape = predictions.shape
    if (
        len(shape) < 4
        or shape[-2:-1] != anchors.shape[:-1]
        or anchors.shape[-1:] != (2,)
        or shape[-1] < 6
    ):
        raise InputError(
            f"predictions of shape {shape} with anchors of shape {anchors.shape}: "
            "wanted [..., H, W, A, 5 + classes] and [A, 2], one class or more"
        )
    return anchors
