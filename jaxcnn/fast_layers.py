"""Flax's layers with operations that are fast on every platform, and `accelerate`, which puts them
in place of Flax's own.

A layer here has the attributes and the parameters of the Flax layer that it derives from, and
computes the same up to rounding. GPU and TPU programs are those of Flax, but for the gradients of
batch norm and, on GPUs, of max pools. Batch norm in training mode and large dense layers have no
forward-mode derivative (`jax.jvp`).
"""

import functools
from typing import Any, TypeVar

import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxcnn import ops
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.layout import ChannelLayout
from jaxcnn.ops.materialize import materialize, materialize_cotangent
from jaxcnn.ops.partitioning import for_known_devices


class _Fast(nnx.Module):
    """A layer of Flax whose operations are fast on a CPU."""

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """Takes and returns what the layer of Flax does."""
        with fast_on_cpu():
            return super().__call__(*args, **kwargs)  # type: ignore[misc]  # Flax's layer


class _FastProduct(_Fast):
    """A layer of Flax in which every output channel needs every input channel of its group.

    Attributes:
      channel_layout: set by the train step where devices divide the channels; see `ChannelLayout`.
    """

    channel_layout: ChannelLayout | None = None
    feature_group_count: int = 1

    def __call__(self, inputs: Array, *args: Any, **kwargs: Any) -> Array:
        """Takes and returns what the layer of Flax does."""
        return self.divide(super().__call__(self.gather(inputs), *args, **kwargs))

    def gather(self, inputs: Array) -> Array:
        """The inputs with the channels that a device computes with."""
        layout = self.channel_layout
        return layout.gather(inputs, self.feature_group_count) if layout else inputs

    def divide(self, outputs: Array) -> Array:
        """The outputs, divided among devices as the layout says."""
        return self.channel_layout.divide(outputs) if self.channel_layout else outputs


class _FastConvolution(_FastProduct):
    """A convolution of Flax that is fast on a CPU, and that stores its operands once."""

    def __call__(self, inputs: Array, *args: Any, **kwargs: Any) -> Array:
        """Takes and returns what the layer of Flax does."""
        images = materialize(for_known_devices(inputs))
        return materialize_cotangent(super().__call__(images, *args, **kwargs))


class Conv(_FastConvolution, nnx.Conv):
    """`nnx.Conv`, fast on a CPU: over one, two or three axes, with any groups and strides."""


class ConvTranspose(_FastConvolution, nnx.ConvTranspose):
    """`nnx.ConvTranspose`, fast on a CPU."""


