"""A folder of the user's images with one sub-folder per class, or an example of one."""

from pathlib import Path

from experiments.colab import drive
from experiments.colab.cells import stopping
from experiments.colab.files import unpack

_PER_CLASS = 40  # images in the example


def image_folder(source: str, results: Path) -> Path:
    """The folder to train on.

    A zip file that was uploaded to Colab is kept on Google Drive, if the results are there, and
    found there by later sessions.

    Args:
      source: a folder or a zip file of one. If empty, 400 handwritten digits are saved in the
        folder ``images`` next to the notebook.
      results: the results folder.

    Raises:
      Stopped: there is no such folder or zip file.
    """
    if not source:
        return _write_digits(Path("images"))
    place = drive.find(source, results)
    if place.is_dir():
        return place
    folder = _skip_single_folders(unpack(place))
    drive.keep(place, results)
    return folder


def _skip_single_folders(folder: Path) -> Path:
    """Descends through folders that contain nothing but one folder, as is usual in zip files."""
    inside = [path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    is_single = len(inside) == 1 and inside[0].is_dir()
    return _skip_single_folders(inside[0]) if is_single else folder


def _write_digits(folder: Path) -> Path:
    """Saves the package's digits as PNG files of 32×32 pixels; always the same ones."""
    from PIL import Image

    from jaxcnn.data import digits

    if folder.is_dir():
        return folder
    (images, labels), partial = digits.read(), Path(f".{folder.name}.partial")
    for label in range(10):
        place = partial / str(label)
        place.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images[labels == label][:_PER_CLASS]):
            Image.fromarray(image).resize((32, 32)).save(place / f"{number:02}.png")
    return partial.rename(folder)  # last, so that an incomplete folder is not used


def one_of_each(folder: Path) -> list[Path]:
    """One image of each class, by class, to try a network on that was trained on the folder.

    All are from the test set, which the network has not seen. Classes that have no image in the
    test set are left out and named.

    Args:
      folder: as `image_folder` returns it.

    Raises:
      Stopped: the folder cannot be trained on; see `jaxcnn.data.folder.load`.
    """
    from jaxcnn import data
    from jaxcnn.data.folder import FolderSplit

    # Had there been unreadable images without --skip-bad-images, the training would have failed.
    with stopping():
        dataset = data.open_dataset(f"folder:{folder}", shape=(1, 1, 3), skip_bad_images=True)
    test = dataset.test
    split, rows = (test.split, test.rows) if isinstance(test, data.Subset) else (test, None)
    assert isinstance(split, FolderSplit)
    first: dict[int, Path] = {}
    for row in range(len(split)) if rows is None else rows:
        first.setdefault(split.labels[row], Path(split.files[row]))
    if missing := [name for label, name in enumerate(dataset.classes) if label not in first]:
        print(f"no test image of: {', '.join(missing)}")
    return [first[label] for label in sorted(first)]
