"""Boxes against hand-worked numbers and plain loops; made-up pictures against their pixels."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import ImageColor

from jaxcnn import detection
from jaxcnn.detection import boxes as module
from jaxcnn.errors import InputError

CROWD = 40
suppress = jax.jit(detection.non_maximum_suppression, static_argnames="limit")


def overlap(a, b) -> float:
    """Intersection over union, one pair at a time."""
    sides = [
        min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
        - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
        for i in (0, 1)
    ]
    shared = max(sides[0], 0) * max(sides[1], 0)
    union = a[2] * a[3] + b[2] * b[3] - shared
    return shared / union if union > 0 else 0.0


def greedy(boxes, scores, threshold: float, limit: int) -> list[tuple[int, int]]:
    """Boxes and classes kept, in order: sort, take, drop what overlaps."""
    pairs = [
        (row, label)
        for row in range(len(boxes))
        for label in range(scores.shape[1])
        if scores[row, label] > 0
    ]
    kept = []
    for row, label in sorted(pairs, key=lambda pair: -scores[pair]):
        if all(
            label != other_label or overlap(boxes[row], boxes[other]) <= threshold
            for other, other_label in kept
        ):
            kept.append((row, label))
    return kept[:limit]


def crowd(seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    boxes = np.concatenate(
        [rng.uniform(0.3, 0.7, (CROWD, 2)), rng.uniform(0.1, 0.5, (CROWD, 2))], axis=1
    )
    return np.float32(boxes), rng.random((CROWD, classes), np.float32) * (
        rng.random((CROWD, classes)) < 0.7
    )


def assert_kept(found, boxes, scores, kept) -> None:
    valid = np.asarray(found.valid)
    assert valid.tolist() == [True] * len(kept) + [False] * (len(valid) - len(kept))
    assert np.asarray(found.classes)[valid].tolist() == [label for _, label in kept]
    np.testing.assert_array_equal(
        np.asarray(found.boxes)[valid], boxes[[row for row, _ in kept]].reshape(-1, 4)
    )
    np.testing.assert_array_equal(
        np.asarray(found.scores)[valid], np.float32([scores[pair] for pair in kept])
    )
    assert not np.asarray(found.scores)[~valid].any() and not np.asarray(found.boxes)[~valid].any()
    assert (np.asarray(found.classes)[~valid] == -1).all()


def test_decode_by_hand():
    """Row 1, column 2 of a grid of 2 by 4; σ(ln 3) = 3/4, e^(ln 2) = 2; logits (ln 3, 0) are 3/4 and 1/4."""
    predictions = np.zeros((1, 2, 4, 2, 7), np.float32)
    predictions[0, 1, 2, 1] = [math.log(3), 0, math.log(2), 0, -math.log(3), math.log(3), 0]
    boxes, objectness, probabilities = detection.decode(predictions, ((1, 1), (0.5, 0.25)))
    np.testing.assert_allclose(
        boxes[0, 1, 2, 1], [2.75 / 4, 1.5 / 2, 0.5 * 2 / 4, 0.25 / 2], rtol=1e-6
    )
    assert float(objectness[0, 1, 2, 1]) == pytest.approx(0.25)
    np.testing.assert_allclose(probabilities[0, 1, 2, 1], [0.75, 0.25], rtol=1e-6)
    assert (boxes.shape, objectness.shape, probabilities.shape) == (
        (1, 2, 4, 2, 4),
        (1, 2, 4, 2),
        (1, 2, 4, 2, 2),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decode_against_loops(dtype):
    given = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5, 5, 8)), dtype)
    boxes, objectness, probabilities = jax.jit(detection.decode)(given)
    assert {boxes.dtype, objectness.dtype, probabilities.dtype} == {jnp.dtype("float32")}
    values = np.float64(given)
    for n, row, column, anchor in np.ndindex(2, 3, 5, 5):
        x, y, w, h, o, *logits = values[n, row, column, anchor]
        prior = detection.VOC_ANCHORS[anchor]
        expected = [
            (column + 1 / (1 + math.exp(-x))) / 5,
            (row + 1 / (1 + math.exp(-y))) / 3,
            prior[0] * math.exp(w) / 5,
            prior[1] * math.exp(h) / 3,
        ]
        place = (n, row, column, anchor)
        np.testing.assert_allclose(boxes[place], expected, rtol=1e-5)
        assert float(objectness[place]) == pytest.approx(1 / (1 + math.exp(-o)), rel=1e-5)
        chances = [math.exp(logit) / sum(map(math.exp, logits)) for logit in logits]
        np.testing.assert_allclose(probabilities[place], chances, rtol=1e-5)


@pytest.mark.parametrize(
    "shape", [(1, 13, 13, 4, 25), (1, 13, 13, 125), (1, 13, 13, 5, 5), (13, 5, 25)]
)
def test_predictions_that_do_not_fit_are_refused(shape):
    with pytest.raises(InputError, match=r"wanted \[..., H, W, A, 5 \+ classes\]"):
        detection.decode(jnp.zeros(shape))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0.5, 0.5, 0.4, 0.2), (0.5, 0.5, 0.4, 0.2), 1.0),  # the same
        ((0.5, 0.5, 0.4, 0.4), (0.5, 0.5, 0.2, 0.2), 0.25),  # one within the other: 0.04 / 0.16
        ((0.4, 0.5, 0.2, 0.2), (0.5, 0.5, 0.2, 0.2), 1 / 3),  # half of each: 0.02 / 0.06
        ((0.4, 0.4, 0.2, 0.2), (0.5, 0.5, 0.2, 0.2), 1 / 7),  # a quarter of each: 0.01 / 0.07
        ((0.2, 0.2, 0.2, 0.2), (0.8, 0.2, 0.2, 0.2), 0.0),  # apart along x
        (
            (0.2, 0.2, 0.2, 0.2),
            (0.8, 0.8, 0.2, 0.2),
            0.0,
        ),  # apart along both: two negative sides make no area
        ((0.25, 0.5, 0.5, 0.5), (0.75, 0.5, 0.5, 0.5), 0.0),  # an edge in common
        ((0.5, 0.5, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), 0.0),  # empty
        ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.5, 1.0), 0.5),  # partly beyond the picture
    ],
)
def test_iou_by_hand(a, b, expected):
    assert float(detection.iou(jnp.array(a), jnp.array(b))) == pytest.approx(expected, abs=1e-6)
    assert float(detection.iou(jnp.array(b), jnp.array(a))) == pytest.approx(expected, abs=1e-6)
    assert overlap(a, b) == pytest.approx(expected, abs=1e-9)


def test_iou_broadcasts():
    boxes, _ = crowd(0, 1)
    found = detection.iou(boxes[:, None], boxes[:7])
    np.testing.assert_allclose(
        found, [[overlap(a, b) for b in boxes[:7]] for a in boxes], atol=1e-6
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize(
    ("threshold", "limit"), [(0.45, 150), (0.2, 150), (0.45, 9), (0.0, 30), (1.0, 50)]
)
def test_suppression_is_greedy(seed, classes, threshold, limit):
    boxes, scores = crowd(seed, classes)
    found = suppress(boxes, scores, threshold, limit=limit)
    assert_kept(found, boxes, scores, greedy(boxes, scores, threshold, limit))


def test_suppression_of_nothing():
    found = suppress(jnp.zeros((0, 4)), jnp.zeros((0, 3)), limit=5)
    assert_kept(found, np.zeros((0, 4), np.float32), np.zeros((0, 3)), [])
    boxes, _ = crowd(0, 1)
    for worthless in (0.0, -1.0, np.nan):
        scores = np.full((CROWD, 3), worthless, np.float32)
        assert_kept(suppress(boxes, scores, limit=5), boxes, scores, [])


def test_identical_boxes_leave_one_a_class():
    boxes = np.tile(np.float32([0.5, 0.5, 0.2, 0.2]), (6, 1))
    scores = np.float32([[0.1, 0.3], [0.9, 0.2], [0.9, 0.3], [0.2, 0.1], [0.5, 0.3], [0.9, 0.1]])
    assert_kept(suppress(boxes, scores, limit=8), boxes, scores, [(1, 0), (0, 1)])


def test_boxes_with_no_area_are_taken_once():
    boxes, scores = np.zeros((3, 4), np.float32), np.float32([[0.5], [0.7], [0.6]])
    assert_kept(suppress(boxes, scores, limit=5), boxes, scores, [(1, 0), (2, 0), (0, 0)])


def test_ties_go_by_box_and_then_by_class():
    boxes = np.float32([[0.2, 0.2, 0.1, 0.1], [0.8, 0.8, 0.1, 0.1], [0.5, 0.5, 0.1, 0.1]])
    scores = np.full((3, 2), 0.5, np.float32)
    expected = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert_kept(suppress(boxes, scores, limit=7), boxes, scores, expected)
    assert_kept(suppress(boxes, scores, limit=3), boxes, scores, expected[:3])


def test_detect_joins_decoding_scores_and_suppression():
    predictions = np.float32(np.random.default_rng(1).normal(size=(2, 4, 4, 5, 8)) * 2)
    found = jax.jit(functools.partial(detection.detect, score_threshold=0.3, limit=60))(predictions)
    boxes, objectness, probabilities = (
        np.asarray(values) for values in jax.jit(detection.decode)(predictions)
    )
    for row in range(2):
        scores = (objectness[row, ..., None] * probabilities[row]).reshape(-1, 3)
        scores = np.where(scores > 0.3, scores, 0)
        kept = greedy(boxes[row].reshape(-1, 4), scores, 0.45, 60)
        one = found.picture(row)
        assert 5 < len(kept) < 60
        assert one.classes.tolist() == [label for _, label in kept]
        np.testing.assert_allclose(
            one.boxes, [boxes[row].reshape(-1, 4)[k] for k, _ in kept], rtol=1e-6
        )
        np.testing.assert_allclose(one.scores, [scores[pair] for pair in kept], rtol=1e-6)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_detection_lowers_for_every_platform(platform):
    traced = jax.jit(detection.detect).trace(jax.ShapeDtypeStruct((2, 13, 13, 5, 25), jnp.bfloat16))
    assert "stablehlo.while" in traced.lower(lowering_platforms=(platform,)).as_text()


def test_detections_are_a_pytree():
    found = detection.detect(jnp.zeros((1, 2, 2, 5, 6)), limit=3)
    assert isinstance(jax.tree.map(lambda values: values, found), module.Detections)
    assert [leaf.shape for leaf in jax.tree.leaves(found)] == [(1, 3, 4), (1, 3), (1, 3)]


@pytest.mark.parametrize("size", [16, 61, 96])
def test_made_up_pictures_have_the_boxes_they_say(size):
    """The shapes' colours are brighter than the noise, so each box is read back from the pixels."""
    batch = detection.synthetic_pictures(30, size, seed=size)
    colours = [ImageColor.getrgb(colour) for colour, _ in detection.SHAPES.values()]
    assert set(batch["label"].ravel().tolist()) == {-1, *range(6)}
    for image, boxes, labels in zip(batch["image"], batch["boxes"], batch["label"], strict=True):
        assert labels[0] >= 0
        for box, label in zip(boxes[labels >= 0], labels[labels >= 0], strict=True):
            left, top, right, bottom = np.round(
                np.concatenate([box[:2] - box[2:] / 2, box[:2] + box[2:] / 2]) * size
            ).astype(int)
            rows, columns = np.nonzero((image[top:bottom, left:right] == colours[label]).all(-1))
            assert (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) == (
                0,
                bottom - top,
                0,
                right - left,
            )
            assert (
                size // 5 <= min(right - left, bottom - top)
                and max(right - left, bottom - top) <= size // 2
            )
            image[top:bottom, left:right] = 0
        assert image.max() < 128  # nothing is painted outside the boxes


def test_made_up_pictures_are_the_same_every_time():
    first, again, other = (detection.synthetic_pictures(4, 32, 3, seed) for seed in (5, 5, 6))
    for name in ("image", "boxes", "label"):
        np.testing.assert_array_equal(first[name], again[name])
        assert (first[name] != other[name]).any()
    assert first["label"].max() < 3
    assert (first["image"].dtype, first["boxes"].dtype, first["label"].dtype) == (
        "uint8",
        "float32",
        "int32",
    )


@pytest.mark.parametrize(
    ("numbers", "name"), [((-1, 64, 3), "count"), ((1, 8, 3), "size"), ((1, 64, 7), "classes")]
)
def test_impossible_pictures_are_refused(numbers, name):
    with pytest.raises(InputError, match=f"{name} .* is not within"):
        detection.synthetic_pictures(*numbers)
