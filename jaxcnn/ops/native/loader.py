"""Finding, checking and registering the compiled library of kernels."""

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax

from jaxcnn.errors import InputError

CALL_PREFIX = "jaxcnn$"  # the names of all calls begin with it, also in a program's text
HANDLERS = {
    "convolution": "JaxcnnConvolution",
    "activated_convolution": "JaxcnnActivatedConvolution",
    "kernel_gradient": "JaxcnnKernelGradient",
    "depthwise": "JaxcnnDepthwise",
    "activated_depthwise": "JaxcnnActivatedDepthwise",
    "depthwise_gradient": "JaxcnnDepthwiseGradient",
    "pack_kernel": "JaxcnnPackKernel",
    "packed_convolution": "JaxcnnPackedConvolution",
    "moments": "JaxcnnMoments",
    "normalize_gradient_sums": "JaxcnnNormalizeGradientSums",
    "normalize_gradient": "JaxcnnNormalizeGradient",
}
BFLOAT16_HANDLERS = {  # of libraries that were compiled with instructions for bfloat16
    "bfloat16_convolution": "JaxcnnBfloat16Convolution",
    "bfloat16_activated_convolution": "JaxcnnBfloat16ActivatedConvolution",
    "bfloat16_kernel_gradient": "JaxcnnBfloat16KernelGradient",
}
BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")  # numbered from 1, as in bfloat16_tiles.h
INSTRUCTION_SETS = ("avx512", "avx2", "any")  # fastest first
ENVIRONMENT_VARIABLE = "JAXCNN_KERNELS"  # an instruction set, or "none"

_OPS = Path(__file__).parents[1]  # contains the libraries, and the sources in "kernels"

# `jax.jit` keeps programs apart by the value of a user context, so that a function is traced again.
_without_native_kernels = jax.make_user_context(False)


@contextlib.contextmanager
def without_native_kernels() -> Iterator[None]:
    """Programs traced within this context call no compiled kernels.

    It is meant for programs over several devices, for export, and for the compiler's own counts.

    >>> with without_native_kernels():
    ...     available()
    False
    """
    with _without_native_kernels(True):
        yield


def available() -> bool:
    """Whether programs traced in the current context may call the compiled kernels."""
    return not _without_native_kernels.value and instruction_set() is not None


@functools.cache
def instruction_set() -> str | None:
    """The instruction set of the kernels in use; registers them with JAX at the first call.

    Returns:
      The first of `INSTRUCTION_SETS` that was built and that this processor has, or the one that
      the environment variable `JAXCNN_KERNELS` requests. None if there is none, or if the variable
      is ``none``.

    Raises:
      InputError: the requested instruction set is unknown, was not built, or is not supported by
        this processor.
    """
    requested = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if requested not in ("", "none", *INSTRUCTION_SETS):
        raise InputError(
            f"{ENVIRONMENT_VARIABLE}={requested} is not an instruction set; "
            f"use one of {', '.join(INSTRUCTION_SETS)}, or none for no kernels"
        )
    for name in INSTRUCTION_SETS:
        if requested in ("", name) and (library := load_library(name)):
            register(library, CALL_PREFIX)
            return name
    if requested in INSTRUCTION_SETS:
        raise InputError(
            f"{ENVIRONMENT_VARIABLE}={requested}: these kernels cannot be used: "
            f"{find_library(requested).defect}; unset the variable to use the fastest kernels"
        )
    return None


@functools.cache
def bfloat16_instructions() -> str | None:
    """The processor's instructions for products of bfloat16 numbers that programs use.

    Returns:
      One of `BFLOAT16_INSTRUCTIONS` that the library in use and the processor have, and with which
      the kernels are faster than in float32; None if there is none.
    """
    name = instruction_set()
    library = load_library(name) if name else None
    number = library.JaxcnnBfloat16() if library else 0
    return BFLOAT16_INSTRUCTIONS[number - 1] if number else None


def load_library(name: str) -> ctypes.CDLL | None:
    """The library for an instruction set, or None if it cannot be used.

    It cannot be used if it was not built, if the processor lacks the instructions, or if it was
    built for another jaxlib or from other sources. The last two give a warning.
    """
    library = find_library(name)
    if library.is_outdated:
        warnings.warn(
            f"the CPU kernels in {_OPS} were {library.defect} and are not used: "
            "install jaxcnn again",
            stacklevel=2,
        )
    return None if library.defect else library.handle


@dataclass(frozen=True)
class KernelLibrary:
    """A library of kernels, and whether it can be used.

    Attributes:
      handle: None if it was not built or cannot be loaded.
      defect: why it cannot be used; empty if it can.
      is_outdated: whether installing jaxcnn again mends it.
    """

    handle: ctypes.CDLL | None
    defect: str
    is_outdated: bool = False

    @property
    def compiler(self) -> str:
        """The compiler that made the library, such as ``GCC 12.2.0``; empty if that is unknown."""
        if self.handle is None or self.is_outdated:  # older libraries do not say it
            return ""
        return _text(self.handle.JaxcnnCompiler).strip()


def find_library(name: str) -> KernelLibrary:
    """Looks for the library for an instruction set, and checks whether it can be used."""
    path = _OPS / f"_kernels_{name}.so"
    if not path.exists():
        return KernelLibrary(None, "not built")
    try:
        handle = ctypes.CDLL(str(path))
    except OSError as error:
        return KernelLibrary(None, f"built for another system ({error})")
    version = handle.JaxcnnInterface()
    major, minor = divmod(_ffi_version(), 1000)
    if version // 1000 != major or version % 1000 > minor:
        return KernelLibrary(handle, "built for another jaxlib", is_outdated=True)
    sources = _OPS / "kernels"  # a package may come without them
    if sources.is_dir() and _text(handle.JaxcnnSources) != _digest(sources):
        return KernelLibrary(handle, "built from other sources", is_outdated=True)
    if not handle.JaxcnnRuns():
        return KernelLibrary(handle, "this processor lacks the instructions")
    return KernelLibrary(handle, "")


def register(library: ctypes.CDLL, prefix: str) -> None:
    """Makes the library's kernels callable from CPU programs as ``prefix + call``."""
    handlers = HANDLERS
    if all(hasattr(library, symbol) for symbol in BFLOAT16_HANDLERS.values()):
        handlers = HANDLERS | BFLOAT16_HANDLERS
    for call, symbol in handlers.items():
        handler = jax.ffi.pycapsule(getattr(library, symbol))
        jax.ffi.register_ffi_target(prefix + call, handler, platform="cpu")


def _text(function) -> str:
    """What a library's function without arguments returns as a string."""
    function.restype = ctypes.c_char_p
    return function().decode()


@functools.cache
def _ffi_version() -> int:
    """The version of the foreign function interface of this jaxlib, as ``major * 1000 + minor``.

    jaxlib refuses libraries with a newer one, but not before JAX starts.
    """
    text = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    major, minor = (
        int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR")
    )
    return major * 1000 + minor


@functools.cache
def _digest(folder: Path) -> str:
    """The digest of the sources; `setup.py` compiles the same one into the libraries."""
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".cc", ".h"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
