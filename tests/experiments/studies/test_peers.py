"""The study of peers: its cases, and peers that are missing, fail or compute something else.

No other library is needed.
"""

from types import SimpleNamespace

import pytest

from experiments.config import RunConfig
from experiments.peers.process import PEERS, PeerFailed
from experiments.studies import peers
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError
from tests.support.peers import cpu_backend


def test_the_quick_preset_has_one_network_and_the_full_one_the_whole_list():
    quick = peers.cases(RunConfig(), cpu_backend())
    assert [case.parts for case in quick] == [("lenet_like", "32x32", "b128")]
    assert len(peers.cases(RunConfig(preset="full"), cpu_backend())) == 9


def test_a_network_in_the_options_has_its_cases_of_the_list_or_one_of_its_own():
    cats = RunConfig(model="cats_vs_dogs")
    cases = peers.cases(cats, cpu_backend())
    assert [case.config.image_size for case in cases] == [128, 256]
    (one,) = peers.cases(cats.replace(batch_size=2, image_size=96), cpu_backend())
    assert (one.config.batch_size, one.config.image_size, one.config.optimizer) == (2, 96, "adam")
    (unlisted,) = peers.cases(RunConfig(model="logistic"), cpu_backend())
    assert unlisted.config.batch_size == peers.DEFAULT_BATCH_SIZE
    assert unlisted.settings["optimizer"] == "adam"


@pytest.mark.parametrize(
    ("config", "platform", "message"),
    [
        (RunConfig(), "gpu", "--device=cpu"),
        (RunConfig(precision="bfloat16"), "cpu", "float32"),
        (RunConfig(model="vgg16"), "cpu", "unknown network for study 'peers' 'vgg16'"),
        (RunConfig(optimizer="rmsprop"), "cpu", "unknown optimizer for study 'peers' 'rmsprop'"),
    ],
)
def test_impossible_options_are_errors(config, platform, message):
    with pytest.raises(InputError, match=message):
        peers.cases(config, Backend(platform, cpu_backend().devices))


def test_a_library_that_is_not_installed_is_a_remark(monkeypatch):
    monkeypatch.setattr(peers, "missing_packages", lambda peer: list(PEERS[peer]))
    (case,) = peers.cases(RunConfig(), cpu_backend())
    assert case.settings["peers"] == ["ours", "flax"]
    (remark,) = peers._remarks(RunConfig())
    assert remark.startswith("not installed: keras, tensorflow, torch; pip install -e '.[peers]'")


class FakeWorker:
    """A worker with fixed outputs, wrong for the peers in `wrong`; PyTorch's fails."""

    wrong = ("keras",)

    def __init__(self, peer):
        self.peer, self.open = peer, True

    def call(self, method, *arguments):
        if self.peer == "torch":
            raise PeerFailed("torch: no compiler")
        losses = [1.0, 9.0 if self.peer in self.wrong else 0.5]
        results = {
            "outputs": {"logits": [[1.0]], "losses": losses},
            "peak_memory": 1,
            "time": 1e-3,
            "first_step": 1.0,
        }
        return results[method]

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
    monkeypatch.setattr(peers, "missing_packages", lambda peer: [])
    return started


QUIET = SimpleNamespace(console=SimpleNamespace(print=lambda *_, **__: None))


def test_a_peer_that_fails_or_computes_something_else_is_excluded(workers, monkeypatch):
    timed = []

    def time_interleaved(turns, *_, **__):
        timed.extend(turns)
        raise ZeroDivisionError

    monkeypatch.setattr(peers, "time_interleaved", time_interleaved)
    with pytest.raises(ZeroDivisionError):
        peers.measure(peers.cases(RunConfig(), cpu_backend())[0], QUIET)
    assert {turn.worker.peer for turn in timed} == {
        "ours",
        "flax",
        "torch channels-last",
        "keras xla",
    }
    assert not any(worker.open for worker in workers)


def test_the_case_fails_if_half_of_the_peers_compute_something_else(workers, monkeypatch):
    monkeypatch.setattr(FakeWorker, "wrong", ("keras", "keras xla"))
    result = peers.measure(peers.cases(RunConfig(), cpu_backend())[0], QUIET)
    assert result.status == "failed"
    assert result.message.startswith(
        "keras computes another network: second loss differs by 17, allowed are 0.1; keras xla"
    )
    assert any("torch: no compiler" in remark for remark in result.provenance["remarks"])
    assert not any(worker.open for worker in workers)
