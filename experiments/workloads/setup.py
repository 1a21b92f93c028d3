"""Sets up a training run: opens the data and builds the network; nothing is compiled yet."""

import dataclasses
from dataclasses import dataclass

import optax
from flax import nnx

from experiments.config import RunConfig
from experiments.workloads import network
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import data, models, parallel, training, weights
from jaxcnn.backend import Backend
from jaxcnn.data.source import Split
from jaxcnn.errors import InputError
from jaxcnn.training import FitConfig, TrainState, TrainStep
from jaxcnn.training.optimizer import schedule


@dataclass(frozen=True)
class Splits:
    """The three parts of a data set."""

    train: Split
    validation: Split
    test: Split


@dataclass(frozen=True)
class TrainingSetup:
    """Everything that a training run starts from.

    Attributes:
      config: the options, defaults filled in.
      dataset, splits: the data.
      preprocessing: from stored images to the network's input.
      strategy: over the devices of the backend.
      model, state, step: as `training.create` returns them; the state is not placed.
      fit_config: how long to train.
      schedule: the learning rate by the number of steps in a stage, before the stage's factor.
    """

    config: RunConfig
    dataset: data.Dataset
    splits: Splits
    preprocessing: Preprocessing
    strategy: parallel.Strategy
    model: nnx.Module
    state: TrainState
    step: TrainStep
    fit_config: FitConfig
    schedule: optax.ScalarOrSchedule

    def begin_stage(self, best: TrainState, stage: int, step: int) -> TrainState:
        """The placed state from which a later stage starts; see `training.fit`."""
        restarted = self.step.restart(
            self.strategy.fetch(best), step=step, lr_scale=self.config.stages[stage]
        )
        return self.strategy.place(restarted)


def build_setup(config: RunConfig, backend: Backend) -> TrainingSetup:
    """Opens the data and builds what trains on it.

    Args:
      config: defaults filled in.
      backend: the devices.

    Raises:
      InputError: the data or the weights are missing or do not fit.
    """
    dataset, splits, preprocessing = _open_data(config)
    fit_config = FitConfig(
        epochs=config.epochs,
        steps_per_epoch=len(splits.train) // config.batch_size,
        patience=config.patience,
        stages=len(config.stages),
        target_accuracy=config.target_accuracy,
        target_loss=config.target_loss,
        save_every=config.save_every,
    )
    model = _build_model(config, dataset, preprocessing)
    state, step = _create(config, model, preprocessing, fit_config)
    return TrainingSetup(
        config=config,
        dataset=dataset,
        splits=splits,
        preprocessing=preprocessing,
        strategy=parallel.strategy(config.strategy, backend.devices),
        model=model,
        state=state.replace(lr_scale=state.lr_scale * config.stages[0]),
        step=step,
        fit_config=fit_config,
        schedule=schedule(config.schedule, config.learning_rate, **_stage_length(fit_config)),
    )


def _build_model(
    config: RunConfig, dataset: data.Dataset, preprocessing: Preprocessing
) -> nnx.Module:
    shape = preprocessing.network_shape
    model = network.build_network(config, len(dataset.classes), shape)
    if config.init_from:
        pretrained = weights.read(config.init_from, config.model, model)
        weights.assign(model, pretrained, new_head=True)
    return model


def _create(
    config: RunConfig, model: nnx.Module, preprocessing: Preprocessing, fit_config: FitConfig
) -> tuple[TrainState, TrainStep]:
    optimizer = training.optimizer(
        config.optimizer, config.learning_rate, config.schedule, **_stage_length(fit_config)
    )
    return training.create(
        model,
        optimizer,
        seed=config.seed,
        precision=config.precision,
        preprocess=preprocessing.make_preprocess(config.augmentations),
        weight_decay=config.weight_decay,
        weight_decay_layers=models.spec(config.model).recipe.weight_decay_layers,
        ema_decay=config.moving_average,
        trainable=_trained_layers(config, model),
    )


def _trained_layers(config: RunConfig, model: nnx.Module) -> tuple[str, ...]:
    """The layers that are trained; empty for all.

    Raises:
      InputError: the last layer alone is to be trained, and it cannot be told which one that is.
    """
    heads = models.heads(model) if config.freeze else ()
    if config.freeze and not heads:
        raise InputError(
            f"--freeze trains the layer 'out' alone, and model {models.label(config.model)} has no "
            "layer of this name: call its last layer 'out' (a module of Flax NNX), or leave "
            "--freeze out"
        )
    return heads


def _stage_length(fit_config: FitConfig) -> dict[str, int]:
    """What a learning-rate schedule needs to know of a stage."""
    steps = fit_config.epochs * fit_config.steps_per_epoch
    return {"steps": steps, "steps_per_epoch": fit_config.steps_per_epoch}


def _open_data(config: RunConfig) -> tuple[data.Dataset, Splits, Preprocessing]:
    dataset = data.open_dataset(
        network.dataset_name(config),
        shape=(config.resize, config.resize, network.channels(config)),
        data_dir=config.data_dir,
        skip_bad_images=config.skip_bad_images,
    )
    if config.num_classes not in (None, len(dataset.classes)):
        raise InputError(
            f"--num-classes={config.num_classes}: dataset {config.dataset!r} has "
            f"{len(dataset.classes)} classes; leave the option out"
        )
    train, validation = data.hold_out(dataset.train, config.validation)
    if not len(validation) or not len(dataset.test):
        raise InputError(
            f"dataset {config.dataset!r} is too small to be divided into training, validation and "
            "test images"
        )
    if config.batch_size > len(train):
        raise InputError(
            f"batch size {config.batch_size} is larger than the training set of {len(train)} "
            "images: choose a smaller --batch-size"
        )
    preprocessing = Preprocessing(
        config.image_size, config.resize, dataset.channels, dataset.classes, config.normalise
    )
    if config.normalise == "standard":
        mean, std = data.channel_statistics(train, preprocessing.stored_shape)
        preprocessing = dataclasses.replace(preprocessing, mean=mean, std=std)
    return dataset, Splits(train, validation, dataset.test), preprocessing
