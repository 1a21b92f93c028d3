"""The table of models: their published shapes, sizes, sources and recipes."""

from jaxcnn.models.model_spec import ModelSpec
from jaxcnn.models.table_classic import CLASSIC
from jaxcnn.models.table_efficient import EFFICIENT
from jaxcnn.models.table_residual import RESIDUAL

MODELS: dict[str, ModelSpec] = CLASSIC | RESIDUAL | EFFICIENT
