"""The allocator setting, in a process of its own, because it affects the whole process."""

import ctypes
import platform
import subprocess
import sys

import pytest

from jaxcnn import allocation

# Without huge pages, so that the number of page faults does not depend on how many the machine has
# free: NumPy asks for them, and each one stands for 512 faults.
CODE = """
import ctypes
import resource
PR_SET_THP_DISABLE = 41
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
import jaxcnn
result = {setting}
import numpy as np
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**24).sum()  # 128 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first, second = faults(), faults()
from jaxcnn.allocation import keeps_freed_memory
assert keeps_freed_memory() == (result is True)
print(result, first, second)
"""
requires_glibc = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc",
    reason="only the GNU C library on Linux has these settings",
)


def page_faults(setting: str) -> tuple[str, int, int]:
    output = subprocess.run(
        [sys.executable, "-c", CODE.format(setting=setting)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kept, first, second = output.split()
    return kept, int(first), int(second)


@requires_glibc
def test_a_second_array_reuses_the_pages_of_the_first():
    kept, first, second = page_faults("jaxcnn.keep_freed_memory()")
    assert kept == "True" and second < first / 10
    kept, first, second = page_faults("__import__('experiments.run').__name__")
    assert kept == "experiments" and second > first / 2  # importing does not change it


@requires_glibc
def test_calling_it_imports_nothing_that_starts_threads():
    code = (
        "import jaxcnn, os, sys; assert jaxcnn.keep_freed_memory(); "
        "print(len(os.listdir('/proc/self/task')), 'jax' in sys.modules, 'numpy' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == ["1", "False", "False"]


class WithoutMallopt:
    """A C library that lacks the function."""


class Refuses:
    """A C library that knows one parameter less."""

    @staticmethod
    def mallopt(parameter: int, value: int) -> int:
        return int(parameter != allocation.SETTINGS["M_ARENA_MAX"][0])


@pytest.mark.parametrize("library", [WithoutMallopt, Refuses])
def test_another_c_library_is_reported_and_no_error(library, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(allocation, "_keeps_freed_memory", False)
    assert allocation.keep_freed_memory() is False and not allocation.keeps_freed_memory()
