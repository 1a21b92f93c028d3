"""From a train state back to a module of Flax NNX."""

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcnn.errors import InputError
from jaxcnn.training.eval_step import EvalStep
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import TrainStep


def trained_model(step: TrainStep | EvalStep, state: TrainState) -> nnx.Module:
    """The network of a train state as a module, in evaluation mode.

    It computes what `EvalStep.outputs` computes in float32, from images that are preprocessed
    (``step.network.preprocess(images, None)``): its parameters are the averaged ones if the state
    has any, and its batch norm uses the running statistics of the state. The arrays are copies, so
    that the state may be donated to further steps.

    Args:
      step: the step that `create` returned with the state, or its ``evaluation``.
      state: as `create`, `Checkpoints.restore` or `Strategy.fetch` return it.

    Raises:
      InputError: the state is placed by a strategy that changes its shapes, or belongs to another
        network.

    >>> import optax
    >>> from jaxcnn import models, training
    >>> state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    >>> trained_model(step, state)(jnp.ones((2, 28, 28, 1))).shape
    (2, 10)
    """
    if state.step.ndim or type(state) is not TrainState:
        raise InputError(
            "the train state lies on the devices of a strategy: pass what its fetch(state) returns"
        )
    params = state.ema_params or state.params
    parts = jax.tree.map(jnp.copy, (params, state.frozen, state.model_state))
    try:
        model = nnx.merge(step.network.graphdef, *parts)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "the train state does not belong to this step's network: pass the step and the state "
            "of one call of create, and of a state on a strategy's devices what fetch returns"
        ) from error
    model.eval()
    return model
