"""The study of peers: which cases, who takes part, in which order, and what the figures come to. No peer library is needed."""

import math
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import nnx

from experiments.analysis import peers as findings
from experiments.config import RunConfig
from experiments.peers import layers, memory, networks, rounds, verdict
from experiments.peers.in_flax import Flax
from experiments.peers.ours import Ours
from experiments.peers.process import PEERS, PeerFailed, Worker
from experiments.records import Record
from experiments.records.metrics import METRICS
from experiments.studies import peers
from jaxcnn import models, weights
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def task(model: str, side: int, **changes) -> layers.Task:
    config = RunConfig(
        study="peers", model=model, batch_size=4, image_size=side, optimizer="sgd", **changes
    )
    return peers.task_of(peers.cases(config, CPU)[0].config)


def record(model: str, status: str = "ok", **metrics: float) -> Record:
    settings = {"model": model, "image_size": 28, "batch_size": 8}
    return Record("peers", model, status, settings=settings, metrics=metrics)


def test_quick_has_one_network_full_the_list_and_a_network_asked_for_is_one():
    assert [case.parts for case in peers.cases(RunConfig(), CPU)] == [
        ("lenet_like", "32x32", "b128")
    ]
    assert len(peers.cases(RunConfig(preset="full"), CPU)) == 9
    cats = RunConfig(model="cats_vs_dogs")
    assert [case.config.image_size for case in peers.cases(cats, CPU)] == [128, 256]
    (one,) = peers.cases(cats.replace(batch_size=2, image_size=96), CPU)
    assert (one.config.batch_size, one.config.image_size, one.config.optimizer) == (2, 96, "adam")
    (other,) = peers.cases(RunConfig(model="logistic"), CPU)
    assert other.config.batch_size == peers.BATCH and other.settings["optimizer"] == "adam"


@pytest.mark.parametrize(
    ("config", "backend", "message"),
    [
        (RunConfig(), Backend("gpu", CPU.devices), "give --device=cpu"),
        (RunConfig(precision="bfloat16"), CPU, "compares in float32"),
        (RunConfig(model="vgg16"), CPU, "unknown network for study 'peers' 'vgg16'"),
        (RunConfig(optimizer="rmsprop"), CPU, "unknown optimizer for study 'peers' 'rmsprop'"),
    ],
)
def test_what_cannot_be_compared_is_refused(config, backend, message):
    with pytest.raises(InputError, match=message):
        peers.cases(config, backend)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_each_weight_of_a_network_belongs_to_one_layer_of_its_description(name):
    def named(chain):
        for layer in chain:
            if isinstance(layer, layers.Residual):
                yield from named((*layer.body, *layer.shortcut))
            elif hasattr(layer, "name"):
                yield layer.name

    found = list(named(networks.described(name)))
    ours = weights.names(nnx.eval_shape(lambda: models.build(name)))
    assert sorted(found) == sorted({path.rpartition(".")[0] for path in ours})


@pytest.mark.parametrize(("model", "side"), [("cifar_tutorial", 8), ("mlp:8", 8)])
def test_plain_flax_computes_what_ours_does_weight_decay_included(model, side):
    asked = task(model, side, learning_rate=0.1, weight_decay=0.05).without_dropout()
    ours, flax = Ours(asked), Flax(asked)
    differences, far = verdict.agreed(
        {
            name: {"logits": one.logits().tolist(), "losses": one.losses(2)}
            for name, one in (("ours", ours), ("flax", flax))
        }
    )
    assert far == {} and differences["flax"]["second_loss"] < 1e-5
    ours.train(3)  # past the end of the dispatch's epoch or not, the steps go on
    ours.once(2)
    flax.train(5)
    assert ours.done == 7 and ours.losses(1) == pytest.approx(flax.losses(1), rel=1e-3)


def test_dropout_is_left_out_of_the_losses_compared_and_not_of_the_steps_timed():
    asked = task("mlp:8", 8)
    alike, timed = Ours(asked.without_dropout()), Ours(asked)
    assert (
        alike.losses(1)
        == Flax(asked.without_dropout()).losses(1)
        != pytest.approx(timed.losses(1), rel=1e-6)
    )


