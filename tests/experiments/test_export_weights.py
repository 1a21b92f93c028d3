"""Weights exported as ``.safetensors`` files, which predict what the checkpoint predicts."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments import export
from jaxcnn import models, weights
from tests.support.prediction import printed, train_checkpoint, write_noise
from tests.support.small_weights import random_weights


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Of logistic regression on digits."""
    return train_checkpoint(tmp_path_factory.mktemp("results"))


def predictions(output: str) -> list[tuple[str, str]]:
    return re.findall(r"^ *([\d.]+)%  (.+?) *$", output, re.MULTILINE)


def test_an_exported_checkpoint_predicts_the_same(capsys, checkpoint, tmp_path):
    out = tmp_path / "logistic.safetensors"
    out.write_text("an older file")
    assert export.main([f"--weights={checkpoint}", f"--out={out}"]) == 0
    assert "2 arrays of logistic, 7,850 numbers, in" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    arrays = load_file(out)
    saved = weights.read_checkpoint(checkpoint)
    assert all(np.array_equal(arrays[name], saved[name]) for name in ("out.kernel", "out.bias"))
    png = write_noise(tmp_path / "noise.png")
    from_checkpoint = predictions(printed(capsys, f"--weights={checkpoint}", png))
    assert predictions(printed(capsys, f"--weights={out}", png)) == from_checkpoint
    assert len(from_checkpoint) == 5


def test_a_pytorch_file_becomes_ours_and_pytorchs_again(tmp_path, capsys):
    model = models.build("resnet18", num_classes=2, input_shape=(32, 32, 3))
    arrays = random_weights(model)
    first, ours, second = (tmp_path / f"{name}.safetensors" for name in ("a", "b", "c"))
    first.write_bytes(weights.to_safetensors(arrays, "resnet18", layout="pytorch"))
    assert export.main([f"--weights={first}", f"--out={ours}"]) == 0
    assert load_file(ours).keys() == arrays.keys()
    assert export.main([f"--weights={ours}", f"--out={second}", "--layout=pytorch"]) == 0
    before, after = load_file(first), load_file(second)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    preprocessing = json.loads(weights.read_metadata(second)["jaxcnn.identity"])["inputs"]
    assert (preprocessing["size"], preprocessing["classes"]) == (224, ["class 0", "class 1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights={}", "--out=a.csv"], "unknown ending of --out '.csv': Known: .safetensors"),
        (["--weights={}", "--out=a.safetensors", "results"], "give either one or more results"),
        (["--out=a.safetensors"], "give either one or more results folders or --weights"),
        (["results", "--out=a.csv", "--layout=pytorch"], "--model and --layout are for --weights"),
        (["--weights={}", "--out=a.safetensors", "--what=epochs"], "--what=epochs is for records"),
        (
            ["--weights={}", "--out=a.safetensors", "--layout=pytorch"],
            "model 'logistic' has no names in PyTorch; only these have: resnet18",
        ),
        (["--weights={}", "--out=nowhere/a.safetensors"], "there is no folder"),
        (["--weights=nowhere", "--out=a.safetensors"], "there is no file or folder nowhere"),
        (["--weights=plain.safetensors", "--out=a.safetensors"], "give --model"),
        (
            ["--weights=damaged.safetensors", "--out=a.safetensors"],
            "its metadata jaxcnn.identity is damaged",
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2_and_leaves_no_file(
    arguments, message, checkpoint, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.zeros(1)}, "plain.safetensors")
    metadata = {"jaxcnn.model": "logistic", "jaxcnn.identity": "{}"}
    save_file({"a": np.zeros(1)}, "damaged.safetensors", metadata)
    assert export.main([argument.format(checkpoint) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged.safetensors",
        "plain.safetensors",
    ]
