"""Training on images that all fit on the devices: the functions that `training.fit` calls."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from jaxcnn.data.resident import Data, ResidentFeed
from jaxcnn.errors import InputError
from jaxcnn.parallel.strategy import Strategy
from jaxcnn.training.checkpoint import Checkpoints, Restored
from jaxcnn.training.fit_config import FitConfig
from jaxcnn.training.history import History
from jaxcnn.training.loop import Evaluate, Interrupted, Watcher, fit
from jaxcnn.training.multi_step import evaluate_dataset, multi_step
from jaxcnn.training.objective import Metrics
from jaxcnn.training.state import TrainState
from jaxcnn.training.step import TrainStep


@dataclass(frozen=True)
class ResidentTraining:
    """Steps and evaluations over images that lie on the devices; made by `resident_training`.

    Attributes:
      strategy: places states and data.
      step: the train step.
      feed: gathers the batches inside the compiled programs.
      data: the training set, placed by `Strategy.place_data`.
      train: the compiled ``run`` of `training.multi_step`.
      evaluation: the compiled ``run`` of `training.evaluate_dataset`.
    """

    strategy: Strategy
    step: TrainStep
    feed: ResidentFeed
    data: Data
    train: Callable
    evaluation: Callable

    @property
    def steps_per_epoch(self) -> int:
        """The number of whole batches in the training set."""
        return self.feed.capacity

    def run_steps(
        self, state: TrainState, step: int, count: int
    ) -> tuple[TrainState, dict[str, np.ndarray]]:
        """Takes `count` steps of one epoch, see `training.fit`; donates the placed state.

        Raises:
          InputError: the epoch of `step` has fewer steps left.
        """
        left = self.steps_per_epoch - step % self.steps_per_epoch
        if not 1 <= count <= left:
            raise InputError(
                f"{count} steps after step {step}: the epoch has {left} left; take 1 to {left}"
            )
        with jax.transfer_guard("disallow"):
            state, metrics = self.train(state, self.data, self._place_count(count))
            return state, {name: rows[:count] for name, rows in jax.device_get(metrics).items()}

    def place_examples(self, images: np.ndarray, labels: np.ndarray) -> Data:
        """Puts examples to evaluate on the devices.

        Args:
          images: ``u8[N, H, W, C]``.
          labels: ``int[N]``.

        Raises:
          InputError: arrays of other shapes or dtypes.
        """
        return self.strategy.place_data(examples(images, labels))

    def evaluate(self, state: TrainState, placed: Data, count: int) -> Metrics:
        """Sums over the first `count` examples that `place_examples` has placed.

        No example is lost: the last batch is padded with masked rows.

        Args:
          state: placed by the strategy.
          placed: at least `count` examples; sets of one size share a program.
          count: the number of examples to evaluate.

        Raises:
          InputError: `count` is less than 1 or more than were placed.
        """
        available = len(placed["label"])
        if not 1 <= count <= available:
            raise InputError(
                f"{count} examples to evaluate: {available} are on the devices, so that the number "
                f"must be from 1 to {available}"
            )
        with jax.transfer_guard("disallow"):
            return self.evaluation(state, placed, self._place_count(count))

    def evaluator(self, images: np.ndarray, labels: np.ndarray) -> Evaluate:
        """Places examples and returns ``evaluate(state)``, the sums over all of them.

        Arguments and errors are those of `place_examples`; `training.means` turns sums into means.
        """
        placed, count = self.place_examples(images, labels), len(labels)
        return lambda state: self.evaluate(state, placed, count)

    def fit(
        self,
        state: TrainState,
        evaluate: Evaluate,
        config: FitConfig,
        *,
        checkpoints: Checkpoints | None = None,
        watcher: Watcher | None = None,
    ) -> Restored:
        """Trains from a state, or from the last save if there are checkpoints; see `training.fit`.

        Args:
          state: as `training.create` returns it, or one that was trained for whole epochs before,
            which is trained for those of `config` more; it stays valid.
          evaluate: of the validation set, from `evaluator`.
          config: how long to train; a stage after the first begins with a new optimizer state.
          checkpoints: to resume from and to save to; None saves nothing.
          watcher: receives progress events.

        Returns:
          The last state, the state after the best epoch, and the history. Both states are on the
          host.

        Raises:
          InputError: the checkpoints belong to another run, an epoch of the configuration has
            another number of steps than that of the examples, or the state is within an epoch.
          NonFiniteLossError: see `training.fit`.
          Interrupted: see `training.fit`; its states are on the host.
        """
        if config.steps_per_epoch != self.steps_per_epoch:
            raise InputError(
                f"FitConfig.steps_per_epoch={config.steps_per_epoch}: an epoch of these examples "
                f"has {self.steps_per_epoch} steps"
            )
        strategy = self.strategy
        like = strategy.abstract_saved(state)
        start = (checkpoints.restore(like) if checkpoints else None) or Restored(
            state, None, History(stage_step=_whole_epochs(int(state.step), config.steps_per_epoch))
        )

        def begin_stage(best: TrainState, stage: int, step: int) -> TrainState:
            best = strategy.fetch(best)
            return strategy.place(self.step.restart(best, step=step, lr_scale=float(best.lr_scale)))

        saving = {"save": strategy.saver(checkpoints)} if checkpoints else {}
        try:
            last, best, history = fit(
                strategy.place(start.state),
                self.run_steps,
                evaluate,
                config,
                step=int(start.state.step),
                history=start.history,
                best=start.best and strategy.place(start.best),
                begin_stage=begin_stage,
                watcher=watcher,
                **saving,
            )
        except Interrupted as interrupted:
            interrupted.state = strategy.fetch(interrupted.state)
            interrupted.best = interrupted.best and strategy.fetch(interrupted.best)
            raise
        return Restored(strategy.fetch(last), strategy.fetch(best), history)

    def _place_count(self, count: int) -> jax.Array:
        return self.strategy.place_data(np.int32(count))


def _whole_epochs(step: int, steps_per_epoch: int) -> int:
    """The step of a state that was trained before, which must be at the end of an epoch."""
    if step % steps_per_epoch:
        raise InputError(
            f"the state has taken {step} steps, which are not whole epochs of {steps_per_epoch}: "
            "train it with the examples and the batch size of before, or resume from checkpoints"
        )
    return step


def resident_training(
    strategy: Strategy,
    step: TrainStep,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    batch_size: int,
    seed: int = 0,
    flips: bool = False,
) -> ResidentTraining:
    """Puts a training set on the devices and compiles, at the first call, what trains on it.

    Args:
      strategy: for several stages of a pipeline, what its `for_step` returns.
      step: from `training.create`.
      images: ``u8[N, H, W, C]``.
      labels: ``int[N]``, from 0.
      batch_size: rows of the global batch. The order of the examples is another one in each epoch;
        those after the last whole batch are left out of it.
      seed: of the order.
      flips: mirror each image in every second epoch, see `jaxcnn.data.order.alternating_flips`.

    Raises:
      InputError: arrays of other shapes or dtypes, a batch size that the strategy cannot divide
        or that is larger than the training set, or a seed that is no unsigned 32-bit number.

    >>> import optax
    >>> from jaxcnn import models, parallel, training
    >>> state, step = training.create(models.build("logistic"), optax.sgd(0.1))
    >>> images, labels = np.zeros((20, 28, 28, 1), np.uint8), np.arange(20) % 10
    >>> loop = resident_training(parallel.strategy("jit"), step, images, labels, batch_size=8)
    >>> config = training.FitConfig(epochs=2, steps_per_epoch=loop.steps_per_epoch)
    >>> int(loop.fit(state, loop.evaluator(images, labels), config).state.step)
    4
    """
    strategy.check_batch_size(batch_size)
    data = examples(images, labels)
    if batch_size > len(labels):
        raise InputError(
            f"batch size {batch_size} is larger than the training set of {len(labels)} images: "
            "choose a smaller one"
        )
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed}: must lie between 0 and {2**32 - 1}")
    feed = ResidentFeed(len(labels), batch_size, flips)
    return ResidentTraining(
        strategy,
        step,
        feed,
        strategy.place_data(data | {"seed": np.uint32(seed)}),
        strategy.compile(multi_step(step, feed), resident=True),
        strategy.compile_evaluation(evaluate_dataset(step.evaluation, feed), resident=True),
    )


def examples(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """A data set as `ResidentFeed` takes it, without a seed.

    Raises:
      InputError: arrays of other shapes or dtypes than ``images: u8[N, H, W, C]`` and
        ``labels: int[N]``, none at all, or a negative label.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise InputError(
            f"images are {images.dtype}{list(images.shape)}: they must be uint8[N, H, W, C], bytes "
            "0 to 255, and at least one"
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise InputError(
            f"labels are {labels.dtype}{list(labels.shape)}: they must be whole numbers, one for "
            f"each of the {len(images)} images"
        )
    if labels.min() < 0:
        raise InputError(f"label {labels.min()}: labels must be class indices, counted from 0")
    return {"image": images, "label": labels.astype(np.int32)}
