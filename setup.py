"""Compiles the kernels of `jaxcnn.ops.native`: one library per instruction set.

Without a C++ compiler no library is built; the package installs and works without them.
"""

import hashlib
import importlib.util
import platform
from pathlib import Path

from setuptools import Extension, setup

FLAGS = {"any": []}  # by instruction set
if platform.machine().lower() in ("x86_64", "amd64"):
    FLAGS |= {"avx2": ["-mavx2", "-mfma"], "avx512": ["-mavx512f", "-mfma"]}

# jaxlib contains the headers of XLA's foreign function interface.
jaxlib = importlib.util.find_spec("jaxlib")
kernels = Path("jaxcnn", "ops", "kernels")
sources = sorted(path for path in kernels.iterdir() if path.suffix in (".cc", ".h"))
# `jaxcnn.ops.native.loader` compares the digest with that of the sources it finds.
digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()

setup(
    ext_modules=[
        Extension(
            f"jaxcnn.ops._kernels_{name}",
            [str(path) for path in sources if path.suffix == ".cc"],
            include_dirs=[str(Path(jaxlib.origin).parent / "include")],
            define_macros=[("JAXCNN_SOURCES", f'"{digest}"')],
            depends=[str(path) for path in sources],
            extra_compile_args=["-std=c++17", "-O3", "-g0", *flags],
            language="c++",
            optional=True,
        )
        for name, flags in FLAGS.items()
        if jaxlib
    ]
)
