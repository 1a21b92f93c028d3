"""The part of each kernel that a device runs where several devices divide a network's channels."""

import math
from collections.abc import Sequence
from typing import Any

from experiments.preflight.operation import PRODUCT, Operation
from jaxcnn.ops.conv_forms import Form, recognise


def channel_share(item: Operation, devices: int) -> float:
    """The part of a kernel that each of the devices runs that share its channels.

    A layer whose channels or groups they cannot share equally runs whole on each of them, see
    `jaxcnn.ops.layout.ChannelLayout`. Products are taken to be shared: of the layers that they are
    of, the last one alone may have an odd number of outputs, and is mostly small.

    Args:
      item: one of `operations`.
      devices: how many share the channels.

    >>> import jax
    >>> from experiments.preflight.operations import operations
    >>> images = jax.ShapeDtypeStruct((2, 4, 4, 24), "float32")
    >>> [kernel] = operations(jax.numpy.tanh, images, platform="gpu")
    >>> channel_share(kernel, 8), channel_share(kernel, 16)
    (0.125, 1.0)
    """
    return 1 / devices if all(count % devices == 0 for count in _shared_counts(item)) else 1.0


def _shared_counts(item: Operation) -> tuple[int, ...]:
    """The numbers, of channels and of groups, that the devices have to share."""
    if item.fusion is not None:
        return _channels([each.shape for each in (*item.fusion.operands, *item.fusion.results)])
    equation = item.equation
    if item.kind == PRODUCT or equation is None:
        return ()
    if equation.primitive.name == "conv_general_dilated":
        return _outputs_and_groups(equation)
    variables = (*equation.invars, *equation.outvars)
    return _channels([getattr(each.aval, "shape", ()) for each in variables])


def _channels(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The last axis of the largest array."""
    largest = max(shapes, key=math.prod, default=())
    return tuple(largest[-1:])


def _outputs_and_groups(equation: Any) -> tuple[int, ...]:
    """Of the layer that a convolution is the forward pass or a gradient of."""
    images, kernel = (variable.aval for variable in equation.invars)
    result, params = equation.outvars[0].aval, equation.params
    numbers = params["dimension_numbers"]
    form, groups = Form.FORWARD, params["feature_group_count"] * params["batch_group_count"]
    if recognised := recognise(images, kernel, result, params):
        form, groups = recognised[0], recognised[1].groups
    outputs = {
        Form.FORWARD: result.shape[numbers.out_spec[1]],
        Form.IMAGES: images.shape[numbers.lhs_spec[1]],
        Form.KERNEL: kernel.shape[numbers.rhs_spec[0]],
        Form.TRANSPOSED: images.shape[numbers.lhs_spec[0]],
    }[form]
    return (outputs,) if groups == 1 else (outputs, groups)
