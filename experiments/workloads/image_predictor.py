"""Runs a trained network on one image at a time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.workloads.image_files import center_crop, letterbox, undo_letterbox
from experiments.workloads.pretrained_model import PretrainedModel
from jaxcnn import detection, parallel, training
from jaxcnn.data.source import fit_image
from jaxcnn.detection import Detections


@dataclass(frozen=True)
class Prediction:
    """What a network returns for one image.

    Attributes:
      probabilities: of a classifier, ``f32[classes]``; else None.
      detections: of a detector, with boxes in fractions of the image; else None.
      is_finite: whether the network's outputs are finite.
      seconds: from the prepared image in host memory to the result in host memory.
    """

    probabilities: np.ndarray | None
    detections: Detections | None
    is_finite: bool
    seconds: float


class ImagePredictor:
    """A trained network, compiled for one image on one device.

    Attributes:
      device_kind: JAX's name of the device.
      compile_seconds: time of building, placing, compiling and running the program once.
    """

    def __init__(
        self, network: PretrainedModel, strategy: parallel.Strategy, score_threshold: float
    ):
        """Compiles the program.

        Args:
          network: the classifier or detector.
          strategy: ``jit`` on the device to use.
          score_threshold: a detector returns only boxes with a higher score.
        """
        start = time.perf_counter()
        self._network, self._strategy = network, strategy
        state, step = training.create(
            network.model,
            optax.identity(),
            precision=network.precision,
            preprocess=network.preprocessing.make_preprocess(),
        )
        self._state = strategy.place(state)

        def predict(state: training.TrainState, images: Array) -> tuple[Detections | Array, Array]:
            outputs = step.evaluation.outputs(state, images)
            result: Detections | Array
            if network.detects:
                result = detection.detect(outputs, score_threshold=score_threshold)
            else:
                result = class_probabilities(outputs)
            return result, jnp.isfinite(outputs).all()

        shape = network.preprocessing.stored_shape
        if network.detects:
            shape = network.preprocessing.network_shape
        blank = strategy.place_batch(np.zeros((1, *shape), np.uint8))
        jitted = jax.jit(predict, compiler_options=strategy.options or None)
        self._program = jitted.lower(self._state, blank).compile()
        jax.block_until_ready(self._program(self._state, blank))
        self.device_kind = str(strategy.devices[0].device_kind)
        self.compile_seconds = time.perf_counter() - start

    def __call__(self, image: np.ndarray) -> Prediction:
        """Predicts for an image ``u8[h, w, 3]`` of any size."""
        prepared = prepare_image(image, self._network)
        start = time.perf_counter()
        placed = self._strategy.place_batch(prepared[None])
        result, is_finite = jax.device_get(self._program(self._state, placed))
        seconds = time.perf_counter() - start
        if not self._network.detects:
            return Prediction(result[0], None, bool(is_finite), seconds)
        size, side = image.shape[1::-1], self._network.preprocessing.size
        detections = undo_letterbox(result.for_image(0), size, side)
        return Prediction(None, detections, bool(is_finite), seconds)


def prepare_image(image: np.ndarray, network: PretrainedModel) -> np.ndarray:
    """Brings an image to the size that the network's program takes.

    A detector gets the whole image in a gray square. A classifier from a checkpoint gets it
    stretched to a square, as in training; any other classifier gets its central square.

    Args:
      image: ``u8[h, w, 3]``.
      network: the classifier or detector.

    Returns:
      ``u8[side, side, channels]``.
    """
    preprocessing = network.preprocessing
    if network.detects:
        return letterbox(image, preprocessing.size)
    if network.from_checkpoint:
        return fit_image(image, preprocessing.stored_shape)
    return center_crop(image, preprocessing.resize)


def class_probabilities(logits: Array) -> Array:
    """Probabilities ``f32[N, classes]``; a single logit is that of the second of two classes."""
    return jax.nn.softmax(training.class_logits(logits))


def top_classes(
    probabilities: np.ndarray, names: Sequence[str], count: int
) -> list[tuple[str, float]]:
    """Names and probabilities of the likeliest classes, in descending order.

    Args:
      probabilities: ``f32[classes]``; classes of equal probability keep their order.
      names: of the classes.
      count: the number of classes to return.

    >>> top_classes(np.array([0.125, 0.625, 0.25]), ("cat", "dog", "fox"), 2)
    [('dog', 0.625), ('fox', 0.25)]
    """
    labels = (-probabilities).argsort(kind="stable")[:count]
    return [(names[label], float(probabilities[label])) for label in labels]
