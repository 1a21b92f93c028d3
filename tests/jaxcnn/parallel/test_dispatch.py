"""Programs on several simulated devices end before the next one starts."""

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxcnn import models, parallel, training
from jaxcnn.parallel.dispatch import SequentialProgram, dispatchable


@jax.jit
def repeated_product(matrix):
    return jax.lax.fori_loop(0, 20, lambda _, x: x @ matrix, matrix)


def test_a_call_on_simulated_devices_returns_results_that_are_ready():
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    matrix = jax.device_put(jnp.eye(256), rows)
    program = dispatchable(repeated_product, jax.devices()[:4])
    for _ in range(5):
        assert program(matrix).is_ready()
    assert dispatchable(repeated_product, jax.devices()[:1]) is repeated_product


@pytest.mark.parametrize("name", ("pmap", "data", "fsdp"))
def test_every_strategy_of_several_devices_waits(name):
    _, step = training.create(models.build("logistic"), optax.sgd(0.1))
    several, one = (parallel.strategy(name, jax.devices()[:count]) for count in (4, 1))
    for compiled in (several.compile(step), several.compile_evaluation(step.evaluation)):
        assert isinstance(compiled, SequentialProgram)
    assert not isinstance(one.compile(step), SequentialProgram)
