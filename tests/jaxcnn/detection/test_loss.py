"""The region loss against plain loops, its gradient, and training with it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import detection
from tests.support.yolo_reference import (
    ANCHORS,
    GRID,
    assigned_slot,
    box_iou,
    decode_box,
    region_layer,
)

pytestmark = pytest.mark.standard_promotion  # float64 tests have indices of two widths

CLASSES = 3
region_objective = jax.jit(functools.partial(detection.region_objective, anchors=ANCHORS))


def random_batch(
    count: int = 4, boxes_per_image: int = 5, seed: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Predictions, and true boxes of which every second equals some predicted box.

    So each branch of the loss is taken.
    """
    rng = np.random.default_rng(seed)
    predictions = rng.normal(size=(count, *GRID, len(ANCHORS), 5 + CLASSES))
    shape = (count, boxes_per_image, 2)
    boxes = np.concatenate([rng.uniform(0.01, 0.99, shape), rng.uniform(0.1, 0.9, shape)], axis=2)
    for row in range(count):
        for box in range(boxes_per_image):
            slot = tuple(rng.integers(0, (*GRID, len(ANCHORS))))
            if box % 2:
                boxes[row, box] = decode_box(predictions[row][slot], *slot)
    labels = rng.integers(-1, CLASSES, (count, boxes_per_image))
    return predictions, {"boxes": boxes, "label": np.int32(labels)}


def loss_gradient(predictions, batch):
    return jax.grad(lambda values: region_objective(values, batch)["loss"])(predictions)


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradient_equal_those_of_the_loop(seed):
    predictions, batch = random_batch(seed=seed)
    with jax.enable_x64(True):
        metrics = region_objective(predictions, batch)
        gradient = loss_gradient(jnp.asarray(predictions), batch)
    losses, deltas, correct = zip(
        *map(region_layer, predictions, batch["boxes"], batch["label"]), strict=True
    )
    assert float(metrics["loss"]) == pytest.approx(sum(losses), rel=1e-10)
    assert (float(metrics["correct"]), float(metrics["count"])) == (sum(correct), 4)
    np.testing.assert_allclose(-np.asarray(gradient), deltas, rtol=1e-8, atol=1e-12)


def test_the_random_batches_take_every_branch():
    """Boxes that share a slot, and predictions without a loss because they are near a true box."""
    shared = without_loss = 0
    for seed in range(5):
        predictions, batch = random_batch(seed=seed)
        for values, boxes, labels in zip(predictions, batch["boxes"], batch["label"], strict=True):
            slots = [assigned_slot(box) for box in boxes[labels >= 0]]
            shared += len(slots) - len(set(slots))
            _, delta, _ = region_layer(values, boxes, labels)
            without_loss += int((delta[..., 4] == 0).sum())
    assert (shared > 0, without_loss > 10) == (True, True)


def test_gradient_equals_finite_differences():
    predictions, batch = random_batch(count=1, seed=1)
    with jax.enable_x64(True):
        gradient = np.asarray(loss_gradient(jnp.asarray(predictions), batch))[0]
    step, boxes, labels = 1e-6, batch["boxes"][0], batch["label"][0]
    indices = np.argwhere(gradient)[::3].tolist() + np.argwhere(gradient == 0)[::40].tolist()
    for index in map(tuple, indices):
        losses = []
        for sign in (1, -1):
            perturbed = predictions[0].copy()
            perturbed[index] += sign * step
            losses.append(region_layer(perturbed, boxes, labels, predictions[0])[0])
        assert gradient[index] == pytest.approx(
            (losses[0] - losses[1]) / (2 * step), rel=1e-5, abs=1e-7
        )


