"""Collective operations between simulated devices, compared with NumPy; rates by hand."""

import pytest
from etils import epath
from rich.console import Console

from experiments import run
from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.noise import noise
from experiments.measure.timing import Timing
from experiments.studies import collectives
from jaxcnn.backend import Backend
from tests.support.records import read_records


def measure(devices, name: str, size: int, *, simulated: bool = False) -> CaseResult:
    backend = Backend("cpu", devices, simulated=simulated)
    settings = {"operation": name, "bytes": size, "devices_used": len(devices)}
    context = Context(backend, epath.Path("collectives/case.checkpoints"), Console())
    return collectives.measure(Case(RunConfig(), settings, (name,)), context)


@pytest.mark.parametrize("name", collectives.OPERATIONS)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_results_are_those_of_numpy(devices, name, count):
    result = measure(devices[:count], name, 2**12, simulated=True)
    assert result.status == "ok" and result.metrics["largest_error"] < 1e-6
    assert "call_time" not in result.metrics, "simulated devices have no speed"


def test_a_wrong_result_fails(devices, monkeypatch):
    wrong = collectives.Collective(lambda x: x, lambda rows: rows.ravel() + 1, False, lambda n: 1.0)
    monkeypatch.setitem(collectives.OPERATIONS, "all_reduce", wrong)
    result = measure(devices[:2], "all_reduce", 2**12)
    assert result.status == "failed" and "differs from NumPy's" in result.message


@pytest.mark.parametrize(
    ("name", "share", "bus"),
    [
        ("all_reduce", 4096, 2 * 3 / 4),
        ("all_gather", 1024, 3 / 4),  # of four devices, each has a fourth
        ("reduce_scatter", 4096, 3 / 4),
    ],
)
def test_bandwidths_by_hand(devices, monkeypatch, name, share, bus):
    """4,096 bytes in a microsecond are 4.096 GB/s."""
    samples = (1e-6,) * 7
    timing = Timing(1.0, (), samples, 1, noise(samples))
    monkeypatch.setattr(collectives, "time_call", lambda call, budget: timing)
    result = measure(devices[:4], name, 4096)
    assert result.provenance["share_bytes"] == share
    assert result.metrics["bytes_per_second"] == pytest.approx(4.096e9)
    assert result.metrics["bus_bandwidth"] == pytest.approx(4.096e9 * bus)
    assert result.metrics["call_latency"] == 1e-6


def test_a_case_for_each_operation_and_size(tmp_path):
    arguments = ["--study=collectives", "--device=cpu:4", f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    records = read_records(tmp_path, "collectives")
    points = {(r["settings"]["operation"], r["settings"]["bytes"]) for r in records}
    assert points == {
        (name, size) for name in collectives.OPERATIONS for size in collectives.SIZES["quick"]
    }


def test_one_device_is_bad_input(capsys):
    assert run.main(["--study=collectives", "--device=cpu:1"]) == 2
    assert "--device=cpu:4 simulates four" in capsys.readouterr().err
