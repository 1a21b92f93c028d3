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

Importing this package imports none of them, so that ``jaxcnn.backend`` can choose a platform before
JAX starts.
"""

__version__ = "0.1.0"
