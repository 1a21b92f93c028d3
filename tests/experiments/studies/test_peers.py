"""The study of peers: its cases, and peers that are missing, fail or compute something else.

No other library is needed.
"""

import importlib.metadata
from types import SimpleNamespace

import pytest

from experiments.config import RunConfig
from experiments.config.configurations import parse
from experiments.peers import launch
from experiments.peers.networks import NETWORKS
from experiments.peers.process import PEERS, PeerFailed
from experiments.peers.user_networks import USER_NETWORKS
from experiments.studies import peers, peers_cases
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from tests.support.peers import cpu_backend


def set_missing_packages(monkeypatch, missing) -> None:
    """Replaces the function that says which packages of a peer are not installed."""
    for module in (peers, peers_cases):
        monkeypatch.setattr(module, "missing_packages", missing)


def test_the_quick_preset_has_one_network_and_the_full_one_the_whole_list():
    quick = peers_cases.cases(RunConfig(), cpu_backend())
    assert [case.parts for case in quick] == [("lenet_like", "32x32", "b128")]
    assert quick[0].settings["launches"] == 1
    full = peers_cases.cases(RunConfig(preset="full"), cpu_backend())
    assert len(full) == len(peers_cases.CASES)
    assert {case.settings["launches"] for case in full} == {5}
    names = {model.partition(":")[0] for model, _, _ in peers_cases.CASES}
    assert names <= NETWORKS.keys() | USER_NETWORKS.keys() and USER_NETWORKS.keys() <= names


def test_the_number_of_launches_makes_another_case():
    (one,) = peers_cases.cases(*parse(["--launches=3"]), cpu_backend())
    assert one.settings["launches"] == 3
    with pytest.raises(InputError, match="--launches=0: must be from 1 to 1000"):
        parse(["--launches=0"])


def test_a_network_in_the_options_has_its_cases_of_the_list_or_one_of_its_own():
    cats = RunConfig(model="cats_vs_dogs")
    cases = peers_cases.cases(cats, cpu_backend())
    assert [case.config.image_size for case in cases] == [128, 256]
    (one,) = peers_cases.cases(cats.replace(batch_size=2, image_size=96), cpu_backend())
    assert (one.config.batch_size, one.config.image_size, one.config.optimizer) == (2, 96, "adam")
    (unlisted,) = peers_cases.cases(RunConfig(model="logistic"), cpu_backend())
    assert unlisted.config.batch_size == peers_cases.DEFAULT_BATCH_SIZE
    assert unlisted.settings["optimizer"] == "adam"
    (users,) = peers_cases.cases(RunConfig(model="cnn_3d"), cpu_backend())
    assert (users.config.batch_size, users.config.image_size) == (4, 32)
    assert users.settings["optimizer"] == "momentum"


@pytest.mark.parametrize(
    ("config", "platform", "message"),
    [
        (RunConfig(), "tpu", "--device=cpu or --device=gpu"),
        (RunConfig(precision="float16"), "cpu", "float32 or bfloat16, got --precision=float16"),
        (RunConfig(model="vgg16"), "cpu", "unknown network of study peers 'vgg16'"),
        (RunConfig(optimizer="rmsprop"), "cpu", "unknown optimizer of study peers 'rmsprop'"),
    ],
)
def test_impossible_options_are_errors(config, platform, message):
    with pytest.raises(InputError, match=message):
        peers_cases.cases(config, Backend(platform, cpu_backend().devices))


def test_a_library_that_is_not_installed_is_a_remark(monkeypatch):
    set_missing_packages(monkeypatch, lambda peer: list(PEERS[peer].packages))
    (case,) = peers_cases.cases(RunConfig(), cpu_backend())
    assert case.settings["peers"] == ["ours", "ours frozen", "flax"]
    (remark,) = peers._remarks(RunConfig(), "cpu")
    assert remark.startswith("not installed: keras, tensorflow, torch; pip install -e '.[peers]'")


