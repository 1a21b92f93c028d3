"""The options of a run: what the command line accepts, checked.

`IDENTITY` marks the options that make one case different from another: they name its record and its
checkpoint. All others say where things are, how they are shown, or how long to wait.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.cli import parse_options
from jaxcnn.errors import InputError

IDENTITY = {"identity": True}


@dataclass(frozen=True, kw_only=True)
class DeviceAndStudyOptions:
    """What to measure, and on which devices."""

    device: str = "auto"
    """cpu, gpu, tpu or auto; cpu:8 simulates eight devices, gpu:2 uses the first two."""
    study: str = "train,kernels"
    """One or more studies, comma-separated; `--list` shows them all."""
    preset: Literal["quick", "full"] = "quick"
    """How many cases a study has: about a minute's worth, or all of them."""
    strategy: str = field(default="auto", metadata=IDENTITY)
    """How a step is placed on devices: jit, pmap or data; auto is jit on one device and data on
    several."""
    list: bool = False
    """Show studies, models, data sets and strategies, and exit."""
    dry_run: bool = False
    """Show the cases, which of them have a record and how long the others may take, and exit."""


@dataclass(frozen=True, kw_only=True)
class ModelAndDataOptions:
    """The network, and the images it gets."""

    model: str = field(default="lenet5", metadata=IDENTITY)
    """The network; mlp:4096 is an MLP of that width."""
    dataset: str = field(default="digits", metadata=IDENTITY)
    """digits, mnist, cifar10, cats_vs_dogs, tfds:NAME, folder:PATH or synthetic."""
    data_dir: str | None = None
    """Folder of prepared TFDS data; default: TFDS_DATA_DIR or ~/tensorflow_datasets."""
    image_size: int | None = field(default=None, metadata=IDENTITY)
    """Side of the images that the network gets; default: its published size."""
    resize: int | None = field(default=None, metadata=IDENTITY)
    """Side to which images are resized before a crop of --image-size is taken."""
    normalise: Literal["standard", "unit", "image"] | None = field(default=None, metadata=IDENTITY)
    """Pixels to mean 0 and variance 1 per channel of the training set; to 0 … 1; or to mean 0 and
    variance 1 per image."""
    augment: str | None = field(default=None, metadata=IDENTITY)
    """Random augmentations, comma-separated: shift, flip, crop, …, or none; see `--list`."""
    validation: float = field(default=0.1, metadata=IDENTITY)
    """Share of the training set that is held out to choose the best epoch."""
    pipeline: Literal["auto", "resident", "streamed"] = field(default="auto", metadata=IDENTITY)
    """Keep the training set on the device, or stream it from processes; auto goes by size."""
    workers: int = 2
    """Worker processes of the streamed pipeline; 0 reads in threads."""
    skip_bad_images: bool = False
    """Skip files of a folder that cannot be read."""
    init_from: str | None = field(default=None, metadata=IDENTITY)
    """Start from these weights: a checkpoint folder, a Darknet .weights file, or a
    .safetensors file of PyTorch or of `experiments.export`."""
    freeze: bool = field(default=False, metadata=IDENTITY)
    """Train the last layer only."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How the network is trained. Options left out follow the network's published recipe."""

    precision: str = field(default="float32", metadata=IDENTITY)
    """float32, bfloat16, or float16 with loss scaling."""
    batch_size: int | None = field(default=None, metadata=IDENTITY)
    """Images per step, over all devices together; default: the recipe's or the data set's."""
    epochs: int | None = field(default=None, metadata=IDENTITY)
    """Passes over the training set, in each stage; default: the recipe's or the data set's."""
    optimizer: str | None = field(default=None, metadata=IDENTITY)
    """sgd, momentum, nesterov, adam, rmsprop or rmsprop_1 (its epsilon is 1)."""
    learning_rate: float | None = field(default=None, metadata=IDENTITY)
    """The initial learning rate."""
    schedule: str | None = field(default=None, metadata=IDENTITY)
    """Learning-rate schedule: constant, cosine, poly:POWER, step:EPOCHS:FACTOR or
    milestones:SHARE,SHARE:FACTOR."""
    weight_decay: float | None = field(default=None, metadata=IDENTITY)
    """Factor of half the squared norm of the weights, added to the loss."""
    moving_average: float | None = field(default=None, metadata=IDENTITY)
    """Decay of the averaged weights that are evaluated; 0 for none."""
    stages: tuple[float, ...] | None = field(default=None, metadata=IDENTITY)
    """Learning-rate factors, one per stage; each stage starts from the best weights so far."""
    patience: tuple[int, ...] | None = field(default=None, metadata=IDENTITY)
    """Epochs without improvement after which a stage ends; one value per stage, or one for all."""
    target_accuracy: float | None = field(default=0.95, metadata=IDENTITY)
    """Validation accuracy; the time until it is first reached is recorded."""
    target_loss: float | None = field(default=None, metadata=IDENTITY)
    """Training loss, weight decay included; the time until it is first reached is recorded."""
    seed: int = field(default=0, metadata=IDENTITY)
    """Seed of weights, order, dropout and augmentation."""
    save_every: int | None = None
    """Steps between two checkpoints; default: at the end of an epoch, at most every ten seconds."""


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """Limits, prices and devices that the measurements refer to."""

    force: bool = False
    """Measure again, from the start, even if there is a record or a checkpoint."""
    price: str | None = None
    """Price of one accelerator in US dollars per hour, as in 2.5/h; default: the device table's."""
    prices: str | None = None
    """A TOML file of such prices by accelerator: "NVIDIA H100 80GB HBM3" = 2.5."""
    devices: str | None = None
    """A TOML file of additional accelerators, laid out as experiments/hardware/devices.toml."""
    memory_limit: int | None = None
    """Memory limit in bytes of a case in a process of its own; default: most of what is free."""
    launches: int | None = None
    """How often the study `peers` starts each library; default: 5 with --preset=full, else 1."""
    time_limit: float = 1800.0
    """Time limit in seconds of such a case."""
    profile: bool = False
    """After each training run trace a few more steps with jax.profiler, into
    results/STUDY/CASE.profile."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where results go, and in which form."""

    results: str = "results"
    """Folder for records, checkpoints and the report; may be a bucket."""
    log_dir: str | None = None
    """Folder for TensorBoard scalars of the training runs; needs the extra `tensorboard`."""
    json: bool = False
    """Print one JSON document on stdout, and everything else on stderr."""


