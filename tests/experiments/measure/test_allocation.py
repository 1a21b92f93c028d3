"""The allocator setting, in a process of its own, because it affects the whole process."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource
import numpy as np
from experiments.measure import allocation
{setting}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**24).sum()  # 128 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first, second = faults(), faults()
print(allocation.keeps_freed_memory(), first, second)
"""


def page_faults(setting: str) -> tuple[bool, int, int]:
    output = subprocess.run(
        [sys.executable, "-c", CODE.format(setting=setting)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kept, first, second = output.split()
    return kept == "True", int(first), int(second)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only the GNU C library has these settings"
)
def test_a_second_array_reuses_the_pages_of_the_first():
    kept, first, second = page_faults("allocation.keep_freed_memory()")
    assert kept and second < first / 10
    kept, first, second = page_faults("import jaxcnn, experiments.run")
    assert not kept and second > first / 2  # importing the library does not change it
