"""Bad input of `experiments.predict`: one line on stderr, exit code 2."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import models
from tests.support.prediction import refused, save_checkpoint, train_checkpoint, write_noise


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return train_checkpoint(tmp_path_factory.mktemp("results"))


@pytest.fixture
def png(tmp_path):
    return write_noise(tmp_path / "noise.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{png}"], "--weights"),
        (["--weights={checkpoint}"], "give one or more images"),
        (["--weights={checkpoint}", "{tmp}/nowhere.png"], "no image file {tmp}/nowhere.png"),
        (["--weights={checkpoint}", "{tmp}"], "there is no image file {tmp}"),
        (
            ["--weights={checkpoint}", "{png}", "{text}"],
            "{text} cannot be read as an image (cannot identify image file",
        ),
        (
            ["--weights={checkpoint}", "{png}", "{cut}"],
            "{cut} cannot be read as an image (image file is truncated",
        ),
        (["--weights={tmp}/nowhere", "{png}"], "there is no file or folder {tmp}/nowhere"),
        (["--weights={tmp}", "{png}"], "{tmp} is not a checkpoint"),
        (
            ["--weights={text}", "{png}"],
            "a .safetensors file (PyTorch or jaxcnn) or a checkpoint folder",
        ),
        (["--weights={tmp}/d.weights", "{png}"], "d.weights ends at byte 40"),
        (
            ["--weights={tmp}/whole.safetensors", "{png}"],
            "whole.safetensors does not say which network it is for: give --model",
        ),
        (
            ["--weights={tmp}/t.safetensors", "--model=resnet18", "{png}"],
            "is not a .safetensors file, or is cut off",
        ),
        (
            ["--weights={tmp}/d.weights", "--model=lenet5", "{png}"],
            "a .weights file is for --model=darknet19",
        ),
        (
            ["--weights={tmp}/d.weights", "--model=darknet91", "{png}"],
            "unknown model 'darknet91': did you mean 'darknet19'",
        ),
        (
            ["--weights={checkpoint}", "--model=lenet5", "{png}"],
            "is of model 'logistic', not 'lenet5': give --model=logistic",
        ),
        (
            ["--weights={checkpoint}", "--image-size=14", "{png}"],
            "out.kernel is 784×10 instead of 196×10",
        ),
        (["--weights={checkpoint}", "--image-size=0", "{png}"], "--image-size=0: must be from 1"),
        (["--weights={checkpoint}", "--top=0", "{png}"], "--top=0: must be from 1 to"),
        (
            ["--weights={checkpoint}", "--score=1", "{png}"],
            "--score=1.0: must be 0 or more and less than 1",
        ),
        (
            ["--weights={checkpoint}", "--device=cup", "{png}"],
            "unknown device 'cup': did you mean 'cpu'",
        ),
        (
            ["--weights={checkpoint}", "--names={tmp}/nowhere", "{png}"],
            "--names={tmp}/nowhere cannot be read (No such file",
        ),
        (
            ["--weights={checkpoint}", "--names={png}", "{png}"],
            "--names={png} cannot be read (it is not a text file)",
        ),
        (
            ["--weights={checkpoint}", "--names={empty}", "{png}"],
            "has 0 names, one per line; the network has 10 classes",
        ),
        (
            ["--weights={checkpoint}", "--names={text}", "{png}"],
            "has 11 names, one per line; the network has 10 classes",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    arguments, message, capsys, checkpoint, png, tmp_path
):
    (tmp_path / "text").write_text("name\n" * 11)
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "cut.png").write_bytes(png.read_bytes()[:200])
    (tmp_path / "d.weights").write_bytes(bytes(40))
    (tmp_path / "t.safetensors").write_bytes(bytes(40))
    save_file({"fc.bias": np.zeros(3, np.float32)}, tmp_path / "whole.safetensors")
    places = {"checkpoint": checkpoint, "png": png, "tmp": tmp_path, "cut": tmp_path / "cut.png"}
    places |= {name: tmp_path / name for name in ("text", "empty")}
    error = refused(capsys, *(argument.format(**places) for argument in arguments))
    assert message.format(**places) in error


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ('{"model": "logistic"}', "does not say how images were preprocessed"),
        (
            '{"model": "logistic", "inputs": {"side": 3}}',
            "does not say how images were preprocessed",
        ),
        ('{"inputs": INPUTS}', "does not say which model it is of"),
        (
            '{"model": "logistik", "inputs": INPUTS}',
            "unknown model 'logistik': did you mean 'logistic'",
        ),
        ('{"model": "mlp", "inputs": INPUTS}', "the weights do not fit the network"),
        (
            '{"model": "logistic", "inputs": INPUTS}',
            "is empty: neither best nor last has been saved",
        ),
        ("{", "is damaged"),
    ],
)
def test_unusable_checkpoints_are_refused(identity, message, capsys, checkpoint, png, tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    if "empty" not in message:  # an empty one is left by a run that ended before its first save
        (folder / "best").symlink_to(checkpoint / "best")
    preprocessing = json.dumps(json.loads((checkpoint / "identity.json").read_text())["inputs"])
    (folder / "identity.json").write_text(identity.replace("INPUTS", preprocessing))
    assert message in refused(capsys, f"--weights={folder}", png)


def test_weights_that_are_not_finite_are_refused(capsys, png, tmp_path):
    model = models.build("logistic")
    model.out.bias[...] = jnp.full(10, jnp.nan)
    preprocessing = Preprocessing(28, 28, 1, tuple("0123456789"))
    folder = save_checkpoint(tmp_path / "c", "logistic", model, preprocessing)
    assert "outputs are not finite" in refused(capsys, f"--weights={folder}", png)
