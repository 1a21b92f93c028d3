"""The notebooks: what stands in them, and all of them run from the first to the last cell."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))
DEVICE = os.environ.get("JAXCNN_TEST_DEVICE", "cpu").partition(":")[0]
# A package google.colab: its drive is a folder, its browser a file, and the notebook's runtime type is in the environment.
FAKE = {
    "__init__": "",
    "drive": "import os\ndef mount(place):\n    os.makedirs(place + '/MyDrive', exist_ok=True)\n",
    "files": "def download(path):\n    open('downloaded', 'w').write(path)\n",
    "_message": "import os\ndef blocking_request(*_, **__):\n    return {'ipynb': {'metadata': {'accelerator': os.environ['RUNTIME']}}}\n",
}


def sources(path: Path, kind: str = "code") -> list[str]:
    return [
        "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == kind
    ]


def test_all_four_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "custom_images",
        "first_cnn",
        "portability_study",
        "train_step",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_asks_for_a_tpu(path):
    notebook = json.loads(path.read_text())
    nbformat.validate(notebook)
    assert all(
        c["outputs"] == [] and c["execution_count"] is None
        for c in notebook["cells"]
        if c["cell_type"] == "code"
    )
    metadata = notebook["metadata"]
    assert metadata["accelerator"] == "TPU" and metadata["colab"] == {
        "gpuType": "V5E1",
        "name": path.name,
        "provenance": [],
    }
    assert notebook["cells"][1]["metadata"]["tags"] == ["parameters"]
    for source in sources(path):
        ast.parse(source)
        assert len(source.splitlines()) < 25, "thin: the code is in the packages"
    text = path.read_text()
    assert (
        not re.search(r"(?<![\w.:/}*])/(home|root|tmp|work|usr|content|Users|opt|mnt)\b", text)
        and str(ROOT) not in text
    )


def test_one_address_and_one_way_to_the_code():
    (address,) = {
        re.search(r'REPOSITORY = "https://github\.com/([^"]+)"', sources(path)[0])[1]
        for path in NOTEBOOKS
    }
    for path in NOTEBOOKS:
        link = f"https://colab.research.google.com/github/{address}/blob/main/colab/{path.name}"
        image = "https://colab.research.google.com/assets/colab-badge.svg"
        assert sources(path, "markdown")[0].startswith(f"[![Open in Colab]({image})]({link})")
    assert len({sources(path)[1] for path in NOTEBOOKS}) == 1


def fetched(folder: Path, repository: str) -> subprocess.CompletedProcess:
    """The cell that fetches the code, in a Python that has nothing but the standard library, and then the first import."""
    cell = f"REPOSITORY = {repository!r}\n{sources(NOTEBOOKS[0])[1]}\nfrom experiments import colab\nprint(colab.__file__)"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", cell],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


def packages(folder: Path) -> Path:
    for name in (
        "experiments/__init__.py",
        "experiments/colab",
        "jaxcnn/__init__.py",
        "jaxcnn/chips.py",
        "jaxcnn/errors.py",
        "pyproject.toml",
    ):
        source, place = ROOT / name, folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
    return folder


def test_the_code_comes_from_an_uploaded_zip_file_and_needs_no_package(tmp_path):
    shutil.make_archive(
        str(tmp_path / "jaxcnn-main"), "zip", packages(tmp_path / "packed" / "jaxcnn").parent
    )
    for _ in range(2):  # a restarted session finds what was fetched
        done = fetched(tmp_path, "https://github.com/OWNER/jaxcnn")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(
            tmp_path / "jaxcnn-code" / "jaxcnn" / "experiments" / "colab" / "__init__.py"
        )


def test_the_code_comes_from_a_repository(tmp_path):
    origin = packages(tmp_path / "origin")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=origin, check=True, capture_output=True)
    done = fetched(tmp_path, f"file://{origin}")
    assert done.stdout.strip() == str(
        tmp_path / "jaxcnn-code" / "experiments" / "colab" / "__init__.py"
    ), done.stderr


def test_without_an_address_it_says_how_to_give_the_code(tmp_path):
    done = fetched(tmp_path, "https://github.com/OWNER/jaxcnn")
    assert (
        "set REPOSITORY in the first cell, or upload jaxcnn.zip" in done.stderr
        and not (tmp_path / "jaxcnn-code").exists()
    )


def opened(name: str, folder: Path, **parameters: object) -> NotebookClient:
    """The notebook, with a cell of other parameters below its own, to run in a folder."""
    notebook = nbformat.read(ROOT / "colab" / f"{name}.ipynb", 4)
    text = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    notebook.cells.insert(2, nbformat.v4.new_code_cell(text))
    return NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )


def execute(client: NotebookClient, runtime: str = "", path: Path = ROOT) -> None:
    """In Colab where there is a runtime type, with `path` as the folder of the faked package; elsewhere without it."""
    paths = os.pathsep.join(dict.fromkeys([str(path), str(ROOT)]))
    client.execute(env=os.environ | {"PYTHONPATH": paths, "RUNTIME": runtime})


def seen(client: NotebookClient) -> str:
    """Everything that the cells printed or showed as text."""
    outputs = [
        output for cell in client.nb.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    return "\n".join(
        output.get("text") or "".join(output.get("traceback", [])) for output in outputs
    )


def pages(client: NotebookClient) -> list[str]:
    outputs = [
        output for cell in client.nb.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    return [output.data["text/html"] for output in outputs if output.output_type == "display_data"]


def records(folder: Path) -> dict[str, list[dict]]:
    """By study."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))]
    return {
        study: [record for record in found if record["study"] == study]
        for study in {record["study"] for record in found}
    }


