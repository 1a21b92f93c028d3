"""A convolution or dense layer, and what follows it, as one pass over memory, on a CPU.

`fuse_layers` rewrites the program of an inference. Biases and batch norm in evaluation, which
multiply and add one number for each channel, become one factor and one addend. They, the other
branch of a residual block and the activation are applied to the sums before they are stored. The
programs of other platforms compute what the function does, operation by operation.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxcnn.ops import native
from jaxcnn.ops.channels import pixel_sums, sums_pixels
from jaxcnn.ops.fusion_search import Fusion, find_fusions
from jaxcnn.ops.programs import Read, compute_equation, evaluate, type_of, without_derivatives

Function = Callable[..., Any]


def fuse_layers(function: Function) -> Function:
    """The same function, whose layers, biases, batch norms and activations are fused.

    That applies to convolutions within `fast_on_cpu`, which those of an accelerated model are: of
    images ``[N, H, W, C]``, without groups or with one for each channel. It applies to products
    ``[..., K]`` by ``[K, M]`` in float32, and in half precision to large ones of an accelerated
    model. The activations are ReLU, ReLU6, leaky ReLU, sigmoid, SiLU, both forms of GELU and
    hard-swish, those of `jax.nn`.

    Args:
      function: of arrays, in any containers. Where it defines derivatives of its own
        (`jax.custom_vjp`), those of the result are JAX's instead.

    Returns:
      A function with the same arguments and results, equal up to rounding.

    >>> import jax.numpy as jnp
    >>> from jaxcnn.ops.cpu_lowering import fast_on_cpu
    >>> def layer(images, kernel, bias):
    ...     with fast_on_cpu():
    ...         layout = ("NHWC", "HWIO", "NHWC")
    ...         y = jax.lax.conv_general_dilated(
    ...             images, kernel, (1, 1), "SAME", dimension_numbers=layout
    ...         )
    ...     return jax.nn.relu(y + bias)
    >>> arguments = jnp.ones((1, 4, 4, 2)), jnp.ones((1, 1, 2, 3)), jnp.array([-3.0, 0.0, 1.0])
    >>> jax.jit(fuse_layers(layer))(*arguments)[0, 0, 0].tolist()
    [0.0, 2.0, 3.0]
    """

    @functools.wraps(function)
    def fused(*arguments: Any) -> Any:
        if not native.available():
            return function(*arguments)
        program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results = _evaluate(without_derivatives(program), jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return fused


def _evaluate(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """The results of a program, whose layers are fused."""
    jaxpr = program.jaxpr
    fusions = {fusion.equations[-1]: fusion for fusion in find_fusions(jaxpr)}
    absorbed = {number for each in fusions.values() for number in each.equations[:-1]}
    stored = {jaxpr.eqns[number].outvars[0] for number in fusions}

    def compute(number: int, equation: JaxprEqn, read: Read) -> Sequence[Any] | None:
        if number in absorbed:
            return None
        if fusion := fusions.get(number):
            return [_compute(fusion, read).reshape(type_of(equation.outvars[0]).shape)]
        if sums_pixels(equation) and equation.invars[0] in stored:
            return [pixel_sums(read(equation.invars[0]))]
        return compute_equation(jaxpr, equation, read)

    read = evaluate(program, dict(zip(jaxpr.invars, arguments, strict=True)), compute)
    return [read(atom) for atom in jaxpr.outvars]


def _compute(fusion: Fusion, read: Read) -> Array:
    operands = map(read, fusion.operands)
    channels = [read(each).reshape(-1) for each in fusion.channels]
    summands = [] if fusion.summand is None else [read(fusion.summand).reshape(fusion.shape)]
    return fusion.layer(
        *operands, *channels, *summands, steps=fusion.steps, activation=fusion.activation
    )
