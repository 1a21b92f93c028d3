"""Equinox modules as NNX modules; Equinox is imported only where it is used."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jaxcnn.errors import InputError
from jaxcnn.models.adapters.functions import Call, PureNetwork

PyTree = Any
BATCH_AXIS = "batch"  # the axis name that Equinox's documentation gives to batch norm


def from_equinox(
    model: Any, rngs: nnx.Rngs, *, state: Any = None, channels_first: bool = True
) -> nnx.Module:
    """Turns an Equinox module into an NNX module with the same weights.

    The module gets one image, as is usual for Equinox, and a key in training; the batch is
    vectorized by `jax.vmap`, whose axis has the name ``batch``. `equinox.nn.inference_mode` sets
    the mode. Every image has its own key, the same on any number of devices and with any number of
    microbatches, and under `jax.pmap` batch norm has the statistics of the global batch.

    Args:
      model: ``model(image, key=…)`` returns logits ``[classes]``; with a state,
        ``model(image, state, key=…)`` returns logits and the next state.
      rngs: the keys are drawn from the stream ``dropout``, or from the default stream.
      state: of `equinox.nn.make_with_state`, for modules with batch norm.
      channels_first: whether the images that the module gets are ``[C, H, W]``, as Equinox's
        convolutions take them, or ``[H, W, C]``.

    Returns:
      A module from images ``[N, H, W, C]`` to logits ``[N, classes]``.

    Raises:
      InputError: Equinox is not installed.
    """
    eqx = _import_equinox()
    params, others = eqx.partition(model, eqx.is_inexact_array)
    buffers, static = eqx.partition(others, eqx.is_array)

    def apply(params: PyTree, variables: PyTree, images: Array, call: Call) -> Any:
        state, buffers = variables
        whole = eqx.nn.inference_mode(eqx.combine(params, buffers, static), value=not call.train)
        if call.axis_name:
            whole = _over_axes(whole, (BATCH_AXIS, call.axis_name))
        if channels_first:
            images = jnp.moveaxis(images, -1, 1)
        keys = _keys(call, len(images))
        key_axis = None if keys is None else 0
        if state is None:
            outputs = jax.vmap(
                lambda image, key: whole(image, key=key), (0, key_axis), axis_name=BATCH_AXIS
            )(images, keys)
            return outputs, variables
        outputs, state = jax.vmap(
            lambda image, state, key: whole(image, state, key=key),
            (0, None, key_axis),
            (0, None),
            axis_name=BATCH_AXIS,
        )(images, state, keys)
        return outputs, (state, buffers)

    return PureNetwork(params, (state, buffers), apply, rngs)


def _keys(call: Call, rows: int) -> Array | None:
    """A key for each image, folded from its index in the global batch; None in evaluation."""
    if call.key is None:
        return None
    positions = call.batch_rows
    if positions is None:
        first = lax.axis_index(call.axis_name) * rows if call.axis_name else 0
        positions = first + jnp.arange(rows)
    return jax.vmap(jax.random.fold_in, (None, 0))(call.key, positions)


def _over_axes(model: Any, axes: tuple[str, ...]) -> Any:
    """The model, its batch norms taking their statistics over these axes."""
    eqx = _import_equinox()

    def replace(node: Any) -> Any:
        if not isinstance(node, eqx.nn.BatchNorm):
            return node
        norm = copy.copy(node)
        object.__setattr__(norm, "axis_name", axes)
        return norm

    return jax.tree.map(replace, model, is_leaf=lambda node: isinstance(node, eqx.nn.BatchNorm))


def _import_equinox() -> Any:
    try:
        import equinox
    except ImportError as error:
        raise InputError("Equinox is not installed: pip install equinox") from error
    return equinox
