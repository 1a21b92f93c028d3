"""Compiles train steps for accelerators that are not attached and reports what to expect of them.

``python -m experiments.preflight --target=tpu-v5e-1``. The accelerator's own compiler runs here,
the compiled program does not: the results are memory plans, estimates and bounds, not measurements.
`check` does the same for any function of any JAX user.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.preflight.checking import check as check


def __getattr__(name: str):
    """Imports JAX only for those who call `check`."""
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    import sys

    function = importlib.import_module("experiments.preflight.checking").check
    setattr(sys.modules[__name__], name, function)
    return function
