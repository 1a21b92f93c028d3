"""An accelerator and the CPU of its machine, worked out by hand."""

import pytest

from experiments.analysis.host_cpu import conclusion
from experiments.records import Record

NAMES = {"cpu": "AMD EPYC 7B12", "tpu": "TPU v5 lite", "gpu": "Tesla T4"}


def make_record(platform: str, rate: float, *, study="train", status="ok", **changes) -> Record:
    """A training record; settings and provenance change with the keywords."""
    settings = {"model": "mnist_cnn", "batch_size": 32, "strategy": "jit"}
    provenance = {
        "platform": platform,
        "accelerator": NAMES[platform],
        "machine": "a",
        "host_cpu": "AMD EPYC 7B12",
        "host_cores": 24,
    }
    return Record(
        study,
        platform,
        status,
        settings=settings | {name: changes[name] for name in settings if name in changes},
        metrics={"images_per_second": rate},
        provenance=provenance | {n: v for n, v in changes.items() if n not in settings},
    )


CPU, TPU = make_record("cpu", 3_250), make_record("tpu", 52_000)
SENTENCE = (
    "The TPU v5 lite trained 52,000 images/s, the CPU of the same machine 3,250: 16 times as fast."
)


@pytest.mark.parametrize("records", [[CPU, TPU], [TPU, CPU]])
def test_the_sentence_has_both_rates_and_their_ratio(records):
    assert conclusion(records) == [SENTENCE]


def test_an_accelerator_may_be_slower():
    (sentence,) = conclusion([CPU, make_record("tpu", 1_300)])
    assert sentence.endswith("3,250: 0.4 times as fast.")


@pytest.mark.parametrize(
    "cpu",
    [
        make_record("cpu", 3_250, batch_size=64),
        make_record("cpu", 3_250, study="first_cnn"),
        make_record("cpu", 3_250, status="failed"),
        make_record("cpu", 3_250, simulated=True),
        make_record("cpu", 0),
        make_record("cpu", 3_250, machine="b", host_cores=2),
        make_record("cpu", 3_250, machine=None, host_cpu=None),
    ],
    ids=["case", "study", "status", "simulated", "rate", "machine", "unknown machine"],
)
def test_without_a_cpu_to_compare_with_there_is_no_sentence(cpu):
    assert conclusion([cpu, TPU]) == []
    assert conclusion([cpu, make_record("tpu", 52_000, machine=None, host_cpu=None)]) == []


def test_the_strategy_may_differ_as_one_device_needs_none():
    tpus = make_record("tpu", 52_000, strategy="data", strategy_devices=8)
    (sentence,) = conclusion([CPU, tpus])
    assert sentence.startswith("The TPU v5 lite × 8 trained 52,000 images/s")


def test_the_own_machine_is_preferred_to_one_of_its_kind():
    other = make_record("cpu", 6_500, machine="b")
    assert conclusion([CPU, TPU, other]) == [SENTENCE]
    assert conclusion([TPU, other]) == [
        "The TPU v5 lite trained 52,000 images/s, the CPU of another machine of the same kind "
        "6,500: 8 times as fast."
    ]


def test_each_accelerator_has_a_sentence_from_its_newest_record():
    older, gpu = make_record("tpu", 26_000), make_record("gpu", 13_000)
    sentences = conclusion([CPU, older, gpu, TPU])
    assert [sentence.partition(" trained")[0] for sentence in sentences] == [
        "The TPU v5 lite",
        "The Tesla T4",
    ]
    assert sentences[0] == SENTENCE
