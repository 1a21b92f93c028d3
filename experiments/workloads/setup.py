"""Sets up a training run: opens the data and builds the network; nothing is compiled yet."""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from experiments.config import RunConfig
from experiments.workloads import network
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.recipe_step import create_step
from jaxcnn import data, models, parallel, weights
from jaxcnn.backend import Backend
from jaxcnn.data.source import Split
from jaxcnn.errors import InputError
from jaxcnn.training import FitConfig, TrainState, TrainStep
from jaxcnn.training.optimizer import schedule

WHITENING_IMAGES = 5000  # whose patches a first layer that whitens is computed from


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
      model: the network, whose weights may be abstract.
      state: the initial state, of which the devices hold their parts; `Strategy.place` copies it.
      step: see `training.create`.
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


def build_setup(config: RunConfig, backend: Backend, *, holds_out: bool = True) -> TrainingSetup:
    """Opens the data and builds what trains on it.

    Args:
      config: defaults filled in.
      backend: the devices.
      holds_out: keep a part of the training set for validation; else all of it trains, and
        ``validation`` is the test set, for runs that choose nothing by it.

    Raises:
      InputError: the data or the weights are missing or do not fit.
    """
    dataset, splits, preprocessing = _open_data(config, holds_out)
    fit_config = FitConfig(
        epochs=config.epochs,
        steps_per_epoch=len(splits.train) // config.batch_size,
        patience=config.patience,
        stages=len(config.stages),
        monitor=config.monitor,
        target_accuracy=config.target_accuracy,
        target_loss=config.target_loss,
        save_every=config.save_every,
    )
    strategy = parallel.strategy(config.strategy, backend.devices, mesh=config.mesh)
    network.check_outputs(config, len(dataset.classes), preprocessing.network_shape)

    def build() -> tuple[TrainState, TrainStep]:
        model = _build_model(config, dataset, preprocessing)
        return _create(config, model, preprocessing, fit_config)

    model = nnx.eval_shape(lambda: _build_model(config, dataset, preprocessing))
    if config.init_from:  # weights from a file are assigned on one device
        state, step = build()
    elif hasattr(model, "whiten"):  # from images: so is a first layer that whitens
        model = _build_model(config, dataset, preprocessing)
        model.whiten(normalized_sample(splits.train, preprocessing))  # type: ignore[attr-defined]
        state, step = _create(config, model, preprocessing, fit_config)
    else:
        state, step = strategy.create(build)
    return TrainingSetup(
        config=config,
        dataset=dataset,
        splits=splits,
        preprocessing=preprocessing,
        strategy=strategy.for_step(step, state, abstract_batch(config, preprocessing)),
        model=model,
        state=state.replace(lr_scale=state.lr_scale * config.stages[0]),
        step=step,
        fit_config=fit_config,
        schedule=schedule(
            config.schedule,
            config.learning_rate,
            steps=fit_config.epochs * fit_config.steps_per_epoch,
            steps_per_epoch=fit_config.steps_per_epoch,
            warmup=config.warmup,
        ),
    )


def check_setup(config: RunConfig) -> None:
    """Checks what `build_setup` would reject, without reading images or drawing weights.

    Args:
      config: defaults filled in.

    Raises:
      InputError: as `build_setup`.
    """
    dataset, _ = _open_splits(config)
    published = models.spec(config.model).input_shape
    if config.init_from or published is None or config.image_size != max(published[:2]):
        shape = (config.image_size, config.image_size, dataset.channels)
        classes = len(dataset.classes)
        nnx.eval_shape(
            lambda: _load_initial_weights(
                config, models.build(config.model, num_classes=classes, input_shape=shape)
            )
        )


def _build_model(
    config: RunConfig, dataset: data.Dataset, preprocessing: Preprocessing
) -> nnx.Module:
    shape = preprocessing.network_shape
    model = network.build_network(config, len(dataset.classes), shape)
    return _load_initial_weights(config, model)


def _load_initial_weights(config: RunConfig, model: nnx.Module) -> nnx.Module:
    """Assigns the weights of `--init-from` in place, if it is given."""
    if config.init_from:
        pretrained = weights.read(config.init_from, config.model, model)
        weights.assign(model, pretrained, new_head=True)
    return model


def _create(
    config: RunConfig, model: nnx.Module, preprocessing: Preprocessing, fit_config: FitConfig
) -> tuple[TrainState, TrainStep]:
    return create_step(
        model,
        config,
        preprocessing.make_preprocess(config.augmentations),
        steps=fit_config.epochs * fit_config.steps_per_epoch,
        steps_per_epoch=fit_config.steps_per_epoch,
        precision=config.precision,
        weight_decay_layers=models.spec(config.model).recipe.weight_decay_layers,
        trainable=_trained_layers(config, model),
        seed=config.seed,
    )


def abstract_batch(
    config: RunConfig, preprocessing: Preprocessing
) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a training batch: ``image: u8[N, h, w, C]``, ``label: i32[N]``."""
    count = config.batch_size
    return {
        "image": jax.ShapeDtypeStruct((count, *preprocessing.stored_shape), jnp.uint8),
        "label": jax.ShapeDtypeStruct((count,), jnp.int32),
    }


def _trained_layers(config: RunConfig, model: nnx.Module) -> tuple[str, ...]:
    """The layers that are trained; empty for all.

    Raises:
      InputError: the last layer alone is to be trained, and it is not clear which one that is.
    """
    heads = models.heads(model) if config.freeze else ()
    if config.freeze and not heads:
        raise InputError(
            f"--freeze trains the layer 'out' alone, and model {models.label(config.model)} has no "
            "layer of this name: call its last layer 'out' (a module of Flax NNX), or leave "
            "--freeze out"
        )
    return heads


def normalized_sample(train: Split, preprocessing: Preprocessing) -> Array:
    """The first training images as the network gets them, ``f32[N, H, W, C]``."""
    sample = data.Subset(train, np.arange(min(WHITENING_IMAGES, len(train))))
    images = data.as_arrays(sample, preprocessing.stored_shape).images
    return preprocessing.make_preprocess()(jnp.asarray(images), None)


def _open_data(config: RunConfig, holds_out: bool) -> tuple[data.Dataset, Splits, Preprocessing]:
    dataset, splits = _open_splits(config, holds_out)
    preprocessing = Preprocessing(
        config.image_size, config.resize, dataset.channels, dataset.classes, config.normalise
    )
    if config.normalise == "standard":
        mean, std = data.channel_statistics(splits.train, preprocessing.stored_shape)
        preprocessing = dataclasses.replace(preprocessing, mean=mean, std=std)
    return dataset, splits, preprocessing


def _open_splits(config: RunConfig, holds_out: bool = True) -> tuple[data.Dataset, Splits]:
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
    train, validation = dataset.train, dataset.test
    if holds_out:
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
    return dataset, Splits(train, validation, dataset.test)
