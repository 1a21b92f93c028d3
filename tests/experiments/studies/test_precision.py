"""The study of precision: four runs of one training, and their comparison worked out by hand."""

import json

import jax
import ml_dtypes
import numpy as np
import pytest

from experiments import run
from experiments.analysis.precisions import conclusion, precisions
from experiments.records import Record
from experiments.studies.precision import FRACTION, kept_bits, product_bits


def record(
    precision: str, products: str, accuracy: float, losses: list[float], **changes
) -> Record:
    fields = {
        "settings": {
            "model": "lenet5",
            "precision": precision,
            "product_precision": products,
            "point": f"{precision}, {products}",
        },
        "metrics": {"test_accuracy": accuracy, "step_time": 0.02, "memory_planned": 1000},
        "samples": {"loss": losses, "step_time": [0.02] * 7},
        "provenance": {"accelerator": "GPU", "machine": "m", "examples": {"test": 400}},
    }
    return Record("precision", "case", "ok", **(fields | changes))


FULL = record("float32", "highest", 0.9, [2.0, 1.0])


def test_a_precision_against_full_float32_by_hand():
    faster = {"loss": [2.0, 1.25], "step_time": [0.01] * 7}
    half = record(
        "bfloat16",
        "default",
        0.88,
        [],
        metrics={"test_accuracy": 0.88, "memory_planned": 600},
        samples=faster,
    )
    (found,) = precisions([FULL, half])
    assert (found.memory, found.drift) == (pytest.approx(0.6), (0.0, pytest.approx(0.2)))
    assert found.speed == "faster: takes 0.500 times as long (0.500 to 0.500)"
    assert found.accuracy == pytest.approx(-0.02)
    assert found.error == pytest.approx(
        1.96 * ((0.9 * 0.1 + 0.88 * 0.12) / 400) ** 0.5
    )  # 4.3 points
    assert found.verdict.startswith(
        "no difference seen: -2.00 points of test accuracy, chance gives ±4.33 with 400 images"
    )
    (line,) = conclusion([FULL, half])
    assert line.startswith(
        "bfloat16, default against full float32: a step: faster: takes 0.500 times as long (0.500 to 0.500); memory: 0.60 of it; "
        "accuracy: no difference seen: -2.00 points"
    )


@pytest.mark.parametrize(
    ("accuracy", "said"), [(0.8, "less accurate: -10.00"), (0.99, "more accurate: +9.00")]
)
def test_more_than_chance_is_called_so(accuracy, said):
    (found,) = precisions([record("float16", "default", accuracy, [2.0, 1.0]), FULL])
    assert found.verdict.startswith(said)


@pytest.mark.parametrize(
    "other",
    [
        record(
            "bfloat16",
            "default",
            0.9,
            [2.0, 1.0],
            provenance={"accelerator": "CPU", "machine": "m", "examples": {"test": 400}},
        ),
        record(
            "bfloat16",
            "default",
            0.9,
            [2.0, 1.0],
            settings={"model": "mlp", "precision": "bfloat16", "product_precision": "default"},
        ),
        record("bfloat16", "default", 0.9, []),
        record("bfloat16", "default", 0.9, [2.0]),
        Record("precision", "case", "failed"),
        FULL,
    ],
    ids=[
        "another accelerator",
        "another network",
        "no losses",
        "another length",
        "failed",
        "full float32 itself",
    ],
)
def test_what_cannot_be_compared_is_not(other):
    assert precisions([FULL, other]) == []


def test_products_in_full_keep_all_bits():
    with jax.default_matmul_precision("highest"):
        assert product_bits(jax.devices()[0]) == FRACTION


def test_products_of_fewer_bits_are_found_out():
    """Factors rounded to bfloat16 keep 7 bits of their fraction, to float16 10, as TF32 does."""
    rows = (1 + 0.5 ** np.arange(1, FRACTION + 1, dtype=np.float32))[:, None]
    assert kept_bits(rows.astype(ml_dtypes.bfloat16).astype(np.float32), rows) == 7
    assert kept_bits(rows.astype(np.float16).astype(np.float32), rows) == 10
    assert kept_bits(rows, rows) == FRACTION


def test_four_precisions_train_on_the_same_steps(tmp_path, capsys):
    arguments = [
        "--study=precision",
        "--device=cpu:1",
        "--model=logistic",
        "--dataset=synthetic:200",
        "--batch-size=16",
    ]
    assert run.main([*arguments, "--epochs=2", f"--results={tmp_path}"]) == 0
    found = {}
    for path in (tmp_path / "precision").glob("*.json"):
        each = json.loads(path.read_text())
        found[each["settings"]["precision"], each["settings"]["product_precision"]] = each
    assert found.keys() == {
        ("float32", "highest"),
        ("float32", "default"),
        ("bfloat16", "default"),
        ("float16", "default"),
    }
    losses = {name: np.array(each["samples"]["loss"]) for name, each in found.items()}
    full = losses["float32", "highest"]
    assert all(len(values) == 18 for values in losses.values())  # 144 images make 9 batches of 16
    for name, tolerance in ((("bfloat16", "default"), 0.1), (("float16", "default"), 0.02)):
        np.testing.assert_allclose(losses[name], full, rtol=tolerance)
        assert np.any(losses[name] != full), "computed in another precision"
    for each in found.values():
        assert each["metrics"]["step_time"] > 0 and each["metrics"]["memory_planned"] > 0
        assert "peak_measured" not in each["metrics"], (
            "the quick preset has no time for the peaks of four precisions"
        )
        assert len(each["curves"]) == 2 and each["provenance"]["examples"]["test"] == 40
    assert "bfloat16, products default against full float32: " in capsys.readouterr().out
