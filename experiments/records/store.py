"""Folders of records: reading, writing, finding."""

import datetime
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from etils import epath

from experiments import output_files
from experiments.records.record import Record, from_json, to_json
from jaxcnn.errors import InputError, first_line


def prepare_folder(folder: str, option: str = "results") -> epath.Path:
    """Creates the folder of an option and checks that it is writable, before anything is measured.

    Raises:
      InputError: it cannot be created or written.
    """
    path = output_files.expand(folder, f"--{option}")
    probe = path / f".writable-{uuid.uuid4().hex}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except (OSError, ImportError, RuntimeError) as error:  # the latter two: buckets
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InputError(
            f"--{option}={folder}: cannot write there ({reason}); choose another folder"
        ) from error
    return path


def write(record: Record, results: epath.Path) -> epath.Path:
    """Writes a record to ``results/<study>/<case>.<machine>.json``, completely or not at all.

    A file is never replaced: the next record of a case is ``….2.json``. The machine is in the name
    so that folders of two machines of one kind can be merged by copying.
    """
    folder = results / record.study
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(to_json(record), indent=1, allow_nan=False).encode()
    name = ".".join(filter(None, (record.case, record.provenance.get("machine"))))
    number = 1
    while not output_files.create(
        path := folder / f"{name}{'' if number == 1 else f'.{number}'}.json", content
    ):
        number += 1
    return path


def load(
    places: Iterable[str | epath.Path], *, validated: bool = False
) -> tuple[list[Record], list[str]]:
    """Reads all records in results folders, or in single files.

    Args:
      places: the folders and files.
      validated: whether the files are known to be valid, as the published ones are, which a test
        validates: validating thousands of records takes longer than reading them.

    Returns:
      The records by time, and a line for each file that could not be used: truncated, not a record,
      or of a newer schema.
    """
    paths = map(epath.Path, places)
    return _read(
        [
            file
            for path in paths
            for file in ([path] if path.is_file() else _in_order(path.glob("*/*.json")))
        ],
        validated,
    )


def load_required(places: Sequence[str]) -> tuple[list[Record], list[str]]:
    """Reads as `load` does, and requires each place to have records.

    Raises:
      InputError: a place that does not exist or has no record.
    """
    records: list[Record] = []
    problems: list[str] = []
    for place in places:
        path = output_files.expand(place, "results")
        if not path.exists():
            raise InputError(
                f"{place}: there is no such file or folder; give results folders or record files"
            )
        of_place, unusable = load([path])
        if not of_place:
            reason = (
                f" ({unusable[0]})"
                if unusable
                else "; a results folder has them as STUDY/CASE.json"
            )
            raise InputError(f"{place}: no records there{reason}")
        records, problems = records + of_place, problems + unusable
    return sorted(records, key=_time), problems


def find(
    results: epath.Path, study: str, case: str, statuses: Sequence[str] = ("ok",)
) -> Record | None:
    """The newest record of a case with one of these statuses, or None."""
    records, _ = _read(_in_order((results / study).glob(f"{case}*.json")))
    matches = [r for r in records if (r.study, r.case) == (study, case) and r.status in statuses]
    return matches[-1] if matches else None


def latest(records: Iterable[Record]) -> list[Record]:
    """The newest record of each case on each machine."""
    newest = {(r.study, r.case, r.provenance.get("machine")): r for r in records}
    return list(newest.values())


def _in_order(files: Iterable[epath.Path]) -> list[epath.Path]:
    """By name; files of one case and machine in the order in which `write` numbered them."""

    def key(file: epath.Path) -> tuple[epath.Path, str, int]:
        name, _, number = file.stem.rpartition(".")
        is_numbered = bool(re.fullmatch(r"[0-9]{1,9}", number))
        return file.parent, *((name, int(number)) if is_numbered else (file.stem, 1))

    return sorted(files, key=key)


def _read(paths: Iterable[epath.Path], validated: bool = False) -> tuple[list[Record], list[str]]:
    records, problems = [], []
    for path in paths:
        try:
            text = path.read_text()
            content = _decode(text)
            if not validated and _CONTROL.search(text):
                content = _printable(content)
            for entry in content if isinstance(content, list) else [content]:
                records.append(from_json(entry, validated=validated))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:300]
            problems.append(f"{path}: left out ({reason})")
    return sorted(records, key=_time), problems


def _decode(text: str) -> Any:
    """JSON, in which NaN and infinities, which it does not have, are absent values.

    Raises:
      ValueError: it is not JSON.
    """
    try:
        return msgspec.json.decode(text)  # in half the time of `json`, which reads NaN too
    except msgspec.DecodeError:
        return json.loads(text, parse_constant=lambda name: None)


# Terminals obey control characters: U+0000 to U+001F but for tabs and ends of lines, U+007F to
# U+009F; as they are in JSON.
_CONTROL = re.compile(
    r"\\u00(?:0[0-8bcefBCEF]|1[0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])|\\[bf]|[\x7f-\x9f]"
)
_NOT_PRINTED = {
    code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"
}


def _printable(content: Any) -> Any:
    """JSON whose text has a replacement character for each control character."""
    if isinstance(content, str):
        return content.translate(_NOT_PRINTED)
    if isinstance(content, list):
        return [_printable(item) for item in content]
    if isinstance(content, dict):
        return {_printable(key): _printable(item) for key, item in content.items()}
    return content


def _time(record: Record) -> str:
    """When it was measured; one of a clock that is ahead of ours counts as the oldest."""
    time = record.provenance.get("time", "")
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    return "" if time > tomorrow.isoformat() else time
