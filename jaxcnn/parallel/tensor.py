"""Model parallelism within layers: output channels and columns are divided among devices."""

from jaxcnn.parallel.mesh_strategy import MeshStrategy
from jaxcnn.parallel.rules import DATA, TENSOR, TENSOR_RULES


class Tensor(MeshStrategy):
    """Each device has the whole batch, and computes some channels of every layer.

    References:
      Krizhevsky 2014, *One weird trick for parallelizing convolutional neural networks*, §3.
    """

    about = "each device computes some channels of every layer"
    axes = (TENSOR,)
    default_rules = TENSOR_RULES


class DataTensor(MeshStrategy):
    """A mesh with two axes: the batch is divided over the first, channels over the second."""

    about = "a mesh of data x tensor, see --mesh"
    axes = (DATA, TENSOR)
    default_rules = TENSOR_RULES
