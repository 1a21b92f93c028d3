"""Published figures beside ours, with times that are worked out by hand."""

import pytest

from experiments import records
from experiments.analysis.published_figures import library_over_naive, published_figures
from experiments.records import Record
from experiments.records.published import PUBLISHED


def make_record(study: str, settings: dict, metrics: dict, **provenance) -> Record:
    origin = {"accelerator": "ours", "platform": "cpu", "machine": "here"} | provenance
    return Record(study, "case", "ok", settings=settings, metrics=metrics, provenance=origin)


@pytest.fixture(scope="module")
def documents() -> list[Record]:
    loaded, _ = records.load([PUBLISHED])
    return [record for record in loaded if record.provenance.get("published")]


CATS = {"model": "cats_vs_dogs", "precision": "float32", "batch_size": 16}


def test_an_epoch_of_ours_stands_beside_the_published_ones(documents):
    """1,250 steps of 2 s, whatever the optimizer and the data of the sweep."""
    ours = make_record("batch_sweep", CATS | {"optimizer": "adam"}, {"step_time": 2.0})
    figures = published_figures([*documents, ours])
    assert {figure.question for figure in figures} == {
        "cats_vs_dogs, float32, batch 16: 1,250 steps"
    }
    values = {figure.record.provenance["accelerator"]: figure.value for figure in figures}
    assert values == {
        "Intel Core i5-8250U": pytest.approx(7080),  # 1 h 58 min
        "GeForce MX150": pytest.approx(677.5),
        "ours": 2500.0,
    }


@pytest.mark.parametrize(
    "changes",
    [{"batch_size": 32}, {"precision": "bfloat16"}, {"model": "lenet5"}, {"image_size": 64}],
)
def test_another_question_has_no_neighbor(documents, changes):
    ours = make_record("batch_sweep", CATS | changes, {"step_time": 2.0})
    assert published_figures([*documents, ours]) == []


@pytest.mark.parametrize(("devices", "answers"), [(1, True), (8, False)])
def test_several_devices_are_another_question(documents, devices, answers):
    settings = CATS | {"image_size": 256}
    ours = make_record("batch_sweep", settings, {"step_time": 2.0}, strategy_devices=devices)
    figures = published_figures([*documents, ours])
    assert any(figure.record is ours for figure in figures) == answers


def test_simulated_devices_and_failures_are_ignored(documents):
    simulated = make_record("batch_sweep", CATS, {"step_time": 2.0}, simulated=True)
    failed = Record("batch_sweep", "case", "failed", settings=CATS, metrics={"step_time": 2.0})
    assert published_figures([*documents, simulated, failed]) == []


def test_a_prediction_stands_beside_the_published_one(documents):
    settings = {"model": "darknet19", "precision": "float32", "batch_size": 1}
    ours = make_record("predict", settings, {"call_time": 0.02})
    published, own = published_figures([*documents, ours])
    assert (published.value, own.value) == (1.97, 0.02)
    assert published.question == own.question == "darknet19, float32, batch 1: a call"
    other = make_record("inference", settings, {"call_time": 0.02})
    assert published_figures([*documents, other]) == [], "of images that are on the device"


def test_images_per_second_of_resnet50_stand_beside_the_published_ones(documents):
    settings = {"model": "resnet50", "precision": "float32", "batch_size": 64}
    ours = make_record("batch_sweep", settings, {"images_per_second": 5.0, "step_time": 12.8})
    figures = published_figures([*documents, ours])
    assert {figure.question for figure in figures} == {
        "resnet50, float32, batch 64: images per second in training"
    }
    values = {figure.record.provenance["accelerator"]: figure.value for figure in figures}
    assert values == {"Tesla K80": 51.9, "Tesla P100 SXM2": 219.0, "ours": 5.0}
    inference = make_record("inference", settings, {"images_per_second": 5.0})
    assert published_figures([*documents, inference]) == []


def inference(model: str, images_per_second: float, platform: str, latency: float = 0.005):
    settings = {"model": model, "precision": "float32", "batch_size": 8}
    metrics = {"images_per_second": images_per_second, "latency_p99": latency}
    return make_record("inference", settings, metrics, platform=platform, accelerator=platform)


def test_inferences_relative_to_our_tpu_or_cpu(documents):
    """Twice as many of one network and eight times as many of another: four times."""
    cpu = [inference("a", 100.0, "cpu"), inference("b", 10.0, "cpu")]
    gpu = [inference("a", 200.0, "gpu"), inference("b", 80.0, "gpu"), inference("c", 9.0, "gpu")]
    figures = published_figures([*documents, *cpu, *gpu])
    values = {figure.record.provenance["accelerator"]: figure.value for figure in figures}
    assert {figure.metric for figure in figures} == {"relative_inferences"}
    assert values.pop("gpu") == pytest.approx(4.0)
    assert sorted(values.values()) == [0.0769, 1.0, 2.0]
    tpu = [inference("a", 400.0, "tpu")]
    figures = published_figures([*documents, *cpu, *gpu, *tpu])
    values = {figure.record.provenance["accelerator"]: figure.value for figure in figures}
    assert (values["cpu"], values["gpu"]) == (pytest.approx(0.25), pytest.approx(0.5))
    too_slow = [inference("a", 400.0, "gpu", latency=0.02)]
    assert published_figures([*documents, *cpu, *too_slow]) == []
    other = inference("a", 900.0, "gpu")
    other.provenance["machine"] = "other"
    assert published_figures([*documents, *gpu, other]) == [], "neither a TPU nor a CPU"


def kernel(name: str, seconds: float, flops: float, **provenance) -> Record:
    metrics = {"call_time": seconds, "flops_per_second": flops / seconds}
    return make_record("kernels", {"kernel": name, "dtype": "float32"}, metrics, **provenance)


def test_the_speed_of_a_naive_product_relative_to_the_cpus(documents):
    cpu = kernel("rung-element-64-float32", 8e-3, 2 * 64**3)
    gpu = kernel("rung-element-64-float32", 1e-3, 2 * 64**3, accelerator="GPU", platform="gpu")
    published, ours = published_figures([*documents, cpu, gpu])
    assert (published.value, published.record.provenance["document"]) == (5.0, "E")
    assert ours.record is gpu and ours.value == pytest.approx(8.0)
    assert published_figures([*documents, gpu]) == [], "there is no CPU to compare with"


def test_the_library_over_the_naive_product():
    naive = kernel("rung-element-64-float32", 1.0, 1e6)
    slower = kernel("rung-element-16-float32", 1.0, 1e5)
    library = kernel("rung-xla-256-float32", 1.0, 5e8)
    alone = kernel("rung-xla-256-float32", 1.0, 1e9, accelerator="another")
    (figure,) = library_over_naive([naive, slower, library, alone])
    assert figure.record is library and figure.value == pytest.approx(500.0)
