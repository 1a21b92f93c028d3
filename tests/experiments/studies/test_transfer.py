"""Transfer learning (C14): a network starts from another's weights, with a head of its own, frozen or not."""

import json

import jax
import numpy as np
import pytest
from flax import nnx
from PIL import Image
from safetensors.numpy import save_file

from experiments import run
from jaxcnn import models, weights

FEW = ["--study=train", "--device=cpu:1", "--model=lenet_like", "--epochs=2", "--batch-size=32"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """LeNet-like, trained on ten digits for two epochs."""
    results = tmp_path_factory.mktemp("digits")
    assert run.main([*FEW, "--dataset=digits", f"--results={results}"]) == 0
    (folder,) = (results / "train").glob("*.checkpoints")
    return folder


@pytest.fixture(scope="module")
def two_classes(tmp_path_factory):
    """A folder of bright and of dark pictures."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name, low in (("bright", 128), ("dark", 0)):
        (root / name).mkdir()
        for number in range(60):
            pixels = rng.integers(low, low + 128, (32, 32), np.uint8)
            Image.fromarray(pixels).convert("RGB").save(root / name / f"{number}.png")
    return root


def trained_weights(results) -> weights.Weights:
    (folder,) = (results / "train").glob("*.checkpoints")
    return weights.weights_of(folder)


def test_a_frozen_body_keeps_its_weights_and_the_head_learns(checkpoint, tmp_path):
    source = weights.weights_of(checkpoint)
    arguments = [
        *FEW,
        "--dataset=digits",
        f"--init-from={checkpoint}",
        "--freeze",
        f"--results={tmp_path}",
    ]
    assert run.main(arguments) == 0
    after = trained_weights(tmp_path)
    assert after.keys() == source.keys()
    for name, array in after.items():
        same = np.array_equal(array, source[name])
        assert same != name.startswith("out."), name
    record = json.loads(next((tmp_path / "train").glob("*.json")).read_text())
    assert record["metrics"]["training_loss"] < 1.5  # it starts where the first run ended


def test_a_fine_tuned_body_changes_and_a_head_of_another_size_is_new(two_classes, tmp_path):
    assert (
        run.main([*FEW, f"--dataset=folder:{two_classes}", f"--results={tmp_path / 'first'}"]) == 0
    )
    (folder,) = (tmp_path / "first" / "train").glob("*.checkpoints")
    (two_classes / "third").mkdir()
    try:
        for number in range(40):
            Image.new("RGB", (32, 32), (255, 0, number)).save(
                two_classes / "third" / f"{number}.png"
            )
        arguments = [
            *FEW,
            f"--dataset=folder:{two_classes}",
            f"--init-from={folder}",
            f"--results={tmp_path / 'second'}",
        ]
        assert run.main(arguments) == 0
    finally:
        for path in (two_classes / "third").iterdir():
            path.unlink()
        (two_classes / "third").rmdir()
    source, after = trained_weights(tmp_path / "first"), trained_weights(tmp_path / "second")
    assert source["out.kernel"].shape == (84, 2) and after["out.kernel"].shape == (84, 3)
    assert not np.array_equal(source["conv1.kernel"], after["conv1.kernel"])


def test_weights_of_another_network_are_refused(checkpoint, capsys, tmp_path):
    arguments = [
        *FEW,
        "--dataset=digits",
        "--model=mnist_cnn",
        f"--init-from={checkpoint}",
        f"--results={tmp_path}",
    ]
    assert run.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--init-from=nowhere"], "there is no file or folder nowhere"),
        (["--freeze"], "--freeze keeps weights that were drawn at random"),
    ],
)
def test_bad_input(arguments, message, capsys, tmp_path):
    assert run.main([*FEW, "--dataset=digits", *arguments, f"--results={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


def test_a_resnet_starts_from_pytorchs_file(tmp_path, two_classes):
    """ResNet-18 in torchvision's layout, its 1000 classes replaced by two, all but the head frozen."""
    model = nnx.eval_shape(lambda: models.build("resnet18"))
    file, rng = tmp_path / "resnet18.safetensors", np.random.default_rng(0)
    save_file(
        {name: torch_array(name, shape, rng) for name, shape in torch_shapes(model).items()}, file
    )
    arguments = [
        "--study=train", "--device=cpu:1", "--model=resnet18", f"--dataset=folder:{two_classes}", "--image-size=32", "--epochs=1", "--augment=none",
        "--batch-size=16", f"--init-from={file}", "--freeze", "--learning-rate=0.01", f"--results={tmp_path / 'results'}",
    ]  # fmt: skip
    assert run.main(arguments) == 0
    after, read = trained_weights(tmp_path / "results"), weights.read(file, "resnet18", model)
    assert after["out.kernel"].shape == (512, 2)
    assert all(
        np.array_equal(after[name], read[name]) for name in after if not name.startswith("out.")
    )


def torch_shapes(model: nnx.Module) -> dict[str, tuple[int, ...]]:
    """Torchvision's names and shapes, from its naming rule."""
    shapes = {"conv1.weight": (64, 3, 7, 7), "fc.weight": (1000, 512), "fc.bias": (1000,)} | norm(
        "bn1", 64
    )
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            prefix = f"layer{stage}.{block}"
            shapes[f"{prefix}.conv1.weight"] = (width, inputs, 3, 3)
            shapes[f"{prefix}.conv2.weight"] = (width, width, 3, 3)
            shapes |= norm(f"{prefix}.bn1", width) | norm(f"{prefix}.bn2", width)
            if inputs != width:
                shapes[f"{prefix}.downsample.0.weight"] = (width, inputs, 1, 1)
                shapes |= norm(f"{prefix}.downsample.1", width)
            inputs = width
    return shapes


def norm(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}.{name}": (width,) for name in ("weight", "bias", "running_mean", "running_var")
    }


def torch_array(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    normal = rng.standard_normal(shape, np.float32) * (0.05 if len(shape) > 1 else 0.1)
    return (
        np.exp(normal)
        if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight"))
        else normal
    )


def test_assigned_weights_give_the_same_outputs(checkpoint):
    model = models.build("lenet_like", input_shape=(32, 32, 1), seed=5)
    weights.assign(model, weights.weights_of(checkpoint))
    other = models.build("lenet_like", input_shape=(32, 32, 1), seed=6)
    weights.assign(other, weights.weights_of(checkpoint))
    images = jax.random.uniform(jax.random.key(0), (2, 32, 32, 1))
    np.testing.assert_array_equal(model(images), other(images))
