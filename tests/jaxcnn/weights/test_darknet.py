"""Darknet's files by a writer of our own, Darknet-19 by NumPy from the paper's table, `reorg` by Darknet's loops."""

import struct

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcnn import models, weights
from jaxcnn.errors import InputError
from jaxcnn.models.darknet import reorganise
from jaxcnn.weights.darknet import convolutions

# Redmon & Farhadi 2017, table 6: (filters, side) of a convolution, or a pool.
DARKNET19 = [
    (32, 3), "pool", (64, 3), "pool", (128, 3), (64, 1), (128, 3), "pool", (256, 3), (128, 1), (256, 3), "pool",
    (512, 3), (256, 1), (512, 3), (256, 1), (512, 3), "pool", (1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3), (1000, 1),
]  # fmt: skip
# `yolov2-voc.cfg` after these: (filters, side, input channels) in its order.
YOLOV2_REST = [
    (1024, 3, 1024),
    (1024, 3, 1024),
    (64, 1, 512),
    (1024, 3, 4 * 64 + 1024),
    (125, 1, 1024),
]


def darknet19_layers() -> list[tuple[int, int, int]]:
    """(filters, side, input channels) of each convolution."""
    layers, inputs = [], 3
    for filters, side in (row for row in DARKNET19 if row != "pool"):
        layers.append((filters, side, inputs))
        inputs = filters
    return layers


def a_file(layers, version=(0, 2, 0), seed=0) -> tuple[bytes, list[dict[str, np.ndarray]]]:
    """A file in Darknet's layout, all layers but the last with batch norm, and its arrays in Darknet's own shapes."""
    random = np.random.default_rng(seed)
    seen = struct.pack("<i" if version[0] * 10 + version[1] < 2 else "<q", 12345)
    parts, arrays = [struct.pack("<3i", *version) + seen], []
    for number, (filters, side, inputs) in enumerate(layers):
        layer = {"beta": random.normal(0, 0.3, filters)}
        if number < len(layers) - 1:
            layer["gamma"] = random.uniform(0.5, 1.5, filters)
            layer["mean"] = random.normal(0, 0.3, filters)
            layer["variance"] = random.uniform(0.5, 2, filters)
        layer["kernel"] = (
            random.standard_normal((filters, inputs, side, side), np.float32)
            * (2 / (inputs * side**2)) ** 0.5
        )
        arrays.append({name: array.astype(np.float32) for name, array in layer.items()})
        parts += [array.astype("<f4").tobytes() for array in arrays[-1].values()]
    return b"".join(parts), arrays


def darknet19_by_numpy(
    images: np.ndarray, arrays: list[dict[str, np.ndarray]], *, older: bool
) -> np.ndarray:
    """Images ``[N, C, H, W]`` to logits, from the table alone; batch norm with the older or the newer epsilon of Darknet."""
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
            deviation = (
                np.sqrt(variance) + np.float32(1e-6)
                if older
                else np.sqrt(variance + np.float32(1e-5))
            )
            x = (x - mean) / deviation * gamma
        x = x + layer["beta"][:, None, None]
        if "gamma" in layer:
            x = np.where(x > 0, x, np.float32(0.1) * x)
    return x.mean((2, 3))


