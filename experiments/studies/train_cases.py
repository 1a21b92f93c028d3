"""The case of a training run: its options, from recipe and data set, and which are impossible."""

from experiments.config import RunConfig
from experiments.harness.study import Case, training_case
from experiments.workloads import network
from experiments.workloads.recipe_step import build_optimizer
from experiments.workloads.setup import check_setup
from jaxcnn import data, models, parallel
from jaxcnn.backend import Backend
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.mixing import rows_together
from jaxcnn.errors import InputError

RECIPE_OPTIONS = (
    "optimizer",
    "learning_rate",
    "schedule",
    "weight_decay",
    "moving_average",
    "warmup",
    "clip_norm",
    "label_smoothing",
    "mixup",
    "cutmix",
    "microbatches",
    "stages",
    "patience",
    "monitor",
    "normalise",
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The one case, with defaults that depend on network, data set and devices filled in.

    The network's recipe takes precedence over the defaults of the data set. The recipe's epochs and
    batch size apply only to the data set that the recipe is for.

    Raises:
      InputError: an unknown name, or options that contradict each other.
    """
    spec, dataset_defaults = models.spec(config.model), data.spec(config.dataset)
    if spec.detects:
        raise InputError(
            f"model {config.model!r} detects objects and does not classify images: "
            "train it with --study=detection"
        )
    recipe, size = spec.recipe, network.image_size(config)
    published_size = max(spec.input_shape[:2]) if spec.input_shape else size
    same_data = config.dataset.removeprefix("tfds:") == recipe.dataset
    defaults = {
        "batch_size": (same_data and recipe.batch_size) or dataset_defaults.batch_size,
        "epochs": (same_data and recipe.epochs) or dataset_defaults.epochs,
        "augment": recipe.augment or dataset_defaults.augment,
        "image_size": size,
        "resize": max(size, round(size * recipe.resize / published_size)),
    }
    defaults |= {name: getattr(recipe, name) for name in RECIPE_OPTIONS}
    config = config.with_defaults(defaults)
    _check(config)
    case = training_case(config, backend)
    _check_parts(case.config, len(backend.devices))
    return [case]


def _check(config: RunConfig) -> None:
    """Raises `InputError` for options that cannot be used, before anything is measured."""
    steps_per_epoch = 1000  # any number
    build_optimizer(config, config.epochs * steps_per_epoch, steps_per_epoch)
    make_preprocess(config.augmentations)
    if config.resize < config.image_size:
        raise InputError(
            f"--resize={config.resize} is smaller than the image size of {config.image_size}: "
            "images are resized first, and then crops of that size are taken"
        )
    if config.freeze and not config.init_from:
        raise InputError(
            "--freeze would keep random initial weights: name pretrained ones with --init-from"
        )


def is_training_run(case: Case) -> bool:
    """Whether a case is a run of the training loop: here all are."""
    return True


def check(case: Case) -> None:
    """Rejects what only data, network and weights show to be impossible, as `build_setup` would."""
    check_setup(case.config)


def _check_parts(config: RunConfig, available: int) -> None:
    """Raises `InputError` unless the batch can be divided as microbatches and mixing need it."""
    devices = parallel.batch_multiple(config.strategy, available, config.mesh)
    together = rows_together(config.mixup, config.cutmix)
    multiple = devices * config.microbatches * together
    if config.batch_size % multiple:
        nearest = max(1, round(config.batch_size / multiple)) * multiple
        pairs = ", each of whole pairs of images to mix" if together > 1 else ""
        raise InputError(
            f"--batch-size={config.batch_size} cannot be divided among {devices} device(s) with "
            f"--microbatches={config.microbatches}{pairs}: it must be a multiple of {multiple}, "
            f"such as {nearest}"
        )
