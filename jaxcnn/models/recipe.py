"""What a recipe consists of: how a network was trained by those who published it, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """How to train a network. Each field has the name of an option of `experiments.run`.

    Attributes:
      source: where the recipe was published, and what is left out here.
      optimizer: a key of `jaxcnn.training.OPTIMIZERS`.
      learning_rate: the initial learning rate.
      schedule: the learning-rate schedule, see `jaxcnn.training.optimizer.schedule`.
      warmup: epochs in which the learning rate grows, before the schedule.
      clip_norm: the largest norm of the gradients; 0 for no clipping.
      weight_decay: factor of half the squared norm of the weights, a term of the loss; of the
        weights themselves where the optimizer is one of `jaxcnn.training.DECOUPLED`.
      weight_decay_layers: names of the layers whose kernels decay; all kernels if empty.
      moving_average: decay of the averaged weights that evaluation uses; 0 for none.
      label_smoothing: see `jaxcnn.training.objective.classification`.
      mixup, cutmix: see `jaxcnn.data.mixing.Mixing`; 0 for none.
      microbatches: see `jaxcnn.training.create`.
      stages: a factor of the learning rate per stage; each stage starts from the best weights so
        far.
      patience: epochs without improvement after which a stage ends, an entry per stage; empty for
        no early stopping.
      monitor: what decides which epoch is the best, see `jaxcnn.training.history.MONITORS`.
      augment: comma-separated augmentations, see `jaxcnn.data.augment`; None for those of the data
        set.
      normalise: ``standard``, ``unit`` or ``image``.
      resize: side in pixels to which images are resized before they are cropped to the network's
        input; 0 for the network's input itself.
      dataset: the data set of the publication; `epochs` and `batch_size` apply to it alone.
      epochs: the largest number of epochs in each stage; 0 for that of the data set.
      batch_size: 0 for that of the data set.
    """

    source: str
    optimizer: str = "adam"
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    warmup: float = 0.0
    clip_norm: float = 0.0
    weight_decay: float = 0.0
    weight_decay_layers: tuple[str, ...] = ()
    moving_average: float = 0.0
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    microbatches: int = 1
    stages: tuple[float, ...] = (1.0,)
    patience: tuple[int, ...] = ()
    monitor: str = "validation_accuracy"
    augment: str | None = None
    normalise: str = "standard"
    resize: int = 0
    dataset: str = ""
    epochs: int = 0
    batch_size: int = 0
