"""Data parallelism: the batch is divided. With `Fsdp` so is the train state."""

from jaxcnn.parallel.mesh_strategy import MeshStrategy
from jaxcnn.parallel.rules import DATA, FSDP_RULES


class Data(MeshStrategy):
    """State replicated, batch divided, gradients summed by the compiler."""

    about = "jax.jit over a mesh, the batch divided by NamedSharding"
    axes = (DATA,)


class Fsdp(MeshStrategy):
    """Fully sharded data parallelism: batch, parameters and optimizer state divided.

    In each step, or microbatch, the parameters are gathered once, in the precision of the
    computation, for the forward and the backward pass; each device sums and applies its own part of
    the gradients.

    References:
      Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion Parameter
      Models*, §5; Xu et al. 2020, *Automatic Cross-Replica Sharding of Weight Update in
      Data-Parallel Training*.
    """

    about = "as data, parameters and optimizer state divided too"
    axes = (DATA,)
    default_rules = FSDP_RULES
