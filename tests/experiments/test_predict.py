"""What is printed of pictures, against NumPy and hand-computed boxes; and what is said of bad input."""

import dataclasses
import json
import re
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from PIL import Image
from safetensors.numpy import save_file

from experiments import predict, run
from experiments.workloads import image_files
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import detection, models, training, weights
from jaxcnn.weights.pytorch import torch_names
from tests.jaxcnn.weights.test_darknet import a_file, darknet19_layers


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Logistic regression, two epochs on digits."""
    results = tmp_path_factory.mktemp("results")
    arguments = ["--model=logistic", "--dataset=digits", "--epochs=2", "--batch-size=100"]
    assert run.main(["--study=train", "--device=cpu:1", *arguments, f"--results={results}"]) == 0
    (folder,) = (results / "train").glob("*.checkpoints")
    return folder


@pytest.fixture
def png(tmp_path):
    """A grey picture of 28×28 noise: what the network sees is then no matter of resampling."""
    path = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)).save(path)
    return path


def printed(capsys, *arguments) -> str:
    """What the command prints when all is well."""
    capsys.readouterr()
    assert predict.main(["--device=cpu:1", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def classes(output: str) -> list[tuple[float, str]]:
    return [
        (float(share), name)
        for share, name in re.findall(r"^ *([\d.]+)%  (.+?) *$", output, re.MULTILINE)
    ]


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def assert_ranked(
    found: list[tuple[float, str]], shares: np.ndarray, names: list[str], top: int
) -> None:
    order = np.argsort(-shares)[:top]
    assert [name for _, name in found] == [names[label] for label in order]
    np.testing.assert_allclose(
        [share for share, _ in found], 100 * shares[order], rtol=0, atol=0.0051
    )


def by_numpy(checkpoint, png) -> np.ndarray:
    """Probabilities from the checkpoint's arrays and its `identity.json`."""
    preprocessing = json.loads((checkpoint / "identity.json").read_text())["inputs"]
    held = weights.weights_of(checkpoint)
    pixels = (np.asarray(Image.open(png)) / 255 - preprocessing["mean"][0]) / preprocessing["std"][
        0
    ]
    return softmax(pixels.reshape(-1) @ held["out.kernel"].astype(float) + held["out.bias"])


def test_a_checkpoints_percentages_are_numpys(capsys, checkpoint, png):
    output = printed(capsys, f"--weights={checkpoint}", png)
    found = classes(output)
    assert_ranked(found, by_numpy(checkpoint, png), list("0123456789"), 5)
    assert sum(share for share, _ in found) <= 100 + 5 * 0.005
    assert "logistic, images of 28×28, 10 classes" in output
    assert re.search(rf"^{re.escape(str(png))}: 0\.\d+ s$", output, re.MULTILINE)
    assert re.search(r"^compiled +in [\d.]+ s", output, re.MULTILINE)


def test_all_classes_under_other_names_for_each_of_two_pictures(capsys, checkpoint, png, tmp_path):
    names = [f"digit [{number}]" for number in range(10)]
    (tmp_path / "names").write_text("\n".join(names) + "\n\n")
    other = tmp_path / "black.bmp"
    Image.new("RGB", (28, 28)).save(other)
    options = ["--top=99", f"--names={tmp_path / 'names'}", "--model=logistic"]
    found = classes(printed(capsys, f"--weights={checkpoint}", png, other, *options))
    assert_ranked(found[:10], by_numpy(checkpoint, png), names, 10)
    assert found[10:] != found[:10] and sorted(name for _, name in found[10:]) == names
    for shares in (found[:10], found[10:]):
        assert sum(share for share, _ in shares) == pytest.approx(100, abs=0.05)


