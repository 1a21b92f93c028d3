"""Shared fixtures. Tests run on eight simulated CPU devices unless JAXCNN_TEST_DEVICE is set."""

import os
from pathlib import Path

import jax
import pytest

from jaxcnn import backend
from tests.support.paths import DATA

BACKEND = backend.select(os.environ.get("JAXCNN_TEST_DEVICE", "cpu:8"))

# Files whose tests get a marker, by their path below this folder.
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
        "experiments/test_json_output",
        "experiments/workloads/test_pipelines",
    ),
    "version": (
        "jaxcnn/ops/test_native_programs",
        "jaxcnn/parallel",
        "jaxcnn/test_backend",
        "jaxcnn/training",
        "jaxcnn/weights/test_checkpoint",
        "experiments/harness",
        "experiments/measure",
        "experiments/preflight",
        "experiments/test_json_output",
        "experiments/test_run",
        "experiments/workloads",
    ),
}


def pytest_collection_modifyitems(items):
    """Adds the markers of `MARKED`."""
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):  # a doctest of the packages
            continue
        path = item.path.relative_to(here).with_suffix("").as_posix()
        for marker, prefixes in MARKED.items():
            if any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes):
                item.add_marker(marker)


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