def test_answers_that_differ_are_named_and_nan_is_no_agreement():
    ours = {"logits": [[2.0, -4.0]], "losses": [2.0, 1.0]}
    differing = {"logits": [[2.0, -4.0001]], "losses": [2.1, math.nan]}
    differences, far = verdict.agreed({"ours": ours, "torch": differing, "flax": ours})
    assert differences["flax"] == {"logits": 0.0, "first_loss": 0.0, "second_loss": 0.0}
    assert differences["torch"]["logits"] == pytest.approx(2.5e-5) and differences["torch"][
        "first_loss"
    ] == pytest.approx(0.05)
    assert far == {
        "torch": "torch computes another network: first loss differs by 0.05, allowed are 0.001"
    }


@pytest.mark.parametrize(
    ("seconds", "far"),
    [
        (
            {"ours": 0.92, "flax": 0.96, "torch": 1.0, "keras": 1.05},
            set(),
        ),  # ours and Keras lie apart, none from the middle
        ({"ours": 0.8, "flax": 1.0, "torch": 1.0, "keras": 1.05}, {"ours"}),
        ({"ours": 1.0, "flax": 1.0, "torch": 2.0, "keras": 1.05}, {"torch"}),
        ({"ours": math.nan, "flax": 1.0, "torch": 1.0}, {"ours"}),
        ({"ours": 1.2, "torch": 1.0}, {"ours"}),
        ({"ours": math.nan, "torch": math.nan}, {"ours", "torch"}),
    ],
)
def test_second_losses_are_held_against_the_middle_one_ours_too(seconds, far):
    answers = {peer: {"logits": [[1.0]], "losses": [2.0, loss]} for peer, loss in seconds.items()}
    assert set(verdict.agreed(answers)[1]) == far


def test_ratios_are_over_the_best_peer_of_each_task_and_round_by_round():
    drift = np.linspace(1, 2, 7)
    took = {"ours: train": 2, "ours: once": 3, "ours: infer": 6, "flax: train": 8, "flax: infer": 6}
    took |= {"torch: train": 5, "torch: infer": 3, "keras: train": 4, "keras: infer": 9}
    samples = {name: (seconds * drift).tolist() for name, seconds in took.items()}
    metrics, best = verdict.figures(samples, {"ours": 30, "torch": 20, "keras": None})
    assert best == {"best_peer_train": "keras", "best_peer_inference": "torch"}
    assert (
        metrics["train_over_best_peer"]
        == metrics["train_over_best_peer_high"]
        == pytest.approx(0.5)
    )
    assert metrics["inference_over_best_peer"] == pytest.approx(2) and metrics[
        "train_over_flax"
    ] == pytest.approx(0.25)
    assert metrics["best_peer_step_time"] == pytest.approx(6) and metrics[
        "once_step_time"
    ] == pytest.approx(4.5)
    assert metrics["memory_over_pytorch"] == 1.5 and metrics.keys() <= METRICS.keys()
    alone = {name: samples[name] for name in samples if not name.startswith(verdict.RIVALS)}
    metrics, best = verdict.figures(alone, {"ours": None})
    assert best == {"best_peer_train": None, "best_peer_inference": None}
    assert "train_over_flax" in metrics and not [
        name for name in metrics if "peer" in name or "memory" in name
    ]


class Sleeper:
    """A worker that notes what it is asked."""

    def __init__(self, peer: str, seconds: float, log: list):
        self.peer, self.seconds, self.log, self.used = peer, seconds, log, 0.0

    def ask(self, name, what, calls):
        self.log.append((self.peer, what, calls))
        self.used += self.seconds
        return self.seconds

    def processor_time(self):
        return self.used


def test_workers_take_turns_every_other_round_backwards(monkeypatch):
    monkeypatch.setattr(rounds, "SETTLE", 0.0)
    log: list = []
    one, other = Sleeper("one", 0.01, log), Sleeper("other", 0.3, log)
    turns = [rounds.Turn(one, "train"), rounds.Turn(other, "train"), rounds.Turn(one, "infer")]
    found = rounds.interleaved(turns, 3, sample=0.1)
    assert found.calls == {"one: train": 10, "other: train": 1, "one: infer": 10}
    there = [("one", "train", 10), ("other", "train", 1), ("one", "infer", 10)]
    assert log[6:] == there + there[::-1] + there
    assert found.samples["other: train"] == [0.3] * 3 and found.idle_load == 0.0


