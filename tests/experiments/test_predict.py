"""Printed classes, compared with probabilities computed by NumPy and by the network itself."""

import json
import re
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from PIL import Image
from safetensors.numpy import save_file

from experiments import records
from jaxcnn import models, weights
from jaxcnn.weights.torch_names import naming_schemes
from tests.support.darknet_file import DARKNET19_LAYERS, darknet_file
from tests.support.prediction import printed, train_checkpoint, write_noise

Classes = list[tuple[float, str]]  # percentage and name, as printed


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return train_checkpoint(tmp_path_factory.mktemp("results"))


@pytest.fixture
def png(tmp_path):
    return write_noise(tmp_path / "noise.png")


def parse_classes(output: str) -> Classes:
    matches = re.findall(r"^ *([\d.]+)%  (.+?) *$", output, re.MULTILINE)
    return [(float(percentage), name) for percentage, name in matches]


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def assert_ranked(
    classes: Classes, probabilities: np.ndarray, names: list[str], count: int
) -> None:
    """Asserts that these are the `count` likeliest classes, to the two digits that are printed."""
    labels = np.argsort(-probabilities)[:count]
    assert [name for _, name in classes] == [names[label] for label in labels]
    percentages = [percentage for percentage, _ in classes]
    np.testing.assert_allclose(percentages, 100 * probabilities[labels], rtol=0, atol=0.0051)


def probabilities_by_numpy(checkpoint, png) -> np.ndarray:
    """Computed from the checkpoint's arrays and its `identity.json`."""
    preprocessing = json.loads((checkpoint / "identity.json").read_text())["inputs"]
    mean, std = preprocessing["mean"][0], preprocessing["std"][0]
    arrays = weights.read_checkpoint(checkpoint)
    pixels = (np.asarray(Image.open(png)) / 255 - mean) / std
    return softmax(pixels.reshape(-1) @ arrays["out.kernel"].astype(float) + arrays["out.bias"])


def test_a_record_has_the_time_of_each_image(capsys, tmp_path, checkpoint, png):
    results = tmp_path / "results"
    output = printed(capsys, f"--weights={checkpoint}", f"--results={results}", png, png)
    ((record,), problems) = records.load([results])
    assert problems == [] and (record.study, record.status) == ("predict", "ok")
    shown = [float(seconds) for seconds in re.findall(r": (0\.\d+) s$", output, re.MULTILINE)]
    assert record.samples["call_time"] == pytest.approx(shown, abs=6e-5)
    assert record.metrics["call_time"] == np.median(record.samples["call_time"])
    assert record.settings == {
        "model": "logistic",
        "precision": "float32",
        "batch_size": 1,
        "image_size": 28,
    }
    assert record.provenance["platform"] == "cpu" and record.provenance["machine"]


def test_the_percentages_of_a_checkpoint_are_those_of_numpy(capsys, checkpoint, png):
    output = printed(capsys, f"--weights={checkpoint}", png)
    classes = parse_classes(output)
    assert_ranked(classes, probabilities_by_numpy(checkpoint, png), list("0123456789"), 5)
    assert sum(percentage for percentage, _ in classes) <= 100 + 5 * 0.005
    assert "logistic, images of 28×28, 10 classes" in output
    assert re.search(rf"^{re.escape(str(png))}: 0\.\d+ s$", output, re.MULTILINE)
    assert re.search(r"^compiled +in [\d.]+ s", output, re.MULTILINE)


def test_all_classes_under_other_names_for_each_of_two_images(capsys, checkpoint, png, tmp_path):
    names = [f"digit [{number}]" for number in range(10)]
    (tmp_path / "names").write_text("\n".join(names) + "\n\n")
    black = tmp_path / "black.bmp"
    Image.new("RGB", (28, 28)).save(black)
    options = ["--top=99", f"--names={tmp_path / 'names'}", "--model=logistic"]
    classes = parse_classes(printed(capsys, f"--weights={checkpoint}", png, black, *options))
    of_noise, of_black = classes[:10], classes[10:]
    assert_ranked(of_noise, probabilities_by_numpy(checkpoint, png), names, 10)
    assert of_black != of_noise and sorted(name for _, name in of_black) == names
    for of_image in (of_noise, of_black):
        assert sum(percentage for percentage, _ in of_image) == pytest.approx(100, abs=0.05)


