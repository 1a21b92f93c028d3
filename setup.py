"""The kernels of `jaxcnn.ops.native`, one library for each instruction set. Without a compiler there are none, and the package works."""

import importlib.util
import platform
from pathlib import Path

from setuptools import Extension, setup

SETS = {"any": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    SETS |= {"avx2": ["-mavx2", "-mfma"], "avx512": ["-mavx512f", "-mfma"]}

sources = Path("jaxcnn", "ops", "kernels")
headers = Path(importlib.util.find_spec("jaxlib").origin).parent / "include"

setup(
    ext_modules=[
        Extension(
            f"jaxcnn.ops._kernels_{name}",
            [str(sources / "calls.cc")],
            include_dirs=[str(headers)],
            depends=[str(header) for header in sources.glob("*.h")],
            extra_compile_args=["-std=c++17", "-O3", "-g0", *flags],
            language="c++",
            optional=True,
        )
        for name, flags in SETS.items()
    ]
)
