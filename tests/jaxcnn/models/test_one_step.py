"""One train step of every network on small images, on one device and on eight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import parallel
from tests.support.small_networks import (
    EVERY_MODEL,
    SmallNetwork,
    build_without_repeats,
    small_network,
)

pytestmark = pytest.mark.standard_promotion  # the batch norm of Flax mixes dtypes

# The networks without dropout and batch norm, whose loss is the same in training and evaluation.
DETERMINISTIC = (
    "logistic",
    "lenet5",
    "lenet5_rbf",
    "lenet_like",
    "mnist_cnn",
    "cifar_tutorial",
)
# Tolerance of bfloat16 as a share of the largest output: 8 bits of mantissa, rounded once per
# layer, in up to 60 layers.
BFLOAT16 = 0.05
# Tolerance between the gradients of one and of eight devices, as a share of each layer's norm; 1 %
# for the other networks. Every batch norm amplifies rounding errors, with the random weights of the
# first step by about 5 %.
ROUNDING = dict.fromkeys(
    (
        "darknet19",
        "inception_resnet_v2",
        "inception_v4",
        "mobilenet_v2",
        "resnet50_cifar",
    ),
    0.05,
)


@pytest.mark.parametrize(
    ("name", "blocks"), [("resnet18", 7), ("resnet152", 8), ("wide_resnet28_10", 6)]
)
def test_the_networks_here_have_one_block_of_each_shape(name, blocks):
    """Those with a projection and those without, except for the first stage of ResNet-18."""
    model = nnx.eval_shape(lambda: build_without_repeats(name))
    assert len(model.blocks.layers) == blocks


@EVERY_MODEL
def test_one_step(name, devices):
    """Four properties of a train step.

    Every parameter has a gradient; eight devices compute what one computes; training and evaluation
    mode differ where there is dropout or batch norm; in bfloat16 every product is one of bfloat16,
    and the outputs agree with those in float32.
    """
    network = small_network(name)
    grads, metrics, model_state = network.train_step(parallel.strategy("jit", devices))
    for path, leaf in jax.tree.leaves_with_path(grads):
        assert np.isfinite(leaf).all() and np.any(leaf != 0), path
    assert_same_on_eight_devices(network, devices, grads, metrics, model_state)
    outputs, evaluation, _ = network.evaluate("float32")
    assert np.isfinite(outputs).all()
    modes_differ = abs(metrics["loss"] - evaluation["loss"]) > 1e-5 * evaluation["loss"]
    assert modes_differ == (name not in DETERMINISTIC)
    half, _, dtypes = network.evaluate("bfloat16")
    assert dtypes == {"bfloat16"}
    assert np.abs(half - outputs).max() <= BFLOAT16 * np.abs(outputs).max()


def assert_same_on_eight_devices(network: SmallNetwork, devices, grads, metrics, model_state):
    """Equal except for the order of sums, whose rounding every batch norm amplifies (`ROUNDING`).

    Statistics of a single device, or a lost share of the batch, change a gradient by half or more.
    """
    grads_of_8, metrics_of_8, model_state_of_8 = network.train_step(
        parallel.strategy("data", devices)
    )
    tolerance = ROUNDING.get(network.name, 0.01)
    assert metrics_of_8["loss"] == pytest.approx(metrics["loss"], rel=tolerance)
    # A bias before batch norm has a true gradient of zero; what rounding leaves of it is compared
    # with the largest gradient of all.
    floor = 1e-6 * max(np.linalg.norm(leaf) for leaf in jax.tree.leaves(grads))
    for expected, actual in ((grads, grads_of_8), (model_state, model_state_of_8)):
        for (path, one), eight in zip(
            jax.tree.leaves_with_path(expected), jax.tree.leaves(actual), strict=True
        ):
            if jnp.issubdtype(one.dtype, jnp.floating):
                difference = np.linalg.norm(one - eight)
                assert difference <= tolerance * np.linalg.norm(one) + floor, path
