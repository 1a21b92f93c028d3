"""Images into which boxes are drawn: the files that they are saved as, and drawing them."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments import output_files
from jaxcnn import detection
from jaxcnn.detection import Detections
from jaxcnn.errors import InputError


def choose(images: Sequence[str], output: str) -> list[Path]:
    """Where to save the images with boxes.

    Args:
      images: the files of the images.
      output: a folder, which is created.

    Raises:
      InputError: a file would replace one of the input images, or another image with boxes.
    """
    folder = Path(output).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    files = [folder / f"{Path(image).stem}.boxes.png" for image in images]
    for number, file in enumerate(files):
        if file in files[:number]:
            raise InputError(
                f"two of the images would be saved as {file}: rename one of them, or give them in "
                "two runs"
            )
        if file.exists() and any(os.path.samefile(file, image) for image in images):
            raise InputError(
                f"{file} is one of the images and would be overwritten: choose another --output"
            )
    return files


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path} ({error.strerror or error}): choose another --output")


def save(image: np.ndarray, detections: Detections, classes: Sequence[str], file: Path) -> None:
    """Draws the boxes into the image and saves it."""
    content = io.BytesIO()
    detection.draw(image, detections, classes).save(content, "PNG")
    output_files.write(file, content.getvalue(), "--output")
