"""What one run is asked to do: the command line, checked."""

import contextlib
import dataclasses
import io
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from jaxcnn.errors import InputError


@dataclass(frozen=True)
class RunConfig:
    """Trains CNNs and measures what the accelerator is worth for it. `--list` shows what there is to choose from.

    A case whose record is already in the results folder is shown, not measured again; an interrupted one is resumed.
    """

    device: str = "auto"
    """cpu, gpu, tpu or auto; cpu:8 simulates eight devices, gpu:2 takes the first two."""
    study: str = "train"
    """What to measure."""
    model: str = "lenet5"
    """The network; mlp:4096 is an MLP of that width."""
    dataset: str = "digits"
    """The data: digits, mnist, cifar10, cats_vs_dogs, tfds:NAME, folder:PATH or synthetic."""
    strategy: str = "auto"
    """How a step is spread over devices: jit, pmap, data; auto is jit on one device and data on several."""
    precision: str = "float32"
    """float32, bfloat16, or float16 with loss scaling."""
    batch_size: int | None = None
    """Images in a step, over all devices together; the data set's own default if not given."""
    epochs: int | None = None
    """Passes over the training set; the data set's own default if not given."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """adam, or sgd with momentum 0.9."""
    learning_rate: float = 2e-3
    """At the start."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """How the learning rate goes on: down to zero in a half cosine, or as it is."""
    normalise: Literal["standard", "unit"] = "standard"
    """Pixels to mean 0 and variance 1 of the training set, channel by channel, or to 0 … 1."""
    augment: str | None = None
    """Random changes of the training images, by commas: shift, flip, or none; the data set's own default if not given."""
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
    patience: int | None = None
    """Stop after so many epochs without a better one."""
    target_accuracy: float | None = 0.95
    """Validation accuracy whose first reaching is timed."""
    seed: int = 0
    """Of weights, order, dropout and augmentation."""
    save_every: int | None = None
    """Steps between two checkpoints; at the end of an epoch, every ten seconds at most, if not given."""
    results: str = "results"
    """Folder for records, checkpoints and the report; may be a bucket."""
    force: bool = False
    """Measure again, from the start, though there is a record or a checkpoint."""
    list: bool = False
    """Show studies, models, data sets and strategies, and end."""

    def __post_init__(self):
        for name in ("batch_size", "epochs", "image_size", "patience", "save_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')}={value}: must be 1 or more")
        if self.workers < 0:
            raise InputError(f"--workers={self.workers}: must be 0 or more")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"--seed={self.seed}: must be from 0 to {2**31 - 1}")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"--learning-rate={self.learning_rate}: must be a positive number")
        if not 0 < self.validation < 1:
            raise InputError(f"--validation={self.validation}: must lie between 0 and 1")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise InputError(f"--target-accuracy={self.target_accuracy}: must lie between 0 and 1")

    @property
    def augmentations(self) -> tuple[str, ...]:
        """Their names, in order."""
        names = () if self.augment in (None, "none") else self.augment.split(",")
        return tuple(name.strip() for name in names)

    def replace(self, **changes) -> "RunConfig":
        return dataclasses.replace(self, **changes)

    def case_settings(self) -> dict[str, str | int | float | bool | None]:
        """What makes this case another than the next: all but where things lie and how they are shown."""
        elsewhere = {"device", "study", "data_dir", "results", "force", "list", "save_every", "workers", "skip_bad_images"}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in elsewhere}


def parse(arguments: list[str] | None = None) -> RunConfig:
    """The command line to a `RunConfig`.

    Raises:
      InputError: tyro's complaint, which comes as a box of several lines, in one.
    """
    config = tyro.conf.OmitArgPrefixes[tyro.conf.FlagCreatePairsOff[RunConfig]]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(Annotated[config, tyro.conf.arg(name="")], args=arguments, prog="python -m experiments.run")
    except SystemExit as end:
        if end.code != 2:  # --help
            raise
        words = re.sub(r"[^\x00-\x7f]|-{3,}|\x1b\[[0-9;]*m", " ", complaint.getvalue()).split()
        raise InputError(" ".join(words)) from None