def test_a_relative_path_and_the_home_folder_are_found(capsys, checkpoint, png, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    monkeypatch.setenv("HOME", str(checkpoint.parent))
    assert classes(printed(capsys, f"--weights={checkpoint.name}", png))
    assert classes(printed(capsys, f"--weights=~/{checkpoint.name}", png))


def photo(path) -> np.ndarray:
    """100×60, written there; returns the middle 60×60 of it at 64×64, by Pillow, in 0 … 1."""
    small = Image.fromarray(np.random.default_rng(1).integers(0, 256, (6, 10, 3), np.uint8))
    large = small.resize((100, 60), Image.Resampling.NEAREST)
    large.save(path)
    return np.asarray(
        large.crop((20, 0, 80, 60)).resize((64, 64), Image.Resampling.BILINEAR)
    ) / np.float32(255)


def test_a_darknet_file_and_its_list_of_names(capsys, tmp_path):
    (tmp_path / "d.weights").write_bytes(a_file(darknet19_layers())[0])
    names = [f"kind {number}" for number in range(1000)]
    (tmp_path / "short.names").write_text("\n".join([*names, "for other networks"]))
    images = photo(tmp_path / "photo.png")
    options = [f"--weights={tmp_path / 'd.weights'}", "--image-size=64", tmp_path / "photo.png"]
    found = classes(printed(capsys, *options, f"--names={tmp_path / 'short.names'}"))
    model = models.build("darknet19", input_shape=(64, 64, 3))
    weights.assign(model, weights.read(tmp_path / "d.weights", "darknet19", model))
    model.eval()
    assert_ranked(found, softmax(np.asarray(model(jnp.asarray(images[None])))[0]), names, 5)
    assert classes(printed(capsys, *options, "--top=1"))[0][1] == found[0][1].replace(
        "kind", "class"
    )


def test_a_pytorch_file_sees_the_middle_normalised_and_tells_its_number_of_classes(
    capsys, tmp_path
):
    model = models.build("resnet18", num_classes=3, input_shape=(32, 32, 3), seed=5)
    shapes = weights.names(model)
    held = {
        ".".join(map(str, path)): np.asarray(leaf[...])
        for path, leaf in nnx.to_flat_state(nnx.state(model))
    }
    torch = {torch_name: held[name] for name, torch_name in torch_names("resnet18", shapes).items()}
    order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    torch = {
        name: np.ascontiguousarray(array.transpose(order[array.ndim]))
        for name, array in torch.items()
    }
    save_file(torch, tmp_path / "r.safetensors")
    photo(tmp_path / "photo.png")
    options = [
        f"--weights={tmp_path / 'r.safetensors'}",
        "--model=resnet18",
        "--image-size=32",
        tmp_path / "photo.png",
    ]
    found = classes(printed(capsys, *options))
    # 32 · 256 / 224 = 36.6: the middle 60×60 becomes 37×37, of which 32×32 are seen
    collect_evidence = (
        Image.open(tmp_path / "photo.png")
        .crop((20, 0, 80, 60))
        .resize((37, 37), Image.Resampling.BILINEAR)
    )
    pixels = (np.asarray(collect_evidence)[2:34, 2:34] / 255 - [0.485, 0.456, 0.406]) / [
        0.229,
        0.224,
        0.225,
    ]
    model.eval()
    logits = np.asarray(model(jnp.asarray(pixels[None], jnp.float32)))[0]
    assert_ranked(found, softmax(logits), ["class 0", "class 1", "class 2"], 5)


def test_a_single_logit_is_that_of_the_second_of_two_classes():
    shares = np.asarray(
        predict.class_shares(jnp.log(jnp.array([[3.0]])))
    )  # a sigmoid of 3 / (3 + 1)
    np.testing.assert_allclose(shares, [[0.25, 0.75]], rtol=1e-6)
    ((best, share),) = predict.ranked(shares[0], ("cat", "dog"), 1)
    assert best == "dog" and share == pytest.approx(0.75)


# Detection


@pytest.mark.parametrize(
    ("size", "box", "expected"),
    [
        # 40×20 fills the upper left 32×16 pixels of 32×32, 8 rows lower: a box there of 16×8 pixels, its centre at (8, 12)
        ((40, 20), (0.25, 0.375, 0.5, 0.25), (0, 0, 20, 10)),
        ((20, 40), (0.375, 0.25, 0.25, 0.5), (0, 0, 10, 20)),
        ((32, 32), (0.5, 0.5, 0.25, 0.25), (12, 12, 20, 20)),
        ((320, 320), (0.5, 0.5, 9.0, 9.0), (0, 0, 320, 320)),  # beyond the edges
        ((1, 64), (0.5, 0.5, 1.0, 0.5), (0, 16, 1, 48)),  # half a pixel wide there, drawn one wide
    ],
)
def test_boxes_come_back_into_the_picture(size, box, expected):
    found = detection.Detections(
        np.array([box], np.float32), np.ones(1, np.float32), np.zeros(1, np.int32)
    )
    assert image_files.corners(image_files.out_of_letterbox(found, size, 32).boxes, size) == [
        expected
    ]


def test_a_picture_keeps_its_shape_in_a_grey_square():
    square = image_files.letterboxed(np.full((20, 40, 3), 250, np.uint8), 32)
    assert square.shape == (32, 32, 3) and (square[8:24] == 250).all()
    assert (square[:8] == 128).all() and (square[24:] == 128).all()


class Detector(nnx.Module):
    """Sees one box wherever it looks: half the square wide, a quarter high, in its middle, its second class 0.75 sure."""

    def __init__(self, input_shape, num_classes, *, rngs):
        prediction = np.full((5, 5 + num_classes), -20, np.float32)
        anchor = detection.VOC_ANCHORS[2]
        prediction[2, :5] = (0, 0, np.log(0.5 / anchor[0]), np.log(0.25 / anchor[1]), 20)
        prediction[2, 5:] = np.log([1, 3])
        self.bias = nnx.Param(jnp.asarray(prediction))

    def __call__(self, images):
        return jnp.tile(self.bias[...], (len(images), 1, 1, 1, 1)) + 0 * images.sum()


@pytest.fixture
def detector(tmp_path, monkeypatch):
    """A checkpoint of `Detector`."""
    monkeypatch.setitem(
        models.MODELS, "detector", dataclasses.replace(models.MODELS["yolov2"], make=Detector)
    )
    state, _ = training.create(
        models.build("detector", num_classes=2, input_shape=(32, 32, 3)), optax.sgd(0.1)
    )
    identity = {
        "model": "detector",
        "inputs": Preprocessing(32, 32, 3, ("a cat", "a dog")).to_json(),
    }
    checkpoints = training.Checkpoints(tmp_path / "detector", identity)
    checkpoints.save(state, None, training.History())
    checkpoints.close()
    return tmp_path / "detector"


def test_a_detectors_box_is_printed_in_pixels_and_drawn(capsys, detector, tmp_path):
    Image.new("RGB", (64, 32), "white").save(tmp_path / "white.png")
    output = printed(
        capsys,
        f"--weights={detector}",
        tmp_path / "white.png",
        f"--output={tmp_path / 'new' / 'folder'}",
    )
    # the picture has half its size in the square, so the box is 32 pixels wide and 16 high, in the middle of 64×32
    assert re.search(r"^ *75\.00%  a dog +16 +8 +48 +24 *$", output, re.MULTILINE)
    saved = tmp_path / "new" / "folder" / "white.boxes.png"
    assert f"boxes     {saved}" in output
    with Image.open(saved) as drawn:
        assert drawn.size == (64, 32)
        pixels = np.asarray(drawn)
    assert (pixels[24:] == 255).all() and (pixels[23, 16:48] != 255).any(axis=-1).all()


def test_boxes_that_score_too_little_are_not_shown(capsys, detector, tmp_path):
    Image.new("RGB", (64, 32), "white").save(tmp_path / "white.png")
    options = [f"--weights={detector}", tmp_path / "white.png", f"--output={tmp_path}"]
    assert "nothing" in printed(capsys, *options, "--score=0.76")
    assert "a dog" in printed(capsys, *options, "--score=0.74"), (
        "the picture with boxes may be written again"
    )


# Bad input


def refused(capsys, *arguments) -> str:
    """The one line that the command says."""
    capsys.readouterr()
    assert predict.main(["--device=cpu:1", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{png}"], "--weights"),
        (["--weights={checkpoint}"], "give one or more pictures"),
        (["--weights={checkpoint}", "{tmp}/nowhere.png"], "there is no picture {tmp}/nowhere.png"),
        (["--weights={checkpoint}", "{tmp}"], "there is no picture {tmp}"),
        (
            ["--weights={checkpoint}", "{png}", "{text}"],
            "{text} cannot be read as a picture (cannot identify image file",
        ),
        (
            ["--weights={checkpoint}", "{png}", "{cut}"],
            "{cut} cannot be read as a picture (image file is truncated",
        ),
        (["--weights={tmp}/nowhere", "{png}"], "there is no file or folder {tmp}/nowhere"),
        (["--weights={tmp}", "{png}"], "{tmp} is no checkpoint"),
        (
            ["--weights={text}", "{png}"],
            "expected a .weights file (Darknet), a .safetensors file (PyTorch) or a checkpoint",
        ),
        (["--weights={tmp}/d.weights", "{png}"], "d.weights ends at byte 40"),
        (
            ["--weights={tmp}/t.safetensors", "{png}"],
            "does not say of which network it is: give --model",
        ),
        (
            ["--weights={tmp}/t.safetensors", "--model=resnet18", "{png}"],
            "is no .safetensors file, or is cut off",
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
            "is of model 'logistic', not 'lenet5'",
        ),
        (
            ["--weights={checkpoint}", "--image-size=14", "{png}"],
            "out.kernel is 784×10 there, 196×10 here",
        ),
        (
            ["--weights={checkpoint}", "--image-size=0", "{png}"],
            "--image-size=0: must be 1 or more",
        ),
        (["--weights={checkpoint}", "--top=0", "{png}"], "--top=0: must be 1 or more"),
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
            "--names={png} cannot be read (it is no text)",
        ),
        (
            ["--weights={checkpoint}", "--names={empty}", "{png}"],
            "has 0 names, one a line; the network has 10 classes",
        ),
        (
            ["--weights={checkpoint}", "--names={text}", "{png}"],
            "has 11 names, one a line; the network has 10 classes",
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
    places = {"checkpoint": checkpoint, "png": png, "tmp": tmp_path, "cut": tmp_path / "cut.png"}
    places |= {name: tmp_path / name for name in ("text", "empty")}
    error = refused(capsys, *(argument.format(**places) for argument in arguments))
    assert message.format(**places) in error


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ('{"model": "logistic"}', "does not say what pictures it was trained on"),
        (
            '{"model": "logistic", "inputs": {"side": 3}}',
            "does not say what pictures it was trained on",
        ),
        ('{"inputs": INPUTS}', "does not say of which model it is"),
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
def test_checkpoints_that_cannot_be_used_are_refused(
    identity, message, capsys, checkpoint, png, tmp_path
):
    folder = tmp_path / "c"
    folder.mkdir()
    if "empty" not in message:  # else a run that ended before its first save
        (folder / "best").symlink_to(checkpoint / "best")
    preprocessing = json.dumps(json.loads((checkpoint / "identity.json").read_text())["inputs"])
    (folder / "identity.json").write_text(identity.replace("INPUTS", preprocessing))
    assert message in refused(capsys, f"--weights={folder}", png)


def test_weights_that_are_no_numbers_are_refused(capsys, png, tmp_path):
    model = models.build("logistic")
    model.out.bias[...] = jnp.full(10, jnp.nan)
    state, _ = training.create(model, optax.sgd(0.1))
    names = tuple("0123456789")
    checkpoints = training.Checkpoints(
        tmp_path / "c", {"model": "logistic", "inputs": Preprocessing(28, 28, 1, names).to_json()}
    )
    checkpoints.save(state, None, training.History())
    checkpoints.close()
    assert "outputs are no finite numbers" in refused(capsys, f"--weights={tmp_path / 'c'}", png)


def test_what_cannot_be_saved_is_said_and_no_picture_is_overwritten(capsys, detector, tmp_path):
    for name in ("a.png", "a.jpg", "a.boxes.png"):
        Image.new("RGB", (64, 32), "white").save(tmp_path / name)
    before = (tmp_path / "a.boxes.png").read_bytes()
    start = [f"--weights={detector}", tmp_path / "a.png"]
    assert "would be overwritten" in refused(
        capsys, *start, tmp_path / "a.boxes.png", f"--output={tmp_path}"
    )
    assert "two of the pictures would be saved as" in refused(
        capsys, *start, tmp_path / "a.jpg", f"--output={tmp_path / 'o'}"
    )
    assert (tmp_path / "a.boxes.png").read_bytes() == before
    assert "cannot write" in refused(capsys, *start, f"--output={tmp_path / 'a.png'}")
    (tmp_path / "full" / "a.boxes.png").mkdir(parents=True)
    assert "cannot write" in refused(capsys, *start, f"--output={tmp_path / 'full'}")
    assert "the detector needs a multiple of 32" in refused(capsys, *start, "--image-size=33")


def test_help_imports_neither_jax_nor_flax():
    code = "import sys; from experiments import predict\ntry: predict.main(['--help'])\nexcept SystemExit: print([m for m in ('jax', 'flax', 'numpy') if m in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    ).stdout
    assert output.splitlines()[-1] == "[]" and "--weights" in output
