"""The outputs of a network in stages in evaluation mode, as each device runs it."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxcnn.parallel.schedule import Wire, microbatch, set_row, to_next
from jaxcnn.parallel.staged_network import AXIS, StagedNetwork
from jaxcnn.training.eval_step import EvalStep
from jaxcnn.training.state import TrainState


def outputs(network: StagedNetwork, step: EvalStep, state: TrainState, images: Array) -> Array:
    """The outputs of the network for all images, on every device.

    Args:
      network: the stages.
      step: of the whole network.
      state: of the device's stage, packed.
      images: ``[N, H, W, C]``; they are divided into as many microbatches as N allows, at most
        those of a train step.
    """
    count = math.gcd(len(images), network.microbatches)
    last, stage = network.last, lax.axis_index(AXIS)
    parts = images.reshape(count, -1, *images.shape[1:])

    def preprocess(images):
        return step.network.preprocess(images, None)

    shapes = network.boundaries(step.network, jax.eval_shape(preprocess, parts[0]), train=False)
    wire = Wire(tuple(shapes[:-1]))
    results = jnp.zeros((count, *shapes[-1].shape), shapes[-1].dtype)

    def idle(x, images):
        return x, results[0]

    def branch(number):
        def run(x, images):
            local = network.unpack(number, state)
            local = local.replace(params=local.ema_params or local.params)
            x_in = wire.read(number - 1, x) if number else preprocess(images)
            y, _ = network.apply(step.network, number, local, x_in, train=False)
            return (x, y) if number == last else (wire.write(y), results[0])

        return run

    branches = [idle, *map(branch, range(last + 1))]

    def tick(number, carry):
        x, results = carry
        m, active = microbatch(number, stage, count)
        x, y = lax.switch(jnp.where(active, stage + 1, 0), branches, x, parts[m])
        results = set_row(results, m, y, active & (stage == last))
        return to_next(x, last + 1), results

    _, results = lax.fori_loop(0, count + last, tick, (wire.empty()[0], results))
    return lax.psum(results.reshape(-1, *results.shape[2:]), AXIS)
