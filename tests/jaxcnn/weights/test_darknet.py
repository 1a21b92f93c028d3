"""Darknet's files: compared with a writer of them and with Darknet-19 in NumPy."""

import struct

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.models.darknet import reorganize
from jaxcnn.weights.darknet import convolutions
from tests.support.darknet_file import (
    DARKNET19,
    DARKNET19_LAYERS,
    YOLOV2_LAYERS,
    DarknetArrays,
    darknet_file,
)

# The positions of the convolutions in `FINE` and `COARSE`, pools included.
FINE, COARSE = (0, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 16), (1, 2, 3, 4, 5)
FEATURES = [
    *(f"features.fine.layers.{index}.conv" for index in FINE),
    *(f"features.coarse.layers.{index}.conv" for index in COARSE),
]
DARKNET19_NAMES = [*FEATURES, "out"]
YOLOV2_NAMES = [
    *FEATURES,
    "coarse.layers.0.conv",
    "coarse.layers.1.conv",
    "passthrough.layers.0.conv",
    "both.layers.0.conv",
    "out",
]
# Header, trainable parameters and running statistics of Darknet-19.
SIZE = 20 + 4 * (20_842_376 + 14_400)


def darknet19_in_numpy(images: np.ndarray, arrays: DarknetArrays, *, older: bool) -> np.ndarray:
    """Logits for images ``[N, C, H, W]``, from the paper's table alone.

    Batch norm has the older or the newer epsilon of Darknet.
    """
    x, layers = images, iter(arrays)
    for row in DARKNET19:
        if row == "pool":
            n, c, h, w = x.shape
            x = x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
            continue
        layer = next(layers)
        x = convolve(x, layer["kernel"])
        if "gamma" in layer:
            mean, variance, gamma = (
                layer[name][:, None, None] for name in ("mean", "variance", "gamma")
            )
            if older:
                deviation = np.sqrt(variance) + np.float32(1e-6)
            else:
                deviation = np.sqrt(variance + np.float32(1e-5))
            x = (x - mean) / deviation * gamma
        x = x + layer["beta"][:, None, None]
        if "gamma" in layer:
            x = np.where(x > 0, x, np.float32(0.1) * x)
    return x.mean((2, 3))


def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Cross-correlation with same padding, as a product with a matrix of patches."""
    filters, inputs, side, _ = kernel.shape
    n, _, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
    patches = [padded[:, :, i : i + h, j : j + w] for i in range(side) for j in range(side)]
    columns = np.stack(patches, axis=2).reshape(n, inputs * side * side, h * w)
    return (kernel.reshape(filters, -1) @ columns).reshape(n, filters, h, w)


def reorg_cpu(x: np.ndarray, w: int, h: int, c: int, stride: int) -> np.ndarray:
    """Darknet's `reorg_cpu` (`src/blas.c`) for one image and forward=0, on flat memory."""
    out = np.zeros_like(x)
    out_c = c // (stride * stride)
    for k in range(c):
        for j in range(h):
            for i in range(w):
                in_index = i + w * (j + h * k)
                c2, offset = k % out_c, k // out_c
                w2, h2 = i * stride + offset % stride, j * stride + offset // stride
                out[in_index] = x[w2 + w * stride * (h2 + h * stride * c2)]
    return out


class Logistic(nnx.Module):
    def __init__(self):
        self.out = nnx.Linear(4, 2, rngs=nnx.Rngs(0))


def abstract_model(name: str, **sizes) -> nnx.Module:
    return nnx.eval_shape(lambda: models.build(name, **sizes))


def named_weights(arrays: DarknetArrays, names: list[str]) -> weights.Weights:
    """Darknet's arrays, layer by layer, under the names of the network."""
    named = {}
    for layer, name in zip(arrays, names, strict=True):
        named[f"{name}.kernel"] = np.einsum("oihw->hwio", layer["kernel"])
        if "gamma" not in layer:
            named[f"{name}.bias"] = layer["beta"]
            continue
        norm = name.removesuffix("conv") + "norm"
        named |= {
            f"{norm}.bias": layer["beta"],
            f"{norm}.scale": layer["gamma"],
            f"{norm}.mean": layer["mean"],
            f"{norm}.var": layer["variance"],
        }
    return named


@pytest.fixture(scope="module")
def darknet19() -> tuple[bytes, DarknetArrays]:
    return darknet_file(DARKNET19_LAYERS)


@pytest.mark.parametrize(
    ("name", "order", "layers"),
    [
        ("darknet19", DARKNET19_NAMES, DARKNET19_LAYERS),
        ("yolov2", YOLOV2_NAMES, YOLOV2_LAYERS),
    ],
)
def test_convolutions_have_the_order_and_the_shapes_of_the_cfg(name, order, layers):
    shapes = weights.array_shapes(abstract_model(name))
    assert convolutions(shapes) == order
    kernels = [shapes[f"{layer}.kernel"] for layer in order]
    assert kernels == [(side, side, inputs, filters) for filters, side, inputs in layers]


