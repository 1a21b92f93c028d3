"""Bounding boxes: decoding predictions, intersection over union, non-maximum suppression.

A box is ``(center x, center y, width, height)``, in fractions of the image's width and height.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxcnn.errors import InputError

Anchors = Sequence[tuple[float, float]] | np.ndarray | Array

# Width and height in grid cells: the most frequent box sizes in Pascal VOC, by k-means (Darknet's
# yolov2-voc.cfg).
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
    """Detected objects, in descending order of score.

    The number of rows K is fixed; unused rows have class −1, score 0 and a box of zeros.

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
        """``bool[..., K]``: True for rows with a detection."""
        return self.classes >= 0

    def for_image(self, index: int) -> "Detections":
        """The detections of one image of a batch, as NumPy arrays without unused rows."""
        valid = np.asarray(self.valid[index])
        return jax.tree.map(lambda values: np.asarray(values[index])[valid], self)


def decode(predictions: Array, anchors: Anchors = VOC_ANCHORS) -> tuple[Array, Array, Array]:
    """Computes boxes, objectness and class probabilities from a network's predictions.

    In column i of a grid W cells wide, for an anchor p_w cells wide: ``x = (i + σ(t_x)) / W`` and
    ``w = p_w exp(t_w) / W``; y and h likewise.

    Redmon and Farhadi, *YOLO9000: Better, Faster, Stronger*, 2017, §2, direct location prediction.

    Args:
      predictions: ``[..., H, W, A, 5 + C]``, with (t_x, t_y, t_w, t_h, t_o, class logits) along
        the last axis; half precision is computed in f32.
      anchors: A pairs of width and height, in grid cells.

    Returns:
      Boxes ``f32[..., H, W, A, 4]``, objectness ``f32[..., H, W, A]`` and probabilities
      ``f32[..., H, W, A, C]``.

    Raises:
      InputError: the shapes of predictions and anchors do not match.

    >>> boxes, objectness, probabilities = decode(jnp.zeros((1, 13, 13, 5, 25)))
    >>> [round(float(value) * 13, 4) for value in boxes[0, 2, 6, 0]], float(objectness[0, 2, 6, 0])
    ([6.5, 2.5, 1.3221, 1.7314], 0.5)
    """
    predictions = at_least_float32(predictions)
    anchors = anchor_array(anchors, predictions)
    height, width = predictions.shape[-4:-2]
    columns, rows = (jnp.arange(cells, dtype=predictions.dtype) for cells in (width, height))
    corners = jnp.stack(jnp.meshgrid(columns, rows), axis=-1)[:, :, None]
    grid = jnp.asarray([width, height], predictions.dtype)
    centers = (corners + jax.nn.sigmoid(predictions[..., :2])) / grid
    sizes = anchors * jnp.exp(predictions[..., 2:4]) / grid
    boxes = jnp.concatenate([centers, sizes], axis=-1)
    return boxes, jax.nn.sigmoid(predictions[..., 4]), jax.nn.softmax(predictions[..., 5:])


def iou(a: Array | np.ndarray, b: Array | np.ndarray) -> Array:
    """Intersection over union of boxes; 0 where both are empty.

    Args:
      a: ``[..., 4]``.
      b: ``[..., 4]``; the leading axes of both broadcast.

    Returns:
      ``[...]``, 0 to 1.

    >>> float(iou(jnp.array([0.5, 0.5, 0.5, 0.5]), jnp.array([0.5, 0.5, 0.25, 0.25])))
    0.25
    """
    low = jnp.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = jnp.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    intersection = jnp.prod(jnp.maximum(high - low, 0), axis=-1)
    union = jnp.prod(a[..., 2:], axis=-1) + jnp.prod(b[..., 2:], axis=-1) - intersection
    return jnp.where(union > 0, intersection / jnp.where(union > 0, union, 1), 0)


