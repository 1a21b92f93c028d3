"""Compiles train steps for accelerators that are not attached and reports what to expect of them.

``python -m experiments.preflight --target=tpu-v5e-1``. The accelerator's own compiler runs here,
the compiled program does not: the results are memory plans and bounds, not measurements.
"""
