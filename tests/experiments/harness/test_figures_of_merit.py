"""Figures of merit, utilisation and notes of a run; messages about bad prices and devices."""

import json
import signal

import jax
import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.harness import figures_of_merit
from experiments.harness.study import Case, CaseResult
from experiments.measure import utilisation
from experiments.measure.sources import DetectedSources, Quantity, Source
from experiments.microbenchmarks import peak
from experiments.microbenchmarks.peak import Peak
from experiments.preflight import targets
from experiments.studies.preflight_records import price_of_chip
from jaxcnn.backend import Backend
from jaxcnn.chips import cpu_name

TRAIN = [
    "--study=train",
    "--device=cpu:1",
    "--model=logistic",
    "--dataset=synthetic:200",
    "--epochs=2",
    "--batch-size=20",
]


def only_record(results, study: str = "train") -> dict:
    (path,) = (results / study).glob("*.json")
    return json.loads(path.read_text())


def test_a_price_adds_costs_and_flops_per_dollar_to_terminal_and_report(tmp_path, capsys):
    assert (
        run.main([*TRAIN, "--price=3.6/h", "--target-accuracy=0.0001", f"--results={tmp_path}"])
        == 0
    )
    metrics = only_record(tmp_path)["metrics"]
    # 3.6 dollars per hour are a thousandth of a dollar per second
    assert metrics["flops_per_dollar"] == pytest.approx(metrics["flops_per_second"] * 1000)
    assert metrics["cost_to_target"] == pytest.approx(metrics["time_to_target"] / 1000)
    assert metrics["cost_per_million_images"] == pytest.approx(
        1e6 / metrics["images_per_second"] / 1000
    )
    assert metrics["mfu_measured_peak"] == pytest.approx(
        metrics["flops_per_second"] / metrics["peak_measured"]
    )
    assert "mfu" not in metrics, "a CPU has no published peak"
    printed, page = capsys.readouterr().out, (tmp_path / "report.html").read_text()
    for text in ("FLOP/$", "$/h", "mfu measured peak", "roofline share"):
        assert text in page, text
    assert (
        "flops_per_dollar" in printed and "FLOP/$" in printed and "note: price: --price" in printed
    )


def test_three_counts_of_flops_agree_for_a_dense_network(tmp_path):
    assert run.main([*TRAIN, f"--results={tmp_path}"]) == 0
    metrics = only_record(tmp_path)["metrics"]
    assert metrics["flops_per_step"] == metrics["closed_form_flops_per_step"] == 2 * 20 * 2 * 7840
    assert (
        metrics["compiler_flops_per_step"] > 0
        and metrics["memory_planned"] > 0
        and metrics["memory_peak"] > 0
    )
    assert metrics["step_time_low"] <= metrics["step_time"] <= metrics["step_time_high"]


def test_the_record_has_the_utilisation_of_every_phase(tmp_path):
    assert run.main([*TRAIN, f"--results={tmp_path}"]) == 0
    usage = only_record(tmp_path)["utilisation"]
    assert list(dict.fromkeys(phase["name"] for phase in usage["phases"])) == [
        "idle",
        "preparing",
        "training",
        "validation",
        "saving",
        "testing",
    ]
    names = {series["name"]: series for series in usage["series"]}
    assert names["cpu"]["unit"] == "%" and names["cpu"]["source"]
    assert names["memory_process"]["values"] and "tpu0_utilisation" not in names


def test_energy_follows_from_the_mean_power_of_training(tmp_path, monkeypatch):
    source = Source("NVML gpu0", lambda _: {Quantity("gpu0_power", "W"): 50.0})
    sources = DetectedSources((source,), ("gpu0",))
    monkeypatch.setattr(utilisation, "detect_sources", lambda devices: sources)
    assert run.main([*TRAIN, "--target-accuracy=0.01", f"--results={tmp_path}"]) == 0
    metrics = only_record(tmp_path)["metrics"]
    assert metrics["power"] == pytest.approx(50)
    assert metrics["energy_to_target"] == pytest.approx(50 * metrics["time_to_target"])
    assert metrics["flops_per_joule"] == pytest.approx(metrics["flops_per_second"] / 50)


def test_a_source_that_fails_during_a_run_becomes_a_note(tmp_path, monkeypatch, capsys):
    reads = []

    def read(_):
        reads.append(None)
        if len(reads) > 2:
            raise OSError("the driver went away")
        return {Quantity("gpu0_power", "W"): 50.0}

    monkeypatch.setattr(
        utilisation,
        "detect_sources",
        lambda devices: DetectedSources((Source("NVML gpu0", read),), ("gpu0",)),
    )
    assert run.main([*TRAIN, f"--results={tmp_path}"]) == 0
    (problem,) = only_record(tmp_path)["utilisation"]["problems"]
    assert "NVML gpu0" in problem and "the driver went away" in problem
    assert f"note: {problem}" in capsys.readouterr().out


def test_an_unknown_gpu_has_no_mfu_but_instructions_to_add_it():
    class Gpu:
        device_kind, platform = "NVIDIA H800", "gpu"

    figures, sources = figures_on(Gpu(), RunConfig())
    assert "mfu" not in figures and "price_per_hour" not in figures
    assert figures["mfu_measured_peak"] == pytest.approx(0.5)
    assert (
        sources["device_row"].startswith("'NVIDIA H800' is not in the device table")
        and "--devices=FILE" in sources["device_row"]
    )


