"""Scaling: its cases, and records of one device and of simulated devices."""

import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.measure.noise import noise
from experiments.measure.timing import Timing
from experiments.studies import scaling
from jaxcnn.backend import Backend
from tests.support.records import read_records

SMALL = ["--study=scaling", "--model=logistic", "--batch-size=16"]


def test_device_counts_double_up_to_all():
    counts = [scaling.device_counts(available) for available in (1, 2, 6, 8)]
    assert counts == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def points(config: RunConfig, backend: Backend) -> list[tuple[str, int, int]]:
    names = ("scaling", "devices_used", "batch_size")
    cases = scaling.cases(config, backend)
    return [tuple(case.settings[name] for name in names) for case in cases]


def test_weak_cases_grow_the_batch_and_strong_ones_divide_it(devices):
    config = RunConfig(model="logistic", batch_size=16, strategy="data", preset="full")
    assert points(config, Backend("cpu", devices[:4])) == [
        ("base", 1, 16),
        ("weak", 2, 32),
        ("strong", 2, 16),
        ("weak", 4, 64),
        ("strong", 4, 16),
    ]


def test_one_device_is_timed_and_told_how_to_simulate_more(tmp_path, capsys):
    assert run.main([*SMALL, "--strategy=data", "--device=cpu:1", f"--results={tmp_path}"]) == 0
    (record,) = read_records(tmp_path, "scaling")
    assert record["metrics"]["step_time"] > 0 and "communication_share" not in record["metrics"]
    assert "--device=cpu:8 simulates eight" in capsys.readouterr().out


def test_simulated_devices_agree_and_have_no_speeds(tmp_path, capsys):
    assert run.main([*SMALL, "--strategy=pmap", "--device=cpu:8", f"--results={tmp_path}"]) == 0
    records = read_records(tmp_path, "scaling")
    metrics_by_point = {
        (record["settings"]["scaling"], record["settings"]["devices_used"]): record["metrics"]
        for record in records
    }
    assert metrics_by_point.keys() == {("base", 1), ("weak", 8), ("strong", 8)}
    for metrics in metrics_by_point.values():
        assert metrics["largest_loss_difference"] < 1e-4
        assert metrics["largest_parameter_difference"] < 1e-4
        assert not {"step_time", "images_per_second", "communication_share"} & metrics.keys()
    assert "efficiency" not in capsys.readouterr().out


def test_the_communication_share_is_what_the_local_work_leaves(devices, monkeypatch):
    """With a fake clock: the step takes 4 ms and the same local work 3 ms."""

    def time_interleaved(calls, rounds):
        times = {"step": (0.004,) * rounds, "local": (0.003,) * rounds}
        assert [calls[name].batch_size for name in times] == [16, 4]
        return {
            name: Timing(1.0, (), samples, 1, noise(samples)) for name, samples in times.items()
        }

    monkeypatch.setattr(scaling, "time_interleaved", time_interleaved)
    backend = Backend("cpu", devices[:4])
    config = RunConfig(model="logistic", batch_size=16, strategy="data")
    strong = scaling.cases(config, backend)[-1].config
    metrics, samples, remark = scaling._communication(strong, backend)
    assert metrics == {"communication_share": pytest.approx(0.25)}
    assert samples.keys() == {"step_in_turn", "local_in_turn"}
    assert "takes 0.750 of the step" in remark


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategy=jit"], "--strategy=jit uses one device and does not scale"),
        (["--batch-size=12"], "batch size 12 cannot be used on 8 device(s)"),
    ],
)
def test_impossible_options_are_rejected(arguments, message, tmp_path, capsys):
    assert run.main([*SMALL, "--device=cpu:8", *arguments, f"--results={tmp_path}"]) == 2
    assert message in capsys.readouterr().err
