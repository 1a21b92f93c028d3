"""A training run made ready: data opened, network built, nothing compiled yet."""

import dataclasses
from dataclasses import dataclass

import optax
from flax import nnx

from experiments import pipelines
from experiments.config import RunConfig
from experiments.inputs import Inputs
from jaxcnn import data, models, parallel, training, weights
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from jaxcnn.training.optimizer import schedule


@dataclass(frozen=True)
class Opened:
    """What trains on what.

    Attributes:
      dataset, splits, inputs: the data, and how the network sees it.
      strategy: over the devices of the backend.
      model, state, step: as `training.create` gives them; the state is not placed.
      plan: of the whole run.
      schedule: the learning rate by the steps done in a stage, before the stage's factor.
    """

    dataset: data.Dataset
    splits: pipelines.Splits
    inputs: Inputs
    strategy: parallel.Jit
    model: nnx.Module
    state: training.TrainState
    step: training.TrainStep
    plan: training.Plan
    schedule: optax.ScalarOrSchedule


def open_run(config: RunConfig, backend: Backend) -> Opened:
    """Opens the data and builds what trains on it."""
    dataset, splits, inputs = _open_data(config)
    plan = training.Plan(
        config.epochs, len(splits.train) // config.batch_size, config.patience, len(config.stages),
        target_accuracy=config.target_accuracy, target_loss=config.target_loss, save_every=config.save_every,
    )  # fmt: skip
    model = models.build(config.model, num_classes=len(dataset.classes), input_shape=inputs.network_shape, seed=config.seed)
    if config.init_from:
        weights.assign(model, weights.read(config.init_from, config.model, model), new_head=True)
    length = {"steps": plan.epochs * plan.steps_per_epoch, "steps_per_epoch": plan.steps_per_epoch}
    state, step = training.create(
        model,
        training.optimizer(config.optimizer, config.learning_rate, config.schedule, **length),
        seed=config.seed,
        precision=config.precision,
        prepare=inputs.prepare(config.augmentations),
        decay=config.weight_decay,
        decayed=models.spec(config.model).recipe.decayed,
        moving_average=config.moving_average,
        trained=models.heads(model) if config.freeze else (),
    )  # fmt: skip
    state = state.replace(rate=state.rate * config.stages[0])
    strategy = parallel.strategy(config.strategy, backend.devices)
    rates = schedule(config.schedule, config.learning_rate, **length)
    return Opened(dataset, splits, inputs, strategy, model, state, step, plan, rates)


def _open_data(config: RunConfig) -> tuple[data.Dataset, pipelines.Splits, Inputs]:
    channels = models.spec(config.model).input_shape[2]
    wanted = (config.resize, config.resize, channels)
    dataset = data.open_dataset(config.dataset, shape=wanted, data_dir=config.data_dir, skip_bad_images=config.skip_bad_images)
    train, validation = data.hold_out(dataset.train, config.validation)
    if not len(validation) or not len(dataset.test):
        raise InputError(f"dataset {config.dataset!r} is too small to be divided into training, validation and test images")
    if config.batch_size > len(train):
        raise InputError(
            f"batch size {config.batch_size} is larger than the training set of {len(train)} images: choose a smaller --batch-size"
        )
    inputs = Inputs(config.image_size, config.resize, dataset.channels, dataset.classes, config.normalise)
    if config.normalise == "standard":
        mean, std = data.channel_statistics(train, inputs.stored_shape)
        inputs = dataclasses.replace(inputs, mean=mean, std=std)
    return dataset, pipelines.Splits(train, validation, dataset.test), inputs
