"""Mixup and CutMix, compared with their definitions and with SciPy's distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxcnn.data.mixing import Mixing, cutmix_weights, mixup_weights, symmetric_beta
from jaxcnn.errors import InputError

KEYS = jax.random.split(jax.random.key(0), 2000)
RNG = np.random.default_rng(0)
IMAGES = RNG.random((6, 8, 10, 3), np.float32)
LABELS = np.int32([3, 1, 4, 1, 5, 9])
PARTNERS = [1, 0, 3, 2, 5, 4]


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 4.0])
def test_symmetric_beta_has_its_distribution(alpha):
    values = np.asarray(jax.vmap(lambda key: symmetric_beta(key, alpha))(KEYS))
    assert np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1
    # Not a test by rank: for small alphas many values round to 0 or 1.
    points = np.linspace(0.01, 0.99, 25)
    shares = (values[:, None] <= points).mean(0)
    np.testing.assert_allclose(shares, stats.beta(alpha, alpha).cdf(points), atol=0.035)


def test_mixup_is_the_weighted_mean_of_neighbors():
    images, batch = Mixing(mixup=1.0)(IMAGES, {"label": jnp.array(LABELS)}, KEYS[0])
    share = float(batch["other_share"][0])
    assert 0.01 < share < 0.99
    np.testing.assert_allclose(batch["other_share"], share, rtol=1e-5)
    np.testing.assert_array_equal(batch["label"], LABELS)
    np.testing.assert_array_equal(batch["other_label"], LABELS[PARTNERS])
    expected = (1 - share) * IMAGES + share * IMAGES[PARTNERS]
    np.testing.assert_allclose(images, expected, rtol=1e-5, atol=1e-6)


def test_cutmix_replaces_a_rectangle_by_that_of_the_neighbor():
    for key in KEYS[:20]:
        images, batch = Mixing(cutmix=1.0)(IMAGES, {"label": jnp.array(LABELS)}, key)
        images = np.asarray(images)
        is_other = (images == IMAGES[PARTNERS]).all(-1)
        assert (is_other | (images == IMAGES).all(-1)).all()
        rows, columns = is_other[0].any(1), is_other[0].any(0)
        np.testing.assert_array_equal(is_other[0], np.outer(rows, columns))  # a rectangle
        np.testing.assert_array_equal(is_other, np.broadcast_to(is_other[0], is_other.shape))
        np.testing.assert_allclose(batch["other_share"], is_other[0].mean(), atol=1e-6)


def test_the_rectangle_is_that_of_the_papers_program():
    """Sides are ``sqrt(1 - λ)`` of the image's, rounded down, around a uniform center."""
    weights = np.asarray(jax.vmap(lambda key: cutmix_weights(key, 1.0, (20, 20)))(KEYS))
    shares = 1 - weights.mean((1, 2))
    rng = np.random.default_rng(0)
    expected = []
    for ratio, row, column in zip(
        np.sqrt(rng.random(20_000)), *rng.integers(0, 20, (2, 20_000)), strict=True
    ):
        half = int(20 * ratio) // 2
        height = min(row + half, 20) - max(row - half, 0)
        width = min(column + half, 20) - max(column - half, 0)
        expected.append(height * width / 400)
    assert shares.mean() == pytest.approx(np.mean(expected), abs=0.015)
    assert shares.std() == pytest.approx(np.std(expected), abs=0.015)


def test_with_both_methods_each_is_drawn_for_half_of_the_batches():
    mixing = Mixing(mixup=1.0, cutmix=1.0)
    labels = {"label": jnp.array([0, 1])}
    images = jnp.array([0.0, 1.0])[:, None, None, None] * jnp.ones((2, 8, 8, 1))
    mixed = jax.vmap(lambda key: mixing(images, labels, key)[0])(KEYS[:400])
    is_cutmix = (np.ptp(np.asarray(mixed[:, 0]), axis=(1, 2, 3)) > 0).sum()
    assert 140 <= is_cutmix <= 240  # some rectangles are empty; four standard deviations are 40


@pytest.mark.parametrize("mixing", [Mixing(mixup=1.0), Mixing(cutmix=1.0)])
def test_padding_is_mixed_with_nothing(mixing):
    mask = np.float32([1, 1, 1, 0, 0, 0])
    batch = {"label": jnp.array(LABELS), "mask": jnp.array(mask)}
    images, mixed = mixing(jnp.array(IMAGES), batch, KEYS[1])
    np.testing.assert_allclose(images[2:], IMAGES[2:], rtol=1e-6)
    assert mixed["other_share"][0] > 0
    np.testing.assert_allclose(mixed["other_share"][2:], 0, atol=1e-6)


def test_mixup_weights_are_equal():
    weights = mixup_weights(KEYS[0], 0.4, (3, 5))
    assert weights.shape == (3, 5) and float(jnp.ptp(weights)) == 0.0


def test_an_odd_batch_is_refused():
    with pytest.raises(InputError, match="has 5 images, an odd number"):
        Mixing(mixup=1.0)(IMAGES[:5], {"label": jnp.array(LABELS[:5])}, KEYS[0])


@pytest.mark.parametrize(
    ("alphas", "message"),
    [
        ({"mixup": -0.1}, "mixup -0.1: its alpha must be 0"),
        ({"cutmix": float("nan")}, "cutmix nan: its alpha"),
        ({"mixup": 1.0, "cutmix": float("inf")}, "cutmix inf: its alpha"),
        ({}, "needs a positive alpha"),
    ],
)
def test_alphas_that_are_not_allowed(alphas, message):
    with pytest.raises(InputError, match=message):
        Mixing(**alphas)
