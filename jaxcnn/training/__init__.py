"""Training: state, step, loop, checkpoints."""

from jaxcnn.training.checkpoint import Checkpoints
from jaxcnn.training.loop import Interrupted, NonFiniteLossError, Plan, fit
from jaxcnn.training.many import many_train_steps, whole_evaluation
from jaxcnn.training.precision import PRECISIONS
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import EvalStep, Spread, TrainStep, create, means

__all__ = [
    "PRECISIONS",
    "Checkpoints",
    "EvalStep",
    "Interrupted",
    "NonFiniteLossError",
    "Plan",
    "Spread",
    "TrainState",
    "TrainStep",
    "create",
    "fit",
    "many_train_steps",
    "means",
    "whole_evaluation",
]
