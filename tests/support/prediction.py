"""Networks, images and calls for the tests of `experiments.predict`."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from PIL import Image

from experiments import predict, run
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import detection, models, training


def train_checkpoint(results: Path) -> Path:
    """The checkpoint folder of a logistic regression, after two epochs on the digits."""
    options = ["--model=logistic", "--dataset=digits", "--epochs=2", "--batch-size=100"]
    assert run.main(["--study=train", "--device=cpu:1", *options, f"--results={results}"]) == 0
    (folder,) = (results / "train").glob("*.checkpoints")
    return folder


def save_checkpoint(folder: Path, name: str, model: nnx.Module, preprocessing: Preprocessing):
    """Writes a checkpoint of a network that was not trained; returns its folder."""
    state, _ = training.create(model, optax.sgd(0.1))
    identity = {"model": name, "inputs": preprocessing.to_json()}
    checkpoints = training.Checkpoints(folder, identity)
    checkpoints.save(state, None, training.History())
    checkpoints.close()
    return folder


class Detector(nnx.Module):
    """Returns the same detection for every image: its second of two classes, with a score of 0.75.

    The box is in the center of the square, half as wide and a quarter as high. In place of YOLOv2.
    """

    def __init__(self, input_shape, num_classes, *, rngs):
        prediction = np.full((5, 5 + num_classes), -20, np.float32)
        anchor = detection.VOC_ANCHORS[2]
        prediction[2, :5] = (0, 0, np.log(0.5 / anchor[0]), np.log(0.25 / anchor[1]), 20)
        prediction[2, 5:] = np.log([1, 3])
        self.bias = nnx.Param(jnp.asarray(prediction))

    def __call__(self, images):
        return jnp.tile(self.bias[...], (len(images), 1, 1, 1, 1)) + 0 * images.sum()


def save_detector(folder: Path) -> Path:
    """Writes a checkpoint of `Detector`, which must be in `models.MODELS` as ``detector``."""
    model = models.build("detector", num_classes=2, input_shape=(32, 32, 3))
    return save_checkpoint(folder, "detector", model, Preprocessing(32, 32, 3, ("a cat", "a dog")))


def write_noise(path: Path) -> Path:
    """Writes gray noise of 28×28 pixels, so that a network of that size needs no resampling."""
    pixels = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def printed(capsys, *arguments) -> str:
    """The output of a successful command."""
    capsys.readouterr()
    assert predict.main(["--device=cpu:1", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys, *arguments) -> str:
    """The single line on stderr of a command that refuses its input."""
    capsys.readouterr()
    assert predict.main(["--device=cpu:1", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error
