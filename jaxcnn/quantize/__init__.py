"""Post-training quantization: trained networks with dense layers and convolutions in int8.

Weights have one scale per output channel, inputs one scale per layer, taken from calibration
images; both are symmetric about 0. Sums are 32-bit integers. Biases and all other layers stay in
float32.
"""

from jaxcnn.quantize.layers import Int8Conv, Int8Linear
from jaxcnn.quantize.network import NothingToQuantizeError, quantize, quantized_layers

__all__ = ["Int8Conv", "Int8Linear", "NothingToQuantizeError", "quantize", "quantized_layers"]
