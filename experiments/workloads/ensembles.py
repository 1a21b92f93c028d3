"""The members of an ensemble, of a cross-validation, or of a grid of learning rates.

Members differ in their initial state, in the images they train on and their order, or in the images
that they are evaluated on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.workloads.setup import TrainingSetup, normalized_sample
from jaxcnn import models, training
from jaxcnn.data import as_arrays
from jaxcnn.data.scheduled import batch_rows
from jaxcnn.errors import InputError

RATE_FACTORS = (1 / 16, 8.0)  # the ends of the grid, as multiples of the recipe's learning rate


@dataclass(frozen=True)
class Member:
    """One of several networks that are trained together.

    Rows are positions in the training images followed by the validation images.

    Attributes:
      name: what distinguishes it from the other members.
      state: before the first step.
      rows: ``i32[steps, batch]``, the images of each step.
      held_out: ``i32[M]``, the images that it is evaluated on; none of them is in `rows`.
      learning_rate: at the start.
    """

    name: str
    state: training.TrainState
    rows: np.ndarray
    held_out: np.ndarray
    learning_rate: float


def all_images(setup: TrainingSetup) -> dict[str, np.ndarray]:
    """The images that members train and are evaluated on, with their labels.

    Returns:
      ``image: u8[N, h, w, C]`` and ``label: i32[N]``: the training images, then the validation
      images.
    """
    splits = (setup.splits.train, setup.splits.validation)
    arrays = [as_arrays(split, setup.preprocessing.stored_shape) for split in splits]
    return {
        "image": np.concatenate([part.images for part in arrays]),
        "label": np.concatenate([part.labels for part in arrays]),
    }


def build_members(kind: str, count: int, setup: TrainingSetup, steps: int) -> list[Member]:
    """Builds the members of one kind.

    Args:
      kind: ``seeds`` for an ensemble, ``folds`` for a cross-validation, ``rates`` for a grid of
        learning rates.
      count: the number of members.
      setup: the training run that they are variants of.
      steps: the number of train steps of each member.

    Raises:
      InputError: too few images for this number of folds.
    """
    return KINDS[kind](count, setup, steps)


def _seed_members(count: int, setup: TrainingSetup, steps: int) -> list[Member]:
    """An ensemble: each has its own weights, order, augmentations and dropout."""
    first = setup.config.seed
    return [
        _member(f"seed {seed}", _initial_state(setup, seed), setup, steps, seed=seed)
        for seed in range(first, first + count)
    ]


def _rate_members(count: int, setup: TrainingSetup, steps: int) -> list[Member]:
    """A geometric grid of learning rates."""
    rate = setup.config.learning_rate
    return [
        _member(f"learning rate {factor * rate:.2g}", setup.state, setup, steps, rate_factor=factor)
        for factor in np.geomspace(*RATE_FACTORS, count).tolist()
    ]


def _fold_members(count: int, setup: TrainingSetup, steps: int) -> list[Member]:
    """Cross-validation: each is evaluated on its own part of all images and trained on the rest."""
    total = len(setup.splits.train) + len(setup.splits.validation)
    size, batch_size = total // count, setup.config.batch_size
    if not size or total - size < batch_size:
        raise InputError(
            f"{total} training images are too few for {count} folds with batches of {batch_size}"
        )
    shuffled = np.random.default_rng(0).permutation(total).astype(np.int32)
    members = []
    for fold in range(count):
        part = slice(fold * size, (fold + 1) * size)
        rest, held_out = np.sort(np.delete(shuffled, part)), np.sort(shuffled[part])
        name = f"fold {fold + 1}"
        members.append(_member(name, setup.state, setup, steps, split=(rest, held_out)))
    return members


KINDS: dict[str, Callable[[int, TrainingSetup, int], list[Member]]] = {
    "seeds": _seed_members,
    "folds": _fold_members,
    "rates": _rate_members,
}


def _member(
    name: str,
    state: training.TrainState,
    setup: TrainingSetup,
    steps: int,
    *,
    split: tuple[np.ndarray, np.ndarray] | None = None,
    seed: int | None = None,
    rate_factor: float = 1.0,
) -> Member:
    """A member; its split (rows to train on, rows held out) and seed are the run's by default."""
    config = setup.config
    train_rows, held_out = split or _validation_split(setup)
    return Member(
        name=name,
        state=state.replace(lr_scale=state.lr_scale * np.float32(rate_factor)),
        rows=batch_rows(
            train_rows, steps, config.batch_size, config.seed if seed is None else seed
        ),
        held_out=held_out.astype(np.int32),
        learning_rate=rate_factor * config.learning_rate,
    )


def _validation_split(setup: TrainingSetup) -> tuple[np.ndarray, np.ndarray]:
    train, validation = len(setup.splits.train), len(setup.splits.validation)
    return np.arange(train), np.arange(train, train + validation)


def _initial_state(setup: TrainingSetup, seed: int) -> training.TrainState:
    """The initial state of the set-up's network with weights drawn from another seed."""
    config, step = setup.config, setup.step
    model = models.build(
        config.model,
        num_classes=len(setup.dataset.classes),
        input_shape=setup.preprocessing.network_shape,
        seed=seed,
    )
    if hasattr(model, "whiten"):
        model.whiten(normalized_sample(setup.splits.train, setup.preprocessing))
    state, _ = training.create(
        model,
        step.optimizer,
        seed=seed,
        precision=config.precision,
        ema_decay=config.moving_average,
        trainable=step.network.trainable,
    )
    return state.replace(lr_scale=setup.state.lr_scale)
