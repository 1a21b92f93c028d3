"""Where activations and parameters lie in a program whose channels several devices divide.

The layers of `jaxcnn` state it, so that the compiler does not have to guess: it would otherwise
gather activations where only a kernel is divided, or divide what the next layer needs whole.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.ops.partitioning import for_known_devices


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def reshard(array: Array, sharding: NamedSharding, cotangent_sharding: NamedSharding) -> Array:
    """The same array with another sharding, whose gradient has a sharding of its own.

    `jax.lax.with_sharding_constraint` gives both the same sharding. An array that is gathered has
    a gradient that is a sum over devices, of which each needs its own part: a reduce-scatter, and
    not an all-reduce.
    """
    return lax.with_sharding_constraint(array, sharding)


def _reshard_forward(array, sharding, cotangent_sharding):
    return reshard(array, sharding, cotangent_sharding), None


def _reshard_backward(sharding, cotangent_sharding, _, cotangent):
    # Whole first. The compiler turns the two into a reduce-scatter. Of the second alone it makes a
    # loop over the devices' parts, each of which has few channels.
    whole = lax.with_sharding_constraint(cotangent, sharding)
    return (lax.with_sharding_constraint(whole, cotangent_sharding),)


reshard.defvjp(_reshard_forward, _reshard_backward)


@dataclass(frozen=True)
class ChannelLayout:
    """Activations ``[N, …, C]`` with channels divided between layers and whole within them.

    Each convolution and each dense layer computes its own output channels from all input
    channels: its input is gathered, its output stays divided, and the gradient of its input is
    summed into parts (reduce-scatter). Normalization, activations and pooling in between work on
    the channels of a device. Convolutions with groups: see `with_shared_groups`.

    Attributes:
      mesh: the devices.
      batch: the mesh axis that divides the examples; None if each device has all of them.
      channels: the mesh axis that divides the channels.
    """

    mesh: Mesh
    batch: str | None
    channels: str

    def gather(self, array: Array, groups: int = 1) -> Array:
        """The input of a layer: all channels on each device.

        Args:
          array: ``[N, …, C]``. Flattened images ``[N, C]`` have a whole gradient, because their
            parts would not be those of the images.
          groups: of channels that the layer computes separately; they stay where they are if
            each device has whole groups.
        """
        if groups > 1 and self.shares(groups):
            return self.divide(array)
        whole = self._sharding(array, divided=False)
        if array.ndim == 2:
            return reshard(array, whole, whole)
        # Divided until here: the compiler would gather before a conversion to half precision, which
        # is twice the bytes, or before a pool, which is four times.
        return reshard(self.divide(array), whole, self._sharding(array, divided=True))

    def divide(self, array: Array) -> Array:
        """The output of a layer: its channels divided, if the devices can share them equally."""
        return lax.with_sharding_constraint(array, self._sharding(array, divided=True))

    def shares(self, count: int) -> bool:
        """Whether the devices can share this number of channels, or of groups, equally."""
        return count % self.mesh.shape[self.channels] == 0

    def with_shared_groups(self, convolution: Callable[..., Array]) -> Callable[..., Array]:
        """A convolution whose groups the devices share, as far as they can do so equally.

        Each device computes its own groups, or all groups, of its own examples. The compiler has
        no part in how they are divided: XLA of jaxlib 0.10 aborts on gradients of kernels whose
        groups the devices cannot share, and computes wrong ones of others where the batch is
        divided too.

        Args:
          convolution: called like `jax.lax.conv_general_dilated`, with images ``[N, …, C]`` and a
            kernel ``[…, C / groups, D]``.

        Returns:
          A function of the same arguments, with the channels of its result divided.
        """

        def convolve(
            images: Array, kernel: Array, *args: Any, feature_group_count: int = 1, **kwargs: Any
        ) -> Array:
            shared = self.shares(feature_group_count)
            groups = feature_group_count // (self.mesh.shape[self.channels] if shared else 1)

            def compute(images: Array, kernel: Array) -> Array:
                options = kwargs | {"feature_group_count": groups}
                return convolution(for_known_devices(images), kernel, *args, **options)

            if feature_group_count == 1:
                return compute(images, kernel)
            between, last = (None,) * (images.ndim - 2), self.channels if shared else None
            divided = PartitionSpec(self.batch, *between, last)
            specs = divided, PartitionSpec(None, *between, last)
            mapped = jax.shard_map(compute, mesh=self.mesh, in_specs=specs, out_specs=divided)
            return self.divide(mapped(self.gather(images, feature_group_count), kernel))

        return convolve

    def _sharding(self, array: Array, *, divided: bool) -> NamedSharding:
        last = self.channels if divided and self.shares(array.shape[-1]) else None
        between = (None,) * (array.ndim - 2)
        return NamedSharding(self.mesh, PartitionSpec(self.batch, *between, last))