def test_the_geometric_mean_and_the_worst_are_told():
    rows = [
        record("a", train_over_best_peer=0.5),
        record("b", train_over_best_peer=2.0, memory_over_pytorch=1.1),
    ]
    rows.append(record("c", "failed", train_over_best_peer=9.0))
    found = findings.standing(rows, "train_over_best_peer")
    assert (found.mean, found.ratio, found.worst, found.count) == (
        pytest.approx(1.0),
        2.0,
        rows[1],
        2,
    )
    assert findings.conclusion(rows) == [
        "train step: 1.00 of the best peer's time (geometric mean of 2 networks), at worst 2.00 (b at 28×28, batch 8)",
        "peak memory of a train step: 1.10 of that of PyTorch (one network), at worst 1.10 (b at 28×28, batch 8)",
    ]
    assert findings.conclusion(rows[2:]) == []


def test_a_library_that_is_not_installed_is_a_remark(monkeypatch):
    monkeypatch.setattr(peers, "missing", lambda peer: list(PEERS[peer]))
    (case,) = peers.cases(RunConfig(), CPU)
    assert case.settings["peers"] == ["ours", "flax"]
    (remark,) = peers._remarks(RunConfig())
    assert remark.startswith("not installed: keras, tensorflow, torch; pip install -e '.[peers]'")


def test_a_worker_that_dies_says_why(tmp_path):
    (tmp_path / "task.pickle").write_bytes(pickle.dumps("no task"))
    worker = Worker("ours", tmp_path / "task.pickle", threads=1, time_limit=60)
    try:
        with pytest.raises(PeerFailed, match="ours: AttributeError: 'str' object has no attribute"):
            worker.ask("first")
    finally:
        worker.close()


class Answering:
    """A worker that has an answer to everything, wrong for some peers, none for another."""

    wrong = ("keras",)

    def __init__(self, peer, **_):
        self.peer, self.open = peer, True

    def ask(self, name, *arguments):
        if self.peer == "torch":
            raise PeerFailed("torch: no compiler")
        losses = [1.0, 9.0 if self.peer in self.wrong else 0.5]
        return {
            "agreement": {"logits": [[1.0]], "losses": losses},
            "memory": 1,
            "timed": 1e-3,
            "first": 1.0,
        }[name]

    def close(self):
        self.open = False


def test_a_peer_that_computes_something_else_is_left_out_as_is_one_that_breaks(monkeypatch):
    started, timed = [], []
    monkeypatch.setattr(
        peers, "Worker", lambda peer, **_: started.append(Answering(peer)) or started[-1]
    )
    monkeypatch.setattr(peers, "missing", lambda peer: [])
    monkeypatch.setattr(peers, "interleaved", lambda turns, *_, **__: timed.extend(turns) or 1 / 0)
    context = type(
        "Quiet", (), {"console": type("Console", (), {"print": lambda *_, **__: None})()}
    )
    with pytest.raises(ZeroDivisionError):
        peers.measure(peers.cases(RunConfig(), CPU)[0], context)
    assert {turn.worker.peer for turn in timed} == {
        "ours",
        "flax",
        "torch channels-last",
        "keras xla",
    }
    assert not any(worker.open for worker in started)


def test_where_half_of_the_peers_compute_something_else_the_case_fails(monkeypatch):
    monkeypatch.setattr(Answering, "wrong", ("keras", "keras xla"))
    started = []
    monkeypatch.setattr(
        peers, "Worker", lambda peer, **_: started.append(Answering(peer)) or started[-1]
    )
    monkeypatch.setattr(peers, "missing", lambda peer: [])
    context = type(
        "Quiet", (), {"console": type("Console", (), {"print": lambda *_, **__: None})()}
    )
    result = peers.measure(peers.cases(RunConfig(), CPU)[0], context)
    assert result.status == "failed"
    assert result.message.startswith(
        "keras computes another network: second loss differs by 17, allowed are 0.1; keras xla"
    )
    assert "left out, torch: no compiler" in result.provenance["remarks"]
    assert not any(worker.open for worker in started)


MEASURED = """
import numpy as np
from experiments.peers.memory import peak_of
np.ones(2**26).sum()  # half a gigabyte, given back
print(peak_of(lambda: None), peak_of(lambda: np.ones(2**24).sum()))
"""


@pytest.mark.skipif(not memory.PROCESS.exists(), reason="Linux alone says")
def test_memory_is_that_of_the_work_and_not_of_what_was_before():
    # In a process of its own: what else this one holds comes and goes.
    answer = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    small, large = map(int, answer.split())
    assert small < 2**28
    assert 2**27 * 0.9 < large - small < 2**27 * 1.5
