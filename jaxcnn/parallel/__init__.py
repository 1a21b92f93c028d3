"""Strategies: how a step is placed on devices and compiled. Nothing else of a program changes."""

from jaxcnn.parallel.resident import ResidentTraining, resident_training
from jaxcnn.parallel.rules import LargestAxis, Rule
from jaxcnn.parallel.shapes import abstract, batch_share
from jaxcnn.parallel.strategies import (
    AUTO,
    FOR_ANY_NETWORK,
    REFERENCE,
    STRATEGIES,
    batch_multiple,
    default_rules,
    device_count,
    mesh_axes,
    mesh_sizes,
    resolve,
    state_copies,
    strategy,
)
from jaxcnn.parallel.strategy import Strategy

__all__ = [
    "AUTO",
    "FOR_ANY_NETWORK",
    "REFERENCE",
    "STRATEGIES",
    "LargestAxis",
    "ResidentTraining",
    "Rule",
    "Strategy",
    "abstract",
    "batch_multiple",
    "batch_share",
    "default_rules",
    "device_count",
    "mesh_axes",
    "mesh_sizes",
    "resident_training",
    "resolve",
    "state_copies",
    "strategy",
]
