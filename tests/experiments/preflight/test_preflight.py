"""The command line of the preflight, with the real TPU compiler, which needs no TPU."""

import json

import pytest

from experiments import records
from experiments.preflight import compiler as compilers
from experiments.preflight import libraries, target_groups, targets
from experiments.preflight.__main__ import main, make_cases, parse
from experiments.preflight.result import LOWEST, CompileResult
from experiments.studies import preflight
from tests.support.preflight import needs_cuda, needs_libtpu, run


@pytest.mark.parametrize(
    ("effort", "level", "name"), [("quick", LOWEST, "lowest"), ("full", "", "the compiler's own")]
)
def test_the_effort_is_the_level_of_the_compiler(effort, level, name, tmp_path, monkeypatch):
    levels = []

    class FakeCompiler(compilers.Compiler):
        def __call__(self, request):
            levels.append(request.level)
            return CompileResult("compiled", seconds=1.0)

    monkeypatch.setattr(preflight, "Compiler", FakeCompiler)
    options = ["--target=cpu", "--model=logistic", "--fixed-batch", f"--effort={effort}"]
    _, (record,) = run(tmp_path, *options)
    assert levels == [level] and record.provenance["level"] == name
    assert record.settings["effort"] == effort


@needs_libtpu
def test_a_small_network_is_compiled_for_one_chip(tmp_path, capfd):
    code, (record,) = run(tmp_path, "--target=tpu-v5e-1", "--model=logistic", "--batch-size=64")
    output, errors = capfd.readouterr()
    assert code == 0 and record.status == "predicted" and record.study == "preflight"
    assert errors == "", "libtpu's warnings mean nothing here"
    metrics, provenance = record.metrics, record.provenance
    assert provenance["device_kind"] == "TPU v5 lite" and not provenance["simulated"]
    assert provenance["compiler"].startswith("libtpu ")
    assert metrics["memory_available"] == 15.75 * 2**30 and 0 < metrics["memory_planned"] < 2**30
    # forward 2 × 784 × 10 per image; backward only the gradient of the weights of the only layer
    assert metrics["flops_per_step"] == 64 * 2 * 2 * 7840
    assert metrics["largest_batch"] == 2**17 and "smallest_refused_batch" not in metrics
    assert metrics["images_per_second_bound"] * metrics["step_time_bound"] == pytest.approx(64)
    rate, seconds = metrics["images_per_second_estimate"], metrics["step_time_estimate"]
    assert rate * seconds == pytest.approx(64)
    assert metrics["step_time_bound"] < metrics["step_time_estimate_low"] < seconds
    for words in (
        "15.75 GiB",
        "a batch of 131,072 fits, more was not tried",
        "estimate",
        "at best",
        "of the definition's FLOPs",
        "costs",
    ):
        assert words in output, words


@needs_libtpu
def test_several_chips_sum_their_gradients_under_both_strategies(tmp_path, capfd):
    """7850 gradients, the loss, and the numbers of correct and of all examples: 4 B each."""
    code, loaded = run(
        tmp_path,
        "--target=tpu-v5e-4,tpu-v6e-4",
        "--model=logistic",
        "--strategy=data,pmap",
        "--precision=float32",
        "--fixed-batch",
    )
    assert code == 0 and len(loaded) == 4
    # per chip: images in; weights and their two Adam moments in and out; the rest is small
    traffic = 4 * (32 * 784 + 6 * 4 * 7850)
    for record in loaded:
        metrics, provenance = record.metrics, record.provenance
        assert provenance["strategy_devices"] == 4
        assert metrics["bytes_per_step"] == pytest.approx(traffic, rel=0.01)
        exchanged = metrics["bytes_exchanged"]
        assert 4 * 7850 <= exchanged <= 4 * 7850 + 64, provenance["collectives"]
        assert 0 < metrics["communication_share_estimate"] < 1
    assert "4/4  logistic on tpu-v6e-4" in capfd.readouterr().out
    (target, *_) = targets.find("tpu-v6e-4")
    assert target.devices == 4


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
    assert code == 0 and record.metrics["bytes_exchanged"] >= 4 * 7850
    assert 0 < record.metrics["communication_share_estimate"] < 1


@needs_libtpu
@pytest.mark.parametrize(
    ("target", "devices", "memory"), [("v4-8", 4, 30.75), ("tpu-7x-1", 2, 94.74)]
)
def test_other_tpus_are_planned_as_cloud_tpus_run_them(tmp_path, target, devices, memory):
    code, (record,) = run(tmp_path, f"--target={target}", "--model=logistic", "--fixed-batch")
    assert code == 0 and record.provenance["device_count"] == devices
    assert record.metrics["memory_available"] / 2**30 == pytest.approx(memory, abs=0.02)


@needs_libtpu
def test_a_program_that_the_compiler_cannot_print_is_compiled_all_the_same(tmp_path, capfd):
    """Libtpu 0.0.52 cannot print LeNet-5 for a TPU7x, libtpu 0.0.42 can."""
    code, (record,) = run(tmp_path, "--target=tpu-7x-1", "--model=lenet5", "--fixed-batch")
    assert code == 0 and record.status == "predicted"
    output = capfd.readouterr().out
    is_unknown = "note      compiled, collectives unknown" in output
    assert is_unknown != ("all-reduce" in output)
    assert is_unknown != bool(record.provenance["collectives"])