def test_one_box_by_hand():
    """Predictions of 0, a box of half the image's sides, a 1 by 1 grid, an anchor of 1 by 1.

    Coordinates: (2 − 1/4) · 2 ln²2 / 2; objectness: the IoU is 1/4, σ(0) = 1/2, 5 · (1/4)² / 2;
    class: ln 2.
    """
    batch = {"boxes": np.float32([[[0.5, 0.5, 0.5, 0.5]]]), "label": np.int32([[1]])}
    metrics = detection.region_objective(jnp.zeros((1, 1, 1, 1, 7)), batch, ((1.0, 1.0),))
    assert float(metrics["loss"]) == pytest.approx(
        1.75 * math.log(2) ** 2 + 5 / 32 + math.log(2), rel=1e-6
    )
    assert float(metrics["correct"]) == 0


@pytest.mark.parametrize(
    ("boxes", "labels"),
    [
        (np.zeros((2, 3, 4)), -np.ones((2, 3))),
        (np.full((2, 1, 4), np.nan), -np.ones((2, 1))),
        (np.zeros((2, 0, 4)), np.zeros((2, 0))),
    ],
    ids=["zeros", "nan", "no rows"],
)
def test_images_without_boxes_have_only_the_background_loss(boxes, labels):
    """It is σ(0)² / 2 for each prediction, whatever the unused rows contain."""
    predictions = jnp.zeros((2, *GRID, 3, 5 + CLASSES))
    batch = {"boxes": np.float32(boxes), "label": np.int32(labels)}
    metrics, gradient = region_objective(predictions, batch), loss_gradient(predictions, batch)
    assert float(metrics["loss"]) == pytest.approx(2 * 36 / 8)
    assert (float(metrics["correct"]), float(metrics["count"])) == (2, 2)
    expected = np.zeros(predictions.shape)
    expected[..., 4] = 1 / 8  # σ² (1 − σ)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_the_later_of_two_boxes_in_one_slot_replaces_the_earlier():
    predictions, _ = random_batch(count=1, seed=2)
    first, second = [0.3, 0.3, 0.4, 0.4], [0.32, 0.28, 0.42, 0.38]
    slot = assigned_slot(second)
    assert assigned_slot(first) == slot
    two = {"boxes": np.array([[first, second]]), "label": np.int32([[0, 2]])}
    three = {"boxes": np.array([[second, first, second]]), "label": np.int32([[2, 0, 2]])}
    _, delta, _ = region_layer(predictions[0], [second], [2])
    for batch in (two, three):
        with jax.enable_x64(True):
            gradient = np.asarray(loss_gradient(jnp.asarray(predictions), batch))
        np.testing.assert_allclose(-gradient[0][slot], delta[slot], rtol=1e-8)


def test_gradient_is_zero_where_there_is_no_target():
    """For coordinates and classes of predictions without a true box, and for masked images."""
    predictions, batch = random_batch(count=3, seed=3)
    predictions[2] = 1e30  # its exponential overflows
    batch = batch | {"mask": np.float32([1, 1, 0])}
    gradient = np.asarray(loss_gradient(jnp.float32(predictions), batch))
    assert not gradient[2].any() and np.isfinite(gradient).all()
    for row in range(2):
        unassigned = np.ones((*GRID, len(ANCHORS)), bool)
        for box, label in zip(batch["boxes"][row], batch["label"][row], strict=True):
            unassigned[assigned_slot(box)] &= label < 0
        without_objectness = np.delete(gradient[row], 4, axis=-1)
        assert not without_objectness[unassigned].any()
        assert without_objectness[~unassigned].any(axis=-1).all()


def test_masked_images_do_not_count():
    predictions, batch = random_batch(count=5, seed=4)
    masked = region_objective(
        np.float32(predictions), batch | {"mask": np.float32([1, 0, 1, 1, 0])}
    )
    selected = region_objective(
        np.float32(predictions[[0, 2, 3]]),
        {name: values[[0, 2, 3]] for name, values in batch.items()},
    )
    assert float(masked["count"]) == 3
    for name in selected:
        assert float(masked[name]) == pytest.approx(float(selected[name]), rel=1e-6)


