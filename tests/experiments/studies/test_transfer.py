"""Transfer learning: a network starts from another's weights, with a new head, frozen or not."""

import jax
import numpy as np
import pytest
from flax import nnx
from PIL import Image
from safetensors.numpy import save_file

from experiments import run
from jaxcnn import models, weights
from tests.support.records import read_records

DEVICE = ["--study=train", "--device=cpu:1"]
SMALL = [*DEVICE, "--model=lenet_like", "--epochs=2", "--batch-size=32"]


def checkpoint_of(results):
    """The checkpoint folder of the one training run in a results folder."""
    (folder,) = (results / "train").glob("*.checkpoints")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """LeNet-like, trained on ten digits for two epochs."""
    results = tmp_path_factory.mktemp("digits")
    assert run.main([*SMALL, "--dataset=digits", f"--results={results}"]) == 0
    return checkpoint_of(results)


@pytest.fixture
def two_classes(tmp_path):
    """A folder of bright and of dark images."""
    root, rng = tmp_path / "images", np.random.default_rng(0)
    for name, low in (("bright", 128), ("dark", 0)):
        (root / name).mkdir(parents=True)
        for number in range(60):
            pixels = rng.integers(low, low + 128, (32, 32), np.uint8)
            Image.fromarray(pixels).convert("RGB").save(root / name / f"{number}.png")
    return root


def test_a_frozen_body_keeps_its_weights_and_the_head_learns(checkpoint, tmp_path):
    options = ["--dataset=digits", f"--init-from={checkpoint}", "--freeze"]
    assert run.main([*SMALL, *options, f"--results={tmp_path}"]) == 0
    initial = weights.read_checkpoint(checkpoint)
    trained = weights.read_checkpoint(checkpoint_of(tmp_path))
    assert trained.keys() == initial.keys()
    for name, array in trained.items():
        is_unchanged = np.array_equal(array, initial[name])
        assert is_unchanged != name.startswith("out."), name
    (record,) = read_records(tmp_path, "train")
    assert record["metrics"]["training_loss"] < 1.5  # it starts where the first run ended


def test_a_fine_tuned_body_changes_and_a_head_of_another_size_is_new(two_classes, tmp_path):
    arguments = [*SMALL, f"--dataset=folder:{two_classes}"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert run.main([*arguments, f"--results={first}"]) == 0
    (two_classes / "third").mkdir()
    for number in range(40):
        image = Image.new("RGB", (32, 32), (255, 0, number))
        image.save(two_classes / "third" / f"{number}.png")
    init_from = f"--init-from={checkpoint_of(first)}"
    assert run.main([*arguments, init_from, f"--results={second}"]) == 0
    initial = weights.read_checkpoint(checkpoint_of(first))
    trained = weights.read_checkpoint(checkpoint_of(second))
    assert initial["out.kernel"].shape == (84, 2) and trained["out.kernel"].shape == (84, 3)
    assert not np.array_equal(initial["conv1.kernel"], trained["conv1.kernel"])


def test_weights_of_another_network_are_rejected(checkpoint, capsys, tmp_path):
    options = ["--dataset=digits", "--model=mnist_cnn", f"--init-from={checkpoint}"]
    assert run.main([*SMALL, *options, f"--results={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--init-from=nowhere"], "there is no such file or folder"),
        (["--freeze"], "--freeze would keep random initial weights"),
    ],
)
def test_missing_weights_are_rejected(arguments, message, capsys, tmp_path):
    assert run.main([*SMALL, "--dataset=digits", *arguments, f"--results={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


def test_a_resnet_starts_from_a_pytorch_file(tmp_path, two_classes):
    """ResNet-18 in torchvision's layout, with two classes instead of 1000; only the head trains."""
    model = nnx.eval_shape(lambda: models.build("resnet18"))
    file, rng = tmp_path / "resnet18.safetensors", np.random.default_rng(0)
    save_file({name: torch_array(name, shape, rng) for name, shape in torch_shapes().items()}, file)
    results = tmp_path / "results"
    data = [f"--dataset=folder:{two_classes}", "--image-size=32", "--augment=none"]
    recipe = ["--epochs=1", "--batch-size=16", "--learning-rate=0.01"]
    weights_options = [f"--init-from={file}", "--freeze"]
    arguments = [*DEVICE, "--model=resnet18", *data, *recipe, *weights_options]
    assert run.main([*arguments, f"--results={results}"]) == 0
    initial = weights.read(file, "resnet18", model)
    trained = weights.read_checkpoint(checkpoint_of(results))
    assert trained["out.kernel"].shape == (512, 2)
    for name, array in trained.items():
        if not name.startswith("out."):
            np.testing.assert_array_equal(array, initial[name])


def torch_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's ResNet-18, from its naming rule."""
    shapes = {"conv1.weight": (64, 3, 7, 7), "fc.weight": (1000, 512), "fc.bias": (1000,)}
    shapes |= norm_shapes("bn1", 64)
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            prefix = f"layer{stage}.{block}"
            shapes[f"{prefix}.conv1.weight"] = (width, inputs, 3, 3)
            shapes[f"{prefix}.conv2.weight"] = (width, width, 3, 3)
            shapes |= norm_shapes(f"{prefix}.bn1", width) | norm_shapes(f"{prefix}.bn2", width)
            if inputs != width:
                shapes[f"{prefix}.downsample.0.weight"] = (width, inputs, 1, 1)
                shapes |= norm_shapes(f"{prefix}.downsample.1", width)
            inputs = width
    return shapes


def norm_shapes(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
    names = ("weight", "bias", "running_mean", "running_var")
    return {f"{prefix}.{name}": (width,) for name in names}


def torch_array(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values of a plausible size; scales and variances of batch norm are positive."""
    normal = rng.standard_normal(shape, np.float32) * (0.05 if len(shape) > 1 else 0.1)
    is_scale = len(shape) == 1 and name.endswith("weight")
    return np.exp(normal) if is_scale or name.endswith("running_var") else normal


def test_assigned_weights_give_equal_outputs(checkpoint):
    saved = weights.read_checkpoint(checkpoint)
    images = jax.random.uniform(jax.random.key(0), (2, 32, 32, 1))
    outputs = []
    for seed in (5, 6):
        model = models.build("lenet_like", input_shape=(32, 32, 1), seed=seed)
        weights.assign(model, saved)
        outputs.append(model(images))
    np.testing.assert_array_equal(*outputs)
