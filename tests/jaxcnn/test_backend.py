import subprocess
import sys

import pytest

from jaxcnn import backend
from jaxcnn.errors import InputError


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    import os

    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )


def test_an_absent_tpu_is_refused_and_never_replaced_by_the_cpu():
    # the time limit is the promise of ten seconds and what a busy machine may add
    run = subprocess.run(
        [sys.executable, "-m", "experiments.run", "--device=tpu", "--results=never"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert run.stderr.startswith("error: --device=tpu: no tpu here (")
    assert "JAX sees: cpu:0 cpu" in run.stderr
    assert "pip install -e '.[tpu]'" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_an_absent_gpu_is_refused():
    run = python("from jaxcnn import backend; backend.select('gpu')", CUDA_VISIBLE_DEVICES="")
    assert "InputError: --device=gpu: no gpu here (" in run.stderr
    assert "cuda13" in run.stderr


def test_one_cpu_device_is_not_called_simulated_and_eight_are():
    run = python(
        "from jaxcnn import backend; b = backend.select('cpu:8'); print(len(b.devices), b.simulated, b)"
    )
    assert run.stdout.split(maxsplit=2)[:2] == ["8", "True"]
    assert "simulated" in run.stdout.split(maxsplit=2)[2]
    run = python(
        "from jaxcnn import backend; b = backend.select('cpu'); print(len(b.devices), b.simulated, b)"
    )
    assert run.stdout.startswith("1 False 1 × cpu (cpu)")


def test_a_platform_that_jax_already_left_behind_is_refused():
    run = python(
        "import jax; jax.devices('cpu'); from jaxcnn import backend; backend.select('cpu:3')"
    )
    assert "InputError: --device=cpu:3: JAX had already started with 1 device(s)" in run.stderr


@pytest.mark.parametrize("device", ["cpu:0", "cpu:", "cpu:x", "auto:2", "cpu:-1", "gpu:1.5"])
def test_a_bad_count_of_devices_is_refused(device):
    with pytest.raises(InputError, match="after the colon comes a number of devices"):
        backend.select(device)


def test_an_unknown_platform_names_the_nearest():
    with pytest.raises(InputError, match="unknown device 'tpus': did you mean 'tpu'"):
        backend.select("tpus")


def test_the_compilation_cache_is_on_in_the_users_cache_folder():
    run = python(
        "from jaxcnn import backend; backend.select('cpu'); import jax; print(jax.config.jax_compilation_cache_dir)",
        XDG_CACHE_HOME="/tmp/cache-of-somebody",
        JAX_COMPILATION_CACHE_DIR="",
    )
    assert run.stdout.strip().endswith("jaxcnn/xla")
