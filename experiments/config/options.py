"""The options of a run: what the command line accepts.

`IDENTITY` marks the options that make one case different from another: they name its record and its
checkpoint. All others say where things are, how they are shown, or how long to wait. `SEVERAL`
marks those of the former that may be lists, each value of which is a configuration of its own.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from experiments.cli import OptionalFloat, OptionalInt, OptionalStr, unset

IDENTITY = {"identity": True}
SEVERAL = IDENTITY | {"several": True}
JOINED = {"joined": True}  # comma-separated names that belong to one configuration


def identity_unless(neutral: float | str | None) -> dict[str, Any]:
    """Metadata of an option that names a case only where its value is not `neutral`.

    It is for options that came later: cases without them keep their names, and their records match
    those of earlier versions.
    """
    return IDENTITY | {"neutral": neutral}


@dataclass(frozen=True, kw_only=True)
class DeviceAndStudyOptions:
    """What to measure, and on which devices."""

    device: str = "auto"
    """cpu, gpu, tpu or auto; cpu:8 simulates eight devices, gpu:2 uses the first two."""
    study: str = field(default="train,kernels", metadata=JOINED)
    """One or more studies, comma-separated; `--list` shows them all."""
    preset: Literal["quick", "full"] = "quick"
    """How many cases a study has: about a minute's worth, or all of them."""
    strategy: str = field(default="auto", metadata=SEVERAL)
    """How a step is placed on devices: jit, pmap, data, fsdp, tensor, data_tensor, or pipeline with
    --microbatches; auto is jit on one device and data on several."""
    mesh: OptionalStr = field(default=None, metadata=identity_unless(None))
    """Devices along each axis of the strategy's mesh: --mesh=2x4 divides the batch among 2 and the
    channels among 4; default: the smallest prime factor of their number for the channels."""
    config: OptionalStr = None
    """A TOML file of these options, such as batch_size = [32, 64]; the command line wins."""
    list: bool = False
    """Show studies, models, data sets and strategies, and exit."""
    dry_run: bool = False
    """Show the cases, which of them have a record and how long the others may take, and exit."""


@dataclass(frozen=True, kw_only=True)
class DistributedOptions:
    """Several processes, on one or more hosts, as one program (docs/many-machines.md)."""

    distributed: bool = False
    """This is one of several processes. SLURM, Open MPI, Cloud TPU pods, GKE and Kubernetes are
    recognized; elsewhere the next three options say which one."""
    coordinator: OptionalStr = None
    """HOST:PORT of process 0."""
    num_processes: OptionalInt = None
    """The number of processes."""
    process_id: OptionalInt = None
    """Number of this process, from 0."""
    connect_timeout: float = 300.0
    """Seconds within which all processes have to start."""
    step_limit: OptionalFloat = None
    """Seconds that train steps, with the evaluation or checkpoint after them, may take before the
    run ends and names the process that is late; default: 600 with --distributed, else none."""
    resume_from: OptionalStr = field(default=None, metadata=identity_unless(None))
    """Continue the run of this checkpoint folder, which may have had another number of devices or
    another strategy."""


