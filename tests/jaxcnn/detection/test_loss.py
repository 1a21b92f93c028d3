"""The region loss against a plain loop written after Darknet's description, its gradient, and learning by it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxcnn import detection

ANCHORS = ((0.6, 0.8), (1.5, 1.2), (2.5, 3.0))
GRID = (3, 4)  # height, width
CLASSES = 3
region_objective = jax.jit(functools.partial(detection.region_objective, anchors=ANCHORS))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def overlap(a, b) -> float:
    sides = [
        min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
        - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
        for i in (0, 1)
    ]
    shared = max(sides[0], 0) * max(sides[1], 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def region_box(values, row: int, column: int, anchor: int) -> list[float]:
    (height, width), (w, h) = GRID, ANCHORS[anchor]
    x, y = (column + sigmoid(values[0])) / width, (row + sigmoid(values[1])) / height
    return [x, y, w * math.exp(values[2]) / width, h * math.exp(values[3]) / height]


def owner(box) -> tuple[int, int, int]:
    """Row, column and anchor that answer for a true box."""
    (height, width), (x, y, w, h) = GRID, box
    shapes = [overlap((0, 0, w, h), (0, 0, pw / width, ph / height)) for pw, ph in ANCHORS]
    return (
        min(int(y * height), height - 1),
        min(int(x * width), width - 1),
        shapes.index(max(shapes)),
    )


def region_layer(predictions, boxes, labels, frozen=None):
    """One picture's loss, its descent direction and whether all is found: visit every prediction, then every true box.

    Later visits overwrite earlier ones. `frozen`: the predictions that every IoU is taken from, as no gradient flows through.
    """
    frozen = predictions if frozen is None else frozen
    loss, delta, right = np.zeros((*GRID, len(ANCHORS), 3)), np.zeros_like(predictions), []
    truths = [(box, label) for box, label in zip(boxes, labels, strict=True) if label >= 0]
    for place in np.ndindex(*GRID, len(ANCHORS)):
        objectness = sigmoid(predictions[place][4])
        best = max(
            [overlap(region_box(frozen[place], *place), box) for box, _ in truths], default=0
        )
        if best <= 0.6:
            loss[place][1] = objectness**2 / 2
            delta[place][4] = -objectness * objectness * (1 - objectness)
    for box, label in truths:
        place = row, column, anchor = owner(box)
        values, now = predictions[place], overlap(region_box(frozen[place], *place), box)
        x, y, objectness = (sigmoid(values[k]) for k in (0, 1, 4))
        scale = 2 - box[2] * box[3]
        dx, dy = box[0] * GRID[1] - column - x, box[1] * GRID[0] - row - y
        dw = math.log(box[2] * GRID[1] / ANCHORS[anchor][0]) - values[2]
        dh = math.log(box[3] * GRID[0] / ANCHORS[anchor][1]) - values[3]
        chances = np.exp(values[5:]) / np.exp(values[5:]).sum()
        delta[place][:4] = scale * np.array([dx * x * (1 - x), dy * y * (1 - y), dw, dh])
        delta[place][4] = 5 * (now - objectness) * objectness * (1 - objectness)
        delta[place][5:] = (np.arange(len(chances)) == label) - chances
        loss[place] = (
            scale * (dx**2 + dy**2 + dw**2 + dh**2) / 2,
            5 * (now - objectness) ** 2 / 2,
            -math.log(chances[label]),
        )
        right.append(now > 0.5 and objectness > 0.5 and chances.argmax() == label)
    return loss.sum(), delta, all(right)


def drawn(rows: int = 4, most: int = 5, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Predictions, and boxes of which some predictions come near, so that each branch of the loss is taken."""
    rng = np.random.default_rng(seed)
    predictions = rng.normal(size=(rows, *GRID, len(ANCHORS), 5 + CLASSES))
    boxes = np.concatenate(
        [rng.uniform(0.01, 0.99, (rows, most, 2)), rng.uniform(0.1, 0.9, (rows, most, 2))], axis=2
    )
    for row in range(rows):
        for box in range(most):
            cell = tuple(rng.integers(0, (*GRID, len(ANCHORS))))
            if box % 2:
                boxes[row, box] = region_box(predictions[row][cell], *cell)
    labels = rng.integers(-1, CLASSES, (rows, most))
    return predictions, {"boxes": boxes, "label": np.int32(labels)}


def gradient(predictions, batch):
    return jax.grad(lambda values: region_objective(values, batch)["loss"])(predictions)


