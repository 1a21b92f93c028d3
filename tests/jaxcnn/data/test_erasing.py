"""Random erasing: how often, how large, of which shape, and with what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.data.erasing import AREAS, random_erasing

KEYS = jax.random.split(jax.random.key(0), 1000)


@pytest.fixture(scope="module")
def results() -> np.ndarray:
    """1000 results for a black image of 60×40."""
    return np.asarray(jax.jit(jax.vmap(random_erasing, (None, 0)))(jnp.zeros((60, 40, 1)), KEYS))


def boxes(results: np.ndarray) -> np.ndarray:
    """Height, width and number of pixels of what is not black in each image that has any."""
    rows = []
    for image in results[..., 0] > 0:
        if image.any():
            rows.append((image.any(1).sum(), image.any(0).sum(), image.sum()))
    return np.array(rows)


def test_about_half_of_the_images_are_erased(results):
    assert 440 <= len(boxes(results)) <= 560  # four standard deviations are 63


def test_the_erased_part_is_a_rectangle_of_the_papers_area_and_shape(results):
    heights, widths, counts = boxes(results).T
    np.testing.assert_array_equal(heights * widths, counts)
    shares = counts / (60 * 40)
    assert shares.min() > AREAS[0] * 0.6 and shares.max() < AREAS[1] * 1.1  # whole pixels
    assert shares.mean() == pytest.approx(0.21, abs=0.02)
    ratios = np.log(widths / heights)
    assert np.exp(np.abs(ratios).max()) < 10 / 3 * 1.25
    assert (ratios < 0).mean() == pytest.approx(0.57, abs=0.12)  # tall ones fit into a tall image


def test_it_is_erased_by_uniform_noise_and_the_rest_stays(results):
    noise = results[results > 0]
    assert noise.min() >= 0 and noise.max() < 1
    assert noise.mean() == pytest.approx(0.5, abs=0.01)
    assert noise.std() == pytest.approx(np.sqrt(1 / 12), abs=0.01)
    image = jnp.array(np.random.default_rng(0).random((12, 12, 3)), jnp.float32)
    erased = np.asarray(random_erasing(image, KEYS[0], probability=1.0))
    same = (erased == np.asarray(image)).all(-1)
    assert 0 < same.sum() < 144


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_the_probability(probability):
    erase = jax.jit(jax.vmap(lambda key: random_erasing(jnp.zeros((9, 9, 1)), key, probability)))
    assert (np.asarray(erase(KEYS[:50])).any((1, 2, 3)) == bool(probability)).all()
