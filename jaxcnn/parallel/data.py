"""Data parallelism as one program: the compiler divides the work by the shardings of its arguments."""

from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcnn.ops import native
from jaxcnn.parallel.jit import Jit
from jaxcnn.parallel.options import compiler_options
from jaxcnn.training.step import Spread

AXIS = "data"


class Data(Jit):
    """`jax.jit` over a mesh: the state on every device, the batch divided, gradients summed by the compiler."""

    about = "jax.jit over a mesh, the batch divided by NamedSharding"

    def __init__(self, devices: tuple[jax.Device, ...]):
        self.devices = devices
        self.options = compiler_options(devices[0].platform)
        mesh = Mesh(devices, (AXIS,))
        self._shared = NamedSharding(mesh, PartitionSpec())
        self._split = NamedSharding(mesh, PartitionSpec(AXIS))
        self._spread = Spread(split=lambda rows: lax.with_sharding_constraint(rows, self._split))

    def _jit(self, function: Any, **settings: Any) -> Any:
        divided = function if len(self.devices) == 1 else native.left_out()(function)
        return super()._jit(divided, out_shardings=self._shared, **settings)
