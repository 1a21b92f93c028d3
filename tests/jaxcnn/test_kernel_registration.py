"""Executables compiled ahead of time find the kernels in a process that imports jaxcnn."""

import os
import subprocess
import sys

import numpy as np
import pytest

from jaxcnn.ops import native
from tests.support.native import requires_kernels
from tests.support.paths import ROOT

SAVE = """
import pickle
import jax
import jax.numpy as jnp
from jax.experimental import serialize_executable
from jaxcnn import ops
from jaxcnn.ops import native

def convolve(images, kernel):
    return ops.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )

images = jnp.arange(2 * 4 * 5 * 3, dtype="float32").reshape(2, 4, 5, 3)
kernel = jnp.arange(3 * 3 * 3 * 7, dtype="float32").reshape(3, 3, 3, 7) - 90
compiled = jax.jit(convolve).lower(images, kernel).compile()
assert native.CALL_PREFIX in compiled.as_text()
with open("saved", "wb") as file:
    pickle.dump((serialize_executable.serialize(compiled), images, kernel), file)
jnp.save("expected.npy", compiled(images, kernel))
"""
LOAD = """
import pickle
import jax.numpy as jnp
from jax.experimental import serialize_executable

with open("saved", "rb") as file:
    serialized, images, kernel = pickle.load(file)
compiled = serialize_executable.deserialize_and_load(*serialized)
jnp.save("loaded.npy", compiled(images, kernel))
"""


def run_python(program: str, folder, **environment: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a serialized executable that calls a kernel, and its result."""
    folder = tmp_path_factory.mktemp("executable")
    done = run_python(SAVE, folder)
    assert done.returncode == 0, done.stderr
    return folder


@requires_kernels
@pytest.mark.parametrize(
    "program",
    [
        "import jaxcnn\n" + LOAD,
        "import importlib.util, jaxcnn\nassert importlib.util.find_spec('jax')\n" + LOAD,
        LOAD.replace("serialized, images", "import jaxcnn\n    serialized, images"),
    ],
    ids=["jaxcnn before JAX", "JAX looked for and then imported", "JAX before jaxcnn"],
)
def test_a_serialized_executable_is_loaded(program, folder):
    done = run_python(program, folder)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "loaded.npy"), np.load(folder / "expected.npy"))


@requires_kernels
def test_without_kernels_it_is_refused(folder):
    """Which also shows that the executable calls them."""
    done = run_python("import jaxcnn\n" + LOAD, folder, **{native.ENVIRONMENT_VARIABLE: "none"})
    assert done.returncode == 1 and "jaxcnn$convolution" in done.stderr


def test_importing_jaxcnn_neither_imports_nor_starts_jax(tmp_path):
    done = run_python("import jaxcnn, sys; print('jax' in sys.modules)", tmp_path)
    assert done.stdout == "False\n"
    program = (
        "import jaxcnn, jax; jax.config.update('jax_num_cpu_devices', 3); print(jax.device_count())"
    )
    assert run_python(program, tmp_path).stdout == "3\n"


def test_an_invalid_request_is_no_error_before_the_first_use(tmp_path):
    invalid = {native.ENVIRONMENT_VARIABLE: "avx3"}
    assert run_python("import jaxcnn, jax", tmp_path, **invalid).returncode == 0
    done = run_python(
        "import jaxcnn; from jaxcnn.ops import native; native.available()", tmp_path, **invalid
    )
    assert "InputError: JAXCNN_KERNELS=avx3 is not an instruction set" in done.stderr


def test_a_missing_jax_stays_missing(tmp_path):
    program = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'jax': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import jaxcnn\n"
        "import jax\n"
    )
    done = run_python(program, tmp_path)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: jax"