@pytest.mark.parametrize("seed", range(5))
def test_against_the_loop(seed):
    predictions, batch = drawn(seed=seed)
    with jax.enable_x64(True):
        metrics, slope = (
            region_objective(predictions, batch),
            gradient(jnp.asarray(predictions), batch),
        )
    losses, deltas, right = zip(
        *map(region_layer, predictions, batch["boxes"], batch["label"]), strict=True
    )
    assert float(metrics["loss"]) == pytest.approx(sum(losses), rel=1e-10)
    assert (float(metrics["correct"]), float(metrics["count"])) == (sum(right), 4)
    np.testing.assert_allclose(-np.asarray(slope), deltas, rtol=1e-8, atol=1e-12)


def test_the_loops_cases_all_occur():
    """Boxes that share a slot, predictions excused by a near box, pictures right and wrong: else the test above is weak."""
    shared = excused = 0
    for seed in range(5):
        predictions, batch = drawn(seed=seed)
        for values, boxes, labels in zip(predictions, batch["boxes"], batch["label"], strict=True):
            owners = [owner(box) for box in boxes[labels >= 0]]
            shared += len(owners) - len(set(owners))
            _, delta, _ = region_layer(values, boxes, labels)
            excused += int((delta[..., 4] == 0).sum())
    assert (shared > 0, excused > 10) == (True, True)


