"""The folder of a notebook's results, and exchanging records with other machines."""

import re
import shutil
import zipfile
from pathlib import Path

from experiments.colab import drive as google_drive
from experiments.colab.cells import Stopped, on_colab

MAX_SHARE, MAX_FILES = 0.5, 1_000_000  # of the free disk, and in a zip file


def results_folder(name: str, *, drive: bool = True) -> Path:
    """Creates the folder for records and checkpoints, unless it exists.

    Args:
      name: of the folder.
      drive: on Colab, use Google Drive, which outlives the session. Elsewhere, and without it, the
        folder is next to the notebook.

    Raises:
      Stopped: Google Drive could not be mounted.
    """
    is_on_colab = on_colab()
    if is_on_colab and drive:
        folder = google_drive.mount() / "jaxcnn" / name
    else:
        folder = Path("results", name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    lost = ", which is deleted on disconnect: DRIVE is off" if is_on_colab and not drive else ""
    print(f"results: {folder}{lost}")
    return folder


def download(results: Path) -> None:
    """Packs records and report into ``NAME-records.zip`` next to the notebook.

    On Colab the browser then downloads the file.

    Args:
      results: a results folder; NAME is its name.
    """
    archive = Path(f"{results.name}-records.zip").absolute()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted([*results.glob("*/*.json"), *results.glob("*.html")]):
            packed.write(file, Path(results.name) / file.relative_to(results))
    print(f"packed: {archive}")
    if on_colab():
        from google.colab import files

        files.download(str(archive))


def other_records(sources: str, results: Path, *, upload: bool = False) -> list[Path]:
    """Folders of records from other machines, for the report; none is copied into one's own.

    Zip files that were uploaded to Colab are kept on Google Drive, if the results are there, and
    found there by later sessions.

    Args:
      sources: results folders and zip files that `download` made, comma-separated.
      results: one's own results folder.
      upload: on Colab, let the user upload further files in the browser, unless those of an earlier
        session are on Google Drive.

    Raises:
      Stopped: a source does not exist or contains no records.
    """
    named = [source.strip() for source in sources.split(",") if source.strip()]
    places = [google_drive.find(source, results) for source in named]
    if upload and on_colab():
        places += _uploaded(results, {place.name for place in places})
    folders = []
    for place in places:
        folders += _record_folders(place)
        google_drive.keep(place, results)
    return folders


def _uploaded(results: Path, named: set[str]) -> list[Path]:
    """The zip files that were uploaded earlier, except those named; else the browser uploads."""
    from google.colab import files

    archives = google_drive.kept_archives(results)
    others = [archive for archive in archives if archive.name not in named]
    if not others:
        return [Path(name) for name in files.upload()]  # saved next to the notebook
    print(
        f"uploaded earlier: {', '.join(archive.name for archive in others)} in {others[0].parent}; "
        "put further zip files there"
    )
    return others


def _record_folders(source: Path) -> list[Path]:
    """The results folder itself, or all results folders in a zip file."""
    if source.is_dir():
        folders = [source] if any(source.glob("*/*.json")) else []
    else:
        unpacked = unpack(source)
        records = (
            file
            for file in unpacked.rglob("*.json")
            if ".checkpoints" not in str(file.relative_to(unpacked))
        )
        folders = sorted({file.parents[1] for file in records})
    if not folders:
        raise Stopped(
            f"{source} contains no records, which are files such as train/NAME.json: give a "
            "results folder or a zip file of one"
        )
    return folders


def _check_size(packed: zipfile.ZipFile, archive: Path) -> None:
    """Raises `Stopped` if a zip file holds more than there is room for here."""
    size = sum(entry.file_size for entry in packed.infolist())
    free = shutil.disk_usage(Path.cwd()).free
    if size > MAX_SHARE * free or len(packed.infolist()) > MAX_FILES:
        raise Stopped(
            f"{archive} holds {len(packed.infolist()):,} files of {size / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB are free: at most {MAX_FILES:,} files and half of that are "
            "unpacked"
        )


def unpack(archive: Path) -> Path:
    """Unpacks a zip file into a folder next to the notebook, and returns the folder.

    Raises:
      Stopped: the file does not exist, is not a zip file, or takes more room than there is.
    """
    # Of the name of the file only what can name a folder inside this one.
    name = re.sub(r"[^\w .-]", "_", archive.stem).strip(" .") or "archive"
    folder = Path("unpacked", name).absolute()
    try:
        with zipfile.ZipFile(archive) as packed:
            _check_size(packed, archive)
            shutil.rmtree(folder, ignore_errors=True)  # of an older file of that name
            packed.extractall(folder)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise Stopped(
            f"{archive} is neither a folder nor a zip file that can be read: check the path"
        ) from error
    return folder
