"""Compiles train steps for accelerators that are not here, with their own compilers, and says what to expect of them.

``python -m experiments.preflight --target=tpu-v5e-1``. Nothing here is measured: what comes of it is a plan, or a bound.
"""
