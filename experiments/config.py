"""What one run is asked to do: the command line, checked."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import tyro

from jaxcnn.errors import InputError

Options = TypeVar("Options")


@dataclass(frozen=True)
class RunConfig:
    """Trains CNNs and measures what the accelerator is worth for it. `--list` shows what there is to choose from.

    A case whose record is already in the results folder is shown, not measured again; an interrupted one is resumed.
    """

    device: str = "auto"
    """cpu, gpu, tpu or auto; cpu:8 simulates eight devices, gpu:2 takes the first two."""
    study: str = "train,kernels"
    """What to measure, by commas; `--list` has them all."""
    preset: Literal["quick", "full"] = "quick"
    """How many cases a study of many has: a minute's worth, or all of them."""
    model: str = "lenet5"
    """The network; mlp:4096 is an MLP of that width."""
    dataset: str = "digits"
    """The data: digits, mnist, cifar10, cats_vs_dogs, tfds:NAME, folder:PATH or synthetic."""
    strategy: str = "auto"
    """How a step is spread over devices: jit, pmap, data; auto is jit on one device and data on several."""
    precision: str = "float32"
    """float32, bfloat16, or float16 with loss scaling."""
    batch_size: int | None = None
    """Images in a step, over all devices together; the recipe's or the data set's own default if not given."""
    epochs: int | None = None
    """Passes over the training set, in each stage; the recipe's or the data set's own default if not given."""
    optimizer: str | None = None
    """sgd, momentum, nesterov, adam, rmsprop or rmsprop_1 (its epsilon is 1). Not given, this and all that follows up to
    `resize` is as the network's published recipe has it."""
    learning_rate: float | None = None
    """At the start."""
    schedule: str | None = None
    """How the learning rate goes on: constant, cosine, poly:POWER, step:EPOCHS:FACTOR, milestones:SHARE,SHARE:FACTOR."""
    weight_decay: float | None = None
    """Factor of half the squared norm of the weights, added to the loss."""
    moving_average: float | None = None
    """Decay of the averaged weights that are evaluated; 0 for none."""
    stages: tuple[float, ...] | None = None
    """Factors of the learning rate, one a stage; each stage starts from the best weights so far."""
    patience: tuple[int, ...] | None = None
    """Epochs without a better one after which a stage ends; one for each stage or one for all."""
    normalise: Literal["standard", "unit", "image"] | None = None
    """Pixels to mean 0 and variance 1 of the training set, channel by channel; to 0 … 1; or to those of each image."""
    augment: str | None = None
    """Random changes of the training images, by commas: shift, flip, crop, affine, …, or none; `--list` has them all."""
    resize: int | None = None
    """Side to which images are brought before a part of --image-size is cut out of them."""
    image_size: int | None = None
    """Side of the images that the network gets; its published size if not given."""
    pipeline: Literal["auto", "resident", "streamed"] = "auto"
    """Where the training set lies: on the device, or read by worker processes; auto goes by its size."""
    workers: int = 2
    """Processes that read ahead in the streamed pipeline; 0 reads in threads."""
    data_dir: str | None = None
    """Where prepared TFDS data lies; TFDS_DATA_DIR or ~/tensorflow_datasets if not given."""
    skip_bad_images: bool = False
    """Go on without the files of a folder that cannot be read."""
    validation: float = 0.1
    """Share of the training set held out to choose the best epoch by."""
    target_accuracy: float | None = 0.95
    """Validation accuracy whose first reaching is timed."""
    target_loss: float | None = None
    """Training loss, weight decay included, whose first reaching is timed."""
    init_from: str | None = None
    """Start from these weights: a checkpoint folder, a Darknet .weights file, or PyTorch's in a .safetensors file."""
    freeze: bool = False
    """Train the last layer only."""
    seed: int = 0
    """Of weights, order, dropout and augmentation."""
    save_every: int | None = None
    """Steps between two checkpoints; at the end of an epoch, every ten seconds at most, if not given."""
    price: str | None = None
    """What an accelerator costs, in US dollars an hour, as in 2.5/h; the device table's price if not given."""
    prices: str | None = None
    """A TOML file of such prices by accelerator: "NVIDIA H100 80GB HBM3" = 2.5."""
    devices: str | None = None
    """A TOML file of further accelerators, laid out as experiments/hardware/devices.toml."""
    results: str = "results"
    """Folder for records, checkpoints and the report; may be a bucket."""
    log_dir: str | None = None
    """Folder for TensorBoard scalars of what train, first_cnn and search train; needs the extra `tensorboard`."""
    profile: bool = False
    """After each of those trainings trace some more steps with jax.profiler, into results/STUDY/CASE.profile."""
    memory_limit: int | None = None
    """Bytes that a case in a process of its own may take; most of what is free if not given."""
    time_limit: float = 1800.0
    """Seconds that it may take."""
    dry_run: bool = False
    """Show the cases, which of them are measured already and how long the others may take, and end."""
    json: bool = False
    """For scripts: one JSON document on stdout, all else on stderr."""
    force: bool = False
    """Measure again, from the start, though there is a record or a checkpoint."""
    list: bool = False
    """Show studies, models, data sets and strategies, and end."""

    def __post_init__(self):
        for name in ("batch_size", "epochs", "image_size", "resize", "patience", "save_every", "memory_limit"):
            self._require(name, lambda value: value >= 1, "must be 1 or more")
        for name in ("learning_rate", "stages", "target_loss", "time_limit"):
            self._require(name, lambda value: 0 < value < float("inf"), "must be a positive number")
        self._require("weight_decay", lambda value: 0 <= value < float("inf"), "must be 0 or a positive number")
        self._require("moving_average", lambda value: 0 <= value < 1, "must be 0 or lie between 0 and 1")
        self._require("workers", lambda value: value >= 0, "must be 0 or more")
        self._require("seed", lambda value: 0 <= value < 2**31, f"must be from 0 to {2**31 - 1}")
        self._require("validation", lambda value: 0 < value < 1, "must lie between 0 and 1")
        self._require("target_accuracy", lambda value: 0 < value <= 1, "must lie between 0 and 1")
        if self.json and self.list:
            raise InputError("--json goes with a run or with --dry-run, not with --list, which is for reading")

    def _require(self, name: str, holds: Callable[[float], bool], rule: str) -> None:
        """Raises `InputError` unless the rule holds for the option's value, or for each of its values."""
        found = getattr(self, name)
        for value in found if isinstance(found, tuple) else (found,):
            if value is not None and not holds(value):
                raise InputError(f"--{name.replace('_', '-')}={value}: {rule}")

    @property
    def studies(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(name.strip() for name in self.study.split(",")))

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Their names, in order."""
        names = () if self.augment in (None, "none") else self.augment.split(",")
        return tuple(name.strip() for name in names)

    def replace(self, **changes) -> "RunConfig":
        return dataclasses.replace(self, **changes)

    def filled_in(self, defaults: dict[str, Any]) -> "RunConfig":
        """With these values where none was given."""
        return self.replace(**{name: value for name, value in defaults.items() if getattr(self, name) is None})

    def case_settings(self) -> dict[str, str | int | float | bool | None]:
        """What makes this case another than the next: all but where things lie and how they are shown."""
        elsewhere = {
            "device", "study", "preset", "price", "prices", "devices", "data_dir", "results", "force", "list", "save_every",
            "workers", "skip_bad_images", "memory_limit", "time_limit", "dry_run", "log_dir", "profile", "json",
        }  # fmt: skip
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in elsewhere}


def parse(arguments: list[str] | None = None) -> RunConfig:
    """The command line of `experiments.run` to a `RunConfig`; raises `InputError`."""
    return parse_as(RunConfig, "experiments.run", arguments)


def parse_as(options: type[Options], program: str, arguments: list[str] | None) -> Options:
    """A command line to a dataclass of its options.

    Raises:
      InputError: tyro's complaint, which comes as a box of several lines, in one.
    """
    config = tyro.conf.OmitArgPrefixes[tyro.conf.FlagCreatePairsOff[options]]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(Annotated[config, tyro.conf.arg(name="")], args=arguments, prog=f"python -m {program}")
    except SystemExit as end:
        if end.code != 2:  # --help
            raise
        words = re.sub(r"[^\x00-\x7f]|-{3,}|\x1b\[[0-9;]*m", " ", complaint.getvalue()).split()
        raise InputError(" ".join(words)) from None
