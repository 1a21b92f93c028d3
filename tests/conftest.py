"""Shared fixtures. Tests run on eight simulated CPU devices unless JAXCNN_TEST_DEVICE is set."""

import gc
import os
import signal
from pathlib import Path

import jax
import pytest

from jaxcnn import backend
from tests.support import short_measurements as short_measurements  # shortens them
from tests.support.compiler_options import UNOPTIMIZED_FLAGS
from tests.support.paths import DATA

# A shell starts background jobs with SIGINT ignored, and processes inherit that: tests of Ctrl-C
# would wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)

DEVICE = os.environ.get("JAXCNN_TEST_DEVICE", "cpu:8")
# Most of the tests' time is XLA's. The processes that tests start have these flags too.
if DEVICE.startswith("cpu"):
    os.environ.setdefault("XLA_FLAGS", UNOPTIMIZED_FLAGS)
# The memory of freed arrays goes back to the system: otherwise each worker keeps up to 7 GB, since
# glibc raises this limit up to 32 MiB as large blocks are freed.
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**20))
BACKEND = backend.select(DEVICE)

# What gets a marker: folders, files, and single tests (``file::test`` and what follows), by their
# path below this folder.
MARKED = {
    "smoke": (
        "test_architecture",
        "jaxcnn/data/test_order",
        "jaxcnn/data/test_source",
        "jaxcnn/models/test_plan",
        "jaxcnn/ops/test_worked_examples",
        "jaxcnn/ops/test_materialize",
        "jaxcnn/training/test_loop",
        "jaxcnn/training/test_objective",
        "jaxcnn/training/test_optimizer",
        "experiments/analysis",
        "experiments/hardware",
        "experiments/harness/test_progress",
        "experiments/measure/test_merit",
        "experiments/measure/test_roofline",
        "experiments/records/test_records",
        "experiments/config/test_configurations",
        "experiments/test_json_output",
        "experiments/workloads/test_pipelines",
    ),
    "slow": (
        "experiments/harness/test_tensorboard::test_the_scalars_of_a_case_agree_with_its_record",
        "experiments/measure/test_training_flops"
        "::test_a_step_is_three_forward_passes_minus_the_first_layers_input_gradient[resnet50",
        "experiments/preflight/test_cache"
        "::test_a_cached_result_needs_no_process_and_a_fresh_one_does",
        "experiments/preflight/test_preflight::test_several_chips_sum_their_gradients",
        "experiments/preflight/test_known_cases::test_the_same_case_is_not_compiled_again",
        "experiments/preflight/test_preflight::test_without_a_compiler_a_program_is_only_lowered",
        "experiments/studies/test_at_once::test_the_study_reports_equal_results_and_the_speed_up",
        "experiments/studies/test_inference::test_a_checkpoint_has_the_accuracy_of_its_training_run",
        "experiments/studies/test_parity::test_eight_devices_train_the_same",
        "experiments/studies/test_transfer::test_a_fine_tuned_body_changes",
        "experiments/studies/test_transfer::test_a_resnet_starts_from_a_pytorch_file",
        "experiments/studies/test_width_sweep::test_a_killed_study_resumes",
        "experiments/test_predict::test_a_darknet_file_with_a_list_of_names",
        "experiments/test_resume::test_a_run_killed_within_an_epoch",
        "experiments/test_resume::test_ctrl_c_of_a_streamed_run_with_workers",
        "experiments/workloads/test_predictions"
        "::test_the_confusion_matrix_of_a_record_has_its_test_accuracy[resident-pmap]",
        "jaxcnn/detection/test_loss::test_gradient_descent_on_the_predictions",
        "jaxcnn/models/test_models::test_layers_have_the_published_output_shapes[inception",
        "jaxcnn/ops/test_native_programs"
        "::test_train_steps_for_other_platforms_contain_no_cpu_lowering[cuda-vgg16]",
        "jaxcnn/ops/test_native_programs"
        "::test_train_steps_for_other_platforms_contain_no_cpu_lowering[tpu-vgg16]",
        "jaxcnn/weights/test_darknet::test_darknet19_computes_the_logits_of_numpy",
        "jaxcnn/weights/test_darknet::test_yolov2_is_read",
        "jaxcnn/weights/test_pytorch::test_each_name_has_one_tensor_of_its_shape"
        "_and_no_tensor_is_left_over[resnet1",
        "kernels/test_sanitize::test_kernels_with_random_shapes",
        "kernels/test_sanitize::test_planted_errors_are_noticed",
        "test_docs::test_examples[adding-a-model.md]",
    ),
    "version": (
        "jaxcnn/data/test_tfds",
        "jaxcnn/ops/test_native_programs",
        "jaxcnn/parallel/test_dispatch",
        "jaxcnn/parallel/test_equality::test_steps_are_those_of_one_device[batch norm",
        "jaxcnn/parallel/test_placement",
        "jaxcnn/test_backend",
        "jaxcnn/test_info",
        "jaxcnn/test_kernel_registration",
        "jaxcnn/training/test_checkpoint",
        "jaxcnn/training/test_step",
        "jaxcnn/weights/test_checkpoint",
        "experiments/harness/test_profiling",
        "experiments/harness/test_tensorboard",
        "experiments/measure/test_lowered_flops",
        "experiments/measure/test_timing",
        "experiments/test_export",
        "experiments/test_run",
        "experiments/workloads/test_pipelines",
    ),
}