def non_maximum_suppression(
    boxes: Array, scores: Array, iou_threshold: float = 0.45, limit: int = 100
) -> Detections:
    """Greedy non-maximum suppression, separately for each class.

    Repeatedly keeps the candidate with the highest score and drops the candidates of the same class
    that overlap it, as ``do_nms_sort`` in Darknet. One box may be kept for several classes. All
    shapes are fixed: the loop takes the maximum `limit` times instead of sorting, and considers
    every candidate.

    Args:
      boxes: ``f32[K, 4]``.
      scores: ``f32[K, C]``; a score of 0 or less is no candidate. Ties are resolved by box, then
        by class.
      iou_threshold: a box is dropped if its IoU with a better box of its class is larger.
      limit: maximum number of detections, over all classes.

    Returns:
      `Detections` of `limit` rows.

    >>> boxes = jnp.array([[0.5, 0.5, 0.2, 0.2], [0.51, 0.5, 0.2, 0.2], [0.1, 0.1, 0.1, 0.1]])
    >>> scores = jnp.array([[0.25], [0.75], [0.5]])
    >>> non_maximum_suppression(boxes, scores, limit=4).scores.tolist()
    [0.75, 0.5, 0.0, 0.0]
    """
    if not boxes.shape[0]:  # argmax of an empty array is an error
        boxes, scores = jnp.zeros((1, 4)), jnp.zeros((1, 1))

    def keep_best(scores, _):
        row, label = jnp.unravel_index(jnp.argmax(scores), scores.shape)
        box, score = boxes[row], scores[row, label]
        # The box itself as well: if it is empty, its IoU with itself is 0.
        overlapping = (iou(box, boxes) > iou_threshold) | (jnp.arange(len(boxes)) == row)
        dropped = overlapping[:, None] & (jnp.arange(scores.shape[1]) == label)
        valid = score > 0
        best = Detections(
            jnp.where(valid, box, 0),
            jnp.where(valid, score, 0),
            jnp.where(valid, label, -1).astype(jnp.int32),
        )
        return jnp.where(dropped, 0, scores), best

    return lax.scan(keep_best, scores, length=limit)[1]


def detect(
    predictions: Array,
    anchors: Anchors = VOC_ANCHORS,
    *,
    score_threshold: float = 0.24,
    iou_threshold: float = 0.45,
    limit: int = 100,
) -> Detections:
    """Computes detections from predictions: `decode`, then `non_maximum_suppression`.

    Compile it with `jax.jit` if it is called repeatedly.

    Args:
      predictions: ``[N, H, W, A, 5 + C]``, see `decode`.
      anchors: see `decode`.
      score_threshold: minimum score, exclusive. Darknet draws detections above 0.24 and evaluates
        those above 0.005.
      iou_threshold: see `non_maximum_suppression`; 0.45 is Darknet's.
      limit: see `non_maximum_suppression`.

    Returns:
      `Detections` with shapes ``[N, limit, …]``.

    Raises:
      InputError: the shapes of predictions and anchors do not match.

    >>> detections = detect(jnp.full((1, 2, 2, 5, 6), -9.0).at[0, 1, 0, 2].set(0.0))
    >>> detections.for_image(0).scores
    array([0.5], dtype=float32)
    """
    boxes, objectness, probabilities = decode(predictions, anchors)
    scores = objectness[..., None] * probabilities
    scores = jnp.where(scores > score_threshold, scores, 0)
    count = len(predictions)
    suppress = jax.vmap(
        lambda boxes, scores: non_maximum_suppression(boxes, scores, iou_threshold, limit)
    )
    return suppress(boxes.reshape(count, -1, 4), scores.reshape(count, -1, scores.shape[-1]))


def at_least_float32(values: Array) -> Array:
    """Converts half precision to f32; leaves f32 and f64 unchanged."""
    values = jnp.asarray(values)
    return values if values.dtype == jnp.float64 else values.astype(jnp.float32)


def anchor_array(anchors: Anchors, predictions: Array) -> Array:
    """The anchors as an array ``[A, 2]`` of the predictions' dtype.

    Raises:
      InputError: the shapes of predictions and anchors do not match.
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
            "expected [..., H, W, A, 5 + classes] and [A, 2], with at least one class"
        )
    return anchors
