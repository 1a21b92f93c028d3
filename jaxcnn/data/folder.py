"""A folder of pictures, a sub-folder a class."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from jaxcnn.data.source import Dataset, Example, Shape, Split, hold_out
from jaxcnn.errors import InputError

_TEST_NAMES = ("test", "validation", "val")


@dataclass(frozen=True)
class FolderSplit:
    """Files and their labels."""

    files: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: Sequence[int]) -> list[Example]:
        return [(read_rgb(self.files[row]), self.labels[row]) for row in rows]


def read_rgb(file: str | os.PathLike) -> np.ndarray:
    """A picture of any mode and format that Pillow reads as ``u8[h, w, 3]``, upright, transparency over white.

    Raises:
      OSError, ValueError, SyntaxError: what Pillow raises for a file that it cannot read.
    """
    with Image.open(file) as opened:
        picture = ImageOps.exif_transpose(opened)
        if (
            picture.mode.startswith("I") or picture.mode == "F"
        ):  # wider than a byte: convert would clip, not scale
            return np.repeat(
                _to_bytes(np.asarray(picture, np.float64), picture.mode)[..., None], 3, axis=2
            )
        if picture.has_transparency_data:
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        return np.asarray(picture.convert("RGB"))


def _to_bytes(values: np.ndarray, mode: str) -> np.ndarray:
    """16-bit and integer pictures reach from 0 to 65535, floating-point ones from 0 to 1 or, with larger values, to 255."""
    top = 65535.0 if mode.startswith("I") else 1.0 if values.max() <= 1 else 255.0
    return np.rint(np.clip(values / top, 0, 1) * 255).astype(np.uint8)


def load(argument: str, shape: Shape, data_dir: str | None, skip_bad: bool) -> Dataset:
    """Pictures in ``PATH/CLASS/…``, or in ``PATH/train/CLASS/…`` and ``PATH/test/CLASS/…``.

    ``validation`` or ``val`` stands in for a missing ``test``. Without any of them a fifth of the pictures, always the
    same, is the test set. Every file is read once here, so that a bad one is known before training.

    Raises:
      InputError: no such folder, no pictures, fewer than two classes, a class without pictures, or unreadable files.
    """
    found = _parts(argument)
    parts, unused = found[:2], found[2:]
    classes = _classes(parts[0])
    splits, notes = [], []
    for part in parts:
        if _classes(part) != classes:
            raise InputError(
                f"dataset 'folder:{argument}': {part} has the classes {_classes(part)}, the training folder {classes}"
            )
        split, skipped = _read_part(part, classes, skip_bad)
        splits.append(split)
        notes += [f"{len(skipped)} unreadable file(s) left out of {part}"] if skipped else []
    notes += [
        f"the folder {folder.name!r} is not used; validation images are held out of the training folder"
        for folder in unused
    ]
    if len(parts) == 2 and parts[1].name.lower() != "test":
        notes.append(f"the folder {parts[1].name!r} serves as test set")
    train, test = splits if len(parts) == 2 else hold_out(splits[0], 0.2)
    return Dataset(f"folder:{argument}", classes, 3, train, test, tuple(notes))


def fingerprint(argument: str, data_dir: str | None) -> str:
    """Tells folders apart by the names and sizes of their pictures."""
    root = Path(argument).expanduser()
    listing = [
        f"{file.relative_to(root)} {file.stat().st_size}"
        for part in _parts(argument)
        for file in _pictures(part)
    ]
    return hashlib.sha256("\n".join(listing).encode()).hexdigest()[:16]


def _parts(argument: str) -> list[Path]:
    """The training folder and those that could be the test folder, the likeliest first."""
    root = Path(argument).expanduser()
    if not root.is_dir():
        raise InputError(f"dataset 'folder:{argument}': {root} is not a folder")
    folders = {
        path.name.lower(): path
        for path in root.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    }
    if "train" not in folders or folders.keys() - {
        "train",
        *_TEST_NAMES,
    }:  # among others, train is a class
        return [root]
    return [folders[name] for name in ("train", *_TEST_NAMES) if name in folders]


def _pictures(folder: Path) -> list[Path]:
    """Files that Pillow reads, by their ending; hidden ones and those in hidden folders are nobody's pictures."""
    Image.init()
    endings = {
        ending for ending, name in Image.registered_extensions().items() if name in Image.OPEN
    }
    found = (
        path for path in folder.rglob("*") if path.suffix.lower() in endings and path.is_file()
    )
    return sorted(
        path
        for path in found
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _classes(folder: Path) -> tuple[str, ...]:
    classes = tuple(
        sorted(
            path.name
            for path in folder.iterdir()
            if path.is_dir() and not path.name.startswith(".")
        )
    )
    if len(classes) < 2:
        found = f"one class ({classes[0]})" if classes else "no sub-folders"
        raise InputError(
            f"{folder} has {found}; training needs a sub-folder of pictures for each of two or more classes"
        )
    return classes


def _read_part(folder: Path, classes: tuple[str, ...], skip_bad: bool) -> tuple[Split, list[str]]:
    files, labels = [], []
    for label, name in enumerate(classes):
        found = [str(path) for path in _pictures(folder / name)]
        files += found
        labels += [label] * len(found)
    bad = _unreadable(files)
    if bad and not skip_bad:
        named = "; ".join(f"{file} ({reason})" for file, reason in list(bad.items())[:3])
        raise InputError(
            f"{len(bad)} of {len(files)} files in {folder} cannot be read: {named}{' …' if len(bad) > 3 else ''}. Mend or remove them, or go on without them: --skip-bad-images"
        )
    kept = [(file, label) for file, label in zip(files, labels, strict=True) if file not in bad]
    empty = [
        name
        for label, name in enumerate(classes)
        if label not in {kept_label for _, kept_label in kept}
    ]
    if empty:
        raise InputError(
            f"{folder} has no readable picture in: {', '.join(empty)} (formats: those that Pillow reads, by file ending)"
        )
    return FolderSplit(tuple(file for file, _ in kept), tuple(label for _, label in kept)), sorted(
        bad
    )


def _unreadable(files: Sequence[str]) -> dict[str, str]:
    """The files that cannot be decoded to the end, and why."""

    def problem(file: str) -> str | None:
        try:
            read_rgb(file)
        except Exception as error:  # Pillow's plugins raise whatever they meet: OSError, ValueError, SyntaxError, …
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {
            file: reason
            for file, reason in zip(files, pool.map(problem, files), strict=True)
            if reason
        }
