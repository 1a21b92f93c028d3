"""The shape of a mesh of devices, from text such as ``2x4``."""

import math
import re

from jaxcnn.errors import InputError


def mesh_shape(
    axes: tuple[str, ...], device_count: int, text: str | None = None
) -> tuple[int, ...]:
    """The number of devices along each axis of a mesh.

    Args:
      axes: the names of the axes.
      device_count: the number of devices.
      text: the sizes, as in ``2x4``. By default the last of two axes has the smallest prime factor
        of the number of devices: neighbors exchange activations, which are more than gradients.

    Raises:
      InputError: the text is not the shape of such a mesh.

    >>> mesh_shape(("data", "tensor"), 8), mesh_shape(("data", "tensor"), 8, "2x4")
    ((4, 2), (2, 4))
    >>> mesh_shape(("data",), 8), mesh_shape(("data", "tensor"), 1)
    ((8,), (1, 1))
    """
    if text is None:
        inner = _smallest_factor(device_count) if len(axes) > 1 else 1
        return (device_count // inner, *(inner,) * (len(axes) - 1))
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise InputError(f"mesh {text!r}: give the number of devices along each axis, as in 2x4")
    sizes = tuple(map(int, text.split("x")))
    if len(sizes) != len(axes):
        raise InputError(
            f"mesh {text!r} has {len(sizes)} axes, but the strategy has {len(axes)}: "
            f"{' x '.join(axes)}"
        )
    if math.prod(sizes) != device_count:
        raise InputError(
            f"mesh {text!r} needs {math.prod(sizes)} devices, and there are {device_count}: "
            "choose sizes whose product is that number"
        )
    return sizes


def _smallest_factor(number: int) -> int:
    return next((factor for factor in range(2, number + 1) if number % factor == 0), 1)
