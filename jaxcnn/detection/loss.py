"""The loss of YOLOv2's region layer, summed over pictures."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxcnn.detection.boxes import VOC_ANCHORS, Anchors, checked, decode, full_precision, iou

# Darknet's yolov2-voc.cfg.
COORD_SCALE = 1.0
OBJECT_SCALE = 5.0
NO_OBJECT_SCALE = 1.0
CLASS_SCALE = 1.0
THRESHOLD = 0.6

SMALLEST = 0.001  # of the picture; Darknet's reader drops boxes that are narrower or lower


def region_objective(
    predictions: Array, batch: dict[str, Array], anchors: Anchors = VOC_ANCHORS
) -> dict[str, Array]:
    """The region loss, pictures whose every object is found, and pictures, summed over the rows that are not masked.

    A true box belongs to the cell that its centre lies in and to the anchor nearest in shape (IoU). With σ the sigmoid,
    the loss of a picture is ½ of

    - for each true box, ``(2 − w h)`` times the squared errors of σ(t_x), σ(t_y), t_w and t_h,
    - for each true box, 5 times the squared difference of σ(t_o) and the IoU of the predicted with the true box,
    - for each prediction that has no true box and overlaps none by more than 0.6, σ(t_o)²,

    plus the cross-entropy of each true box's class, in nats. No gradient flows through the IoU.

    The gradient is that of Darknet's ``region_layer.c`` with the settings of ``yolov2-voc.cfg``, hence the ½. Where this
    departs from it: the number that Darknet prints is the squared norm of that gradient's errors, not this loss; its pull
    of all boxes towards their anchors during the first 12,800 pictures is left out; and a box whose centre lies outside
    the picture belongs to the nearest cell. As there, the later of two boxes of one cell and anchor replaces the earlier.

    Args:
      predictions: ``[N, H, W, A, 5 + C]``, see `boxes.decode`.
      batch: ``boxes`` ``f32[N, M, 4]``, see `boxes`, ``label`` ``i32[N, M]``, −1 where there is no box, and where some
        pictures only fill up the batch ``mask`` ``f32[N]``, 0 for those.
      anchors: A pairs of width and height, in grid cells.

    Returns:
      ``loss``, ``correct`` and ``count``, each ``f32[]``. A picture is correct if each of its true boxes, in its cell and
      anchor, has a prediction with an IoU above 0.5, an objectness above 0.5 and the right class; a picture with no boxes
      is. False alarms do not count.

    Redmon and Farhadi, *YOLO9000: Better, Faster, Stronger*, 2017, §2.

    >>> batch = {"boxes": jnp.array([[[0.25, 0.75, 1.2, 1.2]]]), "label": jnp.array([[0]])}
    >>> sums = jax.jit(functools.partial(region_objective, anchors=((1.0, 1.0), (2.4, 2.4))))
    >>> metrics = sums(jnp.zeros((1, 2, 2, 2, 5 + 3)).at[0, 1, 0, 1, 4:6].set(9.0), batch)
    >>> float(metrics["correct"]), float(metrics["count"])
    (1.0, 1.0)
    """
    predictions = full_precision(predictions)
    mask = batch.get("mask", jnp.ones(len(predictions), predictions.dtype))
    # Not only weighted by zero afterwards: zero times an overflow would not be zero.
    predictions = jnp.where(mask[:, None, None, None, None] > 0, predictions, 0)
    picture = functools.partial(_picture, anchors=checked(predictions, anchors))
    losses, correct = jax.vmap(picture)(predictions, full_precision(batch["boxes"]), batch["label"])
    return {
        "loss": jnp.sum(losses * mask),
        "correct": jnp.sum(jnp.where(correct, mask, 0)),
        "count": jnp.sum(mask),
    }


def _picture(
    predictions: Array, boxes: Array, labels: Array, anchors: Array
) -> tuple[Array, Array]:
    """Loss and correctness of one picture: ``[H, W, A, 5 + C]``, ``[M, 4]``, ``[M]`` to ``f32[]``, ``bool[]``."""
    true = (labels >= 0) & jnp.all(boxes[:, 2:] >= SMALLEST, axis=-1)
    boxes = jnp.where(
        true[:, None], boxes, 0.5
    )  # whatever stands in a row with no box, its logarithm is finite
    slots, targets = _assign(boxes, predictions.shape[:2], anchors)
    predicted, objectness, _ = decode(predictions, anchors)
    predicted, objectness = lax.stop_gradient(predicted).reshape(-1, 4), objectness.reshape(-1)
    taken = true & (slots == jnp.arange(len(predicted))[:, None])  # [H · W · A, M]
    near = true & (iou(predicted[:, None], boxes) > THRESHOLD)
    background = NO_OBJECT_SCALE * jnp.where(jnp.any(taken | near, axis=1), 0, objectness**2)

    ours, overlap = (
        predictions.reshape(-1, predictions.shape[-1])[slots],
        iou(predicted[slots], boxes),
    )
    errors = jnp.concatenate([jax.nn.sigmoid(ours[:, :2]), ours[:, 2:4]], axis=1) - targets
    shape = COORD_SCALE * (2 - boxes[:, 2] * boxes[:, 3]) * jnp.sum(errors**2, axis=1)
    found = OBJECT_SCALE * (overlap - objectness[slots]) ** 2
    named = CLASS_SCALE * optax.softmax_cross_entropy_with_integer_labels(
        ours[:, 5:], jnp.maximum(labels, 0)
    )
    last = true & ~_repeated(slots, true)
    loss = jnp.sum(background) / 2 + jnp.sum(jnp.where(last, (shape + found) / 2 + named, 0))
    right = (
        (overlap > 0.5) & (objectness[slots] > 0.5) & (jnp.argmax(ours[:, 5:], axis=1) == labels)
    )
    return loss, jnp.all(right | ~true)


def _assign(boxes: Array, grid: tuple[int, int], anchors: Array) -> tuple[Array, Array]:
    """Where each box belongs, ``i32[M]`` counted over cells and anchors, and the values to predict there, ``[M, 4]``."""
    height, width = grid
    size = jnp.asarray([width, height], boxes.dtype)
    centres, sizes = boxes[:, :2] * size, boxes[:, 2:] * size
    corners = jnp.clip(jnp.floor(centres), 0, size - 1)
    # Same centre: the IoU of shapes alone.
    shapes, priors = (
        jnp.concatenate([jnp.zeros_like(sides), sides], axis=1) for sides in (sizes, anchors)
    )
    nearest = jnp.argmax(iou(shapes[:, None], priors), axis=1)
    column, row = corners.astype(jnp.int32).T
    slots = (row * width + column) * len(anchors) + nearest
    return slots, jnp.concatenate([centres - corners, jnp.log(sizes / anchors[nearest])], axis=1)


def _repeated(slots: Array, true: Array) -> Array:
    """``bool[M]``: a later true box has the same slot."""
    order = jnp.arange(len(slots))
    return jnp.any((slots[:, None] == slots) & true & (order > order[:, None]), axis=1)
