"""PyTorch's weights: torchvision's names, the order of axes, and files that are refused."""

import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.weights.torch_names import naming_schemes
from tests.support.torchvision_shapes import TORCHVISION


def abstract_model(name: str, **sizes) -> nnx.Module:
    return nnx.eval_shape(lambda: models.build(name, **sizes))


def flax_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in Flax of one of PyTorch's arrays."""
    return {1: shape, 2: shape[::-1], 4: (*shape[2:], *shape[1::-1])}[len(shape)]


def torchvision_names(name: str) -> dict[str, str]:
    """Torchvision's names by ours."""
    return naming_schemes(name, set(weights.array_shapes(abstract_model(name))))["torchvision"]


@pytest.mark.parametrize("name", TORCHVISION)
def test_each_name_has_one_tensor_of_its_shape_and_no_tensor_is_left_over(name):
    shapes, torch_shapes = weights.array_shapes(abstract_model(name)), TORCHVISION[name]
    torch_name_of = torchvision_names(name)
    assert sorted(torch_name_of.values()) == sorted(torch_shapes)
    assert {
        flax_name: flax_shape(torch_shapes[torch_name])
        for flax_name, torch_name in torch_name_of.items()
    } == shapes


def test_names_of_a_resnet():
    names = torchvision_names("resnet50")
    assert names["conv1.norm.mean"] == "bn1.running_mean"
    assert names["blocks.layers.2.conv3.conv.kernel"] == "layer1.2.conv3.weight"
    assert names["blocks.layers.3.shortcut.conv.kernel"] == "layer2.0.downsample.0.weight"
    assert names["blocks.layers.3.shortcut.norm.var"] == "layer2.0.downsample.1.running_var"
    assert names["blocks.layers.15.conv2.norm.scale"] == "layer4.2.bn2.weight"
    assert names["out.bias"] == "fc.bias"


class TinyVGG(nnx.Module):
    """VGG's names for one convolution, two pixels of 512 channels and two dense layers."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.convolve = nnx.Sequential(nnx.Dict(conv=nnx.Conv(3, 512, (1, 2), rngs=rngs)))
        self.dense1 = nnx.Linear(1024, 2, rngs=rngs)
        self.out = nnx.Linear(2, 2, rngs=rngs)


def tiny_tensors() -> dict[str, np.ndarray]:
    """The tensors of `TinyVGG` as PyTorch has them."""
    return {
        "features.0.weight": np.arange(512 * 3 * 2, dtype=np.float32).reshape(512, 3, 1, 2),
        "features.0.bias": np.arange(512, dtype=np.float32),
        "classifier.0.weight": np.arange(2 * 1024, dtype=np.float32).reshape(2, 1024),
        "classifier.0.bias": np.array([1.0, 2.0], np.float32),
        "classifier.6.weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        "classifier.6.bias": np.array([5.0, 6.0], np.float32),
    }


def read_tiny(tmp_path, tensors) -> weights.Weights:
    save_file(tensors, tmp_path / "tiny.safetensors")
    return weights.read(tmp_path / "tiny.safetensors", "vgg16", TinyVGG())


def test_axes_are_transposed(tmp_path):
    read = read_tiny(tmp_path, tiny_tensors())
    kernel = read["convolve.layers.0.conv.kernel"]
    assert kernel.shape == (1, 2, 3, 512)
    assert kernel[0, 1, 2, 3] == 3 * 6 + 2 * 2 + 1  # output 3, input 2, column 1
    assert read["out.kernel"].tolist() == [[1, 3], [2, 4]]
    dense = read["dense1.kernel"]
    assert dense.shape == (1024, 2)
    # Output 1, channel 7 of pixel 1: PyTorch's feature 7 · 2 + 1, Flax's 1 · 512 + 7.
    assert dense[512 + 7, 1] == 1024 + 15
    assert dense[:3, 0].tolist() == [0, 2, 4]
    assert weights.assign(TinyVGG(), read) == []


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions_become_f32(tmp_path, dtype):
    tensors = {name: (array / 7).astype(dtype) for name, array in tiny_tensors().items()}
    read = read_tiny(tmp_path, tensors)
    assert all(array.dtype == np.float32 for array in read.values())
    expected = np.array([5 / 7, 6 / 7]).astype(dtype).astype(np.float32)
    assert read["out.bias"].tolist() == expected.tolist()


def test_counters_of_batch_norm_are_ignored_and_the_head_may_be_missing(tmp_path):
    tensors = tiny_tensors() | {"bn1.num_batches_tracked": np.array(3)}
    del tensors["classifier.6.weight"], tensors["classifier.6.bias"]
    model = TinyVGG()
    read = read_tiny(tmp_path, tensors)
    assert weights.assign(model, read, new_head=True) == ["out.bias", "out.kernel"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"classifier.0.bias": None},
            "lacks 1 tensors of vgg16, such as 'classifier.0.bias': it seems to be none of "
            "resnet18",
        ),
        (
            {"features.2.bias": np.zeros(1)},
            "has 1 that vgg16 lacks, such as 'features.2.bias'",
        ),
        (
            {"features.0.weight": np.zeros((512, 3))},
            "features.0.weight in .* is 512×3; convolve.layers.0.conv.kernel is 1×2×3×512",
        ),
        (
            {"classifier.0.weight": np.zeros((2, 1000))},
            "is 2×1000; dense1.kernel is 1024×2",
        ),
        (
            {"features.0.bias": np.zeros(512, np.int8)},
            "features.0.bias in .* is of type int8",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, change, message):
    tensors = {
        name: array for name, array in (tiny_tensors() | change).items() if array is not None
    }
    with pytest.raises(InputError, match=message):
        read_tiny(tmp_path, tensors)


VGG16_BN = {
    name.replace("features.0.weight", "features.1.running_mean"): shape
    for name, shape in TORCHVISION["vgg16"].items()
}
TORCHVISION_ALEXNET = [f"features.{index}.weight" for index in (0, 3, 6, 8, 10)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        *(
            (TORCHVISION[name], f"it seems to be {name}$")
            for name in TORCHVISION
            if name not in ("vgg11", "resnet50")
        ),
        (TORCHVISION["resnet50"], "it seems to be resnet50 or resnext50_32x4d$"),
        (VGG16_BN, "a network with batch norm among its features"),
        (TORCHVISION_ALEXNET, "torchvision's alexnet, a later one without groups"),
        (
            ["encoder.weight"],
            "it seems to be none of resnet18, .*, vgg19, alexnet, .*, regnet_y_400mf",
        ),
    ],
)
def test_a_file_of_another_network_is_identified(tmp_path, names, message):
    save_file({name: np.zeros(1, np.float32) for name in names}, tmp_path / "a.safetensors")
    with pytest.raises(InputError, match=message):
        weights.read(tmp_path / "a.safetensors", "vgg11", abstract_model("vgg11"))


def test_files_of_another_format_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(tiny_tensors(), path)
    content = path.read_bytes()
    for data in (b"", b"PK\x03\x04" + bytes(100), content[:-1], content[:50]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"is not a \.safetensors file, or is cut off"):
            weights.read(path, "vgg16", TinyVGG())


def test_a_network_without_a_table_of_names_is_refused(tmp_path):
    save_file(tiny_tensors(), tmp_path / "a.safetensors")
    with pytest.raises(
        InputError,
        match=r"unknown network for PyTorch's weights 'resnet18_cifar': did you mean 'resnet18'\?",
    ):
        weights.read(tmp_path / "a.safetensors", "resnet18_cifar", TinyVGG())
