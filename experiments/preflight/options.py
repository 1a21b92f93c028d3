"""The options of the preflight: what its command line accepts."""

from dataclasses import dataclass
from typing import Literal

from experiments.cli import OptionalInt, OptionalStr
from experiments.config import RunConfig
from jaxcnn.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Which accelerators to compile for."""

    target: str = "colab"
    """tpu-v5e-4 (Google's name), tpu-v5e:2x4 (the shape of a slice), gpu-t4, gpu-h100-8, cpu;
    colab: the accelerators of its free tier; all: every kind but MI300X; single and eight: one
    device of each kind, and the eight devices or four chips of one machine."""
    list_targets: bool = False
    """Show the targets and which compilers are installed, and exit."""


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """The network, and the images it gets."""

    model: str = "lenet5"
    """The network, trained by its recipe; mlp:4096 is an MLP of that width. Your own:
    ./file.py:Factory or package.module:Factory, with --image-size and --num-classes."""
    image_size: OptionalInt = None
    """Side of the images; default: the published one."""
    num_classes: OptionalInt = None
    """Number of classes; default: the published one."""
    channels: OptionalInt = None
    """Channels of the images; default: the published ones, or 3."""


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The train step, and how it is placed on devices."""

    batch_size: OptionalInt = None
    """Images per step, over all devices together; default: the recipe's, or 128."""
    precision: str = "float32"
    """float32, bfloat16 or float16."""
    strategy: str = "auto"
    """jit, pmap, data, fsdp, tensor, data_tensor, or pipeline with --microbatches; auto is jit on
    one device and data on several."""
    mesh: OptionalStr = None
    """Devices along each axis of the strategy's mesh, as in 16x4 for data_tensor."""
    microbatches: OptionalInt = None
    """Parts of a batch that a device computes one after the other; default: the recipe's."""


@dataclass(frozen=True, kw_only=True)
class CompilingOptions:
    """How thoroughly to compile, and for how long."""

    effort: Literal["quick", "full"] = "quick"
    """quick compiles at the compiler's lowest optimization level, which takes a tenth of the time
    or less and plans nearly the same memory; full compiles as for a real run."""
    fixed_batch: bool = False
    """Do not search for the largest batch that fits."""
    time_limit: float = 1800.0
    """Time limit in seconds for compiling one program."""
    force: bool = False
    """Compile again, even if the result is known."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Prices, and where records go."""

    price: OptionalStr = None
    """Price of one chip in US dollars per hour, as in 2.5/h; default: the device table's."""
    prices: OptionalStr = None
    """A TOML file of such prices by accelerator."""
    results: str = "results"
    """Folder for records; may be a bucket."""
    json: bool = False
    """Print one JSON document on stdout: the exit code and the records; all else goes to
    stderr."""


@dataclass(frozen=True)
class PreflightOptions:
    """Compiles train steps for accelerators that are not attached; reports memory and bounds.

    Nothing is run. Models, targets, strategies and precisions may be comma-separated lists, or
    `all`, batch and image sizes lists; each combination is a case. The exit code is 0 only if every
    program compiles and fits.
    """

    target: TargetOptions
    network: NetworkOptions
    train_step: StepOptions
    compiling: CompilingOptions
    output: OutputOptions


@dataclass(frozen=True, kw_only=True)
class PreflightConfig(OutputOptions, CompilingOptions, StepOptions, NetworkOptions, TargetOptions):
    """The options of all groups as one flat configuration."""

    def __post_init__(self):
        if self.json and self.list_targets:
            raise InputError("--json goes with compiling, not with --list-targets: leave one out")

    def run_config(self) -> RunConfig:
        """The options that the study reads, as a configuration of a run.

        Raises:
          InputError: a number that is out of range.
        """
        return RunConfig(
            batch_size=self.batch_size,
            image_size=self.image_size,
            num_classes=self.num_classes,
            mesh=self.mesh,
            microbatches=self.microbatches,
            dataset="synthetic",  # of images of any size
            price=self.price,
            prices=self.prices,
            results=self.results,
            time_limit=self.time_limit,
            force=self.force,
        )
