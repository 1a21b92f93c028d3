"""Files that users give: pictures, weights, checkpoints and TOML, damaged or of another kind."""

import io
import os
import random
import shutil
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from experiments import predict, run
from jaxcnn import content_digests, data, weights
from jaxcnn.data import folder
from jaxcnn.data.folder import read_rgb
from jaxcnn.errors import InputError
from tests.support import attacks
from tests.support.prediction import train_checkpoint, write_noise

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(/tmp/x) (w) file pop showpage\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return train_checkpoint(tmp_path_factory.mktemp("results"))


def picture(kind: str) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, kind)
    return content.getvalue()


def flipped(content: bytes, rng: random.Random) -> bytes:
    """The content with one bit of a random byte changed."""
    position = rng.randrange(len(content))
    byte = content[position] ^ (1 << rng.randrange(8))
    return content[:position] + bytes([byte]) + content[position + 1 :]


@pytest.mark.filterwarnings("ignore")
def test_damaged_pictures_are_read_or_refused(tmp_path, capsys):
    rng, outcomes = random.Random(2), Counter()
    for kind in folder.FORMATS:
        if kind in ("JPEG2000", "TGA"):
            continue  # written by other means
        content, file = picture(kind), tmp_path / "picture"
        for _ in range(attacks.number(10, 300)):
            file.write_bytes(flipped(content[: rng.randrange(1, len(content) + 1)], rng))
            try:
                image = read_rgb(file)
            except (OSError, ValueError, SyntaxError):
                outcomes["refused"] += 1
            else:
                outcomes["read"] += 1
                assert image.dtype == np.uint8 and image.shape[2] == 3
    attacks.report(capsys, "damaged pictures", outcomes)


@pytest.mark.parametrize("name", ["picture.jpg", "picture.eps", "picture.png"])
def test_postscript_starts_no_program(name, tmp_path, monkeypatch):
    def started(*arguments, **options):
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen.__init__", started)
    monkeypatch.setattr("subprocess.check_call", started)
    (tmp_path / name).write_bytes(EPS)
    with pytest.raises(OSError, match="cannot identify image file"):
        read_rgb(tmp_path / name)


def test_files_of_other_formats_are_not_part_of_a_dataset(tmp_path):
    for label in ("cat", "dog"):
        for number in range(5):
            (tmp_path / label).mkdir(exist_ok=True)
            Image.new("RGB", (4, 4)).save(tmp_path / label / f"{number}.png")
    (tmp_path / "cat" / "script.eps").write_bytes(EPS)
    (tmp_path / "cat" / "page.pdf").write_bytes(b"%PDF-1.4")
    dataset = data.open_dataset(f"folder:{tmp_path}", shape=(4, 4, 3))
    assert len(dataset.train) + len(dataset.test) == 10


@pytest.mark.filterwarnings("ignore:Image size")
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    Image.new("1", (10_001, 10_000)).save(tmp_path / "large.png")
    with pytest.raises(ValueError, match="10001×10000 pixels are more than 89 million"):
        read_rgb(tmp_path / "large.png")


def test_a_picture_with_pixels_that_are_not_numbers_is_refused(tmp_path):
    pixels = np.ones((4, 4), np.float32)
    pixels[1, 2] = np.nan
    Image.fromarray(pixels).save(tmp_path / "nan.tiff")
    with pytest.raises(ValueError, match="pixels that are not finite"):
        read_rgb(tmp_path / "nan.tiff")


@pytest.mark.filterwarnings("ignore")
def test_a_bit_flipped_in_any_file_of_a_checkpoint_is_noticed(checkpoint, tmp_path, capsys):
    rng, outcomes = random.Random(3), Counter()
    expected = weights.read_checkpoint(checkpoint)
    (save,) = (checkpoint / "best").glob("[0-9]*")
    files = sorted(file for file in save.rglob("*") if file.is_file() and file.stat().st_size)
    for _ in range(attacks.number(12, 200)):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(checkpoint, copy)
        file = copy / rng.choice(files).relative_to(checkpoint)
        file.write_bytes(flipped(file.read_bytes(), rng))
        try:
            arrays = weights.read_checkpoint(copy)
        except InputError as error:
            assert file.name in str(error) and "\n" not in str(error)
            outcomes["noticed"] += 1
        else:
            same = all(np.array_equal(arrays[name], expected[name]) for name in expected)
            outcomes["without effect" if same else "UNNOTICED"] += 1
    attacks.report(capsys, "flipped bits in checkpoints", outcomes)
    assert outcomes["UNNOTICED"] == outcomes["without effect"] == 0


