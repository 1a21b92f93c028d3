"""Boxes against hand-worked numbers and plain loops."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn import detection
from jaxcnn.errors import InputError
from tests.support.yolo_reference import box_iou, sigmoid

COUNT = 40
suppress = jax.jit(detection.non_maximum_suppression, static_argnames="limit")


def greedy_suppression(boxes, scores, threshold: float, limit: int) -> list[tuple[int, int]]:
    """Box and class of each detection: sorts the candidates and drops those that overlap."""
    candidates = [
        (row, label)
        for row in range(len(boxes))
        for label in range(scores.shape[1])
        if scores[row, label] > 0
    ]
    kept = []
    for row, label in sorted(candidates, key=lambda pair: -scores[pair]):
        if all(
            label != other_label or box_iou(boxes[row], boxes[other]) <= threshold
            for other, other_label in kept
        ):
            kept.append((row, label))
    return kept[:limit]


def overlapping_boxes(seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """`COUNT` random boxes near the center, and scores of which about 30 % are 0."""
    rng = np.random.default_rng(seed)
    boxes = np.concatenate(
        [rng.uniform(0.3, 0.7, (COUNT, 2)), rng.uniform(0.1, 0.5, (COUNT, 2))], axis=1
    )
    scores = rng.random((COUNT, classes), np.float32)
    return np.float32(boxes), scores * (rng.random((COUNT, classes)) < 0.7)


def assert_detections(detections, boxes, scores, expected) -> None:
    """Checks that the rows are the `expected` pairs of box and class, then padding."""
    valid = np.asarray(detections.valid)
    assert valid.tolist() == [True] * len(expected) + [False] * (len(valid) - len(expected))
    result = jax.tree.map(np.asarray, detections)
    assert result.classes[valid].tolist() == [label for _, label in expected]
    rows = [row for row, _ in expected]
    np.testing.assert_array_equal(result.boxes[valid], boxes[rows].reshape(-1, 4))
    np.testing.assert_array_equal(
        result.scores[valid], np.float32([scores[pair] for pair in expected])
    )
    assert not result.scores[~valid].any() and not result.boxes[~valid].any()
    assert (result.classes[~valid] == -1).all()


def test_decode_by_hand():
    """Row 1, column 2 of a grid of 2 by 4; σ(ln 3) = 3/4, e^(ln 2) = 2.

    The logits (ln 3, 0) mean 3/4 and 1/4.
    """
    predictions = np.zeros((1, 2, 4, 2, 7), np.float32)
    predictions[0, 1, 2, 1] = [math.log(3), 0, math.log(2), 0, -math.log(3), math.log(3), 0]
    boxes, objectness, probabilities = detection.decode(predictions, ((1, 1), (0.5, 0.25)))
    np.testing.assert_allclose(
        boxes[0, 1, 2, 1], [2.75 / 4, 1.5 / 2, 0.5 * 2 / 4, 0.25 / 2], rtol=1e-6
    )
    assert float(objectness[0, 1, 2, 1]) == pytest.approx(0.25)
    np.testing.assert_allclose(probabilities[0, 1, 2, 1], [0.75, 0.25], rtol=1e-6)
    shapes = boxes.shape, objectness.shape, probabilities.shape
    assert shapes == ((1, 2, 4, 2, 4), (1, 2, 4, 2), (1, 2, 4, 2, 2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decode_equals_loops(dtype):
    predictions = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5, 5, 8)), dtype)
    boxes, objectness, probabilities = jax.jit(detection.decode)(predictions)
    assert {boxes.dtype, objectness.dtype, probabilities.dtype} == {jnp.dtype("float32")}
    values = np.float64(predictions)
    for n, row, column, anchor in np.ndindex(2, 3, 5, 5):
        index = (n, row, column, anchor)
        x, y, w, h, o, *logits = values[index]
        prior = detection.VOC_ANCHORS[anchor]
        expected = [
            (column + sigmoid(x)) / 5,
            (row + sigmoid(y)) / 3,
            prior[0] * math.exp(w) / 5,
            prior[1] * math.exp(h) / 3,
        ]
        np.testing.assert_allclose(boxes[index], expected, rtol=1e-5)
        assert float(objectness[index]) == pytest.approx(sigmoid(o), rel=1e-5)
        softmax = [math.exp(logit) / sum(map(math.exp, logits)) for logit in logits]
        np.testing.assert_allclose(probabilities[index], softmax, rtol=1e-5)


@pytest.mark.parametrize(
    "shape", [(1, 13, 13, 4, 25), (1, 13, 13, 125), (1, 13, 13, 5, 5), (13, 5, 25)]
)
def test_predictions_of_a_wrong_shape_are_an_error(shape):
    with pytest.raises(InputError, match=r"expected \[..., H, W, A, 5 \+ classes\]"):
        detection.decode(jnp.zeros(shape))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0.5, 0.5, 0.4, 0.2), (0.5, 0.5, 0.4, 0.2), 1.0),  # equal
        ((0.5, 0.5, 0.4, 0.4), (0.5, 0.5, 0.2, 0.2), 0.25),  # one within the other: 0.04 / 0.16
        ((0.4, 0.5, 0.2, 0.2), (0.5, 0.5, 0.2, 0.2), 1 / 3),  # half of each: 0.02 / 0.06
        ((0.4, 0.4, 0.2, 0.2), (0.5, 0.5, 0.2, 0.2), 1 / 7),  # a quarter of each: 0.01 / 0.07
        ((0.2, 0.2, 0.2, 0.2), (0.8, 0.2, 0.2, 0.2), 0.0),  # apart along x
        # Apart along both axes: the product of two negative sides is no area.
        ((0.2, 0.2, 0.2, 0.2), (0.8, 0.8, 0.2, 0.2), 0.0),
        ((0.25, 0.5, 0.5, 0.5), (0.75, 0.5, 0.5, 0.5), 0.0),  # a common edge
        ((0.5, 0.5, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), 0.0),  # empty
        ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.5, 1.0), 0.5),  # partly outside the image
    ],
)
def test_iou_by_hand(a, b, expected):
    assert float(detection.iou(jnp.array(a), jnp.array(b))) == pytest.approx(expected, abs=1e-6)
    assert float(detection.iou(jnp.array(b), jnp.array(a))) == pytest.approx(expected, abs=1e-6)
    assert box_iou(a, b) == pytest.approx(expected, abs=1e-9)


def test_iou_broadcasts():
    boxes, _ = overlapping_boxes(0, 1)
    expected = [[box_iou(a, b) for b in boxes[:7]] for a in boxes]
    np.testing.assert_allclose(detection.iou(boxes[:, None], boxes[:7]), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize(
    ("threshold", "limit"), [(0.45, 150), (0.2, 150), (0.45, 9), (0.0, 30), (1.0, 50)]
)
def test_suppression_equals_the_greedy_loop(seed, classes, threshold, limit):
    boxes, scores = overlapping_boxes(seed, classes)
    detections = suppress(boxes, scores, threshold, limit=limit)
    expected = greedy_suppression(boxes, scores, threshold, limit)
    assert_detections(detections, boxes, scores, expected)


def test_suppression_without_candidates():
    detections = suppress(jnp.zeros((0, 4)), jnp.zeros((0, 3)), limit=5)
    assert_detections(detections, np.zeros((0, 4), np.float32), np.zeros((0, 3)), [])
    boxes, _ = overlapping_boxes(0, 1)
    for score in (0.0, -1.0, np.nan):
        scores = np.full((COUNT, 3), score, np.float32)
        assert_detections(suppress(boxes, scores, limit=5), boxes, scores, [])


def test_of_identical_boxes_one_is_kept_for_each_class():
    boxes = np.tile(np.float32([0.5, 0.5, 0.2, 0.2]), (6, 1))
    scores = np.float32([[0.1, 0.3], [0.9, 0.2], [0.9, 0.3], [0.2, 0.1], [0.5, 0.3], [0.9, 0.1]])
    assert_detections(suppress(boxes, scores, limit=8), boxes, scores, [(1, 0), (0, 1)])


def test_boxes_without_area_are_detected_once():
    boxes, scores = np.zeros((3, 4), np.float32), np.float32([[0.5], [0.7], [0.6]])
    assert_detections(suppress(boxes, scores, limit=5), boxes, scores, [(1, 0), (2, 0), (0, 0)])


def test_ties_are_resolved_by_box_and_then_by_class():
    boxes = np.float32([[0.2, 0.2, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1], [0.5, 0.5, 0.1, 0.1]])
    scores = np.full((3, 2), 0.5, np.float32)
    expected = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert_detections(suppress(boxes, scores, limit=7), boxes, scores, expected)
    assert_detections(suppress(boxes, scores, limit=3), boxes, scores, expected[:3])


def test_detect_combines_decoding_scores_and_suppression():
    predictions = np.float32(np.random.default_rng(1).normal(size=(2, 4, 4, 5, 8)) * 2)
    detect = jax.jit(functools.partial(detection.detect, score_threshold=0.3, limit=60))
    detections = detect(predictions)
    boxes, objectness, probabilities = (
        np.asarray(values) for values in jax.jit(detection.decode)(predictions)
    )
    for row in range(2):
        image_boxes = boxes[row].reshape(-1, 4)
        scores = (objectness[row, ..., None] * probabilities[row]).reshape(-1, 3)
        scores = np.where(scores > 0.3, scores, 0)
        expected = greedy_suppression(image_boxes, scores, 0.45, 60)
        result = detections.for_image(row)
        assert 5 < len(expected) < 60
        assert result.classes.tolist() == [label for _, label in expected]
        np.testing.assert_allclose(result.boxes, [image_boxes[i] for i, _ in expected], rtol=1e-6)
        np.testing.assert_allclose(result.scores, [scores[pair] for pair in expected], rtol=1e-6)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_detect_lowers_for_every_platform(platform):
    traced = jax.jit(detection.detect).trace(jax.ShapeDtypeStruct((2, 13, 13, 5, 25), jnp.bfloat16))
    assert "stablehlo.while" in traced.lower(lowering_platforms=(platform,)).as_text()


def test_detections_are_a_pytree():
    detections = detection.detect(jnp.zeros((1, 2, 2, 5, 6)), limit=3)
    copy = jax.tree.map(lambda values: values, detections)
    assert isinstance(copy, detection.Detections)
    assert [leaf.shape for leaf in jax.tree.leaves(detections)] == [(1, 3, 4), (1, 3), (1, 3)]
