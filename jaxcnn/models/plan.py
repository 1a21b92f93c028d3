"""Networks written as their papers' tables: a line of text to a chain of layers.

| token              | layer                                                                            |
|--------------------|----------------------------------------------------------------------------------|
| ``64``             | convolution 3×3 to 64 channels, stride 1, padded to the same size                 |
| ``64/1``           | … 1×1                                                                            |
| ``224/1x7``        | … height 1, width 7                                                              |
| ``96/11:4v``       | … 11×11, stride 4; ``v``: no padding (valid)                                     |
| ``P``              | max pool 2×2, stride 2                                                           |
| ``P3``             | … 3×3, stride 3                                                                  |
| ``P3:2``           | … 3×3, stride 2; ``s``: padded (same), ``c``: a last incomplete window counts (ceil) |
| ``A3:1s``          | average pool, likewise                                                           |
"""

import re
from collections.abc import Callable

from flax import nnx

from jaxcnn.models.layers import AvgPool, MaxPool

_CONV = re.compile(
    r"(?P<channels>\d+)(/(?P<high>\d+)(x(?P<wide>\d+))?)?(:(?P<strides>\d+))?(?P<valid>v)?"
)
_POOL = re.compile(r"(?P<kind>[PA])(?P<window>\d+)?(:(?P<strides>\d+))?(?P<padding>[sc])?")
_PADDING = {None: "VALID", "s": "SAME", "c": "CEIL"}

Layer = Callable


def chain(
    plan: str, inputs: int, conv: Callable[..., Layer], **extra: Callable[[int], Layer]
) -> tuple[nnx.Sequential, int]:
    """A chain of layers, and its number of output channels.

    Args:
      plan: tokens, see the module's table.
      inputs: channels of its images.
      conv: ``conv(inputs, outputs, kernel, strides, padding)`` makes a convolution.
      **extra: further tokens: ``name(channels)`` makes a layer that keeps the channels.

    Raises:
      ValueError: a token that is none.

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
            layers.append(_pool(**match.groupdict()))
        elif match := _CONV.fullmatch(token):
            outputs, kernel, strides, padding = _sizes(**match.groupdict())
            layers.append(conv(channels, outputs, kernel, strides, padding))
            channels = outputs
        else:
            raise ValueError(
                f"token {token!r} of the plan {plan!r} is neither a convolution, a pool nor one of {sorted(extra)}"
            )
    return nnx.Sequential(*layers), channels


def _pool(kind: str, window: str | None, strides: str | None, padding: str | None) -> Layer:
    side = int(window or 2)
    return {"P": MaxPool, "A": AvgPool}[kind](side, int(strides or side), _PADDING[padding])


def _sizes(
    channels: str, high: str | None, wide: str | None, strides: str | None, valid: str | None
):
    rows = int(high or 3)
    return int(channels), (rows, int(wide or rows)), int(strides or 1), "VALID" if valid else None