@pytest.mark.parametrize("damage", ["added", "missing", "digests"])
def test_files_of_a_checkpoint_that_come_and_go_are_noticed(damage, checkpoint, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    (save,) = (copy / "best").glob("[0-9]*")
    file = next(file for file in save.rglob("*") if file.is_file())
    if damage == "added":
        (file.parent / "more").write_text("")
    if damage == "missing":
        file.unlink()
    if damage == "digests":
        (copy / "digests" / f"best-{save.name}.json").write_text("[]")
    with pytest.raises(InputError, match="is damaged"):
        weights.read_checkpoint(copy)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ending", [".weights", ".safetensors"])
def test_damaged_weights_are_refused(ending, tmp_path, capsys):
    rng, outcomes, image = random.Random(4), Counter(), write_noise(tmp_path / "noise.png")
    for _ in range(attacks.number(8, 300)):
        size = rng.choice((0, 1, 7, 8, 16, 20, 100, 5000))
        header = rng.choice((b"", (2**63).to_bytes(8, "little"), (16).to_bytes(8, "little")))
        file = tmp_path / f"file{ending}"
        file.write_bytes(header + rng.randbytes(size))
        code = predict.main([f"--weights={file}", "--model=darknet19", str(image)])
        error = capsys.readouterr().err
        outcomes[f"exit code {code}"] += 1
        assert code == 2 and attacks.one_line_error(error), error
    attacks.report(capsys, f"damaged {ending} files", outcomes)


TOML = (
    "",
    "=",
    "batch_size = ",
    "batch_size = [[[[[[1]]]]]]",
    "batch_size = 1e400",
    "batch_size = 99999999999999999999999999",
    "unknown = 1",
    'model = "\\u001b[31m"',
    "a.b.c.d.e = 1",
    "batch_size = true",
    "batch_size = 2026-01-01",
    "batch_size = nan",
    "[" * 5000,
    "batch_size = " + "[" * 3000,
    'batch_size = "' + "x" * 1_000_000 + '"',
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("option", ["config", "prices", "devices"])
def test_toml_of_any_content_is_used_or_refused(option, tmp_path, capsys):
    contents = [text.encode() for text in TOML] + [b"\xff\xfe", b"\x00"]
    for content in contents:
        (tmp_path / "file.toml").write_bytes(content)
        code = run.main(["--dry-run", f"--results={tmp_path}", f"--{option}={tmp_path}/file.toml"])
        error = capsys.readouterr().err
        assert code in (0, 2), (content[:40], error)
        assert code == 0 or attacks.one_line_error(error), (content[:40], error[:300])


def test_a_digest_follows_the_content_and_not_the_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("one")
    first = content_digests.path_digest(files)
    assert content_digests.path_digest(files) == first
    os.replace(files / "a", files / "b")
    renamed = content_digests.path_digest(files)
    (files / "b").write_text("two")  # the same length
    assert len({first, renamed, content_digests.path_digest(files)}) == 3


def test_digests_are_kept_as_soon_as_they_are_known(tmp_path, monkeypatch):
    """What was read before a run is killed is not read again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = tmp_path / "files"
    files.mkdir()
    for name in "ab":
        (files / name).write_text(name)
    with content_digests._digest_table() as connection:
        content_digests._digest(files / "a", connection)
        with content_digests._digest_table() as another:
            assert another.execute("select count(*) from digests").fetchone() == (1,)


def test_other_weights_under_the_same_path_are_another_case(checkpoint, tmp_path):
    from experiments.studies import train_cases
    from jaxcnn import backend

    copy = tmp_path / "weights"
    shutil.copytree(checkpoint, copy)
    config = run.RunConfig(study="train", dataset="digits", init_from=str(copy))
    devices = backend.select("cpu").first(1)
    (before,) = train_cases.cases(config, devices)
    (copy / "identity.json").write_text((copy / "identity.json").read_text() + " ")
    (after,) = train_cases.cases(config, devices)
    assert before.settings["init_from"] == after.settings["init_from"]
    assert before.settings["init_from_digest"] != after.settings["init_from_digest"]
    shutil.rmtree(copy)
    with pytest.raises(InputError, match="there is no such file or folder"):
        train_cases.cases(config, devices)