@dataclass(frozen=True, kw_only=True)
class ModelAndDataOptions:
    """The network, and the images it gets."""

    model: str = field(default="lenet5", metadata=SEVERAL)
    """The network; mlp:4096 is an MLP of that width. Your own: ./file.py:Factory or
    package.module:Factory, a class or a function that takes num_classes and rngs."""
    dataset: str = field(default="digits", metadata=SEVERAL)
    """digits, mnist, cifar10, cats_vs_dogs, tfds:NAME, folder:PATH or synthetic."""
    data_dir: OptionalStr = None
    """Folder of prepared TFDS data; default: TFDS_DATA_DIR or ~/tensorflow_datasets."""
    image_size: OptionalInt = field(default=None, metadata=SEVERAL)
    """Side of the images that the network gets; default: its published size, or that of the data
    set for a network of your own."""
    num_classes: OptionalInt = field(default=None, metadata=identity_unless(None))
    """Number of classes of synthetic images; other data sets have their own. Default: 10."""
    resize: OptionalInt = field(default=None, metadata=IDENTITY)
    """Side to which images are resized before a crop of --image-size is taken."""
    normalise: Annotated[
        Literal["standard", "unit", "image"] | None, unset("{standard,unit,image}")
    ] = field(default=None, metadata=IDENTITY)
    """Pixels to mean 0 and variance 1 per channel of the training set; to 0 … 1; or to mean 0 and
    variance 1 per image."""
    augment: OptionalStr = field(default=None, metadata=IDENTITY | JOINED)
    """Random augmentations, comma-separated: shift, flip, crop, randaugment:2:9, …, or none; see
    `--list`."""
    validation: float = field(default=0.1, metadata=IDENTITY)
    """Share of the training set that is held out to choose the best epoch."""
    pipeline: Literal["auto", "resident", "streamed"] = field(default="auto", metadata=IDENTITY)
    """Keep the training set on the device, or stream it from processes; auto goes by size."""
    workers: int = 2
    """Worker processes of the streamed pipeline; 0 reads in threads."""
    skip_bad_images: bool = False
    """Skip files of a folder that cannot be read."""
    init_from: OptionalStr = field(default=None, metadata=IDENTITY)
    """Start from these weights: a checkpoint folder, a Darknet .weights file, or a
    .safetensors file of PyTorch or of `experiments.export`."""
    freeze: bool = field(default=False, metadata=IDENTITY)
    """Train the last layer only."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How the network is trained. Options left out follow the network's recipe."""

    precision: str = field(default="float32", metadata=SEVERAL)
    """float32, bfloat16, or float16 with loss scaling."""
    batch_size: OptionalInt = field(default=None, metadata=SEVERAL)
    """Images per step, over all devices together; default: the recipe's or the data set's."""
    epochs: OptionalInt = field(default=None, metadata=IDENTITY)
    """Passes over the training set, in each stage; default: the recipe's or the data set's."""
    optimizer: OptionalStr = field(default=None, metadata=SEVERAL)
    """sgd, momentum, nesterov, adam, rmsprop, rmsprop_1 (its epsilon is 1), rmsprop_momentum,
    adamw, lamb, muon or speedrun."""
    learning_rate: OptionalFloat = field(default=None, metadata=SEVERAL)
    """The initial learning rate; the largest one if there is a warm-up."""
    schedule: OptionalStr = field(default=None, metadata=IDENTITY)
    """Learning-rate schedule: constant, cosine, poly:POWER, step:EPOCHS:FACTOR or
    milestones:SHARE,SHARE:FACTOR."""
    weight_decay: OptionalFloat = field(default=None, metadata=IDENTITY)
    """Factor of half the squared norm of the weights, added to the loss; with adamw, lamb and muon,
    of the weights, subtracted from them."""
    moving_average: OptionalFloat = field(default=None, metadata=IDENTITY)
    """Decay of the averaged weights that are evaluated; 0 for none."""
    warmup: OptionalFloat = field(default=None, metadata=identity_unless(0))
    """Epochs at the start of each stage in which the learning rate grows linearly; 0 for none."""
    clip_norm: OptionalFloat = field(default=None, metadata=identity_unless(0))
    """The largest norm of all gradients together; larger ones are scaled down. 0 for no limit."""
    label_smoothing: OptionalFloat = field(default=None, metadata=identity_unless(0))
    """Share of a training label that is divided among all classes; 0 for none."""
    mixup: OptionalFloat = field(default=None, metadata=identity_unless(0))
    """Alpha of mixup, the weighted mean of two training images; 0 for none."""
    cutmix: OptionalFloat = field(default=None, metadata=identity_unless(0))
    """Alpha of CutMix, a rectangle from another training image; 0 for none. With --mixup each batch
    gets one of the two."""
    microbatches: OptionalInt = field(default=None, metadata=identity_unless(1))
    """Parts of a batch that a device computes one after the other, to save memory."""
    stages: Annotated[tuple[float, ...] | None, unset("FLOAT …")] = field(
        default=None, metadata=IDENTITY
    )
    """Learning-rate factors, one per stage; each stage starts from the best weights so far."""
    patience: Annotated[tuple[int, ...] | None, unset("INT …")] = field(
        default=None, metadata=IDENTITY
    )
    """Epochs without improvement after which a stage ends; one value per stage, or one for all."""
    monitor: Annotated[
        Literal["validation_accuracy", "validation_loss"] | None,
        unset("{validation_accuracy,validation_loss}"),
    ] = field(default=None, metadata=identity_unless("validation_accuracy"))
    """The metric by which the best epoch is chosen: later stages start from its weights, and
    --patience counts the epochs without improvement."""
    target_accuracy: OptionalFloat = field(default=0.95, metadata=IDENTITY)
    """Validation accuracy; the time until it is first reached is recorded."""
    target_loss: OptionalFloat = field(default=None, metadata=IDENTITY)
    """Training loss, weight decay included; the time until it is first reached is recorded."""
    seed: int = field(default=0, metadata=SEVERAL)
    """Seed of weights, order, dropout and augmentation."""
    seeds: OptionalInt = None
    """The number of seeds, counted from 0: --seeds=3 is --seed=0,1,2."""
    save_every: OptionalInt = None
    """Steps between two checkpoints; default: at the end of an epoch, at most every ten seconds."""


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """Limits, prices and devices that the measurements refer to."""

    force: bool = False
    """Measure again, from the start, even if there is a record or a checkpoint."""
    price: OptionalStr = None
    """Price of one accelerator in US dollars per hour, as in 2.5/h; default: the device table's."""
    prices: OptionalStr = None
    """A TOML file of such prices by accelerator: "NVIDIA H100 80GB HBM3" = 2.5."""
    devices: OptionalStr = None
    """A TOML file of additional accelerators, laid out as experiments/hardware/devices.toml."""
    memory_limit: OptionalInt = None
    """Memory limit in bytes of a case in a process of its own; default: most of what is free."""
    launches: OptionalInt = None
    """How often the study `peers` starts each library; default: 5 with --preset=full, else 1."""
    time_limit: float = 1800.0
    """Time limit in seconds of a case in a process of its own."""
    time_limit_total: OptionalStr = None
    """Limit on the time of the whole command, as in 90s, 9m or 1h30m: what is measured then is
    interrupted, and the same command goes on from there. Without --study the most valuable part of
    the whole study is done first (docs/your-gpu.md)."""
    profile: bool = False
    """After each training run trace a few more steps with jax.profiler, into
    results/STUDY/CASE.profile."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where results go, and in which form."""

    results: str = "results"
    """Folder for records, checkpoints and the report; may be a bucket."""
    log_dir: OptionalStr = None
    """Folder for scalars of the training runs; needs the extra that --log-to names."""
    log_to: Literal["tensorboard", "mlflow", "wandb"] = "tensorboard"
    """What writes them: TensorBoard's event files, a database of MLflow, or offline runs of Weights
    & Biases. Nothing is sent."""
    json: bool = False
    """Print one JSON document on stdout, and everything else on stderr."""


@dataclass(frozen=True)
class RunOptions:
    """Trains CNNs and measures what the accelerator is worth for it.

    A case whose record is already in the results folder is shown, not measured again; an
    interrupted case is resumed. `--list` shows the studies, models and data sets.

    Strategy, model, dataset, image size, precision, batch size, optimizer, learning rate and seed
    may be comma-separated lists: every combination is measured.
    """

    device_and_study: DeviceAndStudyOptions
    distributed_run: DistributedOptions
    model_and_data: ModelAndDataOptions
    training: TrainingOptions
    measuring: MeasuringOptions
    output: OutputOptions
