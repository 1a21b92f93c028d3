"""The keys are those of Flax, so that a seed means the same weights."""

import jax
import numpy as np
import pytest
from flax import nnx
from flax.errors import TraceContextError

from jaxcnn import models
from jaxcnn.models.random_streams import random_streams


def keys(rngs: nnx.Rngs) -> list[jax.Array]:
    """Keys of a named stream, of the default one, of a fork, and after a fork."""
    drawn = [rngs.params(), rngs(), rngs["dropout"].fork()(), rngs.params()]
    return [jax.random.key_data(key) for key in drawn]


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_keys_are_those_of_flax(transform):
    actual, expected = transform(lambda: (keys(random_streams(7)), keys(nnx.Rngs(7))))()
    np.testing.assert_array_equal(actual, expected)
    assert len({key.tobytes() for key in map(np.asarray, actual)}) == 4


def test_a_network_has_the_weights_that_flax_draws():
    network = models.build("lenet5", seed=3)
    spec = models.spec("lenet5")
    reference = spec.make(spec.input_shape, spec.num_classes, rngs=nnx.Rngs(3))
    actual, expected = (nnx.to_pure_dict(nnx.state(m, nnx.Param)) for m in (network, reference))
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_a_stream_of_another_trace_cannot_be_counted():
    rngs = random_streams(0)
    with pytest.raises(TraceContextError):
        jax.jit(lambda: rngs.params())()
