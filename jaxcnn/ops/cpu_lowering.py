"""Operations of JAX with another lowering for CPUs, and one for GPUs, in programs that opt in.

An operation that is bound within `fast_on_cpu`, and every operation that JAX derives from it
(gradients, batched versions, gradients of those), carries a mark in its metadata. Where a program
is lowered for a platform, a rule that was registered for that by `register` decides what a marked
operation becomes. Shape checks, differentiation and batching stay JAX's own, as do all other
platforms and all operations without the mark. GPUs have two rules, for the gradients of max pools
(`jaxcnn.ops.pool_lowering`) and of some depthwise kernels (`jaxcnn.ops.conv_lowering`).
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxcnn.ops import native
from jaxcnn.ops.partitioning import Dimensions, is_partitioned, mesh_of, partitioned

MARK = "jaxcnn_fast_on_cpu"  # a key of an operation's metadata; its value is one of the next two
NATIVE, XLA = "native", "xla"  # whether the operation may call native kernels


@dataclass(frozen=True)
class Replacement:
    """What a marked operation computes.

    Attributes:
      function: of the operation's operands, in terms of JAX's own operations.
      dimensions: how devices can divide the work if the compiler partitions the program. None if
        the function calls no kernels then.
    """

    function: Callable[..., Array]
    dimensions: Dimensions | None = None


# rule(operand shapes, result shape, parameters) returns None to keep JAX's own lowering.
Rule = Callable[[Sequence[Any], Any, dict[str, Any]], Replacement | None]


@contextlib.contextmanager
def fast_on_cpu() -> Iterator[None]:
    """Marks the operations that are traced within this context.

    Whether they may call native kernels is decided here, by `jaxcnn.ops.native.available`.
    On GPUs the gradients of max pools and of some depthwise kernels differ.

    >>> import jax.numpy as jnp
    >>> with fast_on_cpu():
    ...     result = jax.lax.conv(jnp.ones((1, 1, 3, 3)), jnp.ones((1, 1, 2, 2)), (1, 1), "VALID")
    >>> result.ravel().tolist()
    [4.0, 4.0, 4.0, 4.0]
    """
    with set_xla_metadata(**{MARK: NATIVE if native.available() else XLA}):
        yield


def register(primitive: Primitive, rule: Rule, platform: str = "cpu") -> None:
    """Registers the lowering of marked operations for one platform.

    Args:
      primitive: of JAX, with a single result.
      rule: returns what a marked operation computes; None for JAX's own lowering. It is called,
        and the function is traced, where `native.available` says whether native kernels may be
        called.
      platform: ``cpu``, ``cuda`` or ``rocm``.
    """
    from jax._src.interpreters.mlir import _lowerings, _platform_specific_lowerings

    default = _platform_specific_lowerings[platform].get(primitive) or _lowerings[primitive]
    lower = functools.partial(_lower, default.rule, rule)
    mlir.register_lowering(primitive, lower, platform=platform)


def _lower(default: Callable, rule: Rule, context: mlir.LoweringRuleContext, *operands, **params):
    metadata = (context.jaxpr_eqn_ctx and context.jaxpr_eqn_ctx.xla_metadata) or {}
    if MARK not in metadata:
        return default(context, *operands, **params)
    with set_xla_metadata(**{MARK: None}), contextlib.ExitStack() as stack:
        if metadata[MARK] != NATIVE:
            stack.enter_context(native.without_native_kernels())
        replacement = rule(context.avals_in, context.avals_out[0], params)
        if is_partitioned(context) and native.available():
            mesh = mesh_of(context)
            if replacement and replacement.dimensions and mesh:
                function = partitioned(replacement.function, replacement.dimensions, mesh)
                replacement = Replacement(function)
            else:
                if replacement and replacement.dimensions:
                    warnings.warn(_NO_KERNELS, stacklevel=2)
                stack.enter_context(native.without_native_kernels())
                replacement = rule(context.avals_in, context.avals_out[0], params)
        if replacement is None:
            return default(context, *operands, **params)
        # Each device computes this alone: its types say nothing of other devices.
        avals: Sequence[Any] = context.avals_in
        types = [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in avals]
        lower = mlir.lower_fun(replacement.function, multiple_results=False)
        return lower(context.replace(avals_in=types), *operands)


_PRIMITIVES: dict[Callable, Primitive] = {}  # by function of `with_cpu_kernel`

_NO_KERNELS = (
    "XLA divides this program between several devices that are not known when it is lowered, so "
    "its convolutions run without jaxcnn's CPU kernels: use the layers or functions of jaxcnn, or "
    "jax.shard_map"
)


def with_cpu_kernel(
    function: Callable[..., Array], kernel: Callable[..., Array], *, in_bfloat16: bool = False
) -> Callable:
    """The same function, computed by a native kernel in CPU programs where those are available.

    Args:
      function: of arrays, with static keyword arguments and a single result.
      kernel: computes the same, by `jaxcnn.ops.native`, of float32 arrays that are not empty. Half
        precisions are converted for it.
      in_bfloat16: whether it also computes with bfloat16 arrays, where
        `jaxcnn.ops.native.can_compute_bfloat16` allows that. The first two decide; none is
        converted then.

    Returns:
      A function with the same arguments. Batched by `jax.vmap`, and in its derivatives, it is
      computed without the kernel.
    """
    primitive = Primitive(function.__name__)

    def batch(arrays, axes, *, reference, **static):
        return jax.vmap(functools.partial(function, **static), axes)(*arrays), 0

    def differentiate(primals, tangents, *, reference, **static):
        tangents = tuple(map(ad.instantiate_zeros, tangents))
        _, tangent = jax.jvp(functools.partial(function, **static), primals, tangents)
        return primitive.bind(*primals, reference=reference, **static), tangent

    def rule(operands, result, parameters):
        static = {name: value for name, value in parameters.items() if name != "reference"}
        if not native.can_compute(*operands):
            return Replacement(functools.partial(function, **static))

        is_direct = in_bfloat16 and native.can_compute_bfloat16(*operands[:2], result)

        def compute(*arrays: Array) -> Array:
            if not is_direct:
                arrays = tuple(array.astype(jnp.float32) for array in arrays)
            return kernel(*arrays, **static).astype(result.dtype)

        return Replacement(compute)

    def lower(context, *operands, reference, **static):
        default = functools.partial(function, **static)
        return mlir.lower_fun(default, multiple_results=False)(context, *operands)

    @functools.wraps(function)
    def call(*arrays: Array, **static: Any) -> Array:
        with fast_on_cpu():
            # Part of the operation, so that code that counts a program's products finds them.
            reference = _jit(function, **static).trace(*arrays).jaxpr
            return primitive.bind(*arrays, reference=reference, **static)

    def call_now(*arrays, reference, **static):
        return _jit(call, **static)(*arrays)

    primitive.def_impl(call_now)
    primitive.def_abstract_eval(lambda *avals, reference, **static: reference.out_avals[0])
    ad.primitive_jvps[primitive] = differentiate
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, lower)
    register(primitive, rule)
    _PRIMITIVES[call] = primitive
    return call


def primitive_of(call: Callable) -> Primitive:
    """The operation that a function of `with_cpu_kernel` becomes in a program."""
    return _PRIMITIVES[call]


@functools.cache
def _jit(function: Callable[..., Array], **static: Any) -> jax.stages.Wrapped:
    return jax.jit(functools.partial(function, **static))
