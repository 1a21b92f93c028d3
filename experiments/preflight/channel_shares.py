"""The part of each kernel that one of several devices runs."""

import math
from collections.abc import Sequence
from typing import Any

from experiments.preflight.operation import Operation
from experiments.preflight.program import ProgramSpec
from jaxcnn import parallel
from jaxcnn.ops.conv_forms import Form, is_exchanged, recognize
from jaxcnn.parallel.rules import TENSOR


def kernel_share(item: Operation, spec: ProgramSpec, devices: int) -> float:
    """The part of a kernel, for one share of the batch, that each device runs.

    Args:
      item: one of `operations`, of a program for one share of the batch.
      spec: the program.
      devices: how many the target has.
    """
    sizes = parallel.mesh_sizes(spec.strategy, devices, spec.mesh)
    if TENSOR in sizes:
        return channel_share(item, sizes[TENSOR])
    shares = parallel.batch_multiple(spec.strategy, devices, spec.mesh)
    return shares / parallel.device_count(spec.strategy, devices)


def channel_share(item: Operation, devices: int) -> float:
    """The part of a kernel that each of the devices runs that share the channels of a network.

    A layer whose channels or groups they cannot share equally runs whole on each of them, see
    `jaxcnn.ops.layout.ChannelLayout`. A kernel of scalars alone counts as shared.

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
    if item.equation is None:
        return ()
    name = item.equation.primitive.name
    if name == "conv_general_dilated":
        return _of_convolution(item.equation)
    if name == "dot_general":
        return _of_product(item.equation)
    variables = (*item.equation.invars, *item.equation.outvars)
    return _channels([getattr(each.aval, "shape", ()) for each in variables])


def _channels(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The last axis of the largest array."""
    largest = max(shapes, key=math.prod, default=())
    return tuple(largest[-1:])


def _of_convolution(equation: Any) -> tuple[int, ...]:
    """Outputs and groups of the layer of which this is the forward pass or a gradient."""
    images, kernel = (variable.aval for variable in equation.invars)
    result, params = equation.outvars[0].aval, equation.params
    numbers = params["dimension_numbers"]
    recognized = recognize(images, kernel, result, params)
    groups = recognized[1].groups if recognized else params["feature_group_count"]
    if recognized and recognized[0] in (Form.KERNEL, Form.TRANSPOSED):
        outputs = kernel.shape[numbers.rhs_spec[0]]  # of the cotangent
    elif is_exchanged(numbers.rhs_spec):
        outputs = images.shape[numbers.lhs_spec[1]]  # of the cotangent
    else:
        outputs = result.shape[numbers.out_spec[1]]
    return (outputs,) if groups == 1 else (outputs, groups)


def _of_product(equation: Any) -> tuple[int, ...]:
    """Outputs of the dense layer of which this is the forward pass or a gradient.

    The forward pass contracts the inputs ``[N, …, C]`` with the first axis of the weights
    ``[C, D]``. The first operand of both gradients is the cotangent ``[N, …, D]``.
    """
    inputs, weights = (variable.aval for variable in equation.invars)
    (contracted, of_weights), _ = equation.params["dimension_numbers"]
    is_forward = tuple(contracted) == (inputs.ndim - 1,) and tuple(of_weights) == (0,)
    return tuple((weights if is_forward else inputs).shape[-1:])
