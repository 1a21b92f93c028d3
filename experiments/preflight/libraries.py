"""Which compilers are installed, and what to install for the others."""

import importlib.metadata
import platform

from experiments.preflight.targets import Target

CUDA = {12: "jax-cuda12-plugin", 13: "jax-cuda13-plugin"}
_PACKAGES = {"cpu": "jaxlib", "tpu": "libtpu"}
OLDEST = {
    12: (5, 2),
    13: (7, 5),
}  # compute capability that its assembler knows: NVIDIA, release notes of CUDA 13.0 and of 12
SIZE = "4 GB of packages, used to compile alone: no GPU and no driver is needed"


def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def compiler(target: Target) -> str | None:
    """The installed compiler for a target and its version; None where there is none.

    >>> from experiments.preflight.targets import target
    >>> compiler(target("cpu")).split()[0]
    'jaxlib'
    """
    packages = (
        [CUDA[toolkit] for toolkit in toolkits(target)]
        if target.platform == "gpu"
        else [_PACKAGES[target.platform]]
    )
    return next((f"{package} {found}" for package in packages if (found := version(package))), None)


def toolkits(target: Target) -> list[int]:
    """The CUDA versions that know a GPU, the newest first."""
    capability = tuple(map(int, target.capability.split(".")))
    return [toolkit for toolkit in sorted(CUDA, reverse=True) if capability >= OLDEST[toolkit]]


def missing(target: Target) -> str:
    """One line on what to install for a target; empty where its compiler is there."""
    if compiler(target):
        return ""
    if platform.system() != "Linux":
        return f"the compilers for {target.platform} come for Linux alone, and this is {platform.system()}: use a Linux machine or container"
    if target.platform == "tpu" and platform.machine() != "x86_64":
        return f"the TPU compiler (libtpu) comes for x86-64 alone, and this is {platform.machine()}: use another machine"
    if target.platform == "tpu":
        return "no TPU compiler is installed (libtpu): pip install -e '.[preflight]'"
    toolkit = toolkits(target)[0]
    other = next((found for each in CUDA if (found := version(CUDA[each]))), None)
    why = (
        f"CUDA {toolkit} is the newest that compiles for compute capability {target.capability}"
        if other
        else "no GPU compiler is installed"
    )
    return f"{why}: pip install -e '.[cuda{toolkit}]' ({SIZE})"
