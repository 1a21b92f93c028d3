"""Tasks of the study of peers, for tests."""

import jax

from experiments.config import RunConfig
from experiments.peers.definition import make_task as make_task_of
from experiments.peers.task import Task
from experiments.studies import peers_cases
from jaxcnn.backend import Backend


def cpu_backend() -> Backend:
    """The first CPU device."""
    return Backend("cpu", tuple(jax.devices("cpu")[:1]))


def make_task(model: str, side: int, **changes) -> Task:
    """The task of a network on four images of a size, with SGD and other options as given."""
    config = RunConfig(
        study="peers", model=model, batch_size=4, image_size=side, optimizer="sgd", **changes
    )
    return make_task_of(peers_cases.cases(config, cpu_backend())[0].config)
