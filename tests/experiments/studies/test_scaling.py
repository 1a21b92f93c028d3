"""Scaling: efficiencies worked out by hand, and what the study says of one device, of several and of simulated ones."""

import json

import pytest

from experiments import run
from experiments.analysis import efficiency
from experiments.analysis.efficiency import efficiencies
from experiments.config import RunConfig
from experiments.records import Record
from experiments.studies import scaling
from jaxcnn.backend import Backend

SMALL = ["--study=scaling", "--model=logistic", "--batch-size=16"]


def record(
    kind: str, devices: int, batch: int, seconds: float, *, interval=None, **origin
) -> Record:
    low, high = interval or (seconds, seconds)
    return Record(
        "scaling", f"{kind}{devices}", "ok",
        settings={"point": kind, "scaling": kind, "devices_used": devices, "batch_size": batch, "model": "lenet5", "strategy": "data"},
        metrics={"step_time": seconds, "step_time_low": low, "step_time_high": high},
        provenance={"accelerator": "GPU", "machine": "m"} | origin,
    )  # fmt: skip


ONE = record("base", 1, 64, 0.10, interval=(0.08, 0.12))


def test_strong_scaling_by_hand():
    """The same 64 images in 0.04 s on 4 devices: 2.5 times as fast, 0.625 of four."""
    (found,) = efficiencies([ONE, record("strong", 4, 64, 0.04, interval=(0.03, 0.05))])
    assert (found.scaling, found.devices) == ("strong", 4)
    assert found.speed_up == pytest.approx(2.5) and found.efficiency == pytest.approx(0.625)
    assert found.low == pytest.approx(0.08 / 0.05 / 4) and found.high == pytest.approx(
        0.12 / 0.03 / 4
    )


def test_weak_scaling_by_hand():
    """256 images in 0.125 s on 4 devices are 2048 a second, 3.2 times the 640 of one."""
    (found,) = efficiencies([ONE, record("weak", 4, 256, 0.125)])
    assert found.speed_up == pytest.approx(3.2) and found.efficiency == pytest.approx(0.8)


def test_rows_are_sorted_and_only_what_has_its_one_device_is_there():
    rows = [
        ONE,
        record("weak", 4, 256, 0.1),
        record("strong", 2, 64, 0.05),
        record("strong", 4, 64, 0.025),
    ]
    assert [(found.scaling, found.devices) for found in efficiencies(rows)] == [
        ("strong", 2),
        ("strong", 4),
        ("weak", 4),
    ]
    assert efficiencies(rows[1:]) == []


@pytest.mark.parametrize(
    "other",
    [
        record("strong", 4, 64, 0.04, simulated=True),
        record("strong", 4, 64, 0.04, machine="another"),
        Record("scaling", "case", "failed", settings={"devices_used": 4}),
        Record("train", "case", "ok", settings={"devices_used": 4}, metrics={"step_time": 1.0}),
    ],
    ids=["simulated", "another machine", "failed", "another study"],
)
def test_of_what_cannot_be_compared_nothing_is_said(other):
    assert efficiencies([ONE, other]) == []


def test_the_conclusion_is_in_words():
    (line,) = efficiency.conclusion([ONE, record("strong", 4, 64, 0.04)])
    assert (
        line
        == "data, strong: 2.50 times the images per second of one, efficiency 0.62 (0.50 to 0.75)"
    )


def test_devices_double_up_to_all():
    assert [scaling.device_counts(most) for most in (1, 2, 6, 8)] == [
        [1],
        [1, 2],
        [1, 2, 4, 6],
        [1, 2, 4, 8],
    ]


def points(config: RunConfig, backend: Backend) -> list[tuple[str, int, int]]:
    cases = scaling.cases(config, backend)
    return [
        (case.settings["scaling"], case.settings["devices_used"], case.settings["batch_size"])
        for case in cases
    ]


def test_weak_cases_grow_the_batch_and_strong_ones_divide_it(devices):
    config = RunConfig(model="logistic", batch_size=16, strategy="data", preset="full")
    assert points(config, Backend("cpu", devices[:4])) == [
        ("base", 1, 16), ("weak", 2, 32), ("strong", 2, 16), ("weak", 4, 64), ("strong", 4, 16),
    ]  # fmt: skip


def found_in(folder) -> list[dict]:
    return [json.loads(path.read_text()) for path in (folder / "scaling").glob("*.json")]


def test_one_device_says_what_there_is_and_how_to_simulate_more(tmp_path, capsys):
    assert run.main([*SMALL, "--strategy=data", "--device=cpu:1", f"--results={tmp_path}"]) == 0
    (found,) = found_in(tmp_path)
    assert found["metrics"]["step_time"] > 0 and "communication_share" not in found["metrics"]
    assert "--device=cpu:8 simulates eight" in capsys.readouterr().out


def test_simulated_devices_show_that_results_agree_and_no_speeds(tmp_path, capsys):
    assert run.main([*SMALL, "--strategy=pmap", "--device=cpu:8", f"--results={tmp_path}"]) == 0
    found = {
        (each["settings"]["scaling"], each["settings"]["devices_used"]): each["metrics"]
        for each in found_in(tmp_path)
    }
    assert found.keys() == {("base", 1), ("weak", 8), ("strong", 8)}
    for metrics in found.values():
        assert (
            metrics["largest_loss_difference"] < 1e-4
            and metrics["largest_parameter_difference"] < 1e-4
        )
        assert not {"step_time", "images_per_second", "communication_share"} & metrics.keys()
    assert "efficiency" not in capsys.readouterr().out


def test_the_share_of_collectives_is_what_the_local_work_leaves(devices, monkeypatch):
    """By a clock that gives the step 4 ms and the same local work 3 ms."""
    from experiments.measure.timing import Timing, noise

    def interleaved(calls, rounds):
        times = {"step": (0.004,) * rounds, "local": (0.003,) * rounds}
        assert [calls[name].batch_size for name in times] == [16, 4]
        return {
            name: Timing(1.0, (), samples, 1, noise(samples)) for name, samples in times.items()
        }

    monkeypatch.setattr(scaling, "interleaved", interleaved)
    config = scaling.cases(
        RunConfig(model="logistic", batch_size=16, strategy="data"), Backend("cpu", devices[:4])
    )[-1].config
    share, samples, (remark,) = scaling._communication(config, Backend("cpu", devices[:4]))
    assert share == {"communication_share": pytest.approx(0.25)} and samples.keys() == {
        "step_in_turn",
        "local_in_turn",
    }
    assert "takes 0.750 of the step" in remark


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy=jit"], "--strategy=jit uses one device and does not scale"),
        (["--batch-size=12"], "batch size 12 cannot be used on 8 device(s)"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message, tmp_path, capsys):
    assert run.main([*SMALL, "--device=cpu:8", *arguments, f"--results={tmp_path}"]) == 2
    assert message in capsys.readouterr().err
