"""Convolutions and matrix products by this package's own kernels, which are compiled where it is installed.

They are C++ (``jaxcnn/ops/kernels``), one library for each instruction set, that XLA:CPU calls on its own threads and in its own memory through
its foreign function interface. Where none was built, because there is no compiler, `available` says so and XLA's own operations stand in.

The compiler cannot divide a call between devices: it would give each the whole batch. See `without_native_kernels`.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib.machinery
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxcnn.errors import InputError

Pair = tuple[int, int]
Pairs = tuple[tuple[int, int], ...]

CALLS = "jaxcnn$"  # the beginning of their names, as in a program's text
HANDLERS = {
    "convolution": "JaxcnnConvolution",
    "conv_relu": "JaxcnnConvRelu",
    "kernel_gradient": "JaxcnnKernelGradient",
}
SETS = ("avx512", "avx2", "any")  # of instructions, the fastest first
VARIABLE = "JAXCNN_KERNELS"  # of the environment: a set, or none

WINOGRAD = {(3, 3): (2, 4), (5, 5): (2,)}  # pixels of a tile's side, by the taps
CHANNELS = 16  # of images and of outputs, from which on its transforms are worth their time
TRANSFORMED = {
    "convolution": 100,
    "kernel_gradient": 16,
}  # tiles that take as long as a kernel's transform
WORTH = {"convolution": 0.9, "kernel_gradient": 0.6}  # of the definition's multiplications, at most

_without_native_kernels = jax.make_user_context(
    False
)  # a part of what `jax.jit` knows a program by


@contextlib.contextmanager
def without_native_kernels() -> Iterator[None]:
    """What is traced within has none of these calls: for programs over several devices, for export, and for the compiler's own counts."""
    with _without_native_kernels(True):
        yield


def available() -> bool:
    """Whether programs traced here may call them."""
    return not _without_native_kernels.value and instruction_set() is not None


