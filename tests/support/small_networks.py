"""Every network without repeated blocks, on small images: quick to compile and to run."""

import functools
import math
import re
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from experiments.measure.flops import product_dtypes
from jaxcnn import detection, models, parallel, training
from jaxcnn.models import densenet

BATCH_SIZE = 8
# The networks whose step takes more than a few seconds to compile; their tests are marked slow.
LARGE = (
    "alexnet",
    "cats_vs_dogs",
    "googlenet_aux",
    "resnet18",
    "vgg11",
    "resnet50",
    "resnet50_cifar",
    "inception_v4",
    "inception_resnet_v2",
    "googlenet",
    "vgg16",
    "darknet19",
    "yolov2",
    "resnext50_32x4d",
    "wide_resnet28_10",
    "squeezenet1_1",
    "densenet121",
    "mobilenet_v2",
    "shufflenet_v2",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "regnet_y_400mf",
    "efficientnet_v2_s",
    "convnext_tiny",
)
# Those that without repeated blocks are another network, which comes before them in the table.
DEEPER = ("resnet34", "resnet101", "resnet152", "vgg19")
EVERY_MODEL = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else [])
        for name in models.MODELS
        if name not in DEEPER
    ],
)
# Sides of the images; the networks not listed take images of their published size.
SIDES = {
    "cats_vs_dogs": 72,
    "darknet19": 64,
    "alexnet": 67,
    "vgg11": 32,
    "vgg16": 32,
    "googlenet": 48,
    "googlenet_aux": 80,
    "resnet18": 48,
    "resnet50": 48,
    "inception_v4": 112,
    "inception_resnet_v2": 80,
    "yolov2": 64,
    "resnext50_32x4d": 48,
    "wide_resnet28_10": 16,
    "squeezenet1_1": 48,
    "densenet121": 64,
    "mobilenet_v2": 64,
    "shufflenet_v2": 64,
    "mobilenet_v3_large": 64,
    "efficientnet_b0": 64,
    "regnet_y_400mf": 64,
    "efficientnet_v2_s": 48,
    "convnext_tiny": 64,
}
# The last scales of the residual branches.
RESIDUAL_BRANCH = re.compile(r"(blocks|stages).*(conv2|conv3|project|norm2|layer_scale)")

# Keeps the gradients as its state, initially of scalars, and updates nothing.
RECORD_GRADIENTS = optax.GradientTransformation(
    lambda params: jax.tree.map(lambda _: jnp.zeros(()), params),
    lambda grads, state, params=None: (jax.tree.map(jnp.zeros_like, grads), grads),
)


@dataclass(frozen=True)
class SmallNetwork:
    """A network on small images, with random weights from NumPy, biases and scales included."""

    name: str
    model: nnx.Module
    batch: dict[str, np.ndarray]

    def create(self, precision: str) -> tuple[training.TrainState, training.TrainStep]:
        """The train state and a step that keeps its gradients as the optimizer state."""
        options: dict[str, Any] = {}
        if models.spec(self.name).detects:
            options["objective"] = detection.region_objective
        return training.create(self.model, RECORD_GRADIENTS, precision=precision, **options)

    def train_step(self, strategy: parallel.Strategy):
        """Gradients, mean metrics and next model state of one float32 train step."""
        state, step = self.create("float32")
        state, metrics = strategy.compile(step)(
            strategy.place(state), strategy.place_batch(self.batch)
        )
        state = strategy.fetch(state)
        return state.opt_state, training.means(jax.device_get(metrics)), state.model_state

    def evaluate(self, precision: str) -> tuple[np.ndarray, dict[str, float], set[str]]:
        """Outputs and mean metrics in evaluation mode, and the dtypes of all products."""
        state, step = self.create(precision)
        infer = jax.jit(step.evaluation.outputs)
        outputs = infer(state, self.batch["image"])
        metrics = step.network.objective(outputs, self.batch)
        dtypes = set(product_dtypes(infer, state, self.batch["image"]))  # not traced again
        return np.asarray(outputs), training.means(jax.device_get(metrics)), dtypes


@functools.lru_cache(maxsize=1)  # the large ones take gigabytes
def small_network(name: str) -> SmallNetwork:
    """The network called `name` with a batch of 8 random images, for at most ten classes.

    See `build_without_repeats` for what is left out.
    """
    spec, rng = models.spec(name), np.random.default_rng(0)
    side = SIDES.get(name, spec.input_shape[0])
    shape = (side, side, spec.input_shape[2])
    classes = min(spec.num_classes, 10)
    model = nnx.eval_shape(
        lambda: build_without_repeats(name, num_classes=classes, input_shape=shape)
    )
    graphdef, state = nnx.split(model)
    model = nnx.merge(graphdef, jax.tree.map_with_path(functools.partial(_draw, rng), state))
    batch = {
        "image": rng.random((BATCH_SIZE, *shape), np.float32),
        "label": rng.integers(0, classes, BATCH_SIZE, np.int32),
    }
    if spec.detects:
        boxes = rng.uniform(0.3, 0.6, (BATCH_SIZE, 2, 4)).astype(np.float32)
        batch |= {"boxes": boxes, "label": rng.integers(0, classes, (BATCH_SIZE, 2), np.int32)}
    return SmallNetwork(name, model, batch)


def build_without_repeats(name: str, **options) -> nnx.Module:
    """The network without the blocks that have the type and the shapes of the one before them.

    A repeated block takes as long to compile as the first one, and is computed by the same code. So
    ResNet-152 has eight blocks. In a dense block no layer repeats another; each has two.
    """
    with mock.patch.object(densenet, "DENSENET121", (2, 2, 2, 2)):
        model = models.build(name, **options)
    for _, module in nnx.iter_graph(model):
        if isinstance(module, nnx.Sequential):
            kinds = [(type(layer), _shapes(layer)) for layer in module.layers]
            pairs = zip(module.layers, kinds, [None, *kinds], strict=False)
            module.layers = nnx.List(
                layer for layer, kind, before in pairs if kind != before or not kind[1]
            )
    return model


def _shapes(layer: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of a layer's arrays; none for a function."""
    leaves = jax.tree.leaves_with_path(nnx.state(layer)) if isinstance(layer, nnx.Module) else []
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves}


def _draw(rng: np.random.Generator, path, leaf):
    """Kernels as He et al. 2015 draw them, biases around 0, scales and variances around 1.

    Keys and counters have their initial values.
    """
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    if leaf.dtype != jnp.float32:
        return jnp.zeros(leaf.shape, leaf.dtype)
    normal = rng.standard_normal(leaf.shape, np.float32)
    name = jax.tree_util.keystr(path)
    if "scale" in name and RESIDUAL_BRANCH.search(name):
        # The residual branches add little: otherwise rounding errors double in every block.
        return jnp.asarray(0.2 * np.exp(0.1 * normal))
    if leaf.ndim > 1:
        return jnp.asarray(normal * math.sqrt(2 / math.prod(leaf.shape[:-1])))
    around_zero = "bias" in name or "mean" in name
    return jnp.asarray(0.1 * normal if around_zero else np.exp(0.1 * normal))