def test_a_known_gpu_is_compared_with_its_published_peak():
    class Gpu:
        device_kind, platform = "Tesla T4", "gpu"

    figures, sources = figures_on(Gpu(), RunConfig(precision="float16"))
    assert sources["device_row"] == "T4"
    assert figures["mfu"] == pytest.approx(1e12 / 65e12)
    assert figures["flops_per_joule_data_sheet"] == pytest.approx(1e12 / 70)


def figures_on(device, config: RunConfig):
    """Figures of a step of 1 TFLOP in one second on a device whose measured peak is 2 TFLOP/s."""
    result = CaseResult(
        {"flops_per_step": 1e12, "bytes_per_step": 1e9, "step_time": 1.0, "flops_per_second": 1e12}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peak, "measure_peak", lambda *_: Peak(2e12, 1e11, 1024, None))
        return figures_of_merit.compute(Case(config, {}, ()), result, Backend("gpu", (device,)))


def test_a_result_stands_when_its_figures_of_merit_cannot_be_computed(
    tmp_path, monkeypatch, capsys
):
    def run_out_of_memory(*_):
        raise MemoryError("no room for matrices")

    monkeypatch.setattr(peak, "measure_peak", run_out_of_memory)
    assert run.main([*TRAIN, f"--results={tmp_path}"]) == 0
    record = only_record(tmp_path)
    assert record["status"] == "ok" and record["metrics"]["test_accuracy"] >= 0 and record["curves"]
    assert "note: no figures of merit: MemoryError: no room for matrices" in capsys.readouterr().out


def test_an_interrupt_during_the_figures_of_merit_waits_for_the_record(tmp_path, monkeypatch):
    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)
        return Peak(2e12, 1e11, 1024, None)

    monkeypatch.setattr(peak, "measure_peak", interrupt)
    assert run.main([*TRAIN, f"--results={tmp_path}"]) == 130
    record = only_record(tmp_path)
    assert record["status"] == "ok" and record["metrics"]["peak_measured"] == 2e12


def test_a_record_is_shown_at_current_prices_and_its_file_stays_unchanged(tmp_path, capsys):
    assert run.main([*TRAIN, "--price=3.6/h", f"--results={tmp_path}"]) == 0
    first = only_record(tmp_path)["metrics"]["flops_per_dollar"]
    capsys.readouterr()
    assert run.main([*TRAIN, "--price=36/h", f"--results={tmp_path}"]) == 0
    assert "$36.00/h" in capsys.readouterr().out
    assert only_record(tmp_path)["metrics"]["flops_per_dollar"] == first


def test_a_cpu_in_a_users_table_is_found_by_its_product_name(tmp_path):
    rows = tmp_path / "mine.toml"
    rows.write_text(
        f'[[device]]\nname = "Mine"\nplatform = "cpu"\nkinds = ["{cpu_name()}"]\n'
        'peaks.float32 = { value = 1e15, source = "me", date = 2026-11-21 }\n'
    )
    assert run.main([*TRAIN, f"--devices={rows}", f"--results={tmp_path / 'r'}"]) == 0
    record = only_record(tmp_path / "r")
    assert record["provenance"]["device_row"] == "Mine"
    assert record["metrics"]["mfu"] == pytest.approx(record["metrics"]["flops_per_second"] / 1e15)


def test_simulated_devices_have_no_figures_of_merit():
    backend = Backend("cpu", tuple(jax.devices()[:1]), simulated=True)
    assert figures_of_merit.compute(
        Case(RunConfig(), {}, ()), CaseResult({"flops_per_step": 1.0}), backend
    ) == ({}, {})


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        (
            "--price=2.5",
            "",
            "--price=2.5: write US dollars per hour of one chip, such as --price=2.5/h",
        ),
        ("--price=-1/h", "", "--price=-1/h: must be a positive number"),
        (
            "--prices={}",
            '"Tesla T4" = 0.35\n"Tesla T5" = 1\n',
            "line 2: unknown device 'Tesla T5': did you mean 'Tesla T4'",
        ),
        ("--prices={}", '"Tesla T4" = 0.35\n"cpu = 1\n', "line 2"),
        ("--prices={}", 'cpu = "cheap"\n', "line 1: the price of 'cpu' must be a positive number"),
        ("--devices={}", '[[device]]\nname = "X"\nplatform = "gpu"\nkind = ["X"]\n', "line 4"),
        ("--preset=quik", "", "--preset=quik: expected quick or full"),
        ("--price=", "", "--price=: write US dollars per hour"),
        ("--prices=", "", "--prices="),
    ],
)
def test_bad_prices_and_devices(option, text, message, tmp_path, capsys):
    file = tmp_path / "file.toml"
    file.write_text(text)
    assert run.main([*TRAIN, option.format(file), f"--results={tmp_path / 'results'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_a_price_file_may_name_the_cpu(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('"Tesla T4" = 0.35\ncpu = 0.36\n')
    assert run.main([*TRAIN, f"--prices={prices}", f"--results={tmp_path / 'r'}"]) == 0
    assert only_record(tmp_path / "r")["metrics"]["price_per_hour"] == 0.36


def test_the_study_preflight_uses_a_price_file_that_also_names_the_cpu(tmp_path):
    file = tmp_path / "prices.toml"
    target = targets.target("gpu-h100")
    file.write_text(f'"{target.row}" = 2.0\ncpu = 0.36\n')
    config = RunConfig(study="preflight", prices=str(file))
    figures_of_merit.check(config, Backend("cpu", tuple(jax.devices("cpu")[:1])))
    assert price_of_chip(config, target, "") == 2.0