# The files whose tests take minutes: a worker that begins one last keeps the others waiting.
LONGEST = (
    "jaxcnn/models/test_one_step",
    "experiments/test_distributed",
    "test_docs",
    "experiments/preflight/test_pods",
    "experiments/studies/test_inference",
    "experiments/preflight/test_preflight",
    "kernels/test_sanitize",
    "jaxcnn/ops/test_random_convolutions",
    "experiments/test_user_model",
    "jaxcnn/training/test_step",
    "crash/test_kills",
    "experiments/test_resume",
)
# The files whose tests share nothing, so that any worker may run each; of the others, one worker
# runs a whole file.
SEPARABLE = ("jaxcnn/models/test_one_step", "test_docs")


def pytest_collection_modifyitems(items):
    """Adds markers, those of `MARKED` among them, and puts the `LONGEST` files first."""
    here = Path(__file__).parent
    longest, separable = (
        [(here / name).with_suffix(".py") for name in names] for names in (LONGEST, SEPARABLE)
    )
    items.sort(key=lambda item: longest.index(item.path) if item.path in longest else len(longest))
    for item in items:
        if item.path not in separable:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
        if not item.path.is_relative_to(here):  # a doctest of the packages
            continue
        path = item.path.relative_to(here).with_suffix("").as_posix()
        name = f"{path}::{item.name}"
        for marker, prefixes in MARKED.items():
            if any(_is_named_by(prefix, name) for prefix in prefixes):
                item.add_marker(marker)


def pytest_collection_finish():
    """Looks for garbage less often: tracing makes many objects that live on (6 % of the time)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def _is_named_by(prefix: str, name: str) -> bool:
    """Whether the prefix names this test, or its whole file, or a folder that contains it."""
    return name.startswith(prefix) and ("::" in prefix or name[len(prefix)] in "/:")


@pytest.fixture(autouse=True)
def strict_dtype_promotion(request):
    """Implicit promotion between dtypes is an error.

    Except in tests that are marked, and in those of half precision: Flax's own layers mix half
    precision with float32 statistics.
    """
    half_precision = "bfloat16" in request.node.name or "float16" in request.node.name
    is_standard = half_precision or request.node.get_closest_marker("standard_promotion")
    with jax.numpy_dtype_promotion("standard" if is_standard else "strict"):
        yield


@pytest.fixture(scope="session")
def tfds_dir() -> str:
    """The folder of the prepared TFDS datasets: TFDS_DATA_DIR, or one next to the project."""
    folder = Path(os.environ.get("TFDS_DATA_DIR", DATA / "tfds"))
    if not (folder / "mnist").is_dir():
        pytest.skip(f"no prepared MNIST in {folder}; set TFDS_DATA_DIR")
    return str(folder.resolve())


@pytest.fixture
def devices():
    """Eight devices; skips the test if there are fewer."""
    if len(BACKEND.devices) < 8:
        pytest.skip(f"needs 8 devices, {BACKEND} has {len(BACKEND.devices)}")
    return BACKEND.devices
