"""Where a notebook's results are kept, and how records come and go."""

import shutil
import zipfile
from pathlib import Path

from experiments.colab.cells import Stopped, on_colab


def results_folder(name: str, *, drive: bool = True) -> Path:
    """The folder for records and checkpoints, made if need be: on Google Drive in Colab, else beside the notebook.

    Raises:
      Stopped: the drive was not mounted.
    """
    colab = on_colab()
    folder = (
        _mounted_drive() / "jaxcnn" / name if colab and drive else Path("results", name).absolute()
    )
    folder.mkdir(parents=True, exist_ok=True)
    print(
        f"results: {folder}{', which a disconnect deletes: DRIVE is off' if colab and not drive else ''}"
    )
    return folder


def _mounted_drive() -> Path:
    from google.colab import drive

    place = Path(
        "drive"
    ).absolute()  # a notebook begins in /content, and /content/drive is where everybody mounts it
    try:
        drive.mount(str(place))
    except Exception as error:  # refused in the browser, timed out, or another of Colab's own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise Stopped(
            f"Google Drive was not mounted ({reason}): run this cell again and allow it, or set DRIVE = False in the first cell"
        ) from error
    return place / "MyDrive"


def download(results: Path) -> None:
    """Packs a folder's records and report into ``NAME-records.zip`` beside the notebook; Colab's browser then saves the file."""
    archive = Path(f"{results.name}-records.zip").absolute()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted([*results.glob("*/*.json"), *results.glob("*.html")]):
            packed.write(file, Path(results.name) / file.relative_to(results))
    print(f"packed: {archive}")
    if on_colab():
        from google.colab import files

        files.download(str(archive))


def elsewhere(sources: str, *, upload: bool = False) -> list[Path]:
    """Folders of records from other machines, to be shown beside one's own; nothing is copied into one's own.

    Args:
      sources: results folders and zip files as `download` makes them, by commas.
      upload: let the browser send further files; in Colab alone.

    Raises:
      Stopped: one of them is not there, or holds no records.
    """
    named = [source.strip() for source in sources.split(",") if source.strip()]
    if upload and on_colab():
        from google.colab import files

        named += files.upload()  # it writes them beside the notebook
    return [folder for source in named for folder in _with_records(Path(source).expanduser())]


def _with_records(source: Path) -> list[Path]:
    """The results folder itself, or all that a zip file holds."""
    if source.is_dir():
        found = [source] if any(source.glob("*/*.json")) else []
    else:
        place = unpacked(source)
        found = sorted(
            {
                file.parents[1]
                for file in place.rglob("*.json")
                if ".checkpoints" not in str(file.relative_to(place))
            }
        )
    if not found:
        raise Stopped(
            f"{source} holds no records, which are files such as train/NAME.json: name a results folder or a zip of one"
        )
    return found


def unpacked(archive: Path) -> Path:
    """The folder, beside the notebook, that a zip file was unpacked into; raises `Stopped` where it cannot be."""
    place = Path("unpacked", archive.stem).absolute()
    shutil.rmtree(place, ignore_errors=True)  # of an older file of that name
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise Stopped(
            f"{archive} is neither a folder nor a zip file that can be read: check the path"
        ) from error
    return place
