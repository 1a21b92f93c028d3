"""Printed and drawn boxes of a detector that always finds the same box."""

import dataclasses
import re

import numpy as np
import pytest
from PIL import Image

from jaxcnn import models
from tests.support.prediction import Detector, printed, refused, save_detector


@pytest.fixture
def detector(tmp_path, monkeypatch):
    """A checkpoint of `Detector`."""
    row = dataclasses.replace(models.MODELS["yolov2"], make=Detector)
    monkeypatch.setitem(models.MODELS, "detector", row)
    return save_detector(tmp_path / "detector")


@pytest.fixture
def white(tmp_path):
    """A white image of 64×32 pixels."""
    Image.new("RGB", (64, 32), "white").save(tmp_path / "white.png")
    return tmp_path / "white.png"


def test_a_box_is_printed_in_pixels_and_drawn(capsys, detector, white, tmp_path):
    folder = tmp_path / "new" / "folder"
    output = printed(capsys, f"--weights={detector}", white, f"--output={folder}")
    # the image has half its size in the square: the box is 32×16 pixels, in the center of 64×32
    assert re.search(r"^ *75\.00%  a dog +16 +8 +48 +24 *$", output, re.MULTILINE)
    assert f"boxes     {folder / 'white.boxes.png'}" in output
    with Image.open(folder / "white.boxes.png") as drawing:
        assert drawing.size == (64, 32)
        pixels = np.asarray(drawing)
    assert (pixels[24:] == 255).all() and (pixels[23, 16:48] != 255).any(axis=-1).all()


def test_boxes_with_a_low_score_are_not_shown(capsys, detector, white, tmp_path):
    options = [f"--weights={detector}", white, f"--output={tmp_path}"]
    assert "nothing" in printed(capsys, *options, "--score=0.76")
    output = printed(capsys, *options, "--score=0.74")
    assert "a dog" in output, "the image with boxes may be replaced"


def test_images_are_not_overwritten_and_a_folder_that_cannot_be_written_is_named(
    capsys, detector, tmp_path
):
    for name in ("a.png", "a.jpg", "a.boxes.png"):
        Image.new("RGB", (64, 32), "white").save(tmp_path / name)
    before = (tmp_path / "a.boxes.png").read_bytes()
    start = [f"--weights={detector}", tmp_path / "a.png"]
    error = refused(capsys, *start, tmp_path / "a.boxes.png", f"--output={tmp_path}")
    assert "would be overwritten" in error
    error = refused(capsys, *start, tmp_path / "a.jpg", f"--output={tmp_path / 'o'}")
    assert "two of the images would be saved as" in error
    assert (tmp_path / "a.boxes.png").read_bytes() == before
    assert "cannot write" in refused(capsys, *start, f"--output={tmp_path / 'a.png'}")
    (tmp_path / "full" / "a.boxes.png").mkdir(parents=True)
    assert "that is a folder" in refused(capsys, *start, f"--output={tmp_path / 'full'}")


def test_an_image_size_off_the_grid_is_refused(capsys, detector, white):
    error = refused(capsys, f"--weights={detector}", white, "--image-size=33")
    assert "a detector needs a multiple of 32" in error
