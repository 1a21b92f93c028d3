"""Training states without arrays: of networks of any size, made in no time."""

from collections.abc import Callable

import jax

from jaxcnn import training


def abstract_training(
    create: Callable[[], tuple[training.TrainState, training.TrainStep]],
) -> tuple[training.TrainState, training.TrainStep]:
    """What `create` returns, as `training.create` does, with abstract arrays in the state."""
    steps = []

    def create_state() -> training.TrainState:
        state, step = create()
        steps.append(step)
        return state

    return jax.eval_shape(create_state), steps[0]
