"""Networks written like the tables of their papers: a plan, a line of text, builds a chain.

| token        | layer                                                        |
|--------------|--------------------------------------------------------------|
| ``64``       | convolution 3×3 to 64 channels, stride 1, same padding       |
| ``64/1``     | convolution 1×1                                              |
| ``224/1x7``  | convolution of height 1 and width 7                          |
| ``96/11:4v`` | convolution 11×11, stride 4, no padding (``v``: valid)       |
| ``P``        | max pool 2×2, stride 2                                       |
| ``P3``       | max pool 3×3, stride 3                                       |
| ``P3:2``     | max pool 3×3, stride 2                                       |
| ``P3:2s``    | the same with padding (``s``: same)                          |
| ``P3:2c``    | the same with an incomplete last window (``c``: ceil)        |
| ``A3:1s``    | average pool 3×3, stride 1, same padding                     |
"""

import re
from collections.abc import Callable

from flax import nnx

from jaxcnn.models.layers import AvgPool, MaxPool

_CONV = re.compile(
    r"(?P<channels>\d+)(/(?P<height>\d+)(x(?P<width>\d+))?)?(:(?P<strides>\d+))?(?P<valid>v)?"
)
_POOL = re.compile(r"(?P<kind>[PA])(?P<window>\d+)?(:(?P<strides>\d+))?(?P<padding>[sc])?")
_POOL_PADDING = {None: "VALID", "s": "SAME", "c": "CEIL"}

Layer = Callable


def chain(
    plan: str, inputs: int, conv: Callable[..., Layer], **extra: Callable[[int], Layer]
) -> tuple[nnx.Sequential, int]:
    """Builds the layers of a plan.

    Args:
      plan: tokens separated by spaces, see the table above.
      inputs: number of channels of the images.
      conv: ``conv(inputs, outputs, kernel, strides, padding)`` builds a convolution.
      **extra: further tokens: ``name(channels)`` builds a layer that keeps the number of channels.

    Returns:
      The layers, and the number of output channels.

    Raises:
      ValueError: an unknown token.

    >>> layers, channels = chain("6/5v P", 1, lambda *sizes: print(*sizes))
    1 6 (5, 5) 1 VALID
    >>> layers.layers[1], channels
    (MaxPool(window=2, strides=2, padding='VALID'), 6)
    """
    layers, channels = [], inputs
    for token in plan.split():
        if token in extra:
            layers.append(extra[token](channels))
        elif match := _POOL.fullmatch(token):
            layers.append(_pool(match))
        elif match := _CONV.fullmatch(token):
            outputs = int(match["channels"])
            height = int(match["height"] or 3)
            kernel = height, int(match["width"] or height)
            strides, padding = int(match["strides"] or 1), "VALID" if match["valid"] else None
            layers.append(conv(channels, outputs, kernel, strides, padding))
            channels = outputs
        else:
            raise ValueError(
                f"token {token!r} of the plan {plan!r} is neither a convolution, a pool nor one of "
                f"{sorted(extra)}"
            )
    return nnx.Sequential(*layers), channels


def _pool(match: re.Match) -> Layer:
    pool: Layer = {"P": MaxPool, "A": AvgPool}[match["kind"]]
    window = int(match["window"] or 2)
    return pool(window, int(match["strides"] or window), _POOL_PADDING[match["padding"]])
