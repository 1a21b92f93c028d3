"""Networks whose layers are called one after the other."""

from collections.abc import Callable, Iterable

from flax import nnx
from jax import Array

Layer = Callable[[Array], Array]


class SequentialNetwork(nnx.Module):
    """A network that lists its layers in `sequence`, and calls them in this order.

    `jaxcnn.parallel.Pipeline` divides such a network among devices.
    """

    def sequence(self) -> tuple[Layer, ...]:
        """The layers in the order of their calls: modules, and functions without parameters."""
        raise NotImplementedError

    def __call__(self, images: Array) -> Array:
        """The network's outputs for images ``f32[N, H, W, C]``."""
        return in_sequence(self.sequence())(images)


def in_sequence(layers: Iterable[Layer]) -> Layer:
    """A function that calls layers one after the other.

    >>> in_sequence([abs, lambda x: x + 1])(-2)
    3
    """

    def call(x: Array) -> Array:
        for layer in layers:
            x = layer(x)
        return x

    return call
