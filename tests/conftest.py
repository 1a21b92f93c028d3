"""Shared fixtures. Tests run on eight simulated CPU devices unless JAXCNN_TEST_DEVICE is set."""

import os
from pathlib import Path

import pytest

from jaxcnn import backend
from tests.support.paths import DATA

BACKEND = backend.select(os.environ.get("JAXCNN_TEST_DEVICE", "cpu:8"))


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
