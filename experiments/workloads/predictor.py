"""A trained network that is ready to predict, in float32, bfloat16 or 8-bit integers."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from experiments.config import RunConfig
from experiments.measure.timing import Compiled, compile_program
from experiments.workloads.reading import evenly_spaced
from experiments.workloads.trained_model import TrainedModel, load_or_train, read_rows
from jaxcnn.backend import Backend
from jaxcnn.parallel.options import compiler_options
from jaxcnn.quantize import quantize, quantized_layers

# The dtype of everything that is not in 8-bit integers.
PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "int8": jnp.float32}
CALIBRATION_IMAGES = 256  # training images from which the ranges of int8 are taken
TEST_BATCH_SIZE = 32  # one of the measured batch sizes, so that its program is compiled once


@dataclass(frozen=True)
class Predictor:
    """A network in one precision.

    Attributes:
      predict: ``predict(state, images: u8[N, h, w, C])`` returns logits ``f32[N, classes]``.
      state: parameters and running statistics, on the device.
      accuracy: on the test images.
      model_bytes: of parameters, running statistics, integers and their scales.
      quantized_layers: the names of the layers in 8-bit integers.
    """

    predict: Callable[[Any, Array], Array]
    state: Any
    accuracy: float
    model_bytes: int
    quantized_layers: tuple[str, ...]

    def compile(self, images: Array) -> Compiled:
        """Compiles the prediction of a batch of images that lie on the device."""
        return _compile(self.predict, self.state, images)


@functools.lru_cache(maxsize=len(PRECISIONS))
def load_predictor(precision: str, config: RunConfig, backend: Backend) -> Predictor:
    """Loads or trains a network, converts it to a precision and tests it.

    The predictors of all precisions are cached, so that the cases of a study share them.

    Args:
      precision: one of `PRECISIONS`.
      config: defaults filled in; see `trained_model.load_or_train`.
      backend: its first device is used.
    """
    trained, dtype = load_or_train(config, backend), PRECISIONS[precision]
    preprocess = trained.preprocessing.make_preprocess()
    model = trained.model
    model.eval()
    if precision == "int8":
        model = quantize(model, preprocess(jnp.asarray(_calibration_images(trained)), None))
    graph, *states = nnx.split(model, nnx.Param, ...)
    params, rest = map(nnx.to_pure_dict, states)
    params = jax.tree.map(lambda weights: weights.astype(dtype), params)
    device = backend.devices[0]
    state = jax.device_put((params, rest), device)

    @jax.jit
    def predict(state, images):
        predictions = nnx.merge(graph, *state, copy=True)(preprocess(images, None).astype(dtype))
        return predictions.astype(jnp.float32)

    return Predictor(
        predict=predict,
        state=state,
        accuracy=_test_accuracy(predict, state, trained, device),
        model_bytes=_model_bytes(model, params),
        quantized_layers=quantized_layers(model),
    )


def compute_dtype(precision: str, platform: str) -> str:
    """The dtype that a platform computes in; a CPU computes 8-bit integers in float32.

    See `jaxcnn.quantize.products`.

    >>> compute_dtype("int8", "cpu"), compute_dtype("int8", "tpu")
    ('float32', 'int8')
    """
    return "float32" if (precision, platform) == ("int8", "cpu") else precision


def _calibration_images(trained: TrainedModel) -> np.ndarray:
    """Training images, evenly spaced, ``u8[N, h, w, C]``."""
    rows = evenly_spaced(len(trained.train), CALIBRATION_IMAGES)
    return read_rows(trained.train, rows, trained.preprocessing)[0]


def _compile(predict: Callable[[Any, Array], Array], state: Any, images: Array) -> Compiled:
    platform = next(iter(images.devices())).platform
    return compile_program(predict, state, images, compiler_options=compiler_options(platform))


def _test_accuracy(
    predict: Callable[[Any, Array], Array], state: Any, trained: TrainedModel, device: jax.Device
) -> float:
    """Accuracy on the test images, by one program: the last image pads the last batch."""
    correct, count = 0, len(trained.test)
    zeros = np.zeros((TEST_BATCH_SIZE, *trained.preprocessing.stored_shape), np.uint8)
    program = _compile(predict, state, jax.device_put(zeros, device)).executable
    for start in range(0, count, TEST_BATCH_SIZE):
        rows = np.minimum(np.arange(start, start + TEST_BATCH_SIZE), count - 1)
        images, labels = read_rows(trained.test, rows, trained.preprocessing)
        predictions = np.argmax(program(state, jax.device_put(images, device)), -1)
        correct += int(np.sum((predictions == labels)[: count - start]))
    return correct / count


def _model_bytes(model: nnx.Module, params: Any) -> int:
    """Bytes of what inference needs; random keys are not needed."""
    others = nnx.state(model, nnx.Not(nnx.Any(nnx.Param, nnx.RngState)))
    return sum(leaf.nbytes for leaf in jax.tree.leaves((params, others)))
