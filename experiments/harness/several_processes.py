"""A run in several processes: how they join, what they must have in common, and how they end."""

import dataclasses
import os
import platform
import re
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from etils import epath

from experiments.cli import FAILED, option_name
from experiments.config import RunConfig
from experiments.harness.study import Study
from experiments.measure.watchdog import last_words
from experiments.records import prepare_folder
from experiments.records.provenance import source_revision
from jaxcnn import distributed, info
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError, first_line

OWN = ("process_id", "data_dir")  # options that each process may have its own value of
# In the message of an operation of all devices, by Gloo, NCCL and the TPU runtime.
_LOST_CONNECTION = r"(?i)connection|peer|unavailable|heartbeat|deadline|remote process"
_SEEN_SECONDS = 30.0  # within which a file of process 0 must be seen by all


def run_as_one(configs: Sequence[RunConfig], run: Callable[[int], int]) -> int:
    """Joins the other processes, runs, and ends together with them.

    If the run fails in this process alone, the process ends at once, without waiting for the
    others, which are ended by that.

    Args:
      configs: of the command line.
      run: ``run(hosts)`` returns an exit code.

    Raises:
      InputError: as `distributed.initialize`, or raised by `run` in all processes.
    """
    config = configs[0]
    process = distributed.this_process(config.coordinator, config.num_processes, config.process_id)
    hosts = distributed.initialize(process, common_facts(configs), config.connect_timeout)
    cancel = last_words(
        f"{process.name} ended before the run did: it failed or was killed, or another process was "
        "lost; the lines above, or those of the others, say why. If there is a checkpoint, the "
        "same command resumes from it."
    )
    try:
        code = run(len(set(hosts)))
    except InputError:
        _leave(cancel)
        raise
    except BaseException as error:
        print(_reason(process, error), file=sys.stderr, flush=True)
        os._exit(FAILED)
    _leave(cancel)
    return code


def common_facts(configs: Sequence[RunConfig]) -> dict[str, Any]:
    """What must be the same in every process, as JSON by name: options, versions, revision."""
    facts: dict[str, Any] = {}
    for each in dataclasses.fields(RunConfig):
        values = list(dict.fromkeys(getattr(config, each.name) for config in configs))
        if each.name not in OWN:
            facts[option_name(each.name)] = values[0] if len(values) == 1 else values
    versions = info.package_versions() | {"Python": platform.python_version()}
    facts |= {f"the version of {name}": version for name, version in versions.items()}
    return facts | {"the revision of this source": source_revision()}


def check(studies: Mapping[str, Study], backend: Backend) -> None:
    """Checks that studies can use the devices of several processes, if there are several.

    Raises:
      InputError: one of them cannot.
    """
    unable = [name for name, study in studies.items() if not study.spans_processes]
    if unable and backend.process_count > 1:
        raise InputError(
            f"--study={','.join(unable)} runs in one process: with --distributed use --study=train"
        )


def check_shared_folder(folder: str) -> None:
    """Checks that all processes see the same results folder, before anything is measured.

    Raises:
      InputError: one of them cannot write there, or does not see a file of process 0.
    """
    if not distributed.is_distributed():
        return
    with distributed.all_or_none("results folder"):
        path = prepare_folder(folder)
    probe = path / distributed.of_main("results probe", lambda: _write_probe(path))
    try:
        with distributed.all_or_none("results shared"):
            if not _is_seen(probe):
                raise InputError(
                    f"--results={folder} is not the folder of process 0: name one that all hosts "
                    "share"
                )
    finally:
        if distributed.is_main():
            probe.unlink()


def _write_probe(path: epath.Path) -> str:
    name = f".shared-{uuid.uuid4().hex}"
    (path / name).write_text("")
    return name


def _is_seen(probe: epath.Path) -> bool:
    deadline = time.monotonic() + _SEEN_SECONDS
    while not probe.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _leave(cancel: Callable[[], None]) -> None:
    """Ends this process's part in the run, together with the others."""
    jax.distributed.shutdown()
    cancel()


def _reason(process: distributed.Process, error: BaseException) -> str:
    first = first_line(error)
    if isinstance(error, jax.errors.JaxRuntimeError) and re.search(_LOST_CONNECTION, str(error)):
        return (
            f"error: {process.name}: an operation of all devices failed, most likely because "
            f"another process has ended: {first[-300:]}"
        )
    return "".join(traceback.format_exception(error)) + f"error: {process.name} failed"
