"""A small network with one of each kind of variable, and weights for it."""

import numpy as np
from flax import nnx

from jaxcnn import weights


class SmallNet(nnx.Module):
    """Convolution, batch norm, dropout and a dense layer called ``out``."""

    def __init__(self, classes: int, rngs: nnx.Rngs):
        self.blocks = nnx.Sequential(
            nnx.Conv(1, 2, (3, 3), rngs=rngs),
            nnx.BatchNorm(2, rngs=rngs),
            nnx.Dropout(0.5, rngs=rngs),
        )
        self.out = nnx.Linear(2, classes, rngs=rngs)


def small_net(classes: int = 3) -> SmallNet:
    return SmallNet(classes, nnx.Rngs(0))


def random_weights(model: nnx.Module, seed: int = 1) -> weights.Weights:
    """Random weights for all names of a network."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in weights.array_shapes(model).items()
    }


def array_values(model: nnx.Module) -> dict[str, np.ndarray]:
    """The arrays of a network by dotted name, without its random keys."""
    variables = nnx.to_flat_state(nnx.state(model, nnx.Not(nnx.RngState)))
    return {".".join(map(str, path)): np.array(variable[...]) for path, variable in variables}
