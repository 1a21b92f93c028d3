"""Networks in 8-bit integers, made out of trained ones: nothing is trained again.

Weights: one scale for each output channel, symmetric about 0. Activations: one scale for each layer's input, symmetric, from
what the layer saw in calibration. Sums: 32 bits. Biases and whatever is no dense layer and no convolution: float32.
"""

from jaxcnn.quantize.layers import Int8Conv, Int8Linear
from jaxcnn.quantize.network import quantize, quantized_layers

__all__ = ["Int8Conv", "Int8Linear", "quantize", "quantized_layers"]
