"""The activations that kernels apply to their results before they store them."""

import enum
import math
from dataclasses import dataclass

import numpy as np


class Kind(enum.IntEnum):
    """The activations that kernels apply, as in ``epilogue.h``."""

    CLIP = 0
    LEAKY_RELU = 1
    SIGMOID = 2
    SILU = 3
    GELU = 4
    HARD_SWISH = 5
    EXACT_GELU = 6


@dataclass(frozen=True)
class Activation:
    """What follows a convolution's bias.

    Attributes:
      kind: of the function. GELU is the form with tanh, exact GELU the one with the error function.
      low, high: the range of a clip; ``low`` is the slope of a leaky ReLU below zero.
    """

    kind: Kind = Kind.CLIP
    low: float = -math.inf
    high: float = math.inf

    def attributes(self) -> dict[str, np.int64 | np.float32]:
        """The attributes of a foreign call that describe this activation."""
        return {
            "activation": np.int64(self.kind),
            "low": np.float32(self.low),
            "high": np.float32(self.high),
        }


NO_ACTIVATION = Activation()
RELU = Activation(low=0.0)
