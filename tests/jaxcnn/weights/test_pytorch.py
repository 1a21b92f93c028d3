import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.weights.pytorch import KNOWN, torch_names


def abstract(name: str, **sizes) -> nnx.Module:
    return nnx.eval_shape(lambda: models.build(name, **sizes))


# What torchvision's networks hold, written down from torchvision, not from our modules.


def norm(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")
    }


def linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def resnet(counts: tuple[int, ...], bottleneck: bool) -> dict[str, tuple[int, ...]]:
    found = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    inputs, expansion = 64, 4 if bottleneck else 1
    for stage, count in enumerate(counts, 1):
        width = 64 * 2 ** (stage - 1)
        for block in range(count):
            name, outputs = f"layer{stage}.{block}", width * expansion
            sides = (
                [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
                if bottleneck
                else [(inputs, width, 3), (width, width, 3)]
            )
            for number, (before, after, side) in enumerate(sides, 1):
                found |= {f"{name}.conv{number}.weight": (after, before, side, side)} | norm(
                    f"{name}.bn{number}", after
                )
            if not block and (stage > 1 or bottleneck):
                found |= {f"{name}.downsample.0.weight": (outputs, inputs, 1, 1)} | norm(
                    f"{name}.downsample.1", outputs
                )
            inputs = outputs
    return found | linear("fc", inputs, 1000)


def vgg(plan: list) -> dict[str, tuple[int, ...]]:
    found, place, inputs = {}, 0, 3
    for width in plan:
        if width != "M":
            found |= {
                f"features.{place}.weight": (width, inputs, 3, 3),
                f"features.{place}.bias": (width,),
            }
            inputs = width
        place += 1 if width == "M" else 2
    return (
        found
        | linear("classifier.0", 25088, 4096)
        | linear("classifier.3", 4096, 4096)
        | linear("classifier.6", 4096, 1000)
    )


def alexnet() -> dict[str, tuple[int, ...]]:
    """Not torchvision's: that of 2012, with two groups and response normalisation among the features."""
    sizes = {
        0: (96, 3, 11, 11),
        4: (256, 48, 5, 5),
        8: (384, 256, 3, 3),
        10: (384, 192, 3, 3),
        12: (256, 192, 3, 3),
    }
    found = {f"features.{place}.weight": shape for place, shape in sizes.items()}
    found |= {f"features.{place}.bias": shape[:1] for place, shape in sizes.items()}
    return (
        found
        | linear("classifier.1", 9216, 4096)
        | linear("classifier.4", 4096, 4096)
        | linear("classifier.6", 4096, 1000)
    )


TORCHVISION = {
    "resnet18": resnet((2, 2, 2, 2), False),
    "resnet34": resnet((3, 4, 6, 3), False),
    "resnet50": resnet((3, 4, 6, 3), True),
    "resnet101": resnet((3, 4, 23, 3), True),
    "resnet152": resnet((3, 8, 36, 3), True),
    "vgg11": vgg([64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]),
    "vgg16": vgg(
        [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]
    ),
    "vgg19": vgg([64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", *[512] * 4, "M"]),
    "alexnet": alexnet(),
}


def flax_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return {1: shape, 2: shape[::-1], 4: (*shape[2:], *shape[1::-1])}[len(shape)]


@pytest.mark.parametrize("name", KNOWN)
def test_each_name_gets_one_tensor_of_its_shape_and_none_is_left(name):
    shapes, there = weights.names(abstract(name)), TORCHVISION[name]
    found = torch_names(name, shapes)
    assert sorted(found.values()) == sorted(there)
    assert {ours: flax_shape(theirs, there[theirs]) for ours, theirs in found.items()} == shapes


def test_names_of_a_resnet():
    found = torch_names("resnet50", weights.names(abstract("resnet50")))
    assert found["conv1.norm.mean"] == "bn1.running_mean"
    assert found["blocks.layers.2.conv3.conv.kernel"] == "layer1.2.conv3.weight"
    assert found["blocks.layers.3.shortcut.conv.kernel"] == "layer2.0.downsample.0.weight"
    assert found["blocks.layers.3.shortcut.norm.var"] == "layer2.0.downsample.1.running_var"
    assert found["blocks.layers.15.conv2.norm.scale"] == "layer4.2.bn2.weight"
    assert found["out.bias"] == "fc.bias"


# Files, of a network of the fewest weights


class TinyVGG(nnx.Module):
    """VGG's names and none of its size: one convolution, two pixels of 512 channels, two dense layers."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.convolve = nnx.Sequential(nnx.Dict(conv=nnx.Conv(3, 512, (1, 2), rngs=rngs)))
        self.dense1 = nnx.Linear(1024, 2, rngs=rngs)
        self.out = nnx.Linear(2, 2, rngs=rngs)


def tiny_tensors() -> dict[str, np.ndarray]:
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


def test_the_axes_are_those_worked_out_by_hand(tmp_path):
    found = read_tiny(tmp_path, tiny_tensors())
    assert found["convolve.layers.0.conv.kernel"].shape == (1, 2, 3, 512)
    assert (
        found["convolve.layers.0.conv.kernel"][0, 1, 2, 3] == 3 * 6 + 2 * 2 + 1
    )  # output 3, input 2, column 1
    assert found["out.kernel"].tolist() == [[1, 3], [2, 4]]
    dense = found["dense1.kernel"]
    assert dense.shape == (1024, 2)
    # Of output 1, channel 7 at pixel 1: PyTorch's feature 7 · 2 + 1, Flax's 1 · 512 + 7.
    assert dense[512 + 7, 1] == 1024 + 15
    assert dense[:3, 0].tolist() == [0, 2, 4]
    assert weights.assign(TinyVGG(), found) == []


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_precisions_become_f32(tmp_path, dtype):
    tensors = {name: (array / 7).astype(dtype) for name, array in tiny_tensors().items()}
    found = read_tiny(tmp_path, tensors)
    assert all(array.dtype == np.float32 for array in found.values())
    assert (
        found["out.bias"].tolist()
        == np.array([5 / 7, 6 / 7]).astype(dtype).astype(np.float32).tolist()
    )


def test_batch_norms_counters_are_ignored_and_the_head_may_be_missing(tmp_path):
    tensors = tiny_tensors() | {"bn1.num_batches_tracked": np.array(3)}
    del tensors["classifier.6.weight"], tensors["classifier.6.bias"]
    model = TinyVGG()
    found = read_tiny(tmp_path, tensors)
    assert weights.assign(model, found, new_head=True) == ["out.bias", "out.kernel"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classifier.0.bias": None}, "lacks 1 tensors of vgg16, such as 'classifier.0.bias': it seems to be none of resnet18"),
        ({"features.2.bias": np.zeros(1)}, "has 1 that vgg16 has not, such as 'features.2.bias'"),
        ({"features.0.weight": np.zeros((512, 3))}, r"features.0.weight in .* is 512×3; convolve.layers.0.conv.kernel is 1×2×3×512"),
        ({"classifier.0.weight": np.zeros((2, 1000))}, r"is 2×1000; dense1.kernel is 1024×2"),
        ({"features.0.bias": np.zeros(512, np.int8)}, "features.0.bias in .* holds int8"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path, change, message):
    tensors = {
        name: array for name, array in (tiny_tensors() | change).items() if array is not None
    }
    with pytest.raises(InputError, match=message):
        read_tiny(tmp_path, tensors)


VGG16_BN = {
    name.replace("features.0.weight", "features.1.running_mean"): shape
    for name, shape in TORCHVISION["vgg16"].items()
}
ONE_WEIRD_TRICK = [f"features.{place}.weight" for place in (0, 3, 6, 8, 10)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        *((TORCHVISION[name], f"it seems to be {name}$") for name in KNOWN if name != "vgg11"),
        (VGG16_BN, "a network with batch norm among its features"),
        (ONE_WEIRD_TRICK, "torchvision's alexnet, a later one without groups"),
        (["encoder.weight"], "it seems to be none of resnet18, .*, vgg19, alexnet"),
    ],
)
def test_another_networks_file_is_recognised(tmp_path, names, message):
    save_file({name: np.zeros(1, np.float32) for name in names}, tmp_path / "a.safetensors")
    with pytest.raises(InputError, match=message):
        weights.read(tmp_path / "a.safetensors", "vgg11", abstract("vgg11"))


def test_files_that_are_no_safetensors_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(tiny_tensors(), path)
    whole = path.read_bytes()
    for data in (b"", b"PK\x03\x04" + bytes(100), whole[:-1], whole[:50]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"is no \.safetensors file, or is cut off"):
            weights.read(path, "vgg16", TinyVGG())


def test_a_network_without_a_table_is_refused(tmp_path):
    save_file(tiny_tensors(), tmp_path / "a.safetensors")
    with pytest.raises(
        InputError,
        match=r"unknown network for PyTorch's weights 'resnet18_cifar': did you mean 'resnet18'\?",
    ):
        weights.read(tmp_path / "a.safetensors", "resnet18_cifar", TinyVGG())