def test_bfloat16_is_a_case_of_its_own_without_the_libraries_that_lack_it(monkeypatch):
    set_missing_packages(monkeypatch, lambda peer: [])
    config = RunConfig(model="resnet18", preset="full", precision="bfloat16")
    (case,) = peers_cases.cases(config, cpu_backend())
    assert case.parts == ("resnet18", "112x112", "b7", "bfloat16")
    assert case.settings["peers"] == [
        "ours",
        "torch",
        "torch channels-last",
        "torch compiled",
        "torch compiled channels-last",
    ]
    (single,) = peers_cases.cases(config.replace(precision="float32"), cpu_backend())
    assert "precision" not in single.settings and "keras" in single.settings["peers"]


def test_a_gpu_has_several_batches_of_each_network(monkeypatch):
    set_missing_packages(monkeypatch, lambda peer: [])
    gpu = Backend("gpu", cpu_backend().devices)
    cases = peers_cases.cases(RunConfig(preset="full", precision="bfloat16"), gpu)
    assert {case.config.model for case in cases} == {"resnet50", "convnext_tiny", "efficientnet_b0"}
    assert {case.config.image_size for case in cases} == {224}
    (own,) = peers_cases.cases(RunConfig(model="resnet18", preset="full", batch_size=9), gpu)
    assert own.settings["peers"] == ["ours", "torch channels-last", "torch compiled channels-last"]
    resnet = peers_cases.cases(RunConfig(model="resnet50", preset="full"), gpu)
    assert sorted(case.config.batch_size for case in resnet) == [64, 128, 256, 512]


class FakeWorker:
    """A worker with fixed outputs, wrong for the peers in `wrong`; PyTorch's eager one fails."""

    wrong = ("keras",)

    def __init__(self, peer):
        self.peer, self.open = peer, True

    def call(self, method, *arguments):
        if self.peer == "torch":
            raise PeerFailed("torch: no compiler")
        results = {
            "logits": [[1.0]],
            "losses": [1.0, 9.0 if self.peer in self.wrong else 0.5],
            "peak_memory": 100 if self.peer == "ours" else 200,
            "time": {"ours": 3e-2, "keras xla": 2.6e-2}.get(self.peer, 2e-2),
            "first_step": 1.0,
            "step_metrics": {"flops_per_step": 6e6, "bytes_per_step": 1e6},
            "uses_winograd": True,
            "freed_memory_kept": True,
        }
        return results[method]

    def processor_time(self):
        return 0.0

    def close(self):
        self.open = False


@pytest.fixture
def workers(monkeypatch):
    """Every peer is installed and runs in a fake worker; returns the workers started."""
    started = []

    def start(peer, **_):
        started.append(FakeWorker(peer))
        return started[-1]

    monkeypatch.setattr(peers, "Worker", start)
    set_missing_packages(monkeypatch, lambda peer: [])
    monkeypatch.setattr(importlib.metadata, "version", lambda package: f"{package}'s")
    monkeypatch.setattr(launch.time_interleaved.__globals__["time"], "sleep", lambda _: None)
    return started


def measure(platform="cpu", **options):
    backend = Backend(platform, cpu_backend().devices)
    console = SimpleNamespace(print=lambda *_, **__: None)
    context = SimpleNamespace(console=console, backend=backend)
    return peers.measure(peers_cases.cases(RunConfig(**options), backend)[0], context)


def test_a_peer_that_fails_or_computes_something_else_is_excluded_for_good(workers):
    result = measure(launches=3)
    assert result.status == "ok"
    assert result.provenance["remarks"] == [
        "excluded: torch: no compiler",
        "excluded: keras computes another network: second loss differs by 17, allowed are 0.1",
    ]
    timed = {name.partition(":")[0] for name in result.samples}
    assert timed == {"ours", "ours frozen", "flax", "torch channels-last", "keras xla"}
    started = [worker.peer for worker in workers]
    assert started.count("torch") == started.count("keras") == 1
    assert started.count("ours") == 2 + 3 and started.count("torch channels-last") == 3
    assert started.count("ours frozen") == 3


