"""Datasets in a folder of image files, with a sub-folder for each class."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from jaxcnn import content_digests
from jaxcnn.data.source import Dataset, Example, Shape, Split, hold_out
from jaxcnn.errors import InputError, first_line

# Pillow decodes these itself; others, such as EPS, start programs that a file could control.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
MAX_PIXELS = 89_478_485  # of one image, 268 MB when decoded; from there on Pillow warns
_TEST_FOLDERS = ("test", "validation", "val")  # in order of preference


@dataclass(frozen=True)
class FolderSplit:
    """Image files and their labels; decodes the files on each read."""

    files: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return [(read_rgb(self.files[row]), self.labels[row]) for row in rows]


def read_rgb(file: str | os.PathLike) -> np.ndarray:
    """Reads an image of any mode, in one of `FORMATS`, whatever the ending of its name.

    Applies the EXIF orientation, and composites transparent images over white.

    Returns:
      ``u8[h, w, 3]``.

    Raises:
      ValueError: the image has more than `MAX_PIXELS`, or pixels that are not finite.
      OSError, ValueError, SyntaxError: what Pillow raises for a file that it cannot read.
    """
    Image.init()  # registers all formats, once
    try:
        stored = Image.open(file, formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error).partition(",")[0]) from error
    with stored:
        if stored.width * stored.height > MAX_PIXELS:
            raise ValueError(
                f"{stored.width}×{stored.height} pixels are more than {MAX_PIXELS / 1e6:.0f} "
                "million; scale it down"
            )
        image = ImageOps.exif_transpose(stored)
        # Wider than a byte: Pillow's convert would clip these modes instead of scaling them.
        if image.mode.startswith("I") or image.mode == "F":
            gray = _to_bytes(np.asarray(image, np.float64), image.mode)
            return np.repeat(gray[..., None], 3, axis=2)
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.asarray(image.convert("RGB"))


def _to_bytes(values: np.ndarray, mode: str) -> np.ndarray:
    """Scales 16-bit and integer images from 0 … 65535 to bytes, floating-point ones from 0 … 1.

    A floating-point image with a value above 1 is taken as 0 … 255.
    """
    if not np.isfinite(values).all():
        raise ValueError("it has pixels that are not finite numbers")
    scale = 65535.0 if mode.startswith("I") else 1.0 if values.max() <= 1 else 255.0
    return np.rint(np.clip(values / scale, 0, 1) * 255).astype(np.uint8)


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Opens the images in ``PATH/CLASS/…``, or in ``PATH/train/CLASS/…`` and ``PATH/test/CLASS/…``.

    ``validation`` or ``val`` replaces a missing ``test``. Without a test folder, a fixed random
    fifth of the images is the test set. Each file is decoded once here, so that an unreadable one
    is reported before training.

    Args:
      argument: ``PATH``.
      shape: not used; images keep their size.
      data_dir: not used.
      skip_bad: leaves out unreadable files instead of raising.

    Raises:
      InputError: no such folder, no images, fewer than two classes, a class without images, or
        unreadable files.
    """
    train_folder, *test_folders = _split_folders(argument)
    classes = _class_names(train_folder)
    splits, notes = [], []
    for folder in (train_folder, *test_folders[:1]):
        if _class_names(folder) != classes:
            raise InputError(
                f"dataset 'folder:{argument}': {folder} has the classes {_class_names(folder)}, "
                f"but the training folder has {classes}"
            )
        split, skipped = _open_split(folder, classes, skip_bad)
        splits.append(split)
        if skipped:
            notes.append(f"{skipped} unreadable file(s) left out of {folder}")
    notes += _folder_notes(test_folders)
    train, test = splits if test_folders else hold_out(splits[0], 0.2)
    return Dataset(f"folder:{argument}", classes, 3, train, test, tuple(notes))


