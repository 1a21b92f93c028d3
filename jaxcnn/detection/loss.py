"""The loss of YOLOv2's region layer, summed over images."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxcnn.detection.boxes import VOC_ANCHORS, Anchors, anchor_array, at_least_float32, decode, iou

# Darknet's yolov2-voc.cfg.
COORD_SCALE = 1.0
OBJECT_SCALE = 5.0
NO_OBJECT_SCALE = 1.0
CLASS_SCALE = 1.0
IOU_THRESHOLD = 0.6

MIN_SIDE = 0.001  # fraction of the image; Darknet's reader drops boxes with a shorter side


def region_objective(
    predictions: Array, batch: dict[str, Array], anchors: Anchors = VOC_ANCHORS
) -> dict[str, Array]:
    """The region loss and the number of correct images, summed over the images of a batch.

    A true box (ground truth) is assigned to the cell that contains its center and to the anchor of
    the most similar shape (IoU). With σ the sigmoid, the loss of an image is ½ of

    - for each true box, ``(2 − w h)`` times the squared errors of σ(t_x), σ(t_y), t_w and t_h,
    - for each true box, 5 times the squared difference of σ(t_o) and the IoU of the predicted and
      the true box,
    - for each prediction without a true box whose IoU with every true box is at most 0.6, σ(t_o)²,

    plus the cross-entropy of each true box's class, in nats. No gradient flows through the IoU.

    The gradient is that of ``region_layer.c`` in Darknet with the settings of ``yolov2-voc.cfg``,
    hence the ½. Differences from Darknet:

    - Darknet prints the squared norm of that gradient's errors, which is not this loss.
    - Darknet pulls all boxes towards their anchors during the first 12,800 images; this does not.
    - A box whose center lies outside the image belongs to the nearest cell.

    As in Darknet, the later of two boxes with the same cell and anchor replaces the earlier one.

    Redmon and Farhadi, *YOLO9000: Better, Faster, Stronger*, 2017, §2.

    Args:
      predictions: ``[N, H, W, A, 5 + C]``, see `boxes.decode`.
      batch: ``boxes: f32[N, M, 4]``, see `boxes`; ``label: i32[N, M]``, −1 for unused rows of
        ``boxes``; optionally ``mask: f32[N]``, 0 for images that only pad the batch.
      anchors: A pairs of width and height, in grid cells.

    Returns:
      ``loss``, ``correct`` and ``count``, each ``f32[]``, over the images with a mask of 1. An
      image is correct if the prediction at the cell and anchor of each true box has an IoU above
      0.5, an objectness above 0.5 and the right class; an image without boxes is correct. False
      positives do not count.

    Raises:
      InputError: the shapes of predictions and anchors do not match.

    >>> batch = {"boxes": jnp.array([[[0.25, 0.75, 1.2, 1.2]]]), "label": jnp.array([[0]])}
    >>> objective = functools.partial(region_objective, anchors=((1.0, 1.0), (2.4, 2.4)))
    >>> predictions = jnp.zeros((1, 2, 2, 2, 5 + 3)).at[0, 1, 0, 1, 4:6].set(9.0)
    >>> metrics = jax.jit(objective)(predictions, batch)
    >>> float(metrics["correct"]), float(metrics["count"])
    (1.0, 1.0)
    """
    predictions = at_least_float32(predictions)
    mask = batch.get("mask", jnp.ones(len(predictions), predictions.dtype))
    # Masking the losses does not suffice: zero times an overflow is not zero.
    predictions = jnp.where(mask[:, None, None, None, None] > 0, predictions, 0)
    image_loss = functools.partial(_image_loss, anchors=anchor_array(anchors, predictions))
    losses, correct = jax.vmap(image_loss)(
        predictions, at_least_float32(batch["boxes"]), batch["label"]
    )
    return {
        "loss": jnp.sum(losses * mask),
        "correct": jnp.sum(jnp.where(correct, mask, 0)),
        "count": jnp.sum(mask),
    }


def _image_loss(
    predictions: Array, boxes: Array, labels: Array, anchors: Array
) -> tuple[Array, Array]:
    """Loss ``f[]`` and correctness ``bool[]`` of one image, with the objective's arguments."""
    valid = (labels >= 0) & jnp.all(boxes[:, 2:] >= MIN_SIDE, axis=-1)
    boxes = jnp.where(valid[:, None], boxes, 0.5)  # unused rows need a finite logarithm
    slots, targets = _assign(boxes, predictions.shape[:2], anchors)
    predicted, objectness, _ = decode(predictions, anchors)
    predicted, objectness = lax.stop_gradient(predicted).reshape(-1, 4), objectness.reshape(-1)
    assigned = valid & (slots == jnp.arange(len(predicted))[:, None])  # [H · W · A, M]
    near = valid & (iou(predicted[:, None], boxes) > IOU_THRESHOLD)
    background = NO_OBJECT_SCALE * jnp.where(jnp.any(assigned | near, axis=1), 0, objectness**2)

    matched = predictions.reshape(-1, predictions.shape[-1])[slots]
    overlap = iou(predicted[slots], boxes)
    errors = jnp.concatenate([jax.nn.sigmoid(matched[:, :2]), matched[:, 2:4]], axis=1) - targets
    coordinate = COORD_SCALE * (2 - boxes[:, 2] * boxes[:, 3]) * jnp.sum(errors**2, axis=1)
    presence = OBJECT_SCALE * (overlap - objectness[slots]) ** 2
    cross_entropy = CLASS_SCALE * optax.softmax_cross_entropy_with_integer_labels(
        matched[:, 5:], jnp.maximum(labels, 0)
    )
    counted = valid & ~_is_replaced(slots, valid)
    loss = jnp.sum(background) / 2 + jnp.sum(
        jnp.where(counted, (coordinate + presence) / 2 + cross_entropy, 0)
    )
    correct = (
        (overlap > 0.5) & (objectness[slots] > 0.5) & (jnp.argmax(matched[:, 5:], axis=1) == labels)
    )
    return loss, jnp.all(correct | ~valid)


def _assign(boxes: Array, grid: tuple[int, ...], anchors: Array) -> tuple[Array, Array]:
    """Assigns boxes to predictions.

    Args:
      boxes: ``f[M, 4]``.
      grid: height and width of the grid, in cells.
      anchors: ``f[A, 2]``.

    Returns:
      The slot of each box, ``i32[M]``, its index in the flattened predictions ``[H · W · A]``, and
      the target values of (σ(t_x), σ(t_y), t_w, t_h) in that slot, ``f[M, 4]``.
    """
    height, width = grid
    size = jnp.asarray([width, height], boxes.dtype)
    centers, sizes = boxes[:, :2] * size, boxes[:, 2:] * size
    corners = jnp.clip(jnp.floor(centers), 0, size - 1)
    # With a common center, the IoU compares the shapes alone.
    shapes, priors = (
        jnp.concatenate([jnp.zeros_like(sides), sides], axis=1) for sides in (sizes, anchors)
    )
    nearest = jnp.argmax(iou(shapes[:, None], priors), axis=1)
    column, row = corners.astype(jnp.int32).T
    slots = (row * width + column) * len(anchors) + nearest
    return slots, jnp.concatenate([centers - corners, jnp.log(sizes / anchors[nearest])], axis=1)


def _is_replaced(slots: Array, valid: Array) -> Array:
    """``bool[M]``: True if a later valid box has the same slot."""
    order = jnp.arange(len(slots))
    return jnp.any((slots[:, None] == slots) & valid & (order > order[:, None]), axis=1)
