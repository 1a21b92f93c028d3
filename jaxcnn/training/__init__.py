"""Training: state, step, loop, checkpoints."""

from jaxcnn.training.checkpoint import Checkpoints
from jaxcnn.training.create import create
from jaxcnn.training.eval_step import EvalStep
from jaxcnn.training.fit_config import FitConfig
from jaxcnn.training.history import History
from jaxcnn.training.loop import Interrupted, NonFiniteLossError, fit
from jaxcnn.training.multi_step import evaluate_dataset, multi_step
from jaxcnn.training.objective import class_logits, means
from jaxcnn.training.optimizer import DECOUPLED, OPTIMIZERS, optimizer
from jaxcnn.training.precision import PRECISIONS
from jaxcnn.training.sharding import BatchSharding
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import TrainStep
from jaxcnn.training.trained_model import trained_model

__all__ = [
    "DECOUPLED",
    "OPTIMIZERS",
    "PRECISIONS",
    "BatchSharding",
    "Checkpoints",
    "EvalStep",
    "FitConfig",
    "History",
    "Interrupted",
    "NonFiniteLossError",
    "TrainState",
    "TrainStep",
    "class_logits",
    "create",
    "evaluate_dataset",
    "fit",
    "means",
    "multi_step",
    "optimizer",
    "trained_model",
]
