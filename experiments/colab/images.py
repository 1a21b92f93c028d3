"""A folder of the user's images with one sub-folder per class, or an example of one."""

from pathlib import Path

from experiments.colab.cells import Stopped
from experiments.colab.files import unpack

_PER_CLASS = 40  # images in the example


def image_folder(source: str) -> Path:
    """The folder to train on.

    Args:
      source: a folder or a zip file of one. If empty, 400 handwritten digits are saved in the
        folder ``images`` next to the notebook.

    Raises:
      Stopped: there is no such folder or zip file.
    """
    if not source:
        return _write_digits(Path("images"))
    place = Path(source).expanduser()
    return place if place.is_dir() else _skip_single_folders(unpack(place))


def _skip_single_folders(folder: Path) -> Path:
    """Descends through folders that contain nothing but one folder, as is usual in zip files."""
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    is_single = len(inside) == 1 and inside[0].is_dir()
    return _skip_single_folders(inside[0]) if is_single else folder


def _write_digits(folder: Path) -> Path:
    """Saves scikit-learn's digits as PNG files of 32×32 pixels; always the same ones."""
    from PIL import Image
    from sklearn.datasets import load_digits

    if folder.is_dir():
        return folder
    digits, partial = load_digits(), Path(f".{folder.name}.partial")
    for label in range(10):
        place = partial / str(label)
        place.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(digits.images[digits.target == label][:_PER_CLASS]):
            pixels = (image * (255 / 16)).astype("uint8")  # published as 0 to 16
            Image.fromarray(pixels).resize((32, 32)).save(place / f"{number:02}.png")
    return partial.rename(folder)  # last, so that an incomplete folder is not used


def sample_images(folder: Path, *, classes: int = 3) -> list[Path]:
    """One image of each of the first few classes, to try a network on.

    Raises:
      Stopped: the folder contains no images in sub-folders.
    """
    from PIL import Image

    suffixes = Image.registered_extensions()
    class_folders = sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    images: list[Path] = []
    for class_folder in class_folders[:classes]:
        files = sorted(class_folder.rglob("*"))
        images += [file for file in files if file.suffix.lower() in suffixes][:1]
    if not images:
        raise Stopped(f"{folder} contains no images in sub-folders, one per class")
    return images