def test_slow_peers_and_plain_flax_are_launched_once(workers):
    result = measure(launches=3)
    medians = result.provenance["launch_medians"]
    assert medians["keras xla: train"] == [2.6e-2] and medians["flax: infer"] == [2e-2]
    assert medians["torch channels-last: train"] == [2e-2] * 3
    assert result.provenance["best_peer_train"] == "torch channels-last"
    assert result.metrics["train_over_flax"] == pytest.approx(1.5)
    started = [worker.peer for worker in workers]
    assert started.count("keras xla") == started.count("flax") == 1
    assert not any(worker.open for worker in workers)


def test_on_a_gpu_one_process_ends_before_the_next_starts(workers, monkeypatch):
    open_at_start, start = [], FakeWorker.__init__

    def count_open(self, peer):
        open_at_start.append(sum(worker.open for worker in workers))
        start(self, peer)

    monkeypatch.setattr(FakeWorker, "__init__", count_open)
    result = measure("gpu", preset="full", launches=1)
    assert result.status == "ok" and open_at_start == [0] * 5  # two to time the first step
    assert result.provenance["best_peer_train"] == "torch channels-last"
    assert result.provenance["compiler_options"] == {}
    assert result.metrics["train_over_best_peer"] == pytest.approx(1.5)
    monkeypatch.setattr(FakeWorker, "wrong", ("torch compiled channels-last",))
    result = measure("gpu", preset="full", launches=1)
    assert result.status == "failed"  # one of two is half of the peers
    assert result.message.startswith("torch compiled channels-last computes another network")


def test_a_result_has_every_sample_and_the_medians_of_the_launches(workers):
    result = measure(launches=2)
    assert result.samples["ours: many_steps"] == [3e-2] * 14
    assert result.provenance["launch_medians"]["ours: train"] == [3e-2, 3e-2]
    assert result.provenance["rounds_per_launch"] == 7
    assert result.provenance["calls_per_sample"]["ours: train"] == 4
    assert result.provenance["memory_peaks"]["flax"] == [200]
    assert result.provenance["peer_versions"]["torch"] == "torch's"
    assert set(result.provenance["freed_memory_kept_by_peer"].values()) == {True}
    assert result.metrics["train_over_best_peer"] == pytest.approx(1.5)
    assert result.metrics["train_over_best_peer_low"] == pytest.approx(1.5)
    assert result.metrics["flops_per_second"] == pytest.approx(2e8)
    assert result.provenance["winograd"] is True


def test_a_frozen_network_is_timed_for_inference_only(workers):
    result = measure(preset="full", launches=1)
    assert "torch compiled frozen: infer" in result.samples
    assert "torch compiled frozen: train" not in result.samples
    assert "torch compiled frozen" not in result.provenance["memory_peaks"]


def test_the_case_fails_if_half_of_the_peers_compute_something_else(workers, monkeypatch):
    monkeypatch.setattr(FakeWorker, "wrong", ("keras", "keras xla"))
    result = measure()
    assert result.status == "failed"
    assert result.message.startswith(
        "keras computes another network: second loss differs by 17, allowed are 0.1; keras xla"
    )
    assert result.provenance["differences"]["flax"]["logits"] == 0
    assert not any(worker.open for worker in workers)


def test_the_case_fails_if_ours_fails(workers, monkeypatch):
    real = FakeWorker.call

    def call(self, method, *arguments):
        if self.peer == "ours" and method == "losses":
            raise PeerFailed("ours: out of memory")
        return real(self, method, *arguments)

    monkeypatch.setattr(FakeWorker, "call", call)
    result = measure(launches=2)
    assert (result.status, result.message) == ("failed", "ours: out of memory")
    assert not any(worker.open for worker in workers)
