"""What the notebooks share: the machine, the installation, the folders, the commands."""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from experiments import colab
from experiments.colab import cells, machine
from jaxcnn.errors import InputError
from tests.support.paths import ROOT

GOOGLE = "0x1ae0"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def in_colab(tmp_path, monkeypatch):
    """A package google.colab that mounts, downloads and uploads in the test's folder; its drive may refuse."""
    package = tmp_path / "fake" / "google" / "colab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "drive.py").write_text("def mount(place):\n    open('mounted', 'a').write(place)\n")
    (package / "files.py").write_text(
        "def download(path):\n    open('downloaded', 'w').write(path)\ndef upload():\n    return {'theirs.zip': b''}\n"
    )
    (package / "_message.py").write_text(
        "metadata = {}\ndef blocking_request(kind, request, timeout_sec):\n    return {'ipynb': {'metadata': metadata}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    yield
    for name in [name for name in sys.modules if name.startswith("google.colab")]:
        del sys.modules[name]


def on_the_bus(root: Path, vendor: str, device: str) -> None:
    place = root / "sys/bus/pci/devices/0000:00:05.0"
    place.mkdir(parents=True)
    (place / "vendor").write_text(f"{vendor}\n")
    (place / "device").write_text(f"{device}\n")


def nvidia_smi(folder: Path, monkeypatch, answer: str, code: int = 0) -> None:
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{answer}'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("device", "found"),
    [("0x0063", "tpu"), ("0x006f", "tpu"), ("0x001f", "cpu"), ("0x0042", "cpu")],
)
def test_a_tpu_is_told_from_googles_disks_and_network_cards(device, found, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_nvidia", lambda: None)
    on_the_bus(tmp_path, GOOGLE, device)
    assert machine.platform_here(tmp_path) == found


def test_the_chip_of_another_maker_with_the_same_number_is_no_tpu_and_a_device_file_is_one(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(machine, "_nvidia", lambda: None)
    on_the_bus(tmp_path, "0x8086", "0x0063")
    assert machine.platform_here(tmp_path) == "cpu"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    assert machine.platform_here(tmp_path) == "tpu"


@pytest.mark.parametrize(
    ("answer", "there", "extra"),
    [
        ("580.65.06, 9.0", None, "cuda13"),
        ("580.65.06, 7.0", None, "cuda12"),  # Volta
        ("550.54.15, 7.5", None, "cuda12"),  # a driver that has not heard of CUDA 13
        ("580.65.06, 9.0", "0.7.2", "cuda12"),
    ],
)
def test_the_extra_goes_by_the_driver_the_gpu_and_what_is_there(
    answer, there, extra, tmp_path, monkeypatch
):
    nvidia_smi(tmp_path / "bin", monkeypatch, answer)
    monkeypatch.setattr(machine, "version", {"jax-cuda12-plugin": there}.get)
    assert machine.platform_here(tmp_path) == "gpu"
    assert machine._cuda() == extra


def test_a_driver_without_a_gpu_is_a_cpu(tmp_path, monkeypatch):
    nvidia_smi(tmp_path / "bin", monkeypatch, "No devices were found", code=6)
    assert machine.platform_here(tmp_path) == "cpu"


@pytest.mark.parametrize(
    ("wanted", "found"), [("tpu", "cpu"), ("tpu", "gpu"), ("gpu", "cpu"), ("gpu", "tpu")]
)
def test_what_is_not_there_is_refused_with_the_way_out(wanted, found, monkeypatch):
    monkeypatch.setattr(machine, "platform_here", lambda: found)
    with pytest.raises(colab.Stopped) as caught:
        colab.require(wanted)
    message = str(caught.value)
    assert (
        f"a {wanted.upper()} was asked for, and this machine has only a {found.upper()}: run this on"
        in message
    )
    assert (
        "Runtime → Change runtime type" in message
        and f"set DEVICE = {found!r}" in message
        and "\n" not in message
    )


@pytest.mark.parametrize(
    ("asked", "found", "given"),
    [
        ("auto", "tpu", "tpu"),
        ("auto", "cpu", "cpu"),
        ("cpu", "tpu", "cpu"),
        ("cpu:8", "cpu", "cpu:8"),
        ("gpu:2", "gpu", "gpu:2"),
    ],
)
def test_what_is_there_is_taken(asked, found, given, monkeypatch):
    monkeypatch.setattr(machine, "platform_here", lambda: found)
    assert colab.require(asked) == given


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(InputError, match="unknown device 'tpus': did you mean 'tpu'"):
        colab.require("tpus")


def test_in_colab_auto_is_the_runtime_type_that_was_chosen(in_colab, monkeypatch):
    from google.colab import _message

    monkeypatch.setattr(machine, "platform_here", lambda: "cpu")
    assert colab.require("auto") == "cpu"
    _message.metadata["accelerator"] = "TPU"
    with pytest.raises(
        colab.Stopped,
        match="a TPU was asked for, and this machine has only a CPU: choose Runtime → Change",
    ):
        colab.require("auto")
    assert colab.require("cpu") == "cpu"
    _message.metadata["accelerator"] = "NPU"
    assert colab.require("auto") == "cpu"
    monkeypatch.delattr(_message, "blocking_request")
    assert colab.require("auto") == "cpu"


def test_what_is_installed_is_left_alone(monkeypatch):
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: pytest.fail("pip was called"))
    colab.install("cpu:8")
    monkeypatch.setattr(machine, "version", {"jaxcnn": "1", "libtpu": "1"}.get)
    colab.install("tpu")


@pytest.mark.parametrize(("device", "ending"), [("cpu", ""), ("tpu", "[tpu]"), ("gpu", "[cuda13]")])
def test_pip_is_asked_for_the_extra_and_its_complaint_is_passed_on(device, ending, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, stdout="ERROR: no room on the disk\n")

    monkeypatch.setattr(machine, "version", lambda package: None)
    monkeypatch.setattr(machine, "_nvidia", lambda: (580, 9.0))
    monkeypatch.setattr(machine.subprocess, "run", run)
    with pytest.raises(colab.Stopped, match="no room on the disk"):
        colab.install(device)
    assert asked == [[sys.executable, "-m", "pip", "install", "-q", "-e", f"{ROOT}{ending}"]]


def test_a_package_that_was_loaded_before_it_was_replaced_needs_another_session(monkeypatch):
    installed = {"numpy": "99.0"}
    monkeypatch.setattr(machine, "version", lambda package: installed.get(package))
    monkeypatch.setattr(
        machine.subprocess,
        "run",
        lambda command, **_: subprocess.CompletedProcess(command, 0, stdout=""),
    )
    for name in ("jax", "PIL"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(
        colab.Stopped, match="has loaded an older numpy: choose Runtime → Restart session"
    ):
        colab.install("cpu")
    installed["numpy"] = importlib.metadata.version("numpy")
    colab.install("cpu")


def test_without_its_sources_it_says_which_extra_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "version", {"jaxcnn": "1"}.get)
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    with pytest.raises(
        colab.Stopped, match="without what a TPU needs: install it with its extra 'tpu'"
    ):
        colab.install("tpu")


def test_results_lie_beside_the_notebook_or_on_the_drive(tmp_path, capsys, request):
    assert colab.results_folder("study") == tmp_path / "results" / "study"
    request.getfixturevalue("in_colab")
    on_drive = colab.results_folder("study")
    assert on_drive == tmp_path / "drive" / "MyDrive" / "jaxcnn" / "study" and on_drive.is_dir()
    assert Path("mounted").read_text() == str(tmp_path / "drive")
    capsys.readouterr()
    assert colab.results_folder("study", drive=False) == tmp_path / "results" / "study"
    assert "a disconnect deletes" in capsys.readouterr().out and Path("mounted").read_text() == str(
        tmp_path / "drive"
    )


def test_a_drive_that_is_not_given_stops_the_notebook(in_colab, monkeypatch):
    from google.colab import drive

    def refuse(place):
        raise ValueError("mount failed\nand more")

    monkeypatch.setattr(drive, "mount", refuse)
    with pytest.raises(
        colab.Stopped, match=r"not mounted \(mount failed\): .* or set DRIVE = False"
    ):
        colab.results_folder("study")
    assert not Path("results").exists()


def some_records(folder: Path) -> Path:
    for file in ("train/one.json", "train/two.json", "kernels/one.json"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(json.dumps({"file": file}))
    (folder / "train" / "one.checkpoints").mkdir()
    (folder / "train" / "one.checkpoints" / "not_a_record.json").write_text("{}")
    (folder / "report.html").write_text("<p>")
    return folder


def test_what_is_packed_here_is_read_elsewhere(tmp_path):
    colab.download(some_records(tmp_path / "here"))
    with zipfile.ZipFile("here-records.zip") as packed:
        names = [
            "here/kernels/one.json",
            "here/report.html",
            "here/train/one.json",
            "here/train/two.json",
        ]
        assert packed.namelist() == names
    other = some_records(tmp_path / "other")
    folders = colab.elsewhere(" other, here-records.zip,")
    assert folders == [Path("other"), tmp_path / "unpacked" / "here-records" / "here"]
    assert sorted(path.name for path in folders[1].glob("*/*.json")) == [
        "one.json",
        "one.json",
        "two.json",
    ]
    shutil.rmtree(other / "kernels")
    with zipfile.ZipFile(
        "whole.zip", "w"
    ) as packed:  # by hand, checkpoints and all, without a folder around it
        for file in [path for path in other.rglob("*") if path.is_file()]:
            packed.write(file, file.relative_to(other))
    assert colab.elsewhere("whole.zip") == [tmp_path / "unpacked" / "whole"]
    assert colab.elsewhere("") == colab.elsewhere("", upload=True) == []


def test_colabs_browser_gets_the_records_and_sends_others(in_colab, tmp_path):
    colab.download(some_records(tmp_path / "here"))
    assert Path("downloaded").read_text() == str(tmp_path / "here-records.zip")
    Path("here-records.zip").rename("theirs.zip")
    assert colab.elsewhere("", upload=True) == [tmp_path / "unpacked" / "theirs" / "here"]


def test_a_zip_file_cannot_write_outside_its_folder(tmp_path):
    with zipfile.ZipFile("bad.zip", "w") as packed:
        packed.writestr("../../outside/train/one.json", "{}")
    (found,) = colab.elsewhere("bad.zip")
    assert (
        found.is_relative_to(tmp_path / "unpacked" / "bad") and not (tmp_path / "outside").exists()
    )


@pytest.mark.parametrize("source", ["nowhere", "empty", "text.zip", "hollow.zip"])
def test_a_source_without_records_is_named(source, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("not a zip file")
    zipfile.ZipFile(tmp_path / "hollow.zip", "w").close()
    with pytest.raises(colab.Stopped, match=f"^{source} "):
        colab.elsewhere(source)


def test_pictures_are_made_taken_or_unpacked(tmp_path):
    made = colab.pictures("")
    assert (
        made == Path("pictures")
        and len(list(made.glob("*/*.png"))) == 400
        and len(list(made.iterdir())) == 10
    )
    first = (made / "3" / "00.png").read_bytes()
    assert colab.pictures("") == made and (made / "3" / "00.png").read_bytes() == first
    assert [path.parent.name for path in colab.one_of_each(made)] == ["0", "1", "2"]
    with zipfile.ZipFile("mine.zip", "w") as packed:
        packed.write(made / "3" / "00.png", "photos/cats/a.png")
        packed.write(made / "3" / "01.png", "photos/dogs/b.png")
        packed.writestr("__MACOSX/photos/._a.png", "")
    assert colab.pictures("mine.zip") == tmp_path / "unpacked" / "mine" / "photos"
    assert colab.pictures(str(made)) == made
    with pytest.raises(colab.Stopped, match="neither a folder nor a zip file"):
        colab.pictures("nowhere")
    with pytest.raises(colab.Stopped, match="holds no pictures in sub-folders"):
        colab.one_of_each(tmp_path / "unpacked" / "mine" / "photos" / "cats")


def module(text: str, monkeypatch, tmp_path) -> str:
    (tmp_path / "spoken.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "spoken"


def test_a_command_is_seen_and_its_failed_case_is_none_of_ours(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in Jupyter
    text = "import os, sys; print('×', sys.argv[1:], os.environ.get('FORCE_COLOR')); print('error', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    name = module(text, monkeypatch, tmp_path)
    for code in (0, 1):
        colab.command(name, code, Path("x"))
        assert capsys.readouterr().out == f"× ['{code}', 'x'] None\nerror\n"
    with pytest.raises(colab.Stopped, match="spoken ended with exit code 2: error"):
        colab.command(name, 2)


def test_an_interrupted_command_is_waited_for(monkeypatch, tmp_path, capsys):
    text = (
        "import sys, time\nprint('begun')\ntry:\n    open('ready', 'w').close()\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1)\n    print('kept')\n    sys.exit(130)\n"
    )
    name = module(text, monkeypatch, tmp_path)
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        cells.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0]
    )

    def interrupt():  # as Jupyter does: the notebook and what it runs
        while not Path("ready").exists():
            time.sleep(0.01)
        started[0].send_signal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(colab.Stopped, match="exit code 130: kept"):
        colab.command(name)
    thread.join()
    assert capsys.readouterr().out == "begun\nkept\n"


def test_a_page_is_shown_in_a_frame_of_its_own(monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    (tmp_path / "page.html").write_text('<script>"quoted" & more</script>')
    colab.show(tmp_path / "page.html", height=300)
    (frame,) = shown
    assert (
        'sandbox="allow-scripts allow-downloads"' in frame.data
    )  # not that of the notebook's own origin
    assert (
        'srcdoc="&lt;script&gt;&quot;quoted&quot; &amp; more&lt;/script&gt;"' in frame.data
        and "height: 300px" in frame.data
    )


def test_an_end_is_one_line_in_the_place_of_a_traceback():
    assert colab.Stopped("no more")._render_traceback_() == ["Stopped: no more"]
