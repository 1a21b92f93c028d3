"""Networks of other libraries as Flax NNX modules, which `jaxcnn.training.create` trains."""

from jaxcnn.models.adapters.equinox import from_equinox
from jaxcnn.models.adapters.functions import from_functions
from jaxcnn.models.adapters.linen import from_linen

__all__ = ["from_equinox", "from_functions", "from_linen"]
