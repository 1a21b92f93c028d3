"""The published figures of the reproduced studies, as records."""

from pathlib import Path

import pytest
from etils import epath

from experiments import records
from experiments.analysis.side_by_side import side_by_side
from experiments.records.published import PUBLISHED
from experiments.report import write_page

DOCUMENTS = Path(PUBLISHED) / "documents"


@pytest.fixture(scope="module")
def published() -> dict[str, records.Record]:
    """The records of the documents, by case."""
    loaded, problems = records.load([PUBLISHED])
    assert problems == []
    return {
        record.case.removeprefix("document-"): record
        for record in loaded
        if record.provenance.get("published")
    }


def test_published_files_need_no_validation():
    assert records.load([PUBLISHED], validated=True) == records.load([PUBLISHED])


def test_no_case_depends_on_the_folders_of_a_machine():
    loaded, _ = records.load([PUBLISHED])
    values = {str(value) for record in loaded for value in record.settings.values()}
    assert len(loaded) > 7000 and [value for value in values if Path(value).is_absolute()] == []


def test_every_record_names_its_source(published):
    assert {record.provenance["document"] for record in published.values()} == set("ABCE")
    assert {path.stem for path in DOCUMENTS.glob("*.json")} == set("abce")
    for case, record in published.items():
        origin = record.provenance
        assert (
            case.startswith(origin["document"].lower())
            and origin["where"]
            and origin["title"]
            and origin["accelerator"]
        )
        assert origin["machine"] == f"document {origin['document']}"
        assert origin["where"] in origin["remarks"][0]


def test_no_record_replaces_another_as_the_latest(published):
    loaded = [*published.values()]
    assert (
        len(records.latest(loaded))
        == len(loaded)
        == sum(path.read_text().count('"schema"') for path in DOCUMENTS.glob("*.json"))
    )


def test_a3_the_three_machines(published):
    cpu, mx150, t4 = (
        published["a-i5-8250u-b16"].metrics,
        published["a-mx150-b16"].metrics,
        published["a-t4-b128"].metrics,
    )
    assert cpu["training_time"] == (1 * 60 + 58) * 60
    assert cpu["step_time"] * 1250 == pytest.approx(cpu["training_time"])
    assert mx150["step_time"] == 0.542 and mx150["training_time"] == 678
    assert mx150["step_time"] * mx150["steps"] == pytest.approx(678, abs=1)
    assert t4["steps"] == -(-20_000 // 128) and 379 <= t4["training_time"] <= 389
    failed = published["a-mx150-b32"]
    assert (
        failed.status == "out_of_memory"
        and failed.settings["batch_size"] == 32
        and "[32, 128, 64, 64]" in failed.message
    )


def test_the_other_figures(published):
    values = {
        ("a-stage-1", "validation_accuracy"): 0.958,
        ("a-stage-2", "validation_accuracy"): 0.968,
        ("b-k80", "step_time"): 0.018,
        ("b-k80", "total_loss"): 1.4,  # with the penalty, as the tutorial prints it
        ("b-x86", "total_loss"): 1.4,
        ("b-k80", "training_time"): 13 * 60,
        ("b-x86", "training_time"): 9 * 3600,
        ("c-darknet19", "call_time"): 1.97,
        ("c-knn", "test_accuracy"): 0.97369,
        ("c-random-forest", "test_accuracy"): 0.968,
        ("c-mlp-4096", "parameters"): 3_215_360 + 16_781_312 + 40_970,
        ("c-tpu-v1", "peak_published"): 90e12,
        ("c-p40", "relative_inferences"): 2,
        ("c-tpu-v2-pod", "peak_published"): 11.6e15,
        ("c-v100", "peak_published"): 125e12,
        ("e-k20x", "speed_up_over_cpu"): 5,
        ("e-k80-resnet50", "images_per_second"): 51.9,
        ("e-p100-resnet50", "images_per_second"): 219,
    }
    assert {key: published[key[0]].metrics[key[1]] for key in values} == values
    assert published["c-k80"].metrics["relative_inferences"] == pytest.approx(1 / 13, abs=1e-4)
    assert published["c-tpu-v2-pod"].provenance["strategy_devices"] == 64


def test_the_published_loss_is_beside_our_total_loss():
    """Of ours, the two parts are in the curves: the cross-entropy 0.987 and the penalty."""
    loaded, _ = records.load([PUBLISHED])
    (ours,) = (
        record
        for record in loaded
        if record.settings.get("model") == "cifar_tutorial" and record.curves
    )
    penalty = ours.curves[-1]["train_penalty"]
    assert ours.metrics["training_loss"] == pytest.approx(0.98734, abs=1e-5)
    assert penalty > 0.1
    assert ours.metrics["total_loss"] == pytest.approx(0.98734 + penalty, abs=1e-5)


def test_the_report_shows_them(published, tmp_path):
    page = write_page([], epath.Path(tmp_path / "report.html")).read_text()
    for text in (
        "Tesla K20X (published)",
        "GeForce MX150",
        "out_of_memory",
        "542 ms",
        "Intel Core i5-8250U",
    ):
        assert text in page, text


def test_machines_of_one_case_are_compared_without_a_noise_estimate(published):
    (group,) = [
        group
        for group in side_by_side([*published.values()])
        if group[0].record.settings["model"] == "cifar_tutorial"
    ]
    fastest, slowest = group
    assert fastest.record.provenance["accelerator"] == "Tesla K80"
    assert slowest.ratio == pytest.approx(0.7 / 0.018) and slowest.verdict.startswith("cannot say")
