"""Builds a user's own model and checks what it returns, before anything is trained with it."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax import Array

from jaxcnn.errors import InputError
from jaxcnn.models.adapters import from_linen
from jaxcnn.models.model_spec import Shape
from jaxcnn.models.user_code import user_code_errors
from jaxcnn.models.user_model import UserModel

_REQUIRED, _OPTIONAL = ("num_classes", "rngs"), ("input_shape",)
_IMAGES = 2  # in a batch with which a model is checked
_LISTED = 3  # arrays that an error message lists


def make_user_network(
    user: UserModel, input_shape: Shape, num_classes: int, *, rngs: nnx.Rngs
) -> nnx.Module:
    """Calls the factory of a user's model; a Linen module is adapted.

    Args:
      user: its factory is a callable or an NNX class that takes the keywords ``num_classes``,
        ``rngs`` and optionally ``input_shape``; or a Linen class or module.
      input_shape: height, width and channels of the images.
      num_classes: the number of classes.
      rngs: of weights and dropout.

    Raises:
      InputError: the factory takes other arguments, raises, or returns something else than a
        network with parameters from images ``[N, H, W, C]`` to logits ``[N, num_classes]``.
    """
    with user_code_errors(f"model {user.label}: building it", user.folder):
        model = _call_factory(user, {"input_shape": input_shape, "num_classes": num_classes}, rngs)
        if isinstance(model, linen.Module):
            model = from_linen(model, input_shape, rngs)
    if not isinstance(model, nnx.Module):
        raise InputError(
            f"model {user.label} is of type {type(model).__name__}, not a module of Flax NNX or "
            "Linen; jaxcnn.models.adapters has from_equinox and from_functions for other libraries"
        )
    if not jax.tree.leaves(nnx.state(model, nnx.Param)):
        raise InputError(
            f"model {user.label} has no parameters (nnx.Param): there is nothing to train"
        )
    _check_outputs(user, model, input_shape, num_classes)
    return model


def require_finite(model: nnx.Module, input_shape: Shape, name: str) -> None:
    """Runs a network on random images, as it is before any training.

    Raises:
      InputError: the outputs are not finite; the message names the arrays that are not.
    """
    graphdef, state = nnx.split(model)
    shape = (_IMAGES, *input_shape)
    images = jnp.asarray(np.random.default_rng(0).random(shape, np.float32))
    outputs = jax.jit(lambda state, images: _run(graphdef, state, images, False))(state, images)
    if bool(jnp.isfinite(outputs).all()):
        return
    arrays = nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))
    bad = [".".join(map(str, path)) for path, array in arrays if not np.isfinite(array[...]).all()]
    cause = f"; so are its initial {', '.join(bad[:_LISTED])}" if bad else ""
    raise InputError(
        f"model {name}: its outputs are not finite (NaN or infinite) before any training{cause}"
    )


def _call_factory(user: UserModel, sizes: dict[str, Any], rngs: nnx.Rngs) -> Any:
    factory = user.factory
    if isinstance(factory, linen.Module):
        return factory
    if isinstance(factory, nnx.Module) or not callable(factory):
        raise InputError(
            f"model {user.label} is of type {type(factory).__name__}: name a class or a function "
            "that takes num_classes and rngs, and returns a network"
        )
    is_linen = inspect.isclass(factory) and issubclass(factory, linen.Module)
    arguments = sizes if is_linen else sizes | {"rngs": rngs}
    parameters = _parameters(factory)
    names = _keyword_names(user, parameters, tuple(arguments), () if is_linen else _REQUIRED)
    return factory(**{name: arguments[name] for name in names})


def _parameters(factory: Callable) -> dict[str, inspect.Parameter]:
    """The parameters of a callable; of a class those of ``__init__``, which Flax hides."""
    if not inspect.isclass(factory):
        return dict(inspect.signature(factory).parameters)
    _, *parameters = inspect.signature(factory.__init__).parameters.items()
    return dict(parameters)


def _keyword_names(
    user: UserModel,
    parameters: dict[str, inspect.Parameter],
    offered: tuple[str, ...],
    required: tuple[str, ...],
) -> list[str]:
    """The names among those offered that a factory takes.

    Raises:
      InputError: it lacks a required one, or requires others.
    """
    kinds = {parameter.kind for parameter in parameters.values()}
    by_keyword = {
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    names = [name for name in offered if takes_any or name in by_keyword]
    missing = [name for name in required if name not in names]
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    unknown = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in variadic
        and name not in names
    ]
    problems = [
        f"{problem} {', '.join(names)}"
        for problem, names in (("lacks", missing), ("requires", unknown))
        if names
    ]
    if problems:
        takes = ", ".join(map(str, parameters.values()))
        raise InputError(
            f"model {user.label} takes ({takes}): it {' and '.join(problems)}; a model takes the "
            f"keywords {' and '.join(_REQUIRED)}, and optionally {_OPTIONAL[0]}"
        )
    return names


def _check_outputs(
    user: UserModel, model: nnx.Module, input_shape: Shape, num_classes: int
) -> None:
    """Traces the network in both modes and checks the shape of its outputs."""
    graphdef, state = nnx.split(model)
    images = jax.ShapeDtypeStruct((_IMAGES, *input_shape), jnp.float32)
    size = "×".join(map(str, input_shape))
    for train in (False, True):
        with user_code_errors(f"model {user.label}: calling it with images of {size}", user.folder):
            outputs = jax.eval_shape(
                lambda state, images, train=train: _run(graphdef, state, images, train),
                state,
                images,
            )
        is_array = isinstance(outputs, jax.ShapeDtypeStruct)
        if not is_array or outputs.shape != (_IMAGES, num_classes):
            raise InputError(
                f"model {user.label} returns {_describe(outputs)} for {_IMAGES} images of {size}; "
                f"it must return logits [N, num_classes], here [{_IMAGES}, {num_classes}]"
            )


def _run(graphdef: Any, state: Any, images: Array, train: bool) -> Any:
    model = nnx.merge(graphdef, state, copy=True)
    if train:
        model.train()
    else:
        model.eval()
    return model(images)


def _describe(outputs: Any) -> str:
    """The outputs of a network in words, such as ``an array [2, 7]``."""
    if isinstance(outputs, jax.ShapeDtypeStruct):
        return f"an array {list(outputs.shape)}"
    shapes = [list(leaf.shape) for leaf in jax.tree.leaves(outputs)]
    return f"a {type(outputs).__name__} of arrays {', '.join(map(str, shapes))}"
