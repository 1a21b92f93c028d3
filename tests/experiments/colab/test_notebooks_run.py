"""Runs the notebooks from the first to the last cell."""

import contextlib
import json
import os
import re
import shutil
import signal
import threading
import time
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from experiments.colab import image_folder
from tests.support.paths import ROOT

DEVICE = os.environ.get("JAXCNN_TEST_DEVICE", "cpu").partition(":")[0]
# The package google.colab: its drive is a folder, a download leaves a file, and the runtime type of
# the notebook is in the environment.
FAKE_COLAB = {
    "__init__": "",
    "drive": "import os\ndef mount(place):\n    os.makedirs(place + '/MyDrive', exist_ok=True)\n",
    "files": "def download(path):\n    with open('downloaded', 'w') as file: file.write(path)\n",
    "output": (
        "def serve_kernel_port_as_iframe(port, **options):\n"
        "    import IPython.display\n"
        "    IPython.display.display(IPython.display.HTML(f'port {port}'))\n"
    ),
    "_message": (
        "import os\n"
        "def blocking_request(*_, **__):\n"
        "    return {'ipynb': {'metadata': {'accelerator': os.environ['RUNTIME']}}}\n"
    ),
}


MAX_SAVED = 200_000  # bytes of a notebook with its outputs; the report alone has megabytes


def open_notebook(name: str, folder: Path, **parameters: object) -> NotebookClient:
    """A client that runs a notebook in a folder, with some of its parameters replaced."""
    notebook = nbformat.read(ROOT / "colab" / f"{name}.ipynb", 4)
    lines = [f"{parameter} = {value!r}" for parameter, value in parameters.items()]
    notebook.cells.insert(2, nbformat.v4.new_code_cell("\n".join(lines)))
    return NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        coalesce_streams=True,  # or a cell that prints for a while has an output for each flush
        resources={"metadata": {"path": str(folder)}},
    )


def execute(client: NotebookClient, runtime: str = "", fake: Path = ROOT) -> None:
    """Runs a notebook; on Colab if `fake` is the folder of the stand-in for `google.colab`."""
    paths = os.pathsep.join(dict.fromkeys([str(fake), str(ROOT)]))
    client.execute(env=os.environ | {"PYTHONPATH": paths, "RUNTIME": runtime})
    assert len(nbformat.writes(client.nb).encode()) < MAX_SAVED


def outputs(client: NotebookClient) -> list[nbformat.NotebookNode]:
    cells = [cell for cell in client.nb.cells if cell.cell_type == "code"]
    return [output for cell in cells for output in cell.outputs]


def printed(client: NotebookClient) -> str:
    """Everything that the cells printed, and the tracebacks."""
    return "\n".join(
        output.get("text") or "".join(output.get("traceback", [])) for output in outputs(client)
    )


def pages(client: NotebookClient) -> list[str]:
    displayed = [output for output in outputs(client) if output.output_type == "display_data"]
    return [output.data["text/html"] for output in displayed]


