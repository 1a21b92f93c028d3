"""From image files to the device: samples by hand, and a real pipeline of JPEG files."""

import itertools

import numpy as np
import pytest
from PIL import Image

from experiments import run
from experiments.analysis import input_rate
from experiments.records import Record
from experiments.studies import input_pipeline
from experiments.studies.input_pipeline import BUFFERED, MIN_SAMPLES, sample_batches
from experiments.workloads import jpeg_files
from experiments.workloads.input_wait import InputWait, input_remark
from tests.support.clock import Clock
from tests.support.records import read_records


@pytest.mark.parametrize("workers", [0, 3])
def test_a_sample_is_the_mean_of_a_round_after_the_buffers_are_empty(workers):
    """Buffered batches arrive at once; then each takes two seconds."""
    clock, taken, sources = Clock(), [], max(workers, 1)

    def batches():
        for index in itertools.count():
            clock.now += 2.0 if index >= BUFFERED * sources else 0.0
            taken.append(index)
            yield index

    samples = sample_batches(batches(), workers, budget=1.0, clock=clock)
    assert samples == [2.0] * MIN_SAMPLES
    assert len(taken) == (BUFFERED + 2 * MIN_SAMPLES) * sources


def test_generated_files_are_like_photographs(tmp_path):
    jpeg_files.write_jpegs(tmp_path, 4)
    files = sorted(tmp_path.glob("*/*.jpg"))
    assert [file.parent.name for file in files] == ["class0", "class0", "class1", "class1"]
    assert all(50e3 < file.stat().st_size < 120e3 for file in files)
    with Image.open(files[0]) as first, Image.open(files[1]) as second:
        assert first.size == (500, 375) and first.mode == "RGB"
        assert not np.array_equal(np.asarray(first), np.asarray(second))


def test_records_by_number_of_workers(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(input_pipeline.BUDGETS, "quick", 0.05)
    monkeypatch.setitem(input_pipeline.FILES, "quick", 16)
    monkeypatch.setattr(input_pipeline, "worker_counts", lambda processors: [0, 1])
    arguments = ["--study=input_pipeline", "--image-size=32", "--batch-size=8", "--device=cpu:1"]
    assert run.main([*arguments, f"--results={tmp_path}"]) == 0
    records = sorted(
        read_records(tmp_path, "input_pipeline"), key=lambda record: record["settings"]["workers"]
    )
    assert [record["settings"]["workers"] for record in records] == [0, 1]
    for record in records:
        metrics = record["metrics"]
        assert metrics["images_per_second"] == pytest.approx(8 / metrics["call_time"])
        assert metrics["bytes_per_second"] == pytest.approx(8 * 32 * 32 * 3 / metrics["call_time"])
        assert "mfu_measured_peak" not in metrics and not record["provenance"]["remarks"]
    assert "images per second reach the device" in " ".join(capsys.readouterr().out.split())


def test_images_in_memory_and_batches_that_are_too_large(tmp_path, capsys):
    common = ["--study=input_pipeline", "--device=cpu:1", f"--results={tmp_path}"]
    assert run.main([*common, "--dataset=synthetic:64", "--batch-size=4096"]) == 2
    assert "has only 51 training images" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("input_pipeline/*.json"))


def test_bad_images_are_left_out_by_the_option_that_the_error_names(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(input_pipeline.BUDGETS, "quick", 0.01)
    monkeypatch.setattr(input_pipeline, "worker_counts", lambda processors: [0])
    images, results = tmp_path / "images", tmp_path / "results"
    jpeg_files.write_jpegs(images, 12)
    (images / "class0" / "bad.jpg").write_bytes(b"no image")
    arguments = ["--study=input_pipeline", "--image-size=8", "--batch-size=4", "--device=cpu:1"]
    arguments += [f"--dataset=folder:{images}", f"--results={results}"]
    assert run.main(arguments) == 2
    assert "--skip-bad-images" in capsys.readouterr().err
    assert run.main([*arguments, "--skip-bad-images"]) == 0
    (record,) = read_records(results, "input_pipeline")
    assert record["provenance"]["notes"] == [f"1 unreadable file(s) left out of {images}"]


def rate(workers, images_per_second):
    settings, metrics = {"workers": workers}, {"images_per_second": images_per_second}
    return Record("input_pipeline", str(workers), "ok", settings=settings, metrics=metrics)


def test_the_sentence_names_the_best_number_of_workers():
    (sentence,) = input_rate.conclusion([rate(0, 90.0), rate(1, 100.0), rate(4, 320.0)])
    assert sentence.startswith(
        "up to 320 images per second reach the device, read by 4 workers, 3.2 times as many"
    )
    (sentence,) = input_rate.conclusion([rate(0, 1200.0), rate(1, 100.0)])
    assert sentence.startswith("up to 1,200 images per second reach the device, read by threads")
    assert input_rate.conclusion([]) == []


class Result:
    """A result on the device that is ready after so many questions."""

    def __init__(self, answers):
        self.answers = list(answers)

    def is_ready(self):
        return self.answers.pop(0)


def test_only_the_time_in_which_the_device_is_idle_counts():
    clock = Clock()

    def batches():
        for seconds in (1.0, 2.0, 4.0, 8.0):
            clock.now += seconds
            yield seconds

    wait, source = InputWait(clock), batches()
    wait.next(source, None)
    assert wait.seconds == 1.0  # no step yet
    wait.next(source, Result([False, False]))
    assert wait.seconds == 1.0  # the device was busy all the time
    wait.next(source, Result([False, True]))
    assert wait.seconds == 3.0  # it ended at some time meanwhile
    wait.next(source, Result([True, True]))
    assert wait.seconds == 11.0


def test_a_training_that_waits_for_its_input_says_so(tmp_path, capsys, monkeypatch):
    arguments = ["--model=logistic", "--dataset=synthetic:200", "--batch-size=20", "--epochs=2"]
    arguments += ["--pipeline=streamed", "--workers=0", "--device=cpu:1", f"--results={tmp_path}"]
    assert run.main([*arguments, "--study=train"]) == 0
    (record,) = read_records(tmp_path, "train")
    share = record["metrics"]["input_wait_share"]
    assert 0 <= share <= 1
    is_remarked = any(text.startswith("input-bound") for text in record["provenance"]["remarks"])
    assert is_remarked == (share >= 0.1)
    assert "in 40% of the training; try more than 2 --workers" in input_remark(0.4, 2)
