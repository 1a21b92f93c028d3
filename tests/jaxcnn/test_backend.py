import importlib.util
import os
import subprocess
import sys

import pytest

from jaxcnn import backend
from jaxcnn.errors import InputError


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs `code` in a fresh process, because JAX chooses its platform once."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )


def test_a_missing_tpu_is_an_error_and_never_replaced_by_the_cpu():
    # The limit is the promised ten seconds, with a margin for a busy machine.
    process = subprocess.run(
        [sys.executable, "-m", "experiments.run", "--device=tpu", "--results=never"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 2
    assert process.stderr.startswith("error: --device=tpu: no TPU is available (")
    assert "JAX sees: cpu:0 cpu" in process.stderr
    assert "n Colab choose Runtime > Change runtime type > TPU" in process.stderr
    is_installed = importlib.util.find_spec("libtpu") is not None
    assert ("pip install -e '.[tpu]'" in process.stderr) != is_installed
    assert len(process.stderr.splitlines()) == 1


def test_a_missing_gpu_is_an_error():
    process = run_python(
        "from jaxcnn import backend; backend.select('gpu')", CUDA_VISIBLE_DEVICES=""
    )
    assert "InputError: --device=gpu: no GPU is available (" in process.stderr
    assert "cuda13" in process.stderr


def test_eight_cpu_devices_are_marked_as_simulated_and_one_is_not():
    code = (
        "from jaxcnn import backend; b = backend.select({!r}); "
        "print(len(b.devices), b.simulated, b)"
    )
    process = run_python(code.format("cpu:8"))
    count, simulated, label = process.stdout.split(maxsplit=2)
    assert (count, simulated) == ("8", "True")
    assert "simulated" in label
    process = run_python(code.format("cpu"))
    assert process.stdout.startswith("1 False 1 × cpu (cpu)")


def test_more_cpu_devices_than_jax_started_with_are_an_error():
    process = run_python(
        "import jax; jax.devices('cpu'); from jaxcnn import backend; backend.select('cpu:3')"
    )
    assert "InputError: --device=cpu:3: JAX had already started with 1 device(s)" in process.stderr


@pytest.mark.parametrize("device", ["cpu:0", "cpu:", "cpu:x", "auto:2", "cpu:-1", "gpu:1.5"])
def test_an_invalid_device_count_is_an_error(device):
    with pytest.raises(InputError, match="a number of devices from 1 to 9999 must follow"):
        backend.select(device)


def test_an_unknown_platform_is_an_error_with_a_suggestion():
    with pytest.raises(InputError, match="unknown device 'tpus': did you mean 'tpu'"):
        backend.select("tpus")


def test_the_compilation_cache_is_in_the_users_cache_folder(tmp_path):
    process = run_python(
        "from jaxcnn import backend; backend.select('cpu'); import jax; "
        "print(jax.config.jax_compilation_cache_dir)",
        XDG_CACHE_HOME=str(tmp_path),
        JAX_COMPILATION_CACHE_DIR="",
    )
    assert process.stdout.strip().endswith("jaxcnn/xla")