@dataclass(frozen=True)
class RunOptions:
    """Trains CNNs and measures what the accelerator is worth for it.

    A case whose record is already in the results folder is shown, not measured again; an
    interrupted case is resumed. `--list` shows the studies, models and data sets.
    """

    device_and_study: DeviceAndStudyOptions
    model_and_data: ModelAndDataOptions
    training: TrainingOptions
    measuring: MeasuringOptions
    output: OutputOptions


@dataclass(frozen=True, kw_only=True)
class RunConfig(
    OutputOptions, MeasuringOptions, TrainingOptions, ModelAndDataOptions, DeviceAndStudyOptions
):
    """The options of all groups as one flat, validated configuration."""

    def __post_init__(self):
        for name in (
            "batch_size",
            "epochs",
            "image_size",
            "resize",
            "patience",
            "save_every",
            "memory_limit",
            "launches",
        ):
            self._require(name, lambda value: value >= 1, "must be 1 or more")
        for name in ("learning_rate", "stages", "target_loss", "time_limit"):
            self._require(name, lambda value: 0 < value < float("inf"), "must be a positive number")
        finite = "must be 0 or a positive number"
        self._require("weight_decay", lambda value: 0 <= value < float("inf"), finite)
        average = "must be 0 or lie between 0 and 1"
        self._require("moving_average", lambda value: 0 <= value < 1, average)
        self._require("workers", lambda value: value >= 0, "must be 0 or more")
        self._require("seed", lambda value: 0 <= value < 2**31, f"must be from 0 to {2**31 - 1}")
        self._require("validation", lambda value: 0 < value < 1, "must lie between 0 and 1")
        self._require("target_accuracy", lambda value: 0 < value <= 1, "must lie between 0 and 1")
        if self.json and self.list:
            raise InputError("--json goes with a run or with --dry-run, not with --list")

    def _require(self, name: str, holds: Callable[[float], bool], rule: str) -> None:
        """Raises `InputError` unless the rule holds for the option's value, or each of them."""
        given = getattr(self, name)
        for value in given if isinstance(given, tuple) else (given,):
            if value is not None and not holds(value):
                raise InputError(f"--{name.replace('_', '-')}={value}: {rule}")

    @property
    def studies(self) -> tuple[str, ...]:
        """Names of the studies, in order, without repetitions."""
        return tuple(dict.fromkeys(name.strip() for name in self.study.split(",")))

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Names of the augmentations, in order."""
        names = () if self.augment in (None, "none") else self.augment.split(",")
        return tuple(name.strip() for name in names)

    def replace(self, **changes: Any) -> "RunConfig":
        return dataclasses.replace(self, **changes)

    def with_defaults(self, defaults: dict[str, Any]) -> "RunConfig":
        """Fills in these values where an option was not given."""
        missing = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return self.replace(**missing)

    def case_settings(self) -> dict[str, str | int | float | bool | None]:
        """The options that make this case different from another: those marked `IDENTITY`."""
        fields = dataclasses.fields(self)
        return {
            each.name: getattr(self, each.name) for each in fields if "identity" in each.metadata
        }


def parse(arguments: list[str] | None = None) -> RunConfig:
    """Parses the command line of `experiments.run`.

    Raises:
      InputError: an unknown option or a value that is not allowed.
    """
    options = parse_options(RunOptions, "experiments.run", arguments)
    groups = [getattr(options, each.name) for each in dataclasses.fields(options)]
    return RunConfig(**{name: value for group in groups for name, value in vars(group).items()})