def lose_machine(folder: Path) -> None:
    """Deletes what is on the machine; Google Drive outlives it, in the folder ``drive``."""
    for path in folder.iterdir():
        if path.name not in ("drive", "fake"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def records(folder: Path) -> dict[str, list[dict]]:
    """Records by study."""
    by_study: dict[str, list[dict]] = {}
    for path in sorted(folder.glob("*/*.json")):
        record = json.loads(path.read_text())
        by_study.setdefault(record["study"], []).append(record)
    return by_study


@pytest.fixture
def fake_colab(tmp_path):
    """The folder of the stand-in for `google.colab`."""
    package = tmp_path / "fake" / "google" / "colab"
    package.mkdir(parents=True)
    for name, source in FAKE_COLAB.items():
        (package / f"{name}.py").write_text(source)
    return tmp_path / "fake"


@pytest.mark.slow
def test_the_train_step_learns_the_same_on_eight_devices(tmp_path):
    client = open_notebook("train_step", tmp_path, DEVICE="cpu:8", EPOCHS=2)
    execute(client)
    assert client.nb.metadata.kernelspec.name == "python3"
    output = printed(client)
    one, eight = re.findall(r"test accuracy (0\.\d+)", output)
    assert float(one) > 0.8 and one == eight and "on 8 device(s)" in output
    assert float(re.search(r"weights differ by (\S+) at most", output)[1]) < 1e-5


@pytest.mark.slow
def test_the_first_cnn_prints_its_wall_time(tmp_path):
    client = open_notebook("first_cnn", tmp_path, DEVICE=DEVICE, EPOCHS=1)
    execute(client)
    output = printed(client)
    assert "conv2" in output and "1 epochs in " in output
    lesson = records(tmp_path / "results" / "first_cnn")["first_cnn"]
    assert {record["provenance"]["platform"] for record in lesson} == {"cpu", DEVICE}
    assert ("No accelerator here" in output) == (DEVICE == "cpu")
    (page,) = pages(client)
    assert 'src="results/first_cnn/report.html"' in page
    assert re.search(r"\d cases? on .*: measured\.", output)


@pytest.mark.slow
def test_custom_images_are_learned_once_though_the_machine_is_lost(tmp_path, fake_colab):
    write_digits(tmp_path / "mine.zip")
    parameters = {
        "DEVICE": DEVICE,
        "IMAGES": "mine.zip",
        "MODEL": "lenet_like",
        "EPOCHS": 4,
        "OPTIONS": "--learning-rate=0.004",
    }
    results = tmp_path / "drive" / "MyDrive" / "jaxcnn" / "custom_images"
    for is_second in (False, True):
        client = open_notebook("custom_images", tmp_path, **parameters)
        execute(client, "NONE", fake_colab)
        output = printed(client)
        assert ("already measured on" in output) == is_second
        assert re.findall(r"mine/(\d)/\d\d\.png: \d", output) == list("0123456789")
        assert len(pages(client)) == 1
        lose_machine(tmp_path)
    (record,) = records(results)["train"]
    assert record["status"] == "ok"
    assert record["settings"]["dataset"] == f"folder:{tmp_path}/unpacked/mine"


def write_digits(archive: Path) -> None:
    """A zip file of 400 handwritten digits, a folder for each class."""
    with zipfile.ZipFile(archive, "w") as packed, contextlib.chdir(archive.parent):
        for file in image_folder("", archive.parent).glob("*/*.png"):
            packed.write(file, file.relative_to("images"))
        shutil.rmtree("images")


def test_a_tpu_that_is_not_available_stops_the_notebook(tmp_path, fake_colab):
    for runtime, parameters in (("", {"DEVICE": "tpu"}), ("TPU", {})):
        client = open_notebook("portability_study", tmp_path, **parameters)
        message = "Stopped: a TPU was requested, and this machine has only a"
        with pytest.raises(CellExecutionError, match=message):
            execute(client, runtime, fake_colab if runtime else ROOT)
        output = printed(client)
        assert "Runtime → Change runtime type → v5e-1 TPU" in output and "Traceback" not in output
        assert not (tmp_path / "results").exists() and not (tmp_path / "drive").exists()


@pytest.mark.slow
def test_a_killed_study_resumes_and_measures_every_case_once(tmp_path, fake_colab):
    results = tmp_path / "drive" / "MyDrive" / "jaxcnn" / "portability"
    parameters = {
        "DEVICE": DEVICE,
        "STUDIES": "first_cnn,train",
        "OPTIONS": "--dataset=synthetic:1500 --model=mnist_cnn --epochs=4 --batch-size=16 "
        "--save-every=10",
    }
    client = open_notebook("portability_study", tmp_path, **parameters)
    killer = threading.Thread(target=kill_in_second_study, args=(client, results))
    killer.start()
    with pytest.raises(DeadKernelError):
        execute(client, "NONE", fake_colab)
    killer.join()
    before = records(results)
    assert list(before) == ["first_cnn"], "killed in the second of the two"

    lose_machine(tmp_path)
    others = write_other_records(tmp_path / "others")
    client = open_notebook("portability_study", tmp_path, **parameters, OTHER_RECORDS=str(others))
    execute(client, "NONE", fake_colab)
    output = printed(client)
    assert re.search(r"resuming +after step \d+", output) and "already measured on" in output
    after = records(results)
    assert after["first_cnn"] == before["first_cnn"]
    (record,) = after["train"]
    assert record["status"] == "ok"
    assert [entry["epoch"] for entry in record["curves"]] == [1, 2, 3, 4]
    (page,) = pages(client)
    assert re.fullmatch(r"port \d+", page)
    assert "Elsewhere 3000" in (results / "report.html").read_text()
    summary = client.nb.cells[-1].outputs[0].text
    assert "Elsewhere 3000" in summary and "test accuracy" in summary
    assert (tmp_path / "downloaded").read_text() == str(tmp_path / "portability-records.zip")


def kill_in_second_study(client: NotebookClient, results: Path) -> None:
    """Kills the kernel and its processes, as the end of a virtual machine does.

    Waits until the second study has saved a checkpoint.
    """
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        checkpoints = results.glob("train/*.checkpoints/last/*")
        if any(path.name.isdigit() for path in checkpoints):
            os.killpg(client.km.provisioner.pid, signal.SIGKILL)
            return
        time.sleep(0.02)


def write_other_records(folder: Path) -> Path:
    """A results folder with a record of another machine."""
    (folder / "train").mkdir(parents=True)
    record = {
        "schema": 1,
        "study": "train",
        "case": "x",
        "status": "ok",
        "settings": {},
        "metrics": {"step_time": 1.0},
        "provenance": {
            "accelerator": "Elsewhere 3000",
            "device_kind": "Elsewhere 3000",
            "machine": "there",
            "platform": "gpu",
            "time": "2026-01-01T00:00:00Z",
        },
    }
    (folder / "train" / "x.json").write_text(json.dumps(record))
    return folder