class Linear(_FastProduct, nnx.Linear):
    """`nnx.Linear`, fast on a CPU."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"dot_general": ops.dot_general} | kwargs)


class LayerNorm(_Fast, nnx.LayerNorm):
    """`nnx.LayerNorm`; the gradients of its scale and its bias are fast on a CPU."""


class BatchNorm(nnx.BatchNorm):
    """`nnx.BatchNorm`, fast on a CPU over the last axis.

    References:
      Ioffe & Szegedy 2015, *Batch Normalization*, algorithm 1.
    """

    def __call__(
        self,
        x: Array,
        use_running_average: bool | None = None,
        *,
        mask: Array | None = None,
    ) -> Array:
        """Normalizes ``x: [N, …, C]`` by its own statistics, in evaluation by the running ones.

        Half precisions are computed in float32. The result has the dtype of `x`, unless the layer
        has one; that of `nnx.BatchNorm` has the dtype of the statistics, and what follows it is
        then computed in float32.
        """
        is_evaluated = nnx.module.first_from(
            use_running_average, self.use_running_average, error_msg="use_running_average is None"
        )
        if is_evaluated or mask is not None or not self._has_fast_statistics(x):
            with fast_on_cpu():
                result = super().__call__(x, use_running_average, mask=mask)
                return result.astype(self.dtype or jnp.result_type(x, float))
        return self.train_with(x)

    def train_with(self, x: Array, clip: ops.Clip = ops.NO_CLIP) -> Array:
        """Normalizes ``x: [N, …, C]`` by its own statistics and clips the result, see `ops.Clip`.

        Half precisions are computed in float32.
        """
        x32 = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        channels = jnp.ones_like(self.mean[...])
        scale = channels if self.scale is None else self.scale[...].astype(x32.dtype)
        bias = 0 * channels if self.bias is None else self.bias[...].astype(x32.dtype)
        result, *mean_and_variance = ops.batch_norm(
            x32, scale, bias, epsilon=self.epsilon, clip=clip, axis_name=self.axis_name
        )
        for running, current in zip((self.mean, self.var), mean_and_variance, strict=True):
            # Not `running[...] = …`, which compares shardings: while a program is traced, JAX then
            # searches all of it for an error message that is then dropped.
            running.set_value(self.momentum * running[...] + (1 - self.momentum) * current)
        return result.astype(x.dtype)

    def _has_fast_statistics(self, x: Array) -> bool:
        """Whether `train_with` computes what the settings ask for."""
        is_over_last_axis = self.axis in (-1, x.ndim - 1) and self.axis_index_groups is None
        return is_over_last_axis and self.use_fast_variance and self.dtype in (None, x.dtype)


Model = TypeVar("Model", bound=nnx.Module)

FAST_LAYERS: dict[type[nnx.Module], type[nnx.Module]] = {
    nnx.Conv: Conv,
    nnx.ConvTranspose: ConvTranspose,
    nnx.Linear: Linear,
    nnx.LayerNorm: LayerNorm,
    nnx.BatchNorm: BatchNorm,
}


@functools.cache
def _fast_model(kind: type[nnx.Module]) -> type[nnx.Module]:
    """A class like a user's model, whose own operations, such as pools, are fast too."""

    class FastModel(_Fast, kind):  # type: ignore[valid-type, misc]  # a class that is a value
        def __reduce_ex__(self, protocol):
            _, (_, *arguments), *rest = super().__reduce_ex__(protocol)
            return (_new_fast_model, (kind, *arguments), *rest)

    FastModel.__name__, FastModel.__qualname__ = kind.__name__, kind.__qualname__
    FastModel.__module__, FastModel.__doc__ = kind.__module__, kind.__doc__
    return FastModel


def _new_fast_model(kind: type[nnx.Module], *arguments: Any) -> nnx.Module:
    """What `pickle` and `copy` begin with."""
    return object.__new__(_fast_model(kind), *arguments)


def accelerate(model: Model) -> Model:
    """Puts fast layers in place of Flax's own, in a model of any kind; the weights stay untouched.

    Layers of exactly the types in `FAST_LAYERS` change their class. Layers of derived classes, and
    layers with functions of their own, are left alone. If any layer changed, the class of the model
    itself is replaced by one derived from it, so that convolutions and pools in the model's own
    ``__call__``, those of `nnx.max_pool` too, are fast as well.

    Args:
      model: changed in place.

    Returns:
      The same model.

    >>> from jaxcnn import accelerate
    >>> conv = nnx.Conv(3, 8, (3, 3), rngs=nnx.Rngs(0))
    >>> images = jnp.ones((1, 8, 8, 3))
    >>> before = conv(images)
    >>> bool(jnp.allclose(accelerate(conv)(images), before, rtol=1e-4))
    True
    """
    has_changed = False
    for _, module in nnx.iter_modules(model):
        fast = FAST_LAYERS.get(type(module))
        if fast is None:
            continue
        has_changed = True
        if isinstance(module, nnx.Linear) and module.dot_general is lax.dot_general:
            module.dot_general = ops.dot_general
        object.__setattr__(module, "__class__", fast)  # past Flax's own bookkeeping of attributes
    if has_changed and not isinstance(model, _Fast) and callable(model):
        object.__setattr__(model, "__class__", _fast_model(type(model)))
    return model
