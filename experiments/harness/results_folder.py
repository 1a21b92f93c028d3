"""Checks that everything a run will write can be written, before anything is measured."""

import os
from collections.abc import Mapping, Sequence

from experiments import output_files, records
from jaxcnn.errors import InputError

REPORT = "report.html"
_LONGEST_NAME = 255  # bytes, in most file systems
_ADDED = len(".0123456789abcdef.99999.json")  # to the name of a case


def check(folder: str, cases: Mapping[str, Sequence[str]]) -> None:
    """Creates the results folder, and checks names and permissions.

    Args:
      folder: the results folder.
      cases: names of the cases, by study.

    Raises:
      InputError: a folder cannot be written, the report is not a file that may be replaced, or the
        name of a case is too long for a file.
    """
    results = records.prepare_folder(folder)
    if output_files.is_remote(results):
        return
    for study, names in cases.items():
        if (results / study).exists():
            records.prepare_folder(os.fspath(results / study))
        longest = max(names, key=len, default="")
        if len(os.fsencode(longest)) + _ADDED > _LONGEST_NAME:
            raise InputError(
                f"the name of a case of study {study!r} is too long for a file: {longest[:100]}…; "
                "give the data or the model a shorter name"
            )
    output_files.check(results / REPORT, "--results")
