"""Compiles the kernels of `jaxcnn.ops.native`: one library per instruction set.

The libraries are loaded with ctypes and contain nothing of Python's own interface, so that one
wheel serves all versions of Python. Without a C++ compiler no library is built; the package
installs and works without them. Compiled libraries are kept in ``build/kernels``, so that another
installation, as of an extra, compiles nothing unless sources, flags or compiler have changed.
"""

import contextlib
import copy
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
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
KEPT = Path("build", "kernels")  # compiled libraries, by the digest of all that they depend on
DIGEST_DIGITS = 16
ENVIRONMENT = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "MACOSX_DEPLOYMENT_TARGET")


class BuildKernels(build_ext):
    """Names libraries by their instruction set alone, and compiles what has not been compiled."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        if sys.platform == "linux":
            # Not the flags of this Python, which differ between versions, nor its directories.
            compiler = _words("CXX") or shlex.split(sysconfig.get_config_var("CXX") or "c++")
            compile_command = [*compiler, "-fPIC", *_words("CFLAGS"), *_words("CXXFLAGS")]
            link_command = [*compiler, "-shared", *_words("CFLAGS"), *_words("LDFLAGS")]
            self.compiler.set_executables(
                compiler_so=compile_command,
                compiler_so_cxx=compile_command,
                linker_so=link_command,
                linker_so_cxx=link_command,
            )
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        library = Path(self.get_ext_fullpath(ext.name))
        kept = KEPT / self._digest(ext) / library.name
        if kept.exists() and not self.force:
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kept, library)
            return
        # Libraries are compiled at the same time, from the same sources to other objects.
        command = copy.copy(self)
        command.build_temp = str(Path(self.build_temp, ext.name))
        super(BuildKernels, command).build_extension(ext)
        with contextlib.suppress(OSError):  # as of sources that cannot be written
            kept.parent.mkdir(parents=True, exist_ok=True)
            temporary = kept.with_name(f".{library.name}.{os.getpid()}")
            shutil.copy(library, temporary)
            temporary.replace(kept)

    def _digest(self, ext: Extension) -> str:
        """Of the sources, headers and flags of a library, the compiler and its environment."""
        digest = hashlib.sha256()
        for path in sorted(ext.depends):
            digest.update(f"{path}\0".encode() + Path(path).read_bytes())
        compiler = self.compiler
        commands = [
            getattr(compiler, name, None)
            for name in ("compiler_so", "compiler_so_cxx", "linker_so", "linker_so_cxx")
        ]
        versions = [_version(command[0]) for command in commands if command]
        environment = [os.environ.get(name) for name in ENVIRONMENT]
        settings = (commands, versions, environment, ext.extra_compile_args, platform.machine())
        digest.update(repr(settings).encode())
        return digest.hexdigest()[:DIGEST_DIGITS]


def _words(variable: str) -> list[str]:
    """The arguments that an environment variable holds."""
    return shlex.split(os.environ.get(variable, ""))


def _version(compiler: str) -> str:
    """What a compiler says of itself; nothing if there is none."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout


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
            extra_compile_args=["-std=c++17", "-O3", "-fwrapv", "-DNDEBUG", *flags],
            language="c++",
            optional=True,
        )
        for name, flags in FLAGS.items()
    ],
)
