"""Compiles the kernels of `jaxcnn.ops.native`: one library per instruction set.

The libraries are loaded with ctypes and contain nothing of Python's own interface, so that one
wheel serves all versions of Python. Without a C++ compiler no library is built; the package
installs and works without them.
"""

import hashlib
import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FLAGS = {"any": []}  # by instruction set
if platform.machine().lower() in ("x86_64", "amd64"):
    FLAGS |= {"avx2": ["-mavx2", "-mfma"], "avx512": ["-mavx512f", "-mfma"]}

HEADERS = Path("jaxcnn", "ops", "third_party")  # of XLA's foreign function interface
KERNELS = Path("jaxcnn", "ops", "kernels")
SOURCES = sorted(path for path in KERNELS.iterdir() if path.suffix in (".cc", ".h"))
# `jaxcnn.ops.native.loader` compares the digest with that of the sources it finds.
DIGEST = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


class BuildKernels(build_ext):
    """Names libraries by their instruction set alone, not by the version of Python too."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_suffix(".so"))


class KernelsWheel(bdist_wheel):
    """A wheel for a platform and every version of Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": KernelsWheel},
    ext_modules=[
        Extension(
            f"jaxcnn.ops._kernels_{name}",
            [str(path) for path in SOURCES if path.suffix == ".cc"],
            include_dirs=[str(HEADERS)],
            define_macros=[("JAXCNN_SOURCES", f'"{DIGEST}"')],
            depends=[str(path) for path in (*SOURCES, *HEADERS.rglob("*.h"))],
            extra_compile_args=["-std=c++17", "-O3", "-g0", *flags],
            language="c++",
            optional=True,
        )
        for name, flags in FLAGS.items()
    ],
)
