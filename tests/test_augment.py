import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcnn.data.augment import flip, prepare, shift
from jaxcnn.errors import InputError

KEYS = jax.random.split(jax.random.key(0), 200)


def test_flip_turns_about_half_of_the_images():
    image = jnp.array([[1.0, 2.0]])[..., None]
    turned = [tuple(flip(image, key).ravel().tolist()) for key in KEYS]
    assert set(turned) == {(1.0, 2.0), (2.0, 1.0)}
    assert 70 <= turned.count((2.0, 1.0)) <= 130  # four standard deviations are 28


def test_shift_moves_by_up_to_an_eighth_each_way_and_zeros_move_in():
    image = jnp.zeros((16, 8, 1)).at[8, 4, 0].set(1.0)
    places = {tuple(int(i) for i in np.argwhere(shift(image, key)[..., 0])[0]) for key in KEYS}
    assert places == {(8 + i, 4 + j) for i in range(-2, 3) for j in range(-1, 2)}
    assert float(shift(jnp.ones((16, 8, 1)), KEYS[0]).min()) == 0.0


def test_evaluation_is_not_augmented_but_normalised():
    images = jnp.array([0, 51, 255], jnp.uint8).reshape(1, 1, 3, 1)
    prepared = prepare(("flip", "shift"), mean=(0.2,), std=(0.4,))(images, None)
    np.testing.assert_allclose(prepared.ravel(), [-0.5, 0.0, 2.0], atol=1e-6)


def test_examples_are_drawn_independently():
    images = jnp.tile(jnp.arange(64, dtype=jnp.uint8).reshape(1, 8, 8, 1), (200, 1, 1, 1))
    assert len(np.unique(prepare(("shift",))(images, KEYS), axis=0)) == 9


def test_an_unknown_augmentation_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'shift'"):
        prepare(("shfit",))