def _folder_notes(test_folders: list[Path]) -> list[str]:
    """Remarks on folders that are not used, or not used by their name."""
    notes = [
        f"the folder {folder.name!r} is not used; "
        "validation images are held out of the training folder"
        for folder in test_folders[1:]
    ]
    if test_folders and test_folders[0].name.lower() != "test":
        notes.append(f"the folder {test_folders[0].name!r} serves as the test set")
    return notes


def fingerprint(argument: str, data_dir: str | None) -> str:
    """A hash of the relative paths and the contents of all images."""
    root = Path(argument).expanduser()
    files = [file for folder in _split_folders(argument) for file in _image_files(folder)]
    try:
        return content_digests.folder_digest(root, files)[:16]
    except OSError as error:
        raise InputError(
            f"dataset 'folder:{argument}': {error.filename} cannot be read "
            f"({error.strerror}); repair or remove it"
        ) from error


def _split_folders(argument: str) -> list[Path]:
    """The training folder, then the candidates for the test folder, in order of preference."""
    root = Path(argument).expanduser()
    if not root.is_dir():
        raise InputError(f"dataset 'folder:{argument}': {root} is not a folder")
    folders = {path.name.lower(): path for path in _visible_folders(root)}
    # Beside folders of other names, a folder named train is a class.
    if "train" not in folders or folders.keys() - {"train", *_TEST_FOLDERS}:
        return [root]
    return [folders[name] for name in ("train", *_TEST_FOLDERS) if name in folders]


def _visible_folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _image_files(folder: Path) -> list[Path]:
    """The files with an extension of one of `FORMATS`, except in hidden files and folders."""
    Image.init()
    extensions = {
        extension
        for extension, file_format in Image.registered_extensions().items()
        if file_format in FORMATS
    }
    files = (
        path for path in folder.rglob("*") if path.suffix.lower() in extensions and path.is_file()
    )
    return sorted(
        path
        for path in files
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    classes = tuple(sorted(path.name for path in _visible_folders(folder)))
    if len(classes) < 2:
        number = f"only one class ({classes[0]})" if classes else "no sub-folders"
        raise InputError(
            f"{folder} has {number}; "
            "training needs a sub-folder of images for each of two or more classes"
        )
    return classes


def _open_split(folder: Path, classes: tuple[str, ...], skip_bad: bool) -> tuple[Split, int]:
    """The readable images of a folder, and the number of unreadable files that were left out."""
    examples = [
        (str(file), label)
        for label, name in enumerate(classes)
        for file in _image_files(folder / name)
    ]
    problems = _decoding_problems([file for file, _ in examples])
    if problems and not skip_bad:
        raise InputError(_unreadable_message(folder, problems, len(examples)))
    readable = [(file, label) for file, label in examples if file not in problems]
    labels = tuple(label for _, label in readable)
    nonempty = set(labels)
    empty = [name for label, name in enumerate(classes) if label not in nonempty]
    if empty:
        raise InputError(
            f"{folder} has no readable image in: {', '.join(empty)} "
            f"(formats: {', '.join(FORMATS)}, recognized by the file extension)"
        )
    return FolderSplit(tuple(file for file, _ in readable), labels), len(problems)


def _unreadable_message(folder: Path, problems: dict[str, str], total: int) -> str:
    examples = "; ".join(f"{file} ({reason})" for file, reason in list(problems.items())[:3])
    more = " …" if len(problems) > 3 else ""
    return (
        f"{len(problems)} of {total} files in {folder} cannot be read: {examples}{more}. "
        "Repair or remove them, or continue without them: --skip-bad-images"
    )


def _decoding_problems(files: Sequence[str]) -> dict[str, str]:
    """The files that cannot be decoded completely, each with the reason."""

    def problem(file: str) -> str | None:
        try:
            read_rgb(file)
        except Exception as error:  # Pillow's plugins raise OSError, ValueError, SyntaxError, …
            return f"{type(error).__name__}: {first_line(error)}"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = pool.map(problem, files)
        return {file: reason for file, reason in zip(files, reasons, strict=True) if reason}
