"""The primitive operations of CNNs: how long each takes, and how close it is to the roofline."""

from experiments import microbenchmarks
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.energy import SECONDS
from experiments.microbenchmarks import Kernel
from experiments.microbenchmarks.peak import prepare_peak
from experiments.studies.kernel_timing import BUDGETS, measure_kernel
from jaxcnn import training
from jaxcnn.backend import Backend
from jaxcnn.errors import require_known

COLUMNS = (
    "call_time",
    "call_latency",
    "flops_per_second",
    "bytes_per_second",
    "roofline_share",
    "mfu",
    "mfu_measured_peak",
    "flops_per_dollar",
    "flops_per_joule",
    "energy_per_call",
    "flops_per_joule_data_sheet",
    "break_even_size",
    "largest_error",
    "arithmetic_intensity",
)


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each kernel of the preset.

    Raises:
      InputError: an unknown preset or precision.
    """
    require_known("precision", config.precision, training.PRECISIONS)
    kernels = microbenchmarks.select_kernels(config.preset, backend.platform)
    return [_case(kernel, config) for kernel in kernels]


def _case(kernel: Kernel, config: RunConfig) -> Case:
    settings = {
        "kernel": kernel.name,
        "preset": config.preset,
        "group": kernel.group,
        "shape": kernel.shape,
        "dtype": kernel.dtype,
        "lowering": kernel.lowering,
        "product_precision": kernel.precision,
    }
    return Case(config.replace(precision=kernel.dtype), settings, (kernel.name,))


def has_figures_of_merit(case: Case, backend: Backend) -> bool:
    """Whether the device's roofline applies: not to copies between host and device."""
    return _kernel(case, backend).measurement not in ("copy_in", "copy_out")


def _kernel(case: Case, backend: Backend) -> Kernel:
    kernels = microbenchmarks.select_kernels("full", backend.platform)
    return next(kernel for kernel in kernels if kernel.name == case.settings["kernel"])


def measure(case: Case, context: Context) -> CaseResult:
    """Times one kernel on the first device."""
    kernel, device = _kernel(case, context.backend), context.backend.devices[0]
    if has_figures_of_merit(case, context.backend):
        prepare_peak(device, kernel.dtype, kernel.precision)  # before, as it is measured after
    preset = case.config.preset
    return measure_kernel(kernel, device, budget=BUDGETS[preset], energy_seconds=SECONDS[preset])
