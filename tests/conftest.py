"""Eight simulated CPU devices, no results outside temporary folders, and the real data where it lies."""

import os
from pathlib import Path

import pytest

from jaxcnn import backend
from tests.support.paths import DATA

BACKEND = backend.select(os.environ.get("JAXCNN_TEST_DEVICE", "cpu:8"))


@pytest.fixture(scope="session")
def tfds_dir() -> str:
    """Prepared TFDS data: TFDS_DATA_DIR, or the folder beside the project."""
    folder = Path(os.environ.get("TFDS_DATA_DIR", DATA / "tfds"))
    if not (folder / "mnist").is_dir():
        pytest.skip(f"no prepared MNIST in {folder}; set TFDS_DATA_DIR")
    return str(folder.resolve())


@pytest.fixture
def devices():
    """Eight devices."""
    if len(BACKEND.devices) < 8:
        pytest.skip(f"needs 8 devices, {BACKEND} has {len(BACKEND.devices)}")
    return BACKEND.devices
