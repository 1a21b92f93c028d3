"""Flax CNNs and train steps that run unchanged on CPU, GPU and TPU.

Sub-packages:
  models: the networks.
  ops: their operations, lowered for each platform.
  data: datasets, augmentation and input pipelines.
  training: train state, train step, training loop and checkpoints.
  parallel: strategies that place and compile a step for several devices.
  weights: pretrained weights of other frameworks.
  quantize: int8 inference.
  detection: YOLOv2 boxes, loss and drawing.

`jaxcnn.accelerate` puts fast layers into any Flax model; `jaxcnn.fast_on_cpu` is a context for what
is not a Flax NNX layer. `jaxcnn.keep_freed_memory` makes a process keep freed memory, which saves
time on a CPU. ``python -m jaxcnn.info`` prints versions, devices and the CPU kernels in use.
Importing this package neither imports nor starts JAX, so that ``jaxcnn.backend`` can choose a
platform first.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxcnn.kernel_registration import register_with_jax

if TYPE_CHECKING:
    from jaxcnn.allocation import keep_freed_memory as keep_freed_memory
    from jaxcnn.fast_layers import accelerate as accelerate
    from jaxcnn.ops.cpu_lowering import fast_on_cpu as fast_on_cpu

__version__ = "0.2.0.dev0"

_MODULES = {  # by the public names that are imported when they are used
    "accelerate": "jaxcnn.fast_layers",
    "fast_on_cpu": "jaxcnn.ops.cpu_lowering",
    "keep_freed_memory": "jaxcnn.allocation",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'jaxcnn' has no attribute {name!r}")


register_with_jax()
