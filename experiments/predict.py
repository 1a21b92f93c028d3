"""What a trained network sees in pictures: ``python -m experiments.predict --weights=FILE_OR_FOLDER PICTURE…``."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from experiments.cli import parse_options, run_command
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from experiments.workloads.load_weights import Saved
    from jaxcnn.detection import Detections
    from jaxcnn.parallel import Jit


@dataclass(frozen=True)
class PredictConfig:
    """Shows pictures to a trained network: prints the likeliest classes of each, or finds objects and draws their boxes."""

    pictures: tyro.conf.Positional[tuple[str, ...]]
    """Files, in any format that Pillow reads."""
    weights: str
    """A checkpoint folder of a study, a Darknet .weights file, or PyTorch's in a .safetensors file."""
    model: str | None = None
    """The network; a checkpoint knows its own, and a .weights file is taken for darknet19."""
    names: str | None = None
    """A text file with the names of the classes, one a line; a checkpoint knows its own."""
    image_size: int | None = None
    """Side of the images that the network gets; that of the checkpoint, or the published one, if not given."""
    top: int = 5
    """How many classes to print."""
    device: str = "auto"
    """cpu, gpu, tpu or auto."""
    output: str = "."
    """Folder for the pictures with boxes, PICTURE.boxes.png."""
    score: float = 0.24
    """Only boxes that score more, from 0 to 1."""

    def __post_init__(self):
        if not self.pictures:
            raise InputError(
                "give one or more pictures, as in: python -m experiments.predict --weights=FOLDER dog.jpg"
            )
        for name, value in (("image-size", self.image_size), ("top", self.top)):
            if value is not None and value < 1:
                raise InputError(f"--{name}={value}: must be 1 or more")
        if not 0 <= self.score < 1:
            raise InputError(f"--score={self.score}: must be 0 or more and less than 1")


def main(arguments: list[str] | None = None) -> int:
    """Prints what is seen; the exit codes are those of `experiments.run`."""
    return run_command(
        lambda console: _predict(
            parse_options(PredictConfig, "experiments.predict", arguments), console
        )
    )


def _predict(config: PredictConfig, console: "Console") -> int:
    from experiments.workloads import image_files
    from experiments.workloads.load_weights import open_saved
    from jaxcnn import backend, parallel

    for (
        file
    ) in config.pictures:  # all are looked at before the network is built, which takes its time
        image_files.read(file)
    devices = backend.select(config.device)
    saved = open_saved(config.weights, config.model, config.names, config.image_size)
    targets = _targets(config) if saved.detects else [None] * len(config.pictures)
    strategy = parallel.strategy("jit", devices.devices)
    began = time.perf_counter()
    ask = _compiled(saved, strategy, config.score)
    _announce(
        console, config, saved, str(strategy.devices[0].device_kind), time.perf_counter() - began
    )
    for file, target in zip(config.pictures, targets, strict=True):
        picture = image_files.read(file)
        found, seconds = _answer(ask, prepared(picture, saved), config.weights)
        if target is None:
            _print_classes(
                console, file, ranked(found[0], saved.preprocessing.classes, config.top), seconds
            )
        else:
            _print_boxes(console, file, picture, found.picture(0), seconds, saved, target)
    return 0


def prepared(picture: "np.ndarray", saved: "Saved") -> "np.ndarray":
    """A picture ``u8[h, w, 3]`` as the network's compiled program wants it, ``u8[resize, resize, channels]``.

    A detector sees it whole, in a grey square; a classifier of a study as in training, stretched to a square; another
    classifier its middle.
    """
    from experiments.workloads.image_files import letterboxed, middle
    from jaxcnn.data.source import fit

    if saved.detects:
        return letterboxed(picture, saved.preprocessing.size)
    return (
        fit(picture, saved.preprocessing.stored_shape)
        if saved.ours
        else middle(picture, saved.preprocessing.resize)
    )


def ranked(shares: "np.ndarray", names: Sequence[str], top: int) -> list[tuple[str, float]]:
    """The names of the largest shares and these, the largest first; equal ones in the order of the classes.

    >>> import numpy as np
    >>> ranked(np.array([0.125, 0.625, 0.25]), ("cat", "dog", "fox"), 2)
    [('dog', 0.625), ('fox', 0.25)]
    """
    order = (-shares).argsort(kind="stable")[:top]
    return [(names[label], float(shares[label])) for label in order]


