"""Refuses programs with convolutions that XLA does not divide correctly."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, jaxpr_as_fun

from jaxcnn.errors import InputError
from jaxcnn.ops.programs import inner_jaxprs


def refuse_groups(step: Callable[..., Any], devices: int) -> Callable[..., Any]:
    """The same step, unless XLA has to divide a convolution with groups along its channels.

    XLA of jaxlib 0.10 aborts on the gradients of some of their kernels, and computes wrong ones if
    the batch is divided too. Those of `nnx.Conv` and `linen.Conv` run in a `jax.shard_map`, see
    `ChannelLayout.with_shared_groups`.

    Args:
      step: takes and returns pytrees of arrays, and computes its own gradients.
      devices: the number that share the channels.

    Returns:
      A function that raises `InputError` when it is traced with such a convolution.
    """

    def call(*arguments: Any) -> Any:
        program, shapes = jax.make_jaxpr(step, return_shape=True)(*arguments)
        gradient = next(_kernel_gradients(program.jaxpr), None)
        if gradient is not None:
            groups, kernel = gradient.params["batch_group_count"], gradient.outvars[0].aval
            raise InputError(
                f"a convolution with {groups} groups (kernel gradient {kernel}) cannot be divided "
                f"among the {devices} devices that share channels: it is neither an nnx.Conv nor a "
                "linen.Conv. Use one of these layers, or another strategy, such as data or fsdp"
            )
        outputs = jaxpr_as_fun(program)(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return call if devices > 1 else step


def _kernel_gradients(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The gradients of kernels with groups, which JAX writes as convolutions of groups of images.

    Those within `jax.shard_map` are left out.
    """
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "conv_general_dilated" and equation.params["batch_group_count"] > 1:
            yield equation
        if name != "shard_map":
            for inner in inner_jaxprs(equation):
                yield from _kernel_gradients(inner)
