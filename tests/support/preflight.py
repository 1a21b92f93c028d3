"""The command line of the preflight in this process, and the compilers that it needs."""

from pathlib import Path

import pytest

from experiments import records
from experiments.preflight import libraries, targets
from experiments.preflight.__main__ import main

needs_libtpu = pytest.mark.skipif(
    not libraries.version("libtpu"),
    reason="no libtpu, which exists for Linux alone: pip install -e '.[preflight]'",
)
needs_cuda = pytest.mark.skipif(
    not libraries.compiler(targets.target("gpu-t4")),
    reason="no CUDA packages: pip install -e '.[cuda13]'",
)


def run(folder: Path, *options: str) -> tuple[int, list[records.Record]]:
    """The exit code, and the records in `folder`."""
    code = main([f"--results={folder / 'results'}", *options])
    loaded, problems = records.load([folder / "results"])
    assert problems == []
    return code, loaded