def convolve(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Cross-correlation, padded to the same size, as a product with a matrix of patches."""
    filters, inputs, side, _ = kernel.shape
    n, _, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
    patches = [padded[:, :, i : i + h, j : j + w] for i in range(side) for j in range(side)]
    columns = np.stack(patches, axis=2).reshape(n, inputs * side * side, h * w)
    return (kernel.reshape(filters, -1) @ columns).reshape(n, filters, h, w)


def reorg_cpu(x: np.ndarray, w: int, h: int, c: int, stride: int) -> np.ndarray:
    """Darknet's `src/blas.c`, `reorg_cpu`, for one image, forward=0: flat memory to flat memory."""
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


def abstract(name: str, **sizes) -> nnx.Module:
    return nnx.eval_shape(lambda: models.build(name, **sizes))


def ours(arrays: list[dict[str, np.ndarray]], names: list[str]) -> weights.Weights:
    """Darknet's arrays, layer by layer, under our names."""
    found = {}
    for layer, name in zip(arrays, names, strict=True):
        found[f"{name}.kernel"] = np.einsum("oihw->hwio", layer["kernel"])
        if "gamma" not in layer:
            found[f"{name}.bias"] = layer["beta"]
            continue
        norm = name.removesuffix("conv") + "norm"
        found |= {
            f"{norm}.{ours}": layer[theirs]
            for ours, theirs in zip(("bias", "scale", "mean", "var"), list(layer), strict=False)
        }
    return found


@pytest.fixture(scope="module")
def darknet19() -> tuple[bytes, list[dict[str, np.ndarray]]]:
    return a_file(darknet19_layers())


# The places of the convolutions in `FINE` and `COARSE`, pools counted.
FINE, COARSE = (0, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 16), (1, 2, 3, 4, 5)
FEATURES = [f"features.fine.layers.{n}.conv" for n in FINE] + [
    f"features.coarse.layers.{n}.conv" for n in COARSE
]
YOLOV2 = [
    *FEATURES,
    "coarse.layers.0.conv",
    "coarse.layers.1.conv",
    "passthrough.layers.0.conv",
    "both.layers.0.conv",
    "out",
]


@pytest.mark.parametrize(("name", "order"), [("darknet19", [*FEATURES, "out"]), ("yolov2", YOLOV2)])
def test_the_order_is_the_cfgs_and_the_shapes_are_too(name, order):
    shapes = weights.names(abstract(name))
    layers = darknet19_layers() if name == "darknet19" else [*darknet19_layers()[:-1], *YOLOV2_REST]
    assert convolutions(shapes) == order
    kernels = [shapes[f"{layer}.kernel"] for layer in order]
    assert kernels == [(side, side, inputs, filters) for filters, side, inputs in layers]


@pytest.mark.parametrize("version", [(0, 1, 0), (0, 2, 0), (0, 2, 5)])
def test_darknet19_reads_both_headers_and_computes_what_numpy_does(tmp_path, darknet19, version):
    data, arrays = darknet19
    header = a_file([], version)[0]
    assert len(header) == (16 if version == (0, 1, 0) else 20)
    (tmp_path / "d.weights").write_bytes(header + data[20:])
    found = weights.read(tmp_path / "d.weights", "darknet19", abstract("darknet19"))
    expected = ours(arrays, [*FEATURES, "out"])
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    if version == (0, 2, 5):
        model = models.build("darknet19", input_shape=(64, 64, 3))
        assert weights.assign(model, found) == []
        model.eval()
        images = np.random.default_rng(1).random((2, 3, 64, 64), np.float32)
        found = np.asarray(model(jnp.asarray(images.transpose(0, 2, 3, 1))))
        for older, tolerance in ((False, 1e-5), (True, 1e-4)):
            logits = darknet19_by_numpy(images, arrays, older=older)
            np.testing.assert_allclose(found, logits, rtol=0, atol=tolerance * abs(logits).max())
            assert logits.std() > 0.1


def test_yolov2_reads_its_file(tmp_path):
    data, arrays = a_file([*darknet19_layers()[:-1], *YOLOV2_REST])
    (tmp_path / "y.weights").write_bytes(data)
    found, expected = (
        weights.read(tmp_path / "y.weights", "yolov2", abstract("yolov2")),
        ours(arrays, YOLOV2),
    )
    assert found.keys() == expected.keys() == weights.names(abstract("yolov2")).keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_file_for_other_classes_starts_a_network(tmp_path, darknet19):
    (tmp_path / "d.weights").write_bytes(darknet19[0])
    model = abstract("darknet19", num_classes=7)
    found = weights.read(tmp_path / "d.weights", "darknet19", model)
    assert found["out.kernel"].shape == (1, 1, 1024, 1000)
    assert weights.assign(model, found, new_head=True) == ["out.bias", "out.kernel"]
    with pytest.raises(InputError, match=r"out\.bias is 1000 there, 7 here"):
        weights.assign(model, found)


SIZE = 20 + 4 * (
    20_842_376 + 14_400
)  # header, trainable numbers, running statistics: SYSTEMS' totals of Darknet-19


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (0, "has 0 bytes, not even the 20 of a header"),
        (19, "has 19 bytes, not even the 20 of a header"),
        (20, f"ends at byte 20, within features.fine.layers.0.norm.bias, 128 bytes from byte 20 on; this network's file has {SIZE} bytes"),
        (20 + 4 * 128, r"ends at byte 532, within features.fine.layers.0.conv.kernel, 3456 bytes from byte 532 on"),
        (SIZE - 1, rf"ends at byte {SIZE - 1}, within out.kernel, 4096000 bytes from byte {SIZE - 4096000} on"),
        (SIZE + 4, rf"has {SIZE + 4} bytes, 4 more than this network's {SIZE}: it is of another network"),
    ],
)  # fmt: skip
def test_files_of_another_length_are_refused(tmp_path, darknet19, cut, message):
    data = darknet19[0]
    assert len(data) == SIZE
    (tmp_path / "d.weights").write_bytes((data + bytes(8))[:cut])
    with pytest.raises(InputError, match=message):
        weights.read(tmp_path / "d.weights", "darknet19", abstract("darknet19"))


@pytest.mark.parametrize(
    "start",
    [b"PK\x03\x04" + bytes(40), struct.pack("<4i", 1001, 0, 0, 0) + bytes(40), b"\xff" * 40],
)
def test_files_that_are_no_weights_are_refused(tmp_path, start):
    (tmp_path / "d.weights").write_bytes(start)
    with pytest.raises(InputError, match="which Darknet never had for networks of convolutions"):
        weights.read(tmp_path / "d.weights", "darknet19", abstract("darknet19"))


def test_another_networks_file_is_refused(tmp_path, darknet19):
    (tmp_path / "d.weights").write_bytes(darknet19[0])
    with pytest.raises(InputError, match="cut off, or of another network"):
        weights.read(tmp_path / "d.weights", "yolov2", abstract("yolov2"))
    with pytest.raises(
        InputError,
        match="for --model=darknet19 or --model=yolov2; this network's parts are blocks, conv1, out",
    ):
        weights.read(tmp_path / "d.weights", "resnet18", abstract("resnet18"))
    with pytest.raises(InputError, match="this network's parts are out"):
        weights.read(tmp_path / "d.weights", "logistic", nnx.eval_shape(Logistic))


@pytest.mark.parametrize(("side", "channels"), [(2, 4), (6, 8), (26, 64)])
def test_reorganise_is_darknets_reorg(side, channels):
    x = np.arange(2 * channels * side * side, dtype=np.float32).reshape(2, channels, side, side)
    memory = np.stack([reorg_cpu(image.ravel(), side, side, channels, 2) for image in x])
    expected = memory.reshape(2, 4 * channels, side // 2, side // 2)
    found = reorganise(jnp.asarray(x.transpose(0, 2, 3, 1)))
    assert np.array_equal(found, expected.transpose(0, 2, 3, 1))
