"""Parity: a record, a second platform simulated from it, and runs that really differ."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from etils import epath

from experiments import records, run
from experiments.analysis import platform_parity
from experiments.config import RunConfig
from experiments.harness.study import Context
from experiments.records import Record
from experiments.studies import parity, train_cases
from experiments.studies.parity import PROJECTIONS, TWINS, PerturbedStep, TwinState, sketch
from jaxcnn import models, training
from jaxcnn.backend import Backend
from tests.support.records import read_records

SMALL = [
    "--study=parity",
    "--device=cpu:1",
    "--model=mlp:16",
    "--dataset=synthetic:200",
    "--batch-size=16",
    "--epochs=2",
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A results folder with a measured record, and that record."""
    folder = tmp_path_factory.mktemp("measured")
    assert run.main([*SMALL, f"--results={folder}"]) == 0
    (record,) = read_records(folder, "parity")
    return folder, record


@pytest.mark.parametrize(
    ("step", "factor", "same", "verdict"),
    [
        (0, 1.0, True, "identical"),
        (2, 1 + 1e-7, True, "unchanged"),
        (0, 1.01, False, "different from the start"),
        (4, 1.5, False, "different from step 5 on"),
    ],
)
def test_records_of_two_folders_are_compared(measured, tmp_path, step, factor, same, verdict):
    """The second folder has what another platform would have written.

    Its losses from one step on are multiplied by a factor, and its twins are as far from its run as
    the measured twins are from the measured run.
    """
    folder, record = measured
    samples = record["samples"]
    losses = [
        loss * factor if index >= step else loss for index, loss in enumerate(samples["loss"])
    ]
    triples = zip(losses * TWINS, samples["loss"] * TWINS, samples["twin_loss"], strict=True)
    twin_losses = [new * twin / old for new, old, twin in triples]
    gpu = {
        "platform": "gpu",
        "accelerator": "Simulated GPU",
        "device_kind": "Simulated GPU",
        "machine": "0",
    }
    changes = {
        "samples": samples | {"loss": losses, "twin_loss": twin_losses},
        "provenance": record["provenance"] | gpu,
    }
    records.write(Record(**(record | changes)), epath.Path(tmp_path))
    both, problems = records.load([folder, tmp_path])
    (pair,) = platform_parity.parities(both)
    assert not problems and pair.theirs.provenance["accelerator"] == "Simulated GPU"
    assert pair.same is same and pair.verdict.startswith(verdict), pair.verdict
    assert platform_parity.conclusion(both) == [f"products highest: {pair.verdict}"]


def test_the_record_has_losses_norms_and_projections_of_every_array(measured):
    _, record = measured
    samples, arrays = record["samples"], len(record["provenance"]["leaves"])
    assert arrays == 6
    assert len(samples["norm"]) == arrays and len(samples["projection"]) == arrays * PROJECTIONS
    steps = len(samples["loss"])
    assert steps == record["metrics"]["steps"] == 18
    assert len(samples["twin_loss"]) == TWINS * steps
    twins = {
        tuple(samples["twin_loss"][first : first + steps])
        for first in range(0, TWINS * steps, steps)
    }
    assert len(twins) > 1 and twins != {tuple(samples["loss"])}, "each twin is rounded differently"
    assert 0 < record["metrics"]["rounding_drift"] < 0.1


def test_projections_estimate_a_distance():
    rng = np.random.default_rng(0)
    params = {f"leaf {number:02}": rng.normal(size=(30, 20)) for number in range(40)}
    others = {name: leaf + 1e-3 * rng.normal(size=leaf.shape) for name, leaf in params.items()}
    a, b = sketch(params), sketch(others)
    estimate = np.sqrt(np.sum(np.square(np.subtract(a.projections, b.projections))) / PROJECTIONS)
    exact = np.sqrt(sum(np.sum(np.square(params[name] - others[name])) for name in params))
    assert estimate == pytest.approx(exact, rel=0.25)  # 160 projections: a standard error of 6 %
    assert a.norms == pytest.approx([np.linalg.norm(leaf) for leaf in params.values()])


def test_a_perturbation_changes_the_loss_and_not_the_weights():
    """With a learning rate near zero, the weights change only by rounding."""
    optimizer = training.optimizer("sgd", 1e-30, "constant", steps=1, steps_per_epoch=1)
    state, step = training.create(models.build("mlp:16"), optimizer)
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, (4, 28, 28, 1), np.uint8),
        "label": np.arange(4, dtype=np.int32),
    }
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    twin = TwinState(**fields, number=np.int32(0))
    next_state, metrics = jax.jit(PerturbedStep(step, 2.0**-7))(twin, batch)
    pairs = zip(jax.tree.leaves(next_state.params), jax.tree.leaves(state.params), strict=True)
    for new, old in pairs:
        np.testing.assert_allclose(new, old, rtol=2.0**-22, atol=1e-29)
    _, expected = jax.jit(step)(state, batch)
    assert 1e-5 < abs(float(metrics["loss"] / expected["loss"]) - 1) < 0.1


def measure_record(backend: Backend, **options) -> Record:
    """Measures a case on simulated devices; every set of options counts as another platform."""
    config = RunConfig(model="mlp:16", dataset="synthetic:200", batch_size=16, epochs=2, **options)
    (case,) = parity.cases(config, backend)
    result = parity.measure(case, Context(backend, None, None))
    platform = {"platform": "cpu", "accelerator": json.dumps(options)}
    return Record(
        "parity",
        "case",
        "ok",
        settings={"strategy": "jit"},
        metrics=result.metrics,
        samples=result.samples,
        provenance=platform | result.provenance,
    )


def test_eight_devices_train_the_same_and_a_slightly_different_recipe_does_not(devices):
    backend = Backend("cpu", devices, simulated=True)
    config = RunConfig(model="mlp:16", dataset="synthetic:200", batch_size=16, epochs=2)
    (case,) = train_cases.cases(config, backend)
    learning_rate = 1.01 * case.config.learning_rate
    reference = measure_record(backend, strategy="jit")

    def compare(**options) -> platform_parity.Parity:
        (pair,) = platform_parity.parities([reference, measure_record(backend, **options)])
        return pair

    eight_devices = compare(strategy="data")
    assert eight_devices.same is True, eight_devices.verdict
    other_rate = compare(strategy="jit", learning_rate=learning_rate)
    assert other_rate.same is False
    assert other_rate.verdict.startswith("different from step "), other_rate.verdict
    other_seed = compare(strategy="jit", seed=1)
    assert other_seed.verdict.startswith("different from the start"), other_seed.verdict
