"""An empty working directory for each test, and a stand-in for Colab."""

import sys

import pytest

# The package google.colab: mounting and downloading leave files in the working directory.
FAKE_COLAB = {
    "__init__": "",
    "drive": "def mount(place):\n    with open('mounted', 'a') as file: file.write(place)\n",
    "files": (
        "def download(path):\n    with open('downloaded', 'w') as file: file.write(path)\n"
        "def upload():\n"
        "    with open('asked', 'a') as file: file.write('once ')\n"
        "    return {'theirs.zip': b''}\n"
    ),
    "output": (
        "served = []\n"
        "def serve_kernel_port_as_iframe(port, **options):\n"
        "    served.append((port, options))\n"
    ),
    "_message": (
        "metadata = {}\n"
        "def blocking_request(kind, request, timeout_sec):\n"
        "    return {'ipynb': {'metadata': metadata}}\n"
    ),
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fake_colab(tmp_path, monkeypatch):
    """Makes `google.colab` importable."""
    package = tmp_path / "fake" / "google" / "colab"
    package.mkdir(parents=True)
    for name, source in FAKE_COLAB.items():
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    yield
    for name in [name for name in sys.modules if name.startswith("google.colab")]:
        del sys.modules[name]
