"""Which compilers are installed, and what to install for the others."""

import importlib.metadata
import platform
import re

from experiments.preflight.targets import Target

CUDA = {12: "jax-cuda12-plugin", 13: "jax-cuda13-plugin"}
_PACKAGES = {"cpu": "jaxlib", "tpu": "libtpu"}
# By CUDA version, the oldest compute capability that its assembler knows (NVIDIA, release notes of
# CUDA 12 and of CUDA 13.0).
OLDEST = {12: (5, 2), 13: (7, 5)}
# Versions of libtpu that were tested with a version of JAX, beside the one that JAX itself pins.
TESTED = {"0.10.2": ("0.0.42", "0.0.52")}
SIZE = "4 GB of packages, used only to compile: neither a GPU nor a driver is needed"


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def compiler(target: Target) -> str | None:
    """Name and version of the installed compiler for a target; None if there is none.

    >>> from experiments.preflight.targets import target
    >>> compiler(target("cpu")).split()[0]
    'jaxlib'
    """
    packages = (
        [CUDA[toolkit] for toolkit in toolkits(target)]
        if target.platform == "gpu"
        else [_PACKAGES[target.platform]]
    )
    versions = ((package, version(package)) for package in packages)
    return next((f"{package} {number}" for package, number in versions if number), None)


def untested(target: Target) -> str:
    """A remark, in one line, if JAX and the TPU compiler were not tested together; else empty."""
    jax, libtpu = version("jax"), version("libtpu")
    if target.platform != "tpu" or not (jax and libtpu):
        return ""
    tested = TESTED.get(jax, ())
    if libtpu in tested or libtpu == (pinned := _pinned_libtpu()):
        return ""
    known = [*dict.fromkeys(filter(None, (*tested, pinned)))]
    proposal = f": if it fails, pip install libtpu=={known[0]}" if known else ""
    return f"libtpu {libtpu} was not tested with jax {jax}{proposal}"


def _pinned_libtpu() -> str:
    """The version of libtpu that the installed JAX names in its extra ``tpu``; empty if none."""
    for line in importlib.metadata.requires("jax") or ():
        if match := re.match(r"libtpu==([\d.]+?)(?:\.\*)?\s*;", line):
            return match[1]
    return ""


def toolkits(target: Target) -> list[int]:
    """The CUDA versions that can compile for a GPU, newest first; none for AMD's."""
    if not target.description:
        return []
    capability = tuple(map(int, target.capability.split(".")))
    return [toolkit for toolkit in sorted(CUDA, reverse=True) if capability >= OLDEST[toolkit]]


def missing(target: Target) -> str:
    """What to install to compile for a target, in one line; empty if its compiler is installed."""
    if compiler(target):
        return ""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        return (
            f"the compiler for {target.platform} exists only for Linux, and this is {system}: "
            "use a Linux machine or container"
        )
    if target.platform == "tpu" and machine != "x86_64":
        return (
            f"the TPU compiler (libtpu) exists only for x86-64, and this is {machine}: "
            "use another machine"
        )
    if target.platform == "tpu":
        return "no TPU compiler is installed (libtpu): pip install -e '.[preflight]'"
    if target.platform == "gpu" and not target.description:
        return f"no compiler for {target.row} runs without the GPU and its driver (ROCm)"
    toolkit = toolkits(target)[0]
    capability = target.capability
    reason = (
        f"CUDA {toolkit} is the newest that compiles for compute capability {capability}"
        if any(map(version, CUDA.values()))
        else "no GPU compiler is installed"
    )
    return f"{reason}: pip install -e '.[cuda{toolkit}]' ({SIZE})"
