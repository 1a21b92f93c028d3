"""The arrays of PyTorch's files in the order of axes of Flax, and back.

PyTorch's kernels are ``[out, in / groups, height, width]`` and ``[out, in]``, Flax's ``[height,
width, in / groups, out]`` and ``[in, out]``. PyTorch flattens images from ``[C, H, W]``, Flax from
``[H, W, C]``.
"""

import jax.numpy as jnp
import numpy as np

from jaxcnn.errors import InputError
from jaxcnn.weights.assign import Shape, Weights

# The channels before the first dense layer, whose inputs are flattened images.
FLATTENED_CHANNELS = {"dense1": 512, "dense6": 256}

# Epsilons of batch norm in timm's networks that are not those of torchvision's and ours.
TIMM_EPSILONS = {"mobilenet_v3_large": (1e-5, 1e-3)}


def to_flax(location: str, name: str, array: np.ndarray, shape: Shape) -> np.ndarray:
    """Converts an array of PyTorch's to the axes of Flax, and to f32.

    Args:
      location: of the array, for error messages.
      name: of the array in the network.
      array: PyTorch's.
      shape: of the network's array; another number of outputs is allowed.

    Raises:
      InputError: the array is not of floating-point numbers, or has other axes.
    """
    channels = _flattened_channels(name, shape)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{location} is of type {array.dtype}; weights are floating-point numbers")
    if array.ndim == 4 and len(shape) == 2:  # timm's dense layer as a 1×1 convolution
        array = array.reshape(len(array), -1)
    if array.ndim == 3 and len(shape) == 1:  # torchvision's layer scale
        array = array.reshape(-1)
    if array.ndim != len(shape) or (array.ndim == 2 and array.shape[1] % channels):
        raise InputError(
            f"{location} is {'×'.join(map(str, array.shape))}; "
            f"{name} is {'×'.join(map(str, shape))}"
        )
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
    if array.ndim == 2:
        array = array.reshape(len(array), channels, -1).transpose(2, 1, 0).reshape(-1, len(array))
    return np.ascontiguousarray(array, np.float32)


def to_torch(name: str, array: np.ndarray) -> np.ndarray:
    """The inverse of `to_flax`, for torchvision's networks.

    >>> to_torch("out.kernel", np.array([[1, 2, 3], [4, 5, 6]])).tolist()
    [[1, 4], [2, 5], [3, 6]]
    """
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    if array.ndim == 2:
        channels, outputs = _flattened_channels(name, array.shape), array.shape[1]
        array = array.reshape(-1, channels, outputs).transpose(2, 1, 0).reshape(outputs, -1)
    if ".layer_scale." in name:
        array = array.reshape(-1, 1, 1)
    return np.ascontiguousarray(array)


def adapt_epsilon(model_name: str, arrays: Weights) -> Weights:
    """The weights of timm with which a network computes what timm's computes.

    Where the epsilon of batch norm differs, the difference is subtracted from the variances, so
    that the sum of both, by whose root a channel is divided, is timm's.
    """
    if model_name not in TIMM_EPSILONS:
        return arrays
    timm, ours = TIMM_EPSILONS[model_name]
    return {
        name: array + np.float32(timm - ours) if name.endswith(".var") else array
        for name, array in arrays.items()
    }


def _flattened_channels(name: str, shape: Shape) -> int:
    return FLATTENED_CHANNELS.get(name.rpartition(".")[0], 1) if len(shape) == 2 else 1