def test_a_box_at_the_edge_is_assigned_and_an_empty_box_is_ignored():
    predictions = jnp.zeros((1, *GRID, 3, 5 + CLASSES))
    at_edge = {"boxes": np.float32([[[1.0, 1.0, 0.4, 0.4]]]), "label": np.int32([[0]])}
    gradient = np.asarray(loss_gradient(predictions, at_edge))
    assert np.argwhere(gradient[0, ..., 5:].any(-1)).tolist() == [[2, 3, 1]]
    empty = {"boxes": np.float32([[[0.5, 0.5, 0.0, 0.4]]]), "label": np.int32([[0]])}
    assert float(region_objective(predictions, empty)["loss"]) == pytest.approx(36 / 8)


def test_half_precision_is_computed_in_float32():
    predictions, batch = random_batch(seed=5)
    half = jnp.asarray(predictions, jnp.bfloat16)
    metrics = region_objective(half, batch)
    expected = region_objective(half.astype(jnp.float32), batch)
    assert metrics["loss"].dtype == jnp.float32
    assert float(metrics["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-6)
    assert loss_gradient(half, batch).dtype == jnp.bfloat16


def test_images_are_independent():
    """The metrics of a batch are the sums of the metrics of each image alone."""
    predictions, batch = random_batch(seed=6)
    predictions = np.float32(predictions)
    by_image = jax.vmap(
        lambda values, rows: region_objective(
            values[None], jax.tree.map(lambda leaf: leaf[None], rows)
        )
    )(predictions, batch)
    for name, total in region_objective(predictions, batch).items():
        assert float(by_image[name].sum()) == pytest.approx(float(total), rel=1e-5)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_the_gradient_lowers_for_every_platform(platform):
    predictions, batch = random_batch()
    traced = jax.jit(loss_gradient).trace(np.float32(predictions), batch)
    assert "stablehlo" in traced.lower(lowering_platforms=(platform,)).as_text()


def minimize(objective, start: jax.Array, steps: int) -> tuple[jax.Array, jax.Array]:
    """The predictions after Adam on the loss, and the loss at each step."""
    optimizer = optax.adam(0.1)

    @jax.jit
    def run(values):
        def step(carry, _):
            values, state = carry
            loss, gradient = jax.value_and_grad(lambda values: objective(values)["loss"])(values)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(values, updates), state), loss

        (values, _), losses = jax.lax.scan(step, (values, optimizer.init(values)), length=steps)
        return values, losses

    return run(start)


def test_gradient_descent_on_the_predictions_detects_exactly_the_true_boxes():
    scenes = detection.synthetic_scenes(6, 64, CLASSES, seed=1)
    batch = {name: jnp.asarray(scenes[name]) for name in ("boxes", "label")}
    anchors = ((1.5, 1.5), (2.5, 2.5), (1.5, 3.0), (3.0, 1.5), (3.0, 3.0))
    objective = functools.partial(detection.region_objective, batch=batch, anchors=anchors)
    values, losses = minimize(objective, jnp.zeros((6, 7, 7, 5, 5 + CLASSES)), 300)
    assert losses[0] > 100 and losses[-1] < 0.5
    assert float(objective(values)["correct"]) == 6
    detections = jax.jit(functools.partial(detection.detect, anchors=anchors, limit=10))(values)
    for row, (boxes, labels) in enumerate(zip(scenes["boxes"], scenes["label"], strict=True)):
        boxes, labels = boxes[labels >= 0], labels[labels >= 0]
        detected = detections.for_image(row)
        nearest = [int(np.argmax([box_iou(d, box) for box in boxes])) for d in detected.boxes]
        assert sorted(nearest) == list(range(len(boxes)))
        assert detected.classes.tolist() == labels[nearest].tolist()
        np.testing.assert_allclose(detected.boxes, boxes[nearest], atol=0.01)
        assert (detected.scores > 0.9).all()