def test_without_a_compiler_a_program_is_only_lowered(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(libraries, "version", {"jaxlib": "1", "jax": "1"}.get)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Linux")
    code, loaded = run(
        tmp_path, "--target=tpu-v5e-4,gpu-t4", "--model=logistic", "--strategy=data,pmap"
    )
    assert code == 1 and [record.status for record in loaded] == ["unsupported"] * 4
    for record in loaded:
        assert record.provenance["state"] == "lowered"
        assert "memory_planned" not in record.metrics and record.metrics["flops_per_step"]
    output = capfd.readouterr().out
    install = "no TPU compiler is installed (libtpu): pip install -e '.[preflight]'"
    assert f"lowered only: {install}" in output
    assert "pip install -e '.[cuda13]' (4 GB" in output


def test_the_cpu_of_this_machine_is_a_target_too(tmp_path):
    code, (record,) = run(
        tmp_path, "--target=cpu-4", "--model=logistic", "--strategy=pmap", "--precision=float32"
    )
    assert code == 0 and record.metrics["bytes_exchanged"] >= 4 * 7850
    assert "step_time_bound" not in record.metrics and "largest_batch" not in record.metrics


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target=tpu-v5e-5",), "slices of v5e have 1, 4, 8"),
        (("--target=tpu-v5e:3x3",), "v5e has no slice of 3x3"),
        (("--model=lenet6",), "did you mean 'lenet5'"),
        (("--strategy=date",), "unknown strategy 'date': did you mean 'data'"),
        (("--precision=float8",), "unknown precision 'float8'"),
        (
            ("--target=tpu-v5e-4", "--batch-size=6"),
            "batch size 6 does not divide among the 4 devices of tpu-v5e-4",
        ),
        (("--batch-size=0",), "--batch-size=0: must be from 1 to"),
        (("--price=free",), "write US dollars per hour"),
        (("--price=1/h", "--prices=x"), "give one of them"),
        (("--prices=nowhere.toml",), "--prices=nowhere.toml: cannot be read"),
        (
            ("--target=cpu", "--model=vgg11", "--image-size=8"),
            "model 'vgg11' cannot take images of 8×8",
        ),
        (("--target=cpu", "--model=logistic,vgg11", "--image-size=64,8"), "images of 8×8"),
        (("--target=cpu", "--batch-size=8,0"), "--batch-size=0: must be from 1 to"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_no_record(tmp_path, capfd, options, message):
    assert main([f"--results={tmp_path / 'results'}", *options]) == 2
    error = capfd.readouterr().err
    assert message in error and error.count("\n") == 1 and error.startswith("error: ")
    assert not list((tmp_path / "results").glob("*/*.json"))


def test_the_default_asks_for_its_extra_in_one_line(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(libraries, "version", lambda package: None)
    monkeypatch.setattr(libraries.platform, "system", lambda: "Linux")
    monkeypatch.setattr(libraries.platform, "machine", lambda: "x86_64")
    assert main([f"--results={tmp_path / 'results'}", "--model=logistic"]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: --target=colab: no TPU compiler is installed (libtpu): ")
    assert "pip install -e '.[preflight]'" in error and "'.[cuda13]'" in error
    assert error.count("\n") == 1 and not (tmp_path / "results").exists()


def test_stdout_is_one_document_with_the_records_as_in_their_files(tmp_path, capfd):
    options = ("--target=cpu", "--model=logistic", "--batch-size=8,16", "--json")
    code, loaded = run(tmp_path, *options)
    output, errors = capfd.readouterr()
    document = json.loads(output)
    assert code == document["exit_code"] == 0 and len(loaded) == 2
    assert document["records"] == [records.to_json(record) for record in loaded]
    assert "2 of 2 programs compile and fit" in errors
    assert main(["--list-targets", "--json"]) == 2
    output, errors = capfd.readouterr()
    assert output == "" and "--json goes with compiling" in errors


def test_batch_and_image_sizes_may_be_lists():
    configs = parse(["--batch-size=8,16,8", "--model=logistic,mlp", "--image-size=28,32"])
    sizes = [(config.batch_size, config.image_size) for config in configs]
    assert sizes == [(8, 28), (8, 32), (16, 28), (16, 32)]
    assert {config.model for config in configs} == {"logistic,mlp"}
    cases = [case for config in configs for case in make_cases(config)]
    points = {(case.settings["model"], case.settings["batch_size"]) for case in cases}
    assert len(cases) == 2 * 2 * 2 * len(target_groups.COLAB)
    assert points == {("logistic", 8), ("logistic", 16), ("mlp", 8), ("mlp", 16)}


def test_targets_are_listed_with_their_compilers(capfd):
    assert main(["--list-targets"]) == 0
    output = capfd.readouterr().out
    for words in ("tpu-v2-64", "tpu-v5e-256", "gpu-mx150", "jaxlib", "colab: tpu-v5e-1, gpu-t4"):
        assert words in output, words