def class_shares(logits: Any) -> Any:
    """Probabilities ``f32[N, classes]`` from a network's logits, a single one for two classes included."""
    import jax

    from jaxcnn import training

    return jax.nn.softmax(training.class_logits(logits))


def _compiled(saved: "Saved", strategy: "Jit", score: float) -> Callable:
    """Compiles what is asked of one picture: ``u8[H, W, C]`` to what was found, and whether the outputs were finite."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    from jaxcnn import detection, training

    preprocess = saved.preprocessing.make_preprocess()
    state, step = training.create(
        saved.model, optax.identity(), precision=saved.precision, preprocess=preprocess
    )
    state = strategy.place(state)

    def ask(state, images):
        outputs = step.evaluation.outputs(state, images)
        found = (
            detection.detect(outputs, score_threshold=score)
            if saved.detects
            else class_shares(outputs)
        )
        return found, jnp.isfinite(outputs).all()

    side, _, channels = (
        saved.preprocessing.network_shape if saved.detects else saved.preprocessing.stored_shape
    )
    blank = strategy.place_batch(np.zeros((1, side, side, channels), np.uint8))
    compiled = jax.jit(ask, compiler_options=strategy.options or None).lower(state, blank).compile()
    jax.block_until_ready(compiled(state, blank))
    return lambda image: compiled(state, strategy.place_batch(image[None]))


def _answer(ask: Callable, image: "np.ndarray", weights: str) -> tuple[Any, float]:
    """What was found and the seconds it took, the way to the device and back included."""
    import jax

    began = time.perf_counter()
    found, finite = jax.device_get(ask(image))
    seconds = time.perf_counter() - began
    if not finite:
        raise InputError(
            f"the network's outputs are no finite numbers: the weights in {weights} are damaged or of another network"
        )
    return found, seconds


def _targets(config: PredictConfig) -> list[Path]:
    """Where to save the pictures with boxes, none over a picture that was given, nor over another of them."""
    folder = Path(config.output).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    targets = [folder / f"{Path(file).stem}.boxes.png" for file in config.pictures]
    for number, target in enumerate(targets):
        if target in targets[:number]:
            raise InputError(
                f"two of the pictures would be saved as {target}: rename one, or give them in two runs"
            )
        if target.exists() and any(os.path.samefile(target, file) for file in config.pictures):
            raise InputError(
                f"{target} is one of the pictures and would be overwritten: choose another --output"
            )
    return targets


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path} ({error.strerror or error}): choose another --output")


def _announce(
    console: "Console", config: PredictConfig, saved: "Saved", device: str, seconds: float
) -> None:
    size, classes = saved.preprocessing.size, len(saved.preprocessing.classes)
    lines = {
        "network": f"{saved.name}, images of {size}×{size}, {classes:,} classes, from {config.weights}",
        "device": device,
        "compiled": f"in {seconds:.3f} s, once for all pictures",
    }
    for name, text in lines.items():
        console.print(f"{name:<9} {text}", highlight=False, markup=False, soft_wrap=True)


def _print_classes(
    console: "Console", file: str, rows: list[tuple[str, float]], seconds: float
) -> None:
    from experiments.report.terminal import print_predictions

    shown = [(f"{share:.2%}", name) for name, share in rows]
    print_predictions(console, f"{file}: {seconds:.4f} s", ("", "class"), shown)


def _print_boxes(
    console: "Console",
    file: str,
    picture: "np.ndarray",
    found: "Detections",
    seconds: float,
    saved: "Saved",
    target: Path,
) -> None:
    """Prints the boxes, in the picture's pixels, and saves the picture with them."""
    from experiments.report.terminal import print_predictions
    from experiments.workloads.image_files import corners, out_of_letterbox
    from jaxcnn import detection

    size, names = picture.shape[1::-1], saved.preprocessing.classes
    found = out_of_letterbox(found, size, saved.preprocessing.size)
    boxes = [tuple(map(str, box)) for box in corners(found.boxes, size)]
    shown = [
        (f"{score:.2%}", names[label], *box)
        for score, label, box in zip(found.scores, found.classes, boxes, strict=True)
    ]
    print_predictions(
        console, f"{file}: {seconds:.4f} s", ("", "class", "left", "top", "right", "bottom"), shown
    )
    drawn = detection.draw(picture, found, names)
    try:
        with target.open("wb") as opened:
            drawn.save(opened, "PNG")
    except OSError as error:
        raise _unwritable(target, error) from error
    console.print(f"boxes     {target}", highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
