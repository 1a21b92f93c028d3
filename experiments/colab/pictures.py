"""A folder of one's own pictures, a sub-folder a class; or one made here, for who has none at hand."""

from pathlib import Path

from experiments.colab.cells import Stopped
from experiments.colab.files import unpacked

_EACH = 40  # pictures of a class


def pictures(source: str) -> Path:
    """The folder to train on.

    Args:
      source: a folder, a zip file of one, or nothing: then 400 handwritten digits are made beside the notebook.

    Raises:
      Stopped: there is no such folder or zip file.
    """
    if not source:
        return _digits(Path("pictures"))
    place = Path(source).expanduser()
    return place if place.is_dir() else _innermost(unpacked(place))


def _innermost(folder: Path) -> Path:
    """Past folders that hold nothing but one folder, as zip files often begin."""
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return _innermost(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder


def _digits(folder: Path) -> Path:
    """Scikit-learn's digits as PNG files of 32×32 pixels, always the same."""
    from PIL import Image
    from sklearn.datasets import load_digits

    if folder.is_dir():
        return folder
    raw, partial = load_digits(), Path(f".{folder.name}.partial")
    for label in range(10):
        place = partial / str(label)
        place.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(raw.images[raw.target == label][:_EACH]):
            pixels = (image * (255 / 16)).astype("uint8")  # published as 0 to 16
            Image.fromarray(pixels).resize((32, 32)).save(place / f"{number:02}.png")
    return partial.rename(folder)  # so that half a folder is never taken for a whole one


def one_of_each(folder: Path, *, classes: int = 3) -> list[Path]:
    """A picture of each of the first few classes, to try a network on; raises `Stopped` where there is none."""
    from PIL import Image

    endings = Image.registered_extensions()
    parts = sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )[:classes]
    found = [
        next((file for file in sorted(part.rglob("*")) if file.suffix.lower() in endings), None)
        for part in parts
    ]
    if not any(found):
        raise Stopped(f"{folder} holds no pictures in sub-folders, one a class")
    return [file for file in found if file]
