"""The command line of the preflight, with the real TPU compiler on small networks; it needs no TPU."""

import dataclasses
import json
import os
import time

import pytest

from experiments import records
from experiments.preflight import compiler as compilers
from experiments.preflight import libraries, targets
from experiments.preflight.__main__ import main
from experiments.preflight.program import ProgramSpec
from experiments.preflight.result import CompileRequest, CompileResult
from jaxcnn.errors import InputError

needs_libtpu = pytest.mark.skipif(
    not libraries.version("libtpu"), reason="libtpu comes for Linux alone"
)
V5E = targets.target("tpu-v5e-1")
T4 = targets.target("gpu-t4")
needs_cuda = pytest.mark.skipif(
    not libraries.compiler(T4), reason="no CUDA packages: pip install -e '.[cuda13]'"
)
SMALL = ProgramSpec("logistic", 128, "jit", "float32", 28)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test finds what another compiled."""
    monkeypatch.setattr(compilers, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def run(tmp_path, *options: str) -> tuple[int, list[records.Record]]:
    code = main([f"--results={tmp_path / 'results'}", *options])
    found, problems = records.load([tmp_path / "results"])
    assert problems == []
    return code, found


@needs_libtpu
def test_a_small_network_is_compiled_for_one_chip(tmp_path, capfd):
    code, (record,) = run(tmp_path, "--target=tpu-v5e-1", "--model=logistic", "--batch-size=64")
    said, errors = capfd.readouterr()
    assert code == 0 and record.status == "predicted" and record.study == "preflight"
    assert errors == "", "libtpu's warnings mean nothing here"
    found, told = record.metrics, record.provenance
    assert (
        told["device_kind"] == "TPU v5 lite"
        and told["compiler"].startswith("libtpu ")
        and not told["simulated"]
    )
    assert found["memory_available"] == 15.75 * 2**30 and 0 < found["memory_planned"] < 2**30
    # forward 2 × 784 × 10 an image; backward only the gradient of the weights, for nothing comes before the layer
    assert found["flops_per_step"] == 64 * 2 * 2 * 7840
    assert found["largest_batch"] == 2**17 and "smallest_refused_batch" not in found
    assert found["images_per_second_bound"] * found["step_time_bound"] == pytest.approx(64)
    for words in (
        "15.75 GiB",
        "a batch of 131,072 fits, more was not tried",
        "at best",
        "costs",
        "an estimate",
    ):
        assert words in said, words


@needs_libtpu
def test_several_chips_sum_their_gradients_under_both_strategies(tmp_path, capfd):
    """7850 parameters, the loss, the correct and the counted: 4 B each."""
    asked = (
        "--target=tpu-v5e-4,tpu-v6e-4",
        "--model=logistic",
        "--strategy=data,pmap",
        "--precision=float32",
        "--fixed-batch",
    )
    code, found = run(tmp_path, *asked)
    assert code == 0 and len(found) == 4
    for record in found:
        assert record.provenance["strategy_devices"] == 4
        # of each chip: images in, weights in and out with their two Adam moments; labels, keys and counters are the rest
        assert record.metrics["bytes_per_step"] == pytest.approx(
            4 * (32 * 784 + 6 * 4 * 7850), rel=0.01
        )
        assert 4 * 7850 <= record.metrics["bytes_exchanged"] <= 4 * 7850 + 64, record.provenance[
            "collectives"
        ]
        assert (
            0
            < record.metrics["scaling_efficiency_unhidden"]
            < record.metrics["scaling_efficiency_bound"]
            <= 1
        )
    assert "4/4  logistic on tpu-v6e-4" in capfd.readouterr().out
    (column, *_) = targets.find("tpu-v6e-4")
    assert column.devices == 4


@needs_libtpu
def test_what_does_not_fit_is_refused_in_the_compilers_own_figures(tmp_path, capfd):
    code, (record,) = run(
        tmp_path, "--target=tpu-v5e-1", "--model=mlp", "--batch-size=67108864", "--fixed-batch"
    )
    assert code == 1 and record.status == "out_of_memory"
    assert record.metrics["memory_planned"] > record.metrics["memory_available"] == 15.75 * 2**30
    assert (
        "GiB wanted on a device, 15.75 GiB there" in record.message
        and record.message in capfd.readouterr().out
    )


@needs_libtpu
@pytest.mark.slow
def test_cats_versus_dogs_at_4096_is_refused_and_how_many_fit(tmp_path):
    """A1 needs 14 GB for its temporaries at 512, by the same compiler, so that fits and 1024 does not."""
    asked = (
        "--target=tpu-v5e-1",
        "--model=cats_vs_dogs",
        "--batch-size=4096",
        "--precision=bfloat16",
    )
    code, (record,) = run(tmp_path, *asked)
    assert code == 1 and record.status == "out_of_memory"
    assert record.metrics["memory_available"] == 15.75 * 2**30 and record.metrics[
        "memory_planned"
    ] == pytest.approx(67 * 2**30, rel=0.05)
    assert 512 <= record.metrics["largest_batch"] < record.metrics["smallest_refused_batch"] <= 1024


@needs_cuda
def test_a_gpu_compiler_needs_no_gpu(tmp_path):
    code, (record,) = run(
        tmp_path, "--target=gpu-t4", "--model=logistic", "--batch-size=64", "--precision=float16"
    )
    assert code == 0 and record.provenance["device_kind"] == "Tesla T4"
    assert record.metrics["memory_available"] == 0.75 * 15_843_721_216
    assert 64 * 784 < record.metrics["memory_planned"] < 2**24


@needs_cuda
def test_gpus_of_one_machine_sum_their_gradients(tmp_path):
    code, (record,) = run(
        tmp_path, "--target=gpu-h100-4", "--model=logistic", "--precision=float32", "--fixed-batch"
    )
    assert (
        code == 0
        and record.metrics["bytes_exchanged"] >= 4 * 7850
        and record.metrics["scaling_efficiency_bound"] <= 1
    )


@needs_libtpu
def test_the_same_case_is_not_compiled_again(tmp_path, cache):
    asked = ("--target=tpu-v5e-1", "--model=logistic", "--fixed-batch")
    run(tmp_path, *asked)
    (kept,) = cache.iterdir()
    assert json.loads(kept.read_text())["state"] == "compiled"
    assert len(run(tmp_path, *asked)[1]) == 1, "the record is there"
    _, found = run(tmp_path, *asked, "--batch-size=128", "--price=2/h", "--force")
    assert [record.provenance["compilations"] for record in found] == [1, 1], (
        "forced, it is compiled again"
    )
    with compilers.Compiler(V5E, time_limit=1.0) as compiler:
        assert (
            compiler(
                CompileRequest(ProgramSpec("logistic", 128, "jit", "float32", 28), V5E, counts=True)
            ).state
            == "compiled"
        )
        assert compiler.asked == 0, "remembered: no process was started"


@needs_libtpu
def test_a_shape_that_no_slice_has_is_the_compilers_to_refuse(tmp_path):
    code, (record,) = run(
        tmp_path, "--target=tpu-v5e:3x7", "--model=logistic", "--strategy=jit", "--fixed-batch"
    )
    assert (
        code == 1
        and record.status == "failed"
        and "not divisible" in record.message
        and "\n" not in record.message
    )


def test_without_a_compiler_it_is_lowered_and_said_what_to_install(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(libraries, "version", {"jaxlib": "1", "jax": "1"}.get)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Linux")
    code, found = run(
        tmp_path, "--target=tpu-v5e-4,gpu-t4", "--model=logistic", "--strategy=data,pmap"
    )
    assert code == 1 and [record.status for record in found] == ["unsupported"] * 4
    assert {record.provenance["state"] for record in found} == {"lowered"}
    assert all(
        "memory_planned" not in record.metrics and record.metrics["flops_per_step"]
        for record in found
    )
    said = capfd.readouterr().out
    assert (
        "lowered only: no TPU compiler is installed (libtpu): pip install -e '.[preflight]'" in said
    )
    assert "pip install -e '.[cuda13]' (4 GB" in said


def test_the_processor_here_is_a_target_too(tmp_path):
    code, (record,) = run(
        tmp_path, "--target=cpu-4", "--model=logistic", "--strategy=pmap", "--precision=float32"
    )
    assert code == 0 and record.metrics["bytes_exchanged"] >= 4 * 7850
    assert "step_time_bound" not in record.metrics and "largest_batch" not in record.metrics


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target=tpu-v5e-5",), "slices of v5e have 1, 4, 8"),
        (("--model=lenet6",), "did you mean 'lenet5'"),
        (("--strategy=date",), "unknown strategy 'date': did you mean 'data'"),
        (("--precision=float8",), "unknown precision 'float8'"),
        (
            ("--target=tpu-v5e-4", "--batch-size=6"),
            "batch size 6 does not divide among the 4 devices of tpu-v5e-4",
        ),
        (("--batch-size=0",), "--batch-size=0: must be 1 or more"),
        (("--price=free",), "write US dollars an hour"),
        (("--price=1/h", "--prices=x"), "give one of them"),
        (("--prices=nowhere.toml",), "--prices=nowhere.toml: cannot be read"),
        (
            ("--target=cpu", "--model=vgg11", "--image-size=8"),
            "model 'vgg11' cannot take images of 8×8",
        ),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(tmp_path, capfd, options, message):
    assert main([f"--results={tmp_path / 'results'}", *options]) == 2
    said = capfd.readouterr().err
    assert message in said and said.count("\n") == 1 and said.startswith("error: ")
    assert not list((tmp_path / "results").glob("*/*.json"))


def test_targets_are_listed_with_their_compilers(capfd):
    assert main(["--list-targets"]) == 0
    said = capfd.readouterr().out
    for words in ("tpu-v2-64", "tpu-v5e-256", "gpu-mx150", "jaxlib", "colab: tpu-v5e-1, gpu-t4"):
        assert words in said, words


def serve_a_crash(connection, log, devices):
    connection.recv()
    with open(log, "w") as file:
        file.write("some line\nterribly wrong\n")
    os.abort()


def serve_a_hang(connection, log, devices):
    connection.recv()
    time.sleep(600)


@pytest.mark.parametrize(
    ("serve", "limit", "message"),
    [
        (serve_a_crash, 60.0, "the compiler's process ended with signal 6: terribly wrong"),
        (serve_a_hang, 3.0, "compiling took longer than 3 s (--time-limit)"),
    ],
)
def test_a_compiler_that_crashes_or_hangs_is_a_row(monkeypatch, cache, serve, limit, message):
    monkeypatch.setattr(compilers, "serve", serve)
    with compilers.Compiler(V5E, time_limit=limit) as compiler:
        found = compiler(CompileRequest(SMALL, V5E))
        assert (found.state, found.message) == ("failed", message)
    assert not cache.exists(), "a failure is not remembered"


def test_an_outcome_comes_back_from_its_file():
    result = CompileResult("compiled", flops=3, there=2.0, seconds=1.0)
    assert CompileResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    with pytest.raises(ValueError, match="unknown state 'nearly'"):
        CompileResult("nearly")
    assert dataclasses.replace(result, wanted=5.0).needed == 5.0


def test_input_that_only_the_program_can_judge_is_raised_here():
    with (
        compilers.Compiler(targets.target("cpu"), time_limit=60.0) as compiler,
        pytest.raises(InputError, match="8×8"),
    ):
        compiler(
            CompileRequest(ProgramSpec("vgg11", 8, "jit", "float32", 8), targets.target("cpu"))
        )