@functools.cache
def instruction_set() -> str | None:
    """The instructions that the kernels use: the first of `SETS` that was built and that this processor has; None if there is none.

    Raises:
      InputError: the environment asks for one that is unknown, was not built, or is not the processor's.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "none", *SETS):
        raise InputError(
            f"{VARIABLE}={asked} is no set of instructions; known are {', '.join(SETS)}, and none for no kernels"
        )
    for name in SETS:
        if asked in ("", name) and (library := loaded(name)):
            for call, symbol in HANDLERS.items():
                jax.ffi.register_ffi_target(
                    CALLS + call, jax.ffi.pycapsule(getattr(library, symbol)), platform="cpu"
                )
            return name
    if asked in SETS:
        raise InputError(
            f"{VARIABLE}={asked}: these kernels were not built, or need another processor; leave it unset for the fastest"
        )
    return None


def loaded(name: str) -> ctypes.CDLL | None:
    """The library for a set of instructions, if it was built, the processor has them, and this jaxlib and these sources are its own."""
    here = Path(__file__).parent
    try:
        library = ctypes.CDLL(
            str(here / f"_kernels_{name}{importlib.machinery.EXTENSION_SUFFIXES[0]}")
        )
    except OSError:  # not built, or for another system
        return None
    library.JaxcnnSources.restype = ctypes.c_char_p
    if library.JaxcnnInterface() > _interface() or library.JaxcnnSources().decode() != _digest(
        here / "kernels"
    ):
        warnings.warn(
            f"{here.parent}: the CPU kernels fit another jaxlib or other sources, and are left out: install again",
            stacklevel=2,
        )
        return None
    return library if library.JaxcnnRuns() else None


@functools.cache
def _interface() -> int:
    """The version of the foreign function interface that this jaxlib speaks: it refuses a newer one, but not before JAX starts."""
    text = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    major, minor = (
        int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR")
    )
    return major * 1000 + minor


@functools.cache
def _digest(folder: Path) -> str:
    """Of the sources, as `setup.py` makes it."""
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".cc", ".h"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def supports(images: Array, kernel: Array, pads: Pairs, dilation: Pair) -> bool:
    """Whether no side is padded by less than nothing, and the kernel fits into the images."""
    sides = zip(images.shape[1:3], kernel.shape[:2], pads, dilation, strict=True)
    return min(map(min, pads)) >= 0 and all(
        size + sum(pad) > (count - 1) * step for size, count, pad, step in sides
    )


def convolution(
    images: Array,
    kernel: Array,
    strides: Pair,
    pads: Pairs,
    dilation: Pair,
    *,
    turned: bool = False,
) -> Array:
    """``f32[N, H, W, C]`` with ``f32[h, w, C, D]`` to ``f32[N, H', W', D]``.

    Only of what it `supports`. Reverse mode is the caller's to define; under `jax.vmap` one is computed after the other.

    Args:
      images, kernel, strides, dilation: as of `jax.lax.conv_general_dilated`.
      pads: pixels before and after, of the rows and of the columns.
      turned: the kernel, ``f32[h, w, D, C]``, is turned by 180° and its channels exchanged, as a gradient by the images wants it.
    """
    return _convolution("convolution", (images, kernel), strides, pads, dilation, turned=turned)


def conv_relu(
    images: Array, kernel: Array, bias: Array, strides: Pair, pads: Pairs, dilation: Pair
) -> Array:
    """`convolution`, plus a bias ``f32[D]``, negatives cut off."""
    return _convolution("conv_relu", (images, kernel, bias), strides, pads, dilation)


def _convolution(
    call: str,
    operands: tuple[Array, ...],
    strides: Pair,
    pads: Pairs,
    dilation: Pair,
    **options: bool,
) -> Array:
    images, kernel = operands[:2]
    taps, channels = (
        kernel.shape[:2],
        kernel.shape[:1:-1] if options.get("turned") else kernel.shape[2:],
    )
    rows, columns = (
        (size + sum(pad) - (count - 1) * step - 1) // stride + 1
        for size, count, stride, pad, step in zip(
            images.shape[1:3], taps, strides, pads, dilation, strict=True
        )
    )
    shape = (len(images), rows, columns, channels[1])
    tile = winograd_tile("convolution", (*taps, *channels), shape, strides, dilation)
    return _call(call, shape, operands, strides, pads, dilation, tile, **options)


def kernel_gradient(
    images: Array, cotangent: Array, taps: Pair, strides: Pair, pads: Pairs, dilation: Pair
) -> Array:
    """The gradient of `convolution` by its kernel: ``f32[N, H, W, C]`` with ``f32[N, H', W', D]`` to ``f32[h, w, C, D]``."""
    shape = (*taps, images.shape[3], cotangent.shape[3])
    tile = winograd_tile("kernel_gradient", shape, cotangent.shape, strides, dilation)
    return _call("kernel_gradient", shape, (images, cotangent), strides, pads, dilation, tile)


def product(left: Array, right: Array, *, transposed: tuple[bool, bool] = (False, False)) -> Array:
    """``f32[M, K]``, or transposed ``f32[K, M]``, times ``f32[K, N]``, or transposed ``f32[N, K]``: a convolution of one pixel."""
    pixels = {"strides": (1, 1), "pads": ((0, 0), (0, 0)), "dilation": (1, 1)}
    if not transposed[0]:
        return convolution(left[None, None], right[None, None], **pixels, turned=transposed[1])[
            0, 0
        ]
    return kernel_gradient(
        left[None, None], (right.T if transposed[1] else right)[None, None], (1, 1), **pixels
    )[0, 0]


def winograd_tile(
    call: str, kernel: tuple[int, ...], result: tuple[int, ...], strides: Pair, dilation: Pair
) -> int:
    """Pixels of a tile's side, for which Winograd's way multiplies least; 0 where the definition is as good, or the only way.

    A tile of T×T pixels under t×t taps takes ``(T + t - 1)**2`` multiplications for each pair of channels; the kernel's transform is counted as tiles.

    Args:
      call: ``convolution`` or ``kernel_gradient``.
      kernel: shape, ``[h, w, C, D]``.
      result: shape of the convolution's, ``[N, H', W', D]``.

    >>> winograd_tile("convolution", (3, 3, 64, 64), (64, 32, 32, 64), (1, 1), (1, 1))
    4
    """
    examples, rows, columns, _ = result
    taps = kernel[:2]
    if (*strides, *dilation) != (1, 1, 1, 1) or min(kernel[2:]) < CHANNELS:
        return 0

    def multiplications(tile: int) -> int:
        return (tile + taps[0] - 1) ** 2 * (
            examples * -(-rows // tile) * -(-columns // tile) + TRANSFORMED[call]
        )

    best = min(WINOGRAD.get(taps, ()), key=multiplications, default=0)
    return (
        best
        if best
        and multiplications(best) <= WORTH[call] * taps[0] * taps[1] * examples * rows * columns
        else 0
    )


def _call(
    call: str,
    shape: tuple[int, ...],
    operands: tuple[Array, ...],
    strides: Pair,
    pads: Pairs,
    dilation: Pair,
    winograd: int,
    **options,
):
    pairs = {"strides": strides, "before": [low for low, _ in pads], "dilation": dilation}
    return jax.ffi.ffi_call(
        CALLS + call, jax.ShapeDtypeStruct(shape, jnp.float32), vmap_method="sequential"
    )(
        *operands,
        **{name: np.array(pair, np.int64) for name, pair in pairs.items()},
        winograd=np.int64(winograd),
        **options,
    )
