"""The members of a training in parallel: what each starts from, in which order it sees which images, and what it is judged by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.config import RunConfig
from experiments.workloads.setup import TrainingSetup
from jaxcnn import models, training
from jaxcnn.data.scheduled import table
from jaxcnn.errors import InputError

FACTORS = (1 / 16, 8.0)  # of the recipe's learning rate, at the ends of the grid


@dataclass(frozen=True)
class Member:
    """One network of many. Images are counted through the training images and, after them, those held out.

    Attributes:
      name: what makes it another than the next.
      state: before the first step.
      rows: ``i32[steps, batch]``, the images of each step.
      held_out: ``i32[M]``, those it is judged by, which are not among its `rows`.
      learning_rate: at the start.
    """

    name: str
    state: training.TrainState
    rows: np.ndarray
    held_out: np.ndarray
    learning_rate: float


def members(
    kind: str, count: int, config: RunConfig, setup: TrainingSetup, steps: int
) -> list[Member]:
    """So many members of a kind, ``seeds``, ``folds`` or ``rates``, each trained for so many steps."""
    return KINDS[kind](count, config, setup, steps)


def _seeds(count: int, config: RunConfig, setup: TrainingSetup, steps: int) -> list[Member]:
    """An ensemble: other weights, another order, other augmentations and dropout each."""
    return [
        _member(config, setup, steps, f"seed {seed}", _drawn(config, setup, seed), seed=seed)
        for seed in range(config.seed, config.seed + count)
    ]


def _rates(count: int, config: RunConfig, setup: TrainingSetup, steps: int) -> list[Member]:
    """A grid of learning rates, each so many times the one before."""
    return [
        _member(
            config,
            setup,
            steps,
            f"learning rate {factor * config.learning_rate:.2g}",
            setup.state,
            factor=factor,
        )
        for factor in np.geomspace(*FACTORS, count).tolist()
    ]


def _folds(count: int, config: RunConfig, setup: TrainingSetup, steps: int) -> list[Member]:
    """Cross-validation: each is judged by another part of all the images, and trained on the rest."""
    total = len(setup.splits.train) + len(setup.splits.validation)
    size, shuffled = total // count, np.random.default_rng(0).permutation(total).astype(np.int32)
    if not size or total - size < config.batch_size:
        raise InputError(
            f"{total} training images are too few for {count} folds with batches of {config.batch_size}"
        )
    found = []
    for fold in range(count):
        part = slice(fold * size, (fold + 1) * size)
        rest = np.sort(np.delete(shuffled, part))
        found.append(
            _member(
                config, setup, steps, f"fold {fold + 1}", setup.state, rest, np.sort(shuffled[part])
            )
        )
    return found


KINDS: dict[str, Callable[[int, RunConfig, TrainingSetup, int], list[Member]]] = {
    "seeds": _seeds,
    "folds": _folds,
    "rates": _rates,
}


def _member(
    config: RunConfig,
    setup: TrainingSetup,
    steps: int,
    name: str,
    state: training.TrainState,
    trained_on: np.ndarray | None = None,
    held_out: np.ndarray | None = None,
    *,
    seed: int | None = None,
    factor: float = 1.0,
) -> Member:
    first = len(setup.splits.train)
    if trained_on is None or held_out is None:
        trained_on, held_out = (
            np.arange(first),
            np.arange(first, first + len(setup.splits.validation)),
        )
    rows = table(trained_on, steps, config.batch_size, config.seed if seed is None else seed)
    state = state.replace(lr_scale=state.lr_scale * np.float32(factor))
    return Member(name, state, rows, held_out.astype(np.int32), factor * config.learning_rate)


def _drawn(config: RunConfig, setup: TrainingSetup, seed: int) -> training.TrainState:
    """The state of a network of the same kind with weights of its own."""
    shape, classes = setup.preprocessing.network_shape, len(setup.dataset.classes)
    model = models.build(config.model, num_classes=classes, input_shape=shape, seed=seed)
    step = setup.step
    state, _ = training.create(
        model,
        step.optimizer,
        seed=seed,
        precision=config.precision,
        ema_decay=config.moving_average,
        trainable=step.network.trainable,
    )
    return state.replace(lr_scale=setup.state.lr_scale)
