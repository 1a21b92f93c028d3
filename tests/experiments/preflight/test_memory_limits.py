"""What does not fit in a target's memory, and the largest batch that does."""

import dataclasses

import pytest

from experiments import records
from experiments.preflight import compiler as compilers
from experiments.preflight import terminal
from experiments.preflight.result import LOWEST, CompileResult
from experiments.studies import preflight
from tests.support.preflight import needs_libtpu, run


@needs_libtpu
def test_a_program_that_does_not_fit_is_refused_in_the_compilers_own_figures(tmp_path, capfd):
    code, (record,) = run(
        tmp_path, "--target=tpu-v5e-1", "--model=mlp", "--batch-size=67108864", "--fixed-batch"
    )
    assert code == 1 and record.status == "out_of_memory"
    assert record.metrics["memory_planned"] > record.metrics["memory_available"] == 15.75 * 2**30
    assert "GiB required on a device, 15.75 GiB available" in record.message
    assert record.message in capfd.readouterr().out


@pytest.mark.parametrize(
    ("state", "name"), [("out_of_memory", "the compiler's own"), ("failed", "lowest")]
)
def test_a_program_that_is_much_too_large_has_figures_of_the_default_level(
    state, name, tmp_path, monkeypatch
):
    """Those of the lowest level, if it is not refused again."""
    refusals = {
        LOWEST: CompileResult("out_of_memory", required=4e12, available=1e12),
        "": CompileResult(state, required=3e12, available=1e12),
    }

    class FakeCompiler(compilers.Compiler):
        def __call__(self, request):
            return refusals[request.level]

    monkeypatch.setattr(preflight, "Compiler", FakeCompiler)
    _, (record,) = run(tmp_path, "--target=cpu", "--model=logistic", "--fixed-batch")
    assert record.provenance["level"] == name
    assert record.metrics["memory_planned"] == (4e12 if name == "lowest" else 3e12)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [512, 1024, 4096])
def test_cats_versus_dogs_fits_at_512_and_is_refused_above(batch_size, tmp_path):
    """A1 needs 14 GB for its temporaries at 512, by the same compiler."""
    code, (record,) = run(
        tmp_path,
        "--target=tpu-v5e-1",
        "--model=cats_vs_dogs",
        f"--batch-size={batch_size}",
        "--precision=bfloat16",
        "--fixed-batch",
    )
    fits, metrics = batch_size == 512, record.metrics
    assert (code, record.status) == ((0, "predicted") if fits else (1, "out_of_memory"))
    assert metrics["memory_available"] == 15.75 * 2**30
    assert (metrics["memory_planned"] <= 15.75 * 2**30) == fits
    if batch_size == 4096:
        assert metrics["memory_planned"] == pytest.approx(67 * 2**30, rel=0.05)


@needs_libtpu
@pytest.mark.slow
def test_the_largest_batch_is_found_below_one_that_is_refused(tmp_path):
    """The convolutions of CIFAR's tutorial have 64 · (24² + 12²) outputs of two bytes an image."""
    code, (record,) = run(
        tmp_path,
        "--target=tpu-v5e-1",
        "--model=cifar_tutorial",
        "--batch-size=262144",
        "--precision=bfloat16",
    )
    metrics = record.metrics
    assert code == 1 and record.status == "out_of_memory"
    # Outputs and their gradients, of a layer at least and of all layers, as is and after ReLU.
    outputs = 2 * 64 * 24**2, 2 * 64 * (24**2 + 12**2)
    assert 15.75 * 2**30 / (4 * outputs[1]) < metrics["largest_batch"]
    assert metrics["largest_batch"] < metrics["smallest_refused_batch"]
    assert metrics["smallest_refused_batch"] < 15.75 * 2**30 / outputs[0]


def test_a_largest_batch_that_recomputes_activations_says_so():
    metrics = {"largest_batch": 1072, "smallest_refused_batch": 1104}
    metrics |= {"recomputed_flops": 1.5, "largest_batch_without_recomputing": 576}
    provenance = {"batches_tried": [256, 576, 1072, 1104]}
    record = records.Record("preflight", "x", "predicted", metrics=metrics, provenance=provenance)
    assert terminal._largest_batch(record) == (
        "a batch of 1,072 fits, one of 1,104 does not (4 batches tried); it recomputes activations "
        "(50% more FLOPs); the largest batch tried without recomputation is 576"
    )
    lean = dataclasses.replace(record, metrics=metrics | {"recomputed_flops": 1.0})
    assert terminal._largest_batch(lean).endswith("(4 batches tried)")
    failed = {"batches_tried": [512, 4096]}
    ended = dataclasses.replace(lean, metrics={"largest_batch": 512}, provenance=failed)
    assert terminal._largest_batch(ended) == (
        "a batch of 512 fits, one of 4,096 failed (2 batches tried)"
    )
