"""YOLOv2's box arithmetic and region loss in plain Python loops, after the description of Darknet.

Nothing here uses the project or JAX.
"""

import math

import numpy as np

ANCHORS = ((0.6, 0.8), (1.5, 1.2), (2.5, 3.0))  # width, height, in grid cells
GRID = (3, 4)  # height, width


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def box_iou(a, b) -> float:
    """Intersection over union of two boxes ``(x, y, w, h)``; 0 if both are empty."""
    sides = [
        min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
        - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
        for i in (0, 1)
    ]
    intersection = max(sides[0], 0) * max(sides[1], 0)
    union = a[2] * a[3] + b[2] * b[3] - intersection
    return intersection / union if union > 0 else 0.0


def decode_box(values, row: int, column: int, anchor: int) -> list[float]:
    """The box that a prediction ``(t_x, t_y, t_w, t_h, …)`` means."""
    (height, width), (w, h) = GRID, ANCHORS[anchor]
    x, y = (column + sigmoid(values[0])) / width, (row + sigmoid(values[1])) / height
    return [x, y, w * math.exp(values[2]) / width, h * math.exp(values[3]) / height]


def assigned_slot(box) -> tuple[int, int, int]:
    """Row, column and anchor that a true box is assigned to."""
    (height, width), (x, y, w, h) = GRID, box
    ious = [box_iou((0, 0, w, h), (0, 0, pw / width, ph / height)) for pw, ph in ANCHORS]
    row, column = min(int(y * height), height - 1), min(int(x * width), width - 1)
    return row, column, ious.index(max(ious))


def region_layer(predictions, boxes, labels, iou_predictions=None):
    """Loss, descent direction and correctness of one image.

    Visits each prediction, then each true box; later visits overwrite earlier ones.

    Args:
      predictions: ``[*GRID, A, 5 + C]``.
      boxes: ``[M, 4]``.
      labels: ``[M]``, −1 for unused rows.
      iou_predictions: the predictions whose boxes every IoU uses, because no gradient flows through
        the IoU; `predictions` if None.

    Returns:
      The loss, minus its gradient with respect to `predictions`, and whether each true box is
      detected.
    """
    iou_predictions = predictions if iou_predictions is None else iou_predictions
    loss, delta, correct = np.zeros((*GRID, len(ANCHORS), 3)), np.zeros_like(predictions), []
    true_boxes = [(box, label) for box, label in zip(boxes, labels, strict=True) if label >= 0]
    for slot in np.ndindex(*GRID, len(ANCHORS)):
        predicted_box = decode_box(iou_predictions[slot], *slot)
        if max([box_iou(predicted_box, box) for box, _ in true_boxes], default=0) <= 0.6:
            objectness = sigmoid(predictions[slot][4])
            loss[slot][1] = objectness**2 / 2
            delta[slot][4] = -objectness * objectness * (1 - objectness)
    for box, label in true_boxes:
        slot = assigned_slot(box)
        iou = box_iou(decode_box(iou_predictions[slot], *slot), box)
        loss[slot], delta[slot], is_detected = _true_box_terms(
            predictions[slot], box, label, slot, iou
        )
        correct.append(is_detected)
    return loss.sum(), delta, all(correct)


def _true_box_terms(values, box, label: int, slot: tuple[int, int, int], iou: float):
    """Three loss terms, the descent direction and whether the box is detected."""
    row, column, anchor = slot
    x, y, objectness = (sigmoid(values[k]) for k in (0, 1, 4))
    scale = 2 - box[2] * box[3]
    dx, dy = box[0] * GRID[1] - column - x, box[1] * GRID[0] - row - y
    dw = math.log(box[2] * GRID[1] / ANCHORS[anchor][0]) - values[2]
    dh = math.log(box[3] * GRID[0] / ANCHORS[anchor][1]) - values[3]
    probabilities = np.exp(values[5:]) / np.exp(values[5:]).sum()
    delta = np.empty_like(values)
    delta[:4] = scale * np.array([dx * x * (1 - x), dy * y * (1 - y), dw, dh])
    delta[4] = 5 * (iou - objectness) * objectness * (1 - objectness)
    delta[5:] = (np.arange(len(probabilities)) == label) - probabilities
    losses = (
        scale * (dx**2 + dy**2 + dw**2 + dh**2) / 2,
        5 * (iou - objectness) ** 2 / 2,
        -math.log(probabilities[label]),
    )
    return losses, delta, iou > 0.5 and objectness > 0.5 and probabilities.argmax() == label