@pytest.fixture
def in_colab(tmp_path):
    """The folder in which a package google.colab lies."""
    package = tmp_path / "fake" / "google" / "colab"
    package.mkdir(parents=True)
    for name, text in FAKE.items():
        (package / f"{name}.py").write_text(text)
    return tmp_path / "fake"


@pytest.mark.slow
def test_the_train_step_learns_the_same_on_eight_devices(tmp_path):
    client = opened("train_step", tmp_path, DEVICE="cpu:8", EPOCHS=2)
    execute(client)
    assert client.nb.metadata.kernelspec.name == "python3"
    one, eight = re.findall(r"test accuracy (0\.\d+)", seen(client))
    assert float(one) > 0.8 and one == eight and "on 8 device(s)" in seen(client)
    assert float(re.search(r"weights differ by (\S+) at most", seen(client))[1]) < 1e-5


@pytest.mark.slow
def test_the_first_cnn_tells_its_wall_time(tmp_path):
    client = opened("first_cnn", tmp_path, DEVICE=DEVICE, EPOCHS=1)
    execute(client)
    assert "conv2" in seen(client) and "1 epochs in " in seen(client)
    platforms = {
        record["provenance"]["platform"]
        for record in records(tmp_path / "results" / "first_cnn")["first_cnn"]
    }
    assert platforms == {"cpu", DEVICE} and ("No accelerator here" in seen(client)) == (
        DEVICE == "cpu"
    )
    assert len(pages(client)) == 1


@pytest.mark.slow
def test_own_pictures_are_learnt_shown_and_not_learnt_again(tmp_path):
    quick = {
        "DEVICE": DEVICE,
        "MODEL": "lenet_like",
        "EPOCHS": 4,
        "OPTIONS": "--learning-rate=0.004",
    }
    for again in (False, True):
        client = opened("custom_images", tmp_path, **quick)
        execute(client)
        assert ("already measured on" in seen(client)) == again
    (record,) = records(tmp_path / "results" / "custom_images")["train"]
    assert record["status"] == "ok" and record["settings"]["dataset"] == "folder:pictures"
    assert (
        len(re.findall(r"pictures/[012]/00\.png: \d", seen(client))) == 3
        and len(pages(client)) == 1
    )


def test_a_tpu_that_was_asked_for_and_is_not_there_stops_the_notebook(tmp_path, in_colab):
    for runtime, parameters in (("", {"DEVICE": "tpu"}), ("TPU", {})):
        client = opened("portability_study", tmp_path, **parameters)
        with pytest.raises(
            CellExecutionError, match="Stopped: a TPU was asked for, and this machine has only a"
        ):
            execute(client, runtime, in_colab if runtime else ROOT)
        assert "Runtime → Change runtime type → v5e-1 TPU" in seen(
            client
        ) and "Traceback" not in seen(client)
        assert not (tmp_path / "results").exists() and not (tmp_path / "drive").exists()


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_and_measures_every_case_once(tmp_path, in_colab):
    results = tmp_path / "drive" / "MyDrive" / "jaxcnn" / "portability"
    quick = {
        "DEVICE": DEVICE,
        "STUDIES": "first_cnn,train",
        "OPTIONS": "--dataset=synthetic:1500 --model=mnist_cnn --epochs=4 --batch-size=16 --save-every=10",
    }
    client = opened("portability_study", tmp_path, **quick)
    killer = threading.Thread(target=kill_within, args=(client, results))
    killer.start()
    with pytest.raises(DeadKernelError):
        execute(client, "NONE", in_colab)
    killer.join()
    before = records(results)
    assert list(before) == ["first_cnn"], "killed in the second of the two"

    client = opened(
        "portability_study", tmp_path, **quick, ELSEWHERE=str(others(tmp_path / "others"))
    )
    execute(client, "NONE", in_colab)
    assert re.search(r"resuming +after step \d+", seen(client)) and "already measured on" in seen(
        client
    )
    found = records(results)
    assert found["first_cnn"] == before["first_cnn"]
    (record,) = found["train"]
    assert record["status"] == "ok" and [entry["epoch"] for entry in record["curves"]] == [
        1,
        2,
        3,
        4,
    ]
    (page,) = pages(client)
    assert "srcdoc=" in page and "Elsewhere 3000" in page
    assert (tmp_path / "downloaded").read_text() == str(tmp_path / "portability-records.zip")


def kill_within(client: NotebookClient, results: Path) -> None:
    """Kills the kernel and what it runs, as the end of a virtual machine does, once the second study has a checkpoint."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        steps = [
            int(path.name)
            for path in results.glob("train/*.checkpoints/last/*")
            if path.name.isdigit()
        ]
        if steps:
            os.killpg(client.km.provisioner.pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def others(folder: Path) -> Path:
    """A record from another machine."""
    (folder / "train").mkdir(parents=True)
    place = {
        "accelerator": "Elsewhere 3000",
        "device_kind": "Elsewhere 3000",
        "machine": "there",
        "platform": "gpu",
        "time": "2026-01-01T00:00:00Z",
    }
    record = {
        "schema": 1,
        "study": "train",
        "case": "x",
        "status": "ok",
        "metrics": {"step_time": 1.0},
        "provenance": place,
    }
    (folder / "train" / "x.json").write_text(json.dumps(record))
    return folder