@pytest.mark.parametrize("version", [(0, 1, 0), (0, 2, 0), (0, 2, 5)])
def test_darknet19_is_read_with_both_headers(tmp_path, darknet19, version):
    data, arrays = darknet19
    header, _ = darknet_file([], version)
    assert len(header) == (16 if version == (0, 1, 0) else 20)
    (tmp_path / "d.weights").write_bytes(header + data[20:])
    read = weights.read(tmp_path / "d.weights", "darknet19", abstract_model("darknet19"))
    expected = named_weights(arrays, DARKNET19_NAMES)
    assert read.keys() == expected.keys()
    assert all(np.array_equal(read[name], expected[name]) for name in expected)


def test_darknet19_computes_the_logits_of_numpy(tmp_path, darknet19):
    data, arrays = darknet19
    (tmp_path / "d.weights").write_bytes(data)
    model = models.build("darknet19", input_shape=(64, 64, 3))
    assert weights.assign(model, weights.read(tmp_path / "d.weights", "darknet19", model)) == []
    model.eval()
    images = np.random.default_rng(1).random((2, 3, 64, 64), np.float32)
    logits = np.asarray(model(jnp.asarray(images.transpose(0, 2, 3, 1))))
    for older, tolerance in ((False, 1e-5), (True, 1e-4)):
        expected = darknet19_in_numpy(images, arrays, older=older)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance * abs(expected).max())
        assert expected.std() > 0.1


def test_yolov2_is_read(tmp_path):
    data, arrays = darknet_file(YOLOV2_LAYERS)
    (tmp_path / "y.weights").write_bytes(data)
    model = abstract_model("yolov2")
    read = weights.read(tmp_path / "y.weights", "yolov2", model)
    expected = named_weights(arrays, YOLOV2_NAMES)
    assert read.keys() == expected.keys() == weights.array_shapes(model).keys()
    assert all(np.array_equal(read[name], expected[name]) for name in expected)


def test_a_file_for_other_classes_initializes_all_but_the_head(tmp_path, darknet19):
    (tmp_path / "d.weights").write_bytes(darknet19[0])
    model = abstract_model("darknet19", num_classes=7)
    read = weights.read(tmp_path / "d.weights", "darknet19", model)
    assert read["out.kernel"].shape == (1, 1, 1024, 1000)
    assert weights.assign(model, read, new_head=True) == ["out.bias", "out.kernel"]
    with pytest.raises(InputError, match=r"out\.bias is 1000 instead of 7"):
        weights.assign(model, read)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (0, "has 0 bytes, fewer than the 20 of a header"),
        (19, "has 19 bytes, fewer than the 20 of a header"),
        (
            20,
            "ends at byte 20, within features.fine.layers.0.norm.bias, 128 bytes from byte 20 on; "
            f"this network's file has {SIZE} bytes",
        ),
        (
            20 + 4 * 128,
            "ends at byte 532, within features.fine.layers.0.conv.kernel, 3456 bytes from byte 532 "
            "on",
        ),
        (
            SIZE - 1,
            f"ends at byte {SIZE - 1}, within out.kernel, 4096000 bytes from byte {SIZE - 4096000} "
            "on",
        ),
        (
            SIZE + 4,
            f"has {SIZE + 4} bytes, 4 more than this network's {SIZE}: it is of another network",
        ),
    ],
)
def test_files_of_another_length_are_refused(tmp_path, darknet19, length, message):
    data, _ = darknet19
    assert len(data) == SIZE
    (tmp_path / "d.weights").write_bytes((data + bytes(8))[:length])
    with pytest.raises(InputError, match=message):
        weights.read(tmp_path / "d.weights", "darknet19", abstract_model("darknet19"))


@pytest.mark.parametrize(
    "content",
    [b"PK\x03\x04" + bytes(40), struct.pack("<4i", 1001, 0, 0, 0) + bytes(40), b"\xff" * 40],
)
def test_files_with_an_impossible_version_are_refused(tmp_path, content):
    (tmp_path / "d.weights").write_bytes(content)
    with pytest.raises(InputError, match="which Darknet never had for convolutional networks"):
        weights.read(tmp_path / "d.weights", "darknet19", abstract_model("darknet19"))


def test_a_file_of_another_network_is_refused(tmp_path, darknet19):
    (tmp_path / "d.weights").write_bytes(darknet19[0])
    with pytest.raises(InputError, match="cut off, or of another network"):
        weights.read(tmp_path / "d.weights", "yolov2", abstract_model("yolov2"))
    with pytest.raises(
        InputError,
        match="for --model=darknet19 or --model=yolov2; the parts of this network are "
        "blocks, conv1, out",
    ):
        weights.read(tmp_path / "d.weights", "resnet18", abstract_model("resnet18"))
    with pytest.raises(InputError, match="the parts of this network are out"):
        weights.read(tmp_path / "d.weights", "logistic", nnx.eval_shape(Logistic))


@pytest.mark.parametrize(("side", "channels"), [(2, 4), (6, 8), (26, 64)])
def test_reorganize_is_darknets_reorg(side, channels):
    x = np.arange(2 * channels * side * side, dtype=np.float32).reshape(2, channels, side, side)
    memory = np.stack([reorg_cpu(image.ravel(), side, side, channels, 2) for image in x])
    expected = memory.reshape(2, 4 * channels, side // 2, side // 2).transpose(0, 2, 3, 1)
    assert np.array_equal(reorganize(jnp.asarray(x.transpose(0, 2, 3, 1))), expected)
