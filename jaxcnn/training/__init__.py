"""Training: state, step, loop, checkpoints."""

from jaxcnn.training.checkpoint import Checkpoints
from jaxcnn.training.history import History
from jaxcnn.training.loop import Interrupted, NonFiniteLossError, Plan, fit
from jaxcnn.training.many import many_train_steps, whole_evaluation
from jaxcnn.training.objective import class_logits, means
from jaxcnn.training.optimizer import OPTIMIZERS, optimizer
from jaxcnn.training.precision import PRECISIONS
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import EvalStep, Spread, TrainStep, create

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "Checkpoints",
    "EvalStep",
    "History",
    "Interrupted",
    "NonFiniteLossError",
    "Plan",
    "Spread",
    "TrainState",
    "TrainStep",
    "class_logits",
    "create",
    "fit",
    "many_train_steps",
    "means",
    "optimizer",
    "whole_evaluation",
]
