"""Classifies images, or detects objects in them, with a trained network.

``python -m experiments.predict --weights=FILE_OR_FOLDER IMAGE…``
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from experiments.cli import OK, OptionalInt, OptionalStr, parse_options, print_start, run_command
from experiments.config import bounds
from experiments.interrupts import exit_with
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from experiments.workloads.image_predictor import ImagePredictor, Prediction
    from experiments.workloads.pretrained_model import PretrainedModel
    from jaxcnn.backend import Backend
    from jaxcnn.detection import Detections


@dataclass(frozen=True)
class PredictConfig:
    """Classifies images with a trained network, or detects objects and draws their boxes."""

    images: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="IMAGE …", help_behavior_hint="")]
    ]
    """Image files, as JPEG, PNG, WEBP, TIFF, BMP, GIF, PPM, TGA or JPEG 2000."""
    weights: str
    """A checkpoint folder of a study, a Darknet .weights file, or a .safetensors file of PyTorch or
    of `experiments.export`."""
    model: OptionalStr = None
    """The network; default: that of the checkpoint or of the exported file, or darknet19 for a
    .weights file. Of a network of your own, where it is now: ./file.py:Factory."""
    names: OptionalStr = None
    """A text file with the names of the classes, one per line; default: the checkpoint's."""
    image_size: OptionalInt = None
    """Side of the images that the network gets; default: the checkpoint's, or the published one."""
    top: int = 5
    """Number of classes to print."""
    device: str = "auto"
    """cpu, gpu, tpu or auto."""
    output: str = "."
    """Folder for the images with boxes, IMAGE.boxes.png."""
    results: OptionalStr = None
    """Folder for a record of the time of an image; default: none is written."""
    score: float = 0.24
    """Show only boxes with a higher score, from 0 to 1."""

    def __post_init__(self):
        if not self.images:
            raise InputError(
                "give one or more images, as in: "
                "python -m experiments.predict --weights=FOLDER dog.jpg"
            )
        if self.image_size is not None:
            bounds.require_count("image_size", self.image_size)
        if not 1 <= self.top <= bounds.MAX_CLASSES:
            raise InputError(f"--top={self.top}: must be from 1 to {bounds.MAX_CLASSES}")
        if not 0 <= self.score < 1:
            raise InputError(f"--score={self.score}: must be 0 or more and less than 1")


def main(arguments: list[str] | None = None) -> int:
    """Prints the predictions; returns an exit code of `experiments.cli`."""
    return run_command(
        lambda console: _predict(
            parse_options(PredictConfig, "experiments.predict", arguments), console
        )
    )


def _predict(config: PredictConfig, console: "Console") -> int:
    print_start(f"--weights={config.weights}")
    from experiments import records
    from experiments.workloads import box_files, image_files
    from experiments.workloads.image_predictor import ImagePredictor
    from experiments.workloads.load_weights import load_pretrained
    from jaxcnn import backend, parallel

    if config.results is not None:
        records.prepare_folder(config.results)
    for file in config.images:  # unreadable files are reported before the network is built
        image_files.read(file)
    selected = backend.select(config.device)
    network = load_pretrained(config.weights, config.model, config.names, config.image_size)
    files = box_files.choose(config.images, config.output) if network.detects else []
    predictor = ImagePredictor(network, parallel.strategy("jit", selected.devices), config.score)
    _print_network(console, config, network, predictor)
    classes, seconds = network.preprocessing.classes, []
    for number, file in enumerate(config.images):
        image = image_files.read(file)
        prediction = predictor(image)
        _require_finite(prediction, config)
        seconds.append(prediction.seconds)
        title = f"{file}: {prediction.seconds:.4f} s"
        if prediction.detections is None:
            _print_classes(console, title, prediction.probabilities, classes, config.top)
        else:
            _print_boxes(console, title, prediction.detections, classes, image.shape[1::-1])
            box_files.save(image, prediction.detections, classes, files[number])
            line = f"boxes     {files[number]}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if config.results is not None:
        _write_record(config.results, network, predictor, selected, seconds)
    return OK


def _write_record(
    results: str,
    network: "PretrainedModel",
    predictor: "ImagePredictor",
    backend: "Backend",
    seconds: list[float],
) -> None:
    """Writes the median time of an image, as a case of the study `predict`, which is this program.

    Args:
      results: the folder.
      network, predictor: what was run.
      backend: where.
      seconds: of each image.
    """
    from experiments import records
    from experiments.records import provenance
    from jaxcnn import models

    label, size = models.label(network.name), network.preprocessing.size
    record = records.Record(
        study="predict",
        case=f"{label}-{network.precision}-{size}",
        status="ok",
        settings={
            "model": label,
            "precision": network.precision,
            "batch_size": 1,
            "image_size": size,
        },
        metrics={
            "call_time": statistics.median(seconds),
            "compile_time": predictor.compile_seconds,
        },
        samples={"call_time": seconds},
        provenance=provenance.describe(backend) | {"strategy_devices": 1},
    )
    records.write(record, records.prepare_folder(results))


def _require_finite(prediction: "Prediction", config: PredictConfig) -> None:
    if not prediction.is_finite:
        raise InputError(
            f"the network's outputs are not finite: the weights in {config.weights} are damaged or "
            "of another network"
        )


def _print_network(
    console: "Console",
    config: PredictConfig,
    network: "PretrainedModel",
    predictor: "ImagePredictor",
) -> None:
    from jaxcnn import models

    size, classes = network.preprocessing.size, len(network.preprocessing.classes)
    lines = {
        "network": f"{models.label(network.name)}, images of {size}×{size}, {classes:,} classes, "
        f"from {config.weights}",
        "device": predictor.device_kind,
        "compiled": f"in {predictor.compile_seconds:.3f} s, once for all images",
        **{f"note {number}": note for number, note in enumerate(network.notes, 1)},
    }
    for name, text in lines.items():
        console.print(f"{name:<9} {text}", highlight=False, markup=False, soft_wrap=True)


def _print_classes(
    console: "Console",
    title: str,
    probabilities: "np.ndarray",
    classes: Sequence[str],
    count: int,
) -> None:
    from experiments.report.terminal import print_predictions
    from experiments.workloads.image_predictor import top_classes

    best = top_classes(probabilities, classes, count)
    rows = [(f"{probability:.2%}", name) for name, probability in best]
    print_predictions(console, title, ("", "class"), rows)


def _print_boxes(
    console: "Console",
    title: str,
    detections: "Detections",
    classes: Sequence[str],
    size: tuple[int, int],
) -> None:
    """Prints the boxes in pixels of an image of this width and height."""
    from experiments.report.terminal import print_predictions
    from experiments.workloads.image_files import pixel_corners

    corners = pixel_corners(detections.boxes, size)
    rows = [
        (f"{score:.2%}", classes[label], *map(str, box))
        for score, label, box in zip(detections.scores, detections.classes, corners, strict=True)
    ]
    headings = ("", "class", "left", "top", "right", "bottom")
    print_predictions(console, title, headings, rows)


if __name__ == "__main__":
    exit_with(main())
