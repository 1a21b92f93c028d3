"""Freed memory that is kept: in a process of its own, because it holds for the whole process."""

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource
import numpy as np
from experiments import allocation
{setting}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**24).sum()  # 128 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first, second = faults(), faults()
print(allocation.kept(), first, second)
"""


def answer(setting: str) -> tuple[bool, int, int]:
    text = subprocess.run(
        [sys.executable, "-c", PAGES.format(setting=setting)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kept, first, second = text.split()
    return kept == "True", int(first), int(second)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the GNU C library alone has the settings"
)
def test_the_second_array_has_its_pages_already():
    kept, first, second = answer("allocation.keep_freed_memory()")
    assert kept and second < first / 10
    kept, first, second = answer("import jaxcnn, experiments.run")
    assert not kept and second > first / 2  # a library's user is left alone
