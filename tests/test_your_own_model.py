"""The page docs/your-own-model.md, to the letter: its file, its folder of photos, its commands."""

import json
import os
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from tests.support.forked import run_python
from tests.support.paths import DATA, ROOT
from tests.support.records import read_records

PAGE = (ROOT / "docs" / "your-own-model.md").read_text()
FILE = re.search(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
BLOCK = re.search(r"^```sh show\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
COMMANDS = BLOCK.replace("\\\n", " ").splitlines()
PHOTOS = 40  # of each class


def copy_photos(folder):
    """Photos of cats and dogs, or, where they are not available, of two kinds of noise."""
    source = DATA / "cats_vs_dogs_small" / "train"
    for name, low in (("cat", 0), ("dog", 100)):
        (folder / name).mkdir(parents=True)
        files = sorted((source / name).glob("*.jpg"))[:PHOTOS]
        for number in range(1, PHOTOS + 1):
            path = folder / name / f"{number}.jpg"
            if files:
                shutil.copy(files[number - 1], path)
                continue
            pixels = np.random.default_rng(number).integers(low, low + 100, (90, 120, 3), np.uint8)
            Image.fromarray(pixels).save(path)


def run(command: str, folder) -> subprocess.CompletedProcess:
    first, *arguments = shlex.split(command)
    assert first == "python"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XLA_FLAGS": "",  # libtpu does not know all flags of the tests
    }
    return run_python(arguments, folder, environment)


@pytest.mark.slow
def test_the_five_commands(tmp_path):
    assert 25 <= len(FILE.splitlines()) <= 40 and len(COMMANDS) == 5
    (tmp_path / "net.py").write_text(FILE)
    copy_photos(tmp_path / "photos")
    summary, preflight, train, export, predict = COMMANDS

    done = run(summary, tmp_path)
    # kernels 3×3 from 3 to 16, 32, 64, 128 channels; scales and biases; the dense layer
    kernels = 9 * (3 * 16 + 16 * 32 + 32 * 64 + 64 * 128)
    parameters = kernels + 2 * (16 + 32 + 64 + 128) + 2 * 128 + 2
    assert done.returncode == 0 and f"{parameters:,} trainable" in done.stdout, done.stderr

    done = run(f"{preflight} --fixed-batch", tmp_path)
    statuses = {
        record["settings"]["target"]: record["status"]
        for record in read_records(tmp_path / "results", "preflight")
    }
    assert set(statuses) == {"tpu-v5e-1", "gpu-t4"}, done.stderr
    assert set(statuses.values()) <= {"predicted", "unsupported"}  # without a compiler
    assert done.returncode == ("unsupported" in statuses.values())

    done = run(f"{train} --device=cpu --epochs=2", tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = read_records(tmp_path / "results", "train")
    assert record["metrics"]["parameters"] == parameters
    assert record["provenance"]["classes"] == ["cat", "dog"]

    (checkpoint,) = (tmp_path / "results" / "train").glob("*.checkpoints")
    assert json.loads((checkpoint / "identity.json").read_text())["model"] == "net.py:Net"
    case = checkpoint.name.removesuffix(".checkpoints")
    done = run(export.replace("CASE", case), tmp_path)
    with safe_open(tmp_path / "net.safetensors", "numpy") as arrays:
        assert arrays.get_tensor("out.kernel").shape == (128, 2), done.stderr
    done = run(predict, tmp_path)
    assert done.returncode == 0 and "net.py:Net, images of 96×96, 2 classes" in done.stdout
