"""Flax Linen modules as NNX modules, by Flax's own bridge.

The bridge keeps parameters, running statistics and random keys as NNX variables. What it leaves to
its caller is here: training and evaluation mode, the update of the statistics, a batch that is
divided by `jax.pmap`, channels that devices divide, and the fast operations on a CPU.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen, nnx
from flax.core import DenyList
from jax import Array, lax

from jaxcnn.errors import InputError, first_line
from jaxcnn.models.model_spec import Shape
from jaxcnn.ops.cpu_lowering import fast_on_cpu
from jaxcnn.ops.layout import ChannelLayout
from jaxcnn.ops.partitioning import for_known_devices

# Arguments of a module's call that are True in training, and those that are True in evaluation.
TRAIN_ARGUMENTS = ("train", "training", "is_training")
EVALUATION_ARGUMENTS = ("deterministic", "use_running_average")
# Collections that a call does not change, or that are not part of the network's state.
_FIXED = DenyList(("params", "intermediates"))


def from_linen(module: linen.Module, input_shape: Shape, rngs: nnx.Rngs) -> nnx.Module:
    """Turns a Linen module into an NNX module with initial weights.

    The result has the variables of the module under the names that Linen gives them. Parameters are
    `nnx.Param`; in training, all other collections, such as ``batch_stats``, are updated by each
    call. Arguments of the module's call named in `TRAIN_ARGUMENTS` or `EVALUATION_ARGUMENTS` get
    the mode. Under `jax.pmap`, batch norm has the statistics of the global batch, and dropout the
    masks that one device would draw.

    Args:
      module: from images ``[N, H, W, C]`` to logits ``[N, classes]``.
      input_shape: height, width and channels of the images.
      rngs: initial weights are drawn from the stream ``params``, dropout masks from ``dropout``;
        either from the default stream if there is no such stream.

    Raises:
      InputError: the module has settings that cannot be hashed.

    >>> model = from_linen(linen.Dense(10), (8,), nnx.Rngs(0))
    >>> model.kernel.shape, model(jnp.ones((4, 8))).shape
    ((8, 10), (4, 10))
    """
    return _LinenNetwork(_hashable(module), jnp.ones((1, *input_shape), jnp.float32), rngs)


class _Mode(nnx.Module):
    """What `nnx.Module.train`, `nnx.Module.eval` and the train step set.

    A module of its own, because the bridge passes every attribute of its module to Linen.
    """

    def __init__(self):
        self.deterministic = False
        self.axis_name: str | None = None
        self.channel_layout: ChannelLayout | None = None


class _LinenNetwork(nnx.bridge.ToNNX):
    """A Linen module whose variables are attributes. Names with ``to_nnx__`` are the bridge's."""

    def __init__(self, module: linen.Module, images: Array, rngs: nnx.Rngs):
        super().__init__(module, rngs)
        self.to_nnx__mode = _Mode()
        self.lazy_init(images)

    def __call__(self, images: Array) -> Any:  # type: ignore[override]  # no options
        mode = self.to_nnx__mode
        layers = _unchanged
        if mode.axis_name:
            layers = _over_axis(mode.axis_name)
        elif mode.channel_layout:
            layers = _over_channels(mode.channel_layout)
        arguments: dict[str, Any] = _mode_arguments(self.to_nnx__module, mode.deterministic)
        with fast_on_cpu(), linen.intercept_methods(layers):
            return super().__call__(
                for_known_devices(images),
                mutable=False if mode.deterministic else _FIXED,
                **arguments,
            )


def _mode_arguments(module: linen.Module, deterministic: bool) -> dict[str, bool]:
    """The arguments of the module's call that say whether it is in training."""
    names = inspect.signature(type(module).__call__).parameters
    values = dict.fromkeys(TRAIN_ARGUMENTS, not deterministic)
    values |= dict.fromkeys(EVALUATION_ARGUMENTS, deterministic)
    return {name: value for name, value in values.items() if name in names}


def _unchanged(method: Callable, args: tuple, kwargs: dict[str, Any], context: Any) -> Any:
    return method(*args, **kwargs)


def _over_axis(axis_name: str) -> Callable:
    """An interceptor for Linen's layers that depend on the batch as a whole."""

    def intercept(method: Callable, args: tuple, kwargs: dict[str, Any], context: Any) -> Any:
        layer = context.module
        if context.method_name != "__call__" or not args:
            return method(*args, **kwargs)
        if isinstance(layer, linen.BatchNorm) and layer.axis_name is None:
            object.__setattr__(layer, "axis_name", axis_name)  # of this call's copy of the layer
        if isinstance(layer, linen.Dropout):
            inputs, *others = args
            return inputs * _share(lambda ones: method(ones, *others, **kwargs), inputs, axis_name)
        return method(*args, **kwargs)

    return intercept


def _over_channels(layout: ChannelLayout) -> Callable:
    """An interceptor for convolutions with groups."""

    def intercept(method: Callable, args: tuple, kwargs: dict[str, Any], context: Any) -> Any:
        layer = context.module
        if isinstance(layer, linen.Conv) and context.method_name == "__call__":
            convolution = layer.conv_general_dilated or lax.conv_general_dilated
            # Of this call's copy of the layer.
            shared = layout.with_shared_groups(convolution)
            object.__setattr__(layer, "conv_general_dilated", shared)
        return method(*args, **kwargs)

    return intercept


def _share(dropout: Callable[[Array], Array], inputs: Array, axis_name: str) -> Array:
    """The factors by which dropout multiplies this device's share of the batch.

    The mask is drawn for the global batch, as on one device.
    """
    rows = len(inputs)
    batch = jnp.ones((lax.axis_size(axis_name) * rows, *inputs.shape[1:]), inputs.dtype)
    return lax.dynamic_slice_in_dim(dropout(batch), lax.axis_index(axis_name) * rows, rows)


def _hashable(module: linen.Module) -> linen.Module:
    """The module with tuples in place of lists among its settings.

    A compiled step is looked up by the structure of its model, settings included.
    """
    fields = {
        name: _to_tuple(value)
        for name, value in vars(module).items()
        if name in type(module).__dataclass_fields__ and isinstance(value, list)
    }
    module = module.clone(**fields) if fields else module
    try:
        hash(module)
    except TypeError as error:
        raise InputError(
            f"the settings of the Linen module {type(module).__name__} cannot be hashed "
            f"({_cause(error)}): use tuples in place of lists, FrozenDict in place of dicts"
        ) from error
    return module


def _to_tuple(value: Any) -> Any:
    return tuple(map(_to_tuple, value)) if isinstance(value, list) else value


def _cause(error: BaseException) -> str:
    return first_line(error.__cause__ or error)
