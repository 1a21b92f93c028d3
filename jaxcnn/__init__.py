"""Flax CNNs and train steps that run unchanged on CPU, GPU and TPU.

Sub-packages: ``models`` (the networks), ``ops`` (what they need, lowered per platform), ``data`` (sources and
pipelines), ``training`` (state, step, loop, checkpoints) and ``parallel`` (how a step is spread over devices).
Importing this package imports nothing else, so that ``jaxcnn.backend`` can choose a platform first.
"""

__version__ = "0.1.0"