def test_relative_paths_and_the_home_folder_work(capsys, checkpoint, png, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    assert parse_classes(printed(capsys, f"--weights={checkpoint.name}", png))
    assert parse_classes(printed(capsys, f"--weights=~/{checkpoint.name}", png))


def write_photo(path) -> Image.Image:
    """Writes an image of 100×60 pixels; returns its central 60×60 pixels."""
    small = Image.fromarray(np.random.default_rng(1).integers(0, 256, (6, 10, 3), np.uint8))
    large = small.resize((100, 60), Image.Resampling.NEAREST)
    large.save(path)
    return large.crop((20, 0, 80, 60))


def test_a_darknet_file_with_a_list_of_names(capsys, tmp_path):
    (tmp_path / "d.weights").write_bytes(darknet_file(DARKNET19_LAYERS)[0])
    names = [f"kind {number}" for number in range(1000)]
    (tmp_path / "short.names").write_text("\n".join([*names, "for other networks"]))
    center = write_photo(tmp_path / "photo.png")
    options = [f"--weights={tmp_path / 'd.weights'}", "--image-size=64", tmp_path / "photo.png"]
    classes = parse_classes(printed(capsys, *options, f"--names={tmp_path / 'short.names'}"))
    model = models.build("darknet19", input_shape=(64, 64, 3))
    weights.assign(model, weights.read(tmp_path / "d.weights", "darknet19", model))
    model.eval()
    image = np.asarray(center.resize((64, 64), Image.Resampling.BILINEAR)) / np.float32(255)
    logits = np.asarray(model(jnp.asarray(image[None])))[0]
    assert_ranked(classes, softmax(logits), names, 5)
    ((_, default_name),) = parse_classes(printed(capsys, *options, "--top=1"))
    assert default_name == classes[0][1].replace("kind", "class")


def write_torch_file(path, model: nnx.Module, name: str) -> None:
    """Writes the weights of a network in the names and layouts of PyTorch."""
    arrays = {
        ".".join(map(str, key)): np.asarray(leaf[...])
        for key, leaf in nnx.to_flat_state(nnx.state(model))
    }
    axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    save_file(
        {
            torch_name: np.ascontiguousarray(arrays[own].transpose(axes[arrays[own].ndim]))
            for own, torch_name in naming_schemes(name, set(arrays))["torchvision"].items()
        },
        path,
    )


def test_a_pytorch_file_gets_a_normalized_center_crop_and_gives_the_number_of_classes(
    capsys, tmp_path
):
    model = models.build("resnet18", num_classes=3, input_shape=(32, 32, 3), seed=5)
    write_torch_file(tmp_path / "r.safetensors", model, "resnet18")
    center = write_photo(tmp_path / "photo.png")
    file = f"--weights={tmp_path / 'r.safetensors'}"
    options = [file, "--model=resnet18", "--image-size=32", tmp_path / "photo.png"]
    classes = parse_classes(printed(capsys, *options))
    # 32 · 256 / 224 = 36.6: the central 60×60 become 37×37, of which 32×32 are used
    crop = np.asarray(center.resize((37, 37), Image.Resampling.BILINEAR))[2:34, 2:34]
    pixels = (crop / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    model.eval()
    logits = np.asarray(model(jnp.asarray(pixels[None], jnp.float32)))[0]
    assert_ranked(classes, softmax(logits), ["class 0", "class 1", "class 2"], 5)


def test_help_imports_neither_jax_nor_flax():
    code = (
        "import sys; from experiments import predict\n"
        "predict.main(['--help'])\n"
        "print([m for m in ('jax', 'flax', 'numpy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert output.splitlines()[-1] == "[]" and "--weights" in output
