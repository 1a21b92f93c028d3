"""The study of precision: bits that products keep, and four runs of one training."""

import jax
import ml_dtypes
import numpy as np

from experiments import run
from experiments.studies.precision import (
    FRACTION_BITS,
    POLICIES,
    count_kept_bits,
    product_bits,
)
from tests.support.records import read_records


def test_exact_products_keep_all_bits():
    with jax.default_matmul_precision("highest"):
        for dtype, bits in {"float32": 23, "bfloat16": 7, "float16": 10}.items():
            assert product_bits(jax.devices()[0], dtype) == bits == FRACTION_BITS[dtype]


def test_kept_bits_of_rounded_rows():
    """Factors rounded to bfloat16 keep 7 bits of their fraction; to float16 10, as with TF32."""
    rows = (1 + 0.5 ** np.arange(1, 23 + 1, dtype=np.float32))[:, None]
    assert count_kept_bits(rows.astype(ml_dtypes.bfloat16).astype(np.float32), rows) == 7
    assert count_kept_bits(rows.astype(np.float16).astype(np.float32), rows) == 10
    assert count_kept_bits(rows, rows) == 23


def test_four_precisions_train_on_the_same_batches(tmp_path, capsys):
    model = ["--model=logistic", "--dataset=synthetic:200", "--batch-size=16", "--epochs=2"]
    arguments = ["--study=precision", "--device=cpu:1", *model, f"--results={tmp_path}"]
    assert run.main(arguments) == 0
    records = {
        (record["settings"]["precision"], record["settings"]["product_precision"]): record
        for record in read_records(tmp_path, "precision")
    }
    assert records.keys() == set(POLICIES)
    losses = {policy: np.array(record["samples"]["loss"]) for policy, record in records.items()}
    full = losses["float32", "highest"]
    assert all(len(values) == 18 for values in losses.values())  # 144 images: 9 batches of 16
    for policy, tolerance in ((("bfloat16", "default"), 0.1), (("float16", "default"), 0.02)):
        np.testing.assert_allclose(losses[policy], full, rtol=tolerance)
        assert np.any(losses[policy] != full), "computed in another precision"
    for record in records.values():
        metrics = record["metrics"]
        assert metrics["step_time"] > 0 and metrics["memory_planned"] > 0
        assert "peak_measured" not in metrics, "too slow for the quick preset: four precisions"
        assert metrics["product_bits"] == FRACTION_BITS[record["settings"]["precision"]]
        assert len(record["curves"]) == 2
        assert record["provenance"]["examples"]["test"] == 40
    output = capsys.readouterr().out
    assert "bfloat16, products default compared with full float32: " in output
