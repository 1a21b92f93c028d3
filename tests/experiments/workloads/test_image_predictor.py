"""Probabilities of a network's outputs."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.workloads.image_predictor import class_probabilities, top_classes


def test_a_single_logit_is_that_of_the_second_of_two_classes():
    logits = jnp.log(jnp.array([[3.0]]))  # a sigmoid of 3 / (3 + 1)
    probabilities = np.asarray(class_probabilities(logits))
    np.testing.assert_allclose(probabilities, [[0.25, 0.75]], rtol=1e-6)
    ((name, probability),) = top_classes(probabilities[0], ("cat", "dog"), 1)
    assert name == "dog" and probability == pytest.approx(0.75)
