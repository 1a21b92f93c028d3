"""What to send with a question or a bug report: versions, devices, and the CPU kernels in use.

python -m jaxcnn.info
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence

import jax

import jaxcnn
from jaxcnn import backend
from jaxcnn.chips import cpu_name
from jaxcnn.errors import InputError, first_line
from jaxcnn.ops.native import loader

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_VARIABLES = ("JAX_", "JAXCNN_", "XLA_")  # how the names of the variables shown begin


def environment_info() -> str:
    """Describes this process in plain text, a line for each fact. Starts JAX.

    The lines are the versions of jaxcnn, its packages and Python, the system, the processor, JAX's
    devices, the environment variables of JAX, XLA and jaxcnn, the CPU kernels and the instructions
    for bfloat16 in use, and one line for each library of CPU kernels: whether it is in use,
    otherwise why not, and which compiler made it.

    >>> print(environment_info())  # doctest: +ELLIPSIS
    jaxcnn: 0...
    jax: 0...
    """
    facts = {"jaxcnn": jaxcnn.__version__}
    facts |= package_versions()
    facts |= {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.platform()} {platform.machine()}",
        "processor": f"{cpu_name()}, {os.cpu_count()} cores",
        "devices": _devices(),
        loader.ENVIRONMENT_VARIABLE: os.environ.get(loader.ENVIRONMENT_VARIABLE) or "not set",
    }
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLES) and name not in facts
    }
    lines = [f"{name}: {value}" for name, value in (facts | variables).items()]
    return "\n".join([*lines, *_kernels()])


def package_versions() -> dict[str, str]:
    """The installed versions of JAX and of the packages around it.

    >>> sorted(package_versions())
    ['flax', 'jax', 'jaxlib', 'numpy', 'optax', 'orbax-checkpoint']
    """
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def main(arguments: Sequence[str] | None = None, program: str = "python -m jaxcnn.info") -> int:
    """Prints `environment_info`.

    Args:
      arguments: the command line, on which there can be only ``--help``; that of this process if
        None.
      program: how it was called.

    Returns:
      The exit code: 2 for anything else on the command line, or if `JAXCNN_KERNELS` requests
      kernels that cannot be used, otherwise 0.
    """
    parser = argparse.ArgumentParser(program, description=__doc__.partition("\n")[0])
    _, unknown = parser.parse_known_args(arguments)
    if unknown:
        print(f"error: {program} has no options: {unknown[0]!r} was given", file=sys.stderr)
        return 2
    with contextlib.suppress(InputError):  # what there is instead is part of the information
        backend.select()
    print(environment_info())
    try:
        loader.instruction_set()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _devices() -> str:
    try:
        devices = jax.devices()
    except RuntimeError as error:
        return f"none ({first_line(error)})"
    return f"{len(devices)} × {devices[0].device_kind} ({devices[0].platform})"


def _kernels() -> list[str]:
    """One line for the kernels in use, and one for each library."""
    try:
        instruction_set = loader.instruction_set() or "none: XLA's own operations are used"
    except InputError as error:
        instruction_set = f"none: {error}"
    is_used = instruction_set in loader.INSTRUCTION_SETS
    bfloat16 = loader.bfloat16_instructions() if is_used else None
    lines = [
        f"kernels in use: {instruction_set}",
        f"instructions for bfloat16: {bfloat16 or 'none'}",
    ]
    for name in loader.INSTRUCTION_SETS:
        library = loader.find_library(name)
        status = "in use" if name == instruction_set else library.defect or _why_not_chosen()
        compiler = f" (compiled by {library.compiler})" if library.compiler else ""
        lines.append(f"kernels for {name}: {status}{compiler}")
    return lines


def _why_not_chosen() -> str:
    """Why a library that could be used is not."""
    requested = os.environ.get(loader.ENVIRONMENT_VARIABLE)
    if requested:
        return f"not used, because {loader.ENVIRONMENT_VARIABLE}={requested}"
    return "not used, because there are faster ones"


if __name__ == "__main__":
    sys.exit(main())