def test_gradient_against_finite_differences():
    predictions, batch = drawn(rows=1, seed=1)
    with jax.enable_x64(True):
        slope = np.asarray(gradient(jnp.asarray(predictions), batch))
    step, boxes, labels = 1e-6, batch["boxes"][0], batch["label"][0]
    places = np.argwhere(slope[0])[::3].tolist() + np.argwhere(slope[0] == 0)[::40].tolist()
    for place in map(tuple, places):
        sides = []
        for sign in (1, -1):
            moved = predictions[0].copy()
            moved[place] += sign * step
            sides.append(region_layer(moved, boxes, labels, frozen=predictions[0])[0])
        assert slope[0][place] == pytest.approx(
            (sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-7
        )


def test_one_box_by_hand():
    """Predictions of 0, one box that fills half of each side of a 1 by 1 grid with an anchor of 1 by 1.

    Coordinates: (2 − 1/4) · 2 ln²2 / 2; objectness: the IoU is 1/4, σ(0) = 1/2, 5 · (1/4)² / 2; class: ln 2.
    """
    batch = {"boxes": np.float32([[[0.5, 0.5, 0.5, 0.5]]]), "label": np.int32([[1]])}
    found = detection.region_objective(jnp.zeros((1, 1, 1, 1, 7)), batch, ((1.0, 1.0),))
    assert float(found["loss"]) == pytest.approx(
        1.75 * math.log(2) ** 2 + 5 / 32 + math.log(2), rel=1e-6
    )
    assert float(found["correct"]) == 0


def test_no_boxes_at_all():
    """Only the background is left, σ(0)² / 2 for each prediction, whatever stands in the rows with no box."""
    predictions = jnp.zeros((2, *GRID, 3, 5 + CLASSES))
    for boxes, labels in (
        (np.zeros((2, 3, 4)), -np.ones((2, 3))),
        (np.full((2, 1, 4), np.nan), -np.ones((2, 1))),
        (np.zeros((2, 0, 4)), np.zeros((2, 0))),
    ):
        batch = {"boxes": np.float32(boxes), "label": np.int32(labels)}
        metrics, slope = region_objective(predictions, batch), gradient(predictions, batch)
        assert float(metrics["loss"]) == pytest.approx(2 * 36 / 8)
        assert (float(metrics["correct"]), float(metrics["count"])) == (2, 2)
        expected = np.zeros(predictions.shape)
        expected[..., 4] = 1 / 8  # σ² (1 − σ)
        np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_of_two_boxes_in_one_place_the_later_counts():
    predictions, _ = drawn(rows=1, seed=2)
    first, second = [0.3, 0.3, 0.4, 0.4], [0.32, 0.28, 0.42, 0.38]
    assert owner(first) == owner(second)
    twins = {"boxes": np.array([[first, second]]), "label": np.int32([[0, 2]])}
    again = {"boxes": np.array([[second, first, second]]), "label": np.int32([[2, 0, 2]])}
    with jax.enable_x64(True):
        slopes = [np.asarray(gradient(jnp.asarray(predictions), batch)) for batch in (twins, again)]
    _, delta, _ = region_layer(predictions[0], [second], [2])
    place = owner(second)
    for slope in slopes:
        np.testing.assert_allclose(-slope[0][place], delta[place], rtol=1e-8)


def test_gradient_is_zero_where_nothing_is_asked():
    """Coordinates and classes of predictions that no box belongs to; everything in pictures that only fill up the batch."""
    predictions, batch = drawn(rows=3, seed=3)
    predictions[2] = 1e30  # whose exponential overflows
    batch = batch | {"mask": np.float32([1, 1, 0])}
    slope = np.asarray(gradient(jnp.float32(predictions), batch))
    assert not slope[2].any() and np.isfinite(slope).all()
    for row in range(2):
        free = np.ones((*GRID, len(ANCHORS)), bool)
        for box, label in zip(batch["boxes"][row], batch["label"][row], strict=True):
            free[owner(box)] &= label < 0
        asked = np.delete(slope[row], 4, axis=-1)
        assert not asked[free].any() and asked[~free].any(axis=-1).all()


def test_masked_pictures_add_nothing():
    predictions, batch = drawn(rows=5, seed=4)
    whole = region_objective(np.float32(predictions), batch | {"mask": np.float32([1, 0, 1, 1, 0])})
    kept = region_objective(
        np.float32(predictions[[0, 2, 3]]),
        {name: values[[0, 2, 3]] for name, values in batch.items()},
    )
    assert float(whole["count"]) == 3
    for name in kept:
        assert float(whole[name]) == pytest.approx(float(kept[name]), rel=1e-6)


def test_boxes_at_the_edge_and_too_small():
    predictions = jnp.zeros((1, *GRID, 3, 5 + CLASSES))
    at_edge = {"boxes": np.float32([[[1.0, 1.0, 0.4, 0.4]]]), "label": np.int32([[0]])}
    slope = np.asarray(gradient(predictions, at_edge))
    assert np.argwhere(slope[0, ..., 5:].any(-1)).tolist() == [[2, 3, 1]]
    too_small = {"boxes": np.float32([[[0.5, 0.5, 0.0, 0.4]]]), "label": np.int32([[0]])}
    assert float(region_objective(predictions, too_small)["loss"]) == pytest.approx(36 / 8)


def test_half_precision_is_computed_in_full():
    predictions, batch = drawn(seed=5)
    half = jnp.asarray(predictions, jnp.bfloat16)
    found, expected = (
        region_objective(half, batch),
        region_objective(half.astype(jnp.float32), batch),
    )
    assert found["loss"].dtype == jnp.float32
    assert float(found["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-6)
    assert gradient(half, batch).dtype == jnp.bfloat16


def test_pictures_are_independent():
    """Under vmap each picture's sums are those that it has alone."""
    predictions, batch = drawn(seed=6)
    predictions = np.float32(predictions)
    one = jax.vmap(
        lambda values, rows: region_objective(
            values[None], jax.tree.map(lambda leaf: leaf[None], rows)
        )
    )(predictions, batch)
    for name, total in region_objective(predictions, batch).items():
        assert float(one[name].sum()) == pytest.approx(float(total), rel=1e-5)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_the_gradient_lowers_for_every_platform(platform):
    predictions, batch = drawn()
    assert (
        "stablehlo"
        in jax.jit(gradient)
        .trace(np.float32(predictions), batch)
        .lower(lowering_platforms=(platform,))
        .as_text()
    )


def test_descent_on_the_predictions_finds_exactly_the_true_boxes():
    pictures = detection.synthetic_pictures(6, 64, CLASSES, seed=1)
    batch = {name: jnp.asarray(pictures[name]) for name in ("boxes", "label")}
    anchors = ((1.5, 1.5), (2.5, 2.5), (1.5, 3.0), (3.0, 1.5), (3.0, 3.0))
    sums = functools.partial(detection.region_objective, batch=batch, anchors=anchors)
    optimizer = optax.adam(0.1)
    start = jnp.zeros((6, 7, 7, 5, 5 + CLASSES))

    @jax.jit
    def descend(values):
        def step(carry, _):
            values, state = carry
            loss, slope = jax.value_and_grad(lambda values: sums(values)["loss"])(values)
            updates, state = optimizer.update(slope, state)
            return (optax.apply_updates(values, updates), state), loss

        (values, _), losses = jax.lax.scan(step, (values, optimizer.init(values)), length=300)
        return values, losses

    values, losses = descend(start)
    assert losses[0] > 100 and losses[-1] < 0.5
    assert float(sums(values)["correct"]) == 6
    found = jax.jit(functools.partial(detection.detect, anchors=anchors, limit=10))(values)
    for row, (boxes, labels) in enumerate(zip(pictures["boxes"], pictures["label"], strict=True)):
        one, boxes, labels = found.picture(row), boxes[labels >= 0], labels[labels >= 0]
        nearest = [int(np.argmax([overlap(box, other) for other in boxes])) for box in one.boxes]
        assert sorted(nearest) == list(range(len(boxes)))
        assert one.classes.tolist() == labels[nearest].tolist()
        np.testing.assert_allclose(one.boxes, boxes[nearest], atol=0.01)
        assert (one.scores > 0.9).all()
