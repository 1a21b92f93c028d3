"""Parity: verdicts on records by hand, a second platform made up from a real record, and runs that really differ."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from etils import epath

from experiments import records, run
from experiments.analysis import drift
from experiments.config import RunConfig
from experiments.harness.study import Context
from experiments.records import Record
from experiments.studies import parity, train
from experiments.studies.parity import PROJECTIONS, TWINS, Nudged, Twin, sketch
from jaxcnn import models, training
from jaxcnn.backend import Backend

SMALL = [
    "--study=parity",
    "--device=cpu:1",
    "--model=mlp:16",
    "--dataset=synthetic:200",
    "--batch-size=16",
    "--epochs=2",
]
LOSSES, TWIN = [2.0, 1.0, 1.0, 0.5], [2.0, 1.000001, 1.000002, 0.5]
# Of one array with norm 1 and two projections: the mean square difference from the twin's is (3e-6)².
SKETCH = {"norm": [1.0], "projection": [0.5, -0.5], "twin_projection": [0.500003, -0.500003]}


def record(accelerator: str, losses=LOSSES, *, projection=None, settings=None, **samples) -> Record:
    given = (
        {"loss": list(losses), "twin_loss": TWIN}
        | SKETCH
        | ({"projection": projection} if projection is not None else {})
        | samples
    )
    return Record(
        "parity", "case", "ok", settings=settings or {"model": "lenet5", "strategy": "jit"}, metrics={"product_bits": 23}, samples=given,
        provenance={"platform": "cpu" if accelerator == "CPU" else "gpu", "accelerator": accelerator, "machine": accelerator},
    )  # fmt: skip


def test_drift_and_yardstick_by_hand():
    (found,) = drift.parities(
        [record("GPU", [2.0, 1.0, 1.000004, 0.5], projection=[0.5, -0.500004]), record("CPU")]
    )
    assert found.ours.provenance["accelerator"] == "CPU", "the CPU comes first"
    assert found.drift == pytest.approx((0, 0, 4e-6, 4e-6), rel=1e-3), "the largest up to each step"
    # both are 1e-6 from their twins at step 2 and 2e-6 at step 3, the GPU on the other side
    assert found.yardstick == pytest.approx((2**-23, 1e-6, 2e-6, 2e-6), rel=1e-3)
    assert found.parameters == pytest.approx(4e-6 / 2**0.5, rel=1e-3)
    assert found.parameters_yardstick == pytest.approx(3e-6, rel=1e-3), (
        "the CPU's; the GPU's is the root of (3² + 1²) / 2"
    )
    assert found.same is True
    assert found.verdict.startswith(
        "unchanged: losses drift apart by 4.0e-06 by step 4, where rounding alone explains 2.0e-06"
    )


@pytest.mark.parametrize(
    ("losses", "projection", "same", "verdict"),
    [
        (LOSSES, None, True, "identical: every loss of 4 steps to the last bit"),
        (
            [2.001, 1.0, 1.0, 0.5],
            None,
            False,
            "different from the start: the first loss, before any update, is 5.0e-04 apart",
        ),
        (
            [2.0, 1.0, 1.001, 0.5],
            None,
            False,
            "different from step 3 on: losses 1.0e-03 apart, where rounding explains",
        ),
        (
            LOSSES,
            [0.5, -0.51],
            False,
            "different parameters: 7.1e-03 of their norm apart, where rounding explains 3.0e-06",
        ),
    ],
    ids=["identical", "from the start", "later", "parameters"],
)
def test_verdicts(losses, projection, same, verdict):
    twin = {
        "twin_loss": [
            loss * ratio for loss, ratio in zip(losses, (1, 1.000001, 1.000002, 1), strict=True)
        ]
    }
    (found,) = drift.parities(
        [
            record("CPU"),
            record("GPU", losses, projection=projection, **twin, **_twin_of(projection)),
        ]
    )
    assert found.same is same and found.verdict.startswith(verdict), found.verdict


def _twin_of(projection: list[float] | None) -> dict[str, list[float]]:
    return {"twin_projection": [value + 3e-6 for value in projection]} if projection else {}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"loss": [2.0, 1.0], "twin_loss": [2.0, 1.0]}, "4 and 2 values of loss"),
        ({"loss": [2.0, None, 1.0, 0.5]}, "a record has no loss, or one that is no number"),
        ({"projection": []}, "a record has no projection"),
        (
            {"twin_loss": [2.0, 1.0, 1.0]},
            "a run and its twins have not the same number of values of loss",
        ),
        ({"norm": [1.0, 1.0]}, "1 and 2 values of norm"),
    ],
)
def test_what_cannot_be_compared_says_why(changes, problem):
    (found,) = drift.parities(
        [record("CPU"), record("GPU", losses=changes.pop("loss", LOSSES), **changes)]
    )
    assert (
        found.same is None
        and found.verdict.startswith("cannot be compared: ")
        and problem in found.verdict
    )


@pytest.mark.parametrize(
    "other",
    [
        record("GPU", settings={"model": "mlp", "strategy": "jit"}),
        Record("parity", "case", "failed", settings={"model": "lenet5", "strategy": "jit"}),
        Record("train", "case", "ok", settings={"model": "lenet5", "strategy": "jit"}),
        record("CPU"),
    ],
    ids=["another network", "failed", "another study", "the same platform"],
)
def test_another_question_is_not_compared(other):
    assert drift.parities([record("CPU"), other]) == []


def test_the_yardstick_is_that_of_the_worst_twin():
    """One twin of four goes another way at step 2, as the GPU does."""
    twins = [*TWIN, 2.0, 1.01, 1.01, 0.5, *TWIN, *TWIN]
    gpu = record(
        "GPU", [2.0, 1.02, 1.02, 0.5], projection=[0.5, -0.500004], twin_loss=[2.0, 1.02, 1.02, 0.5]
    )
    (alone,) = drift.parities([record("CPU"), gpu])
    assert alone.verdict.startswith("different from step 2 on")
    (found,) = drift.parities([record("CPU", twin_loss=twins), gpu])
    assert found.yardstick[1:] == pytest.approx([0.01 / 1.01] * 3) and found.same is True


def test_another_strategy_is_the_same_question():
    (found,) = drift.parities(
        [record("CPU"), record("CPU", settings={"model": "lenet5", "strategy": "data"})]
    )
    assert found.verdict.startswith("identical")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with a real record, and that record."""
    folder = tmp_path_factory.mktemp("own")
    assert run.main([*SMALL, f"--results={folder}"]) == 0
    (path,) = (folder / "parity").glob("*.json")
    return folder, json.loads(path.read_text())


@pytest.mark.parametrize(
    ("step", "factor", "same", "verdict"),
    [
        (0, 1.0, True, "identical"),
        (2, 1 + 1e-7, True, "unchanged"),
        (0, 1.01, False, "different from the start"),
        (4, 1.5, False, "different from step 5 on"),
    ],
)
def test_two_folders_with_a_made_up_second_device_give_the_verdict(
    own, tmp_path, step, factor, same, verdict
):
    """What a second platform would have written, its losses from one step on changed by a factor."""
    folder, found = own
    loss = [
        value * factor if index >= step else value
        for index, value in enumerate(found["samples"]["loss"])
    ]
    origin = found["provenance"] | {
        "platform": "gpu",
        "accelerator": "Made-up GPU",
        "device_kind": "Made-up GPU",
        "machine": "0",
    }
    other = found | {"samples": found["samples"] | {"loss": loss}, "provenance": origin}
    records.write(
        Record(**(other | {"samples": other["samples"] | {"twin_loss": _shifted(found, loss)}})),
        epath.Path(tmp_path),
    )
    all_records, problems = records.load([folder, tmp_path])
    (pair,) = drift.parities(all_records)
    assert not problems and pair.theirs.provenance["accelerator"] == "Made-up GPU"
    assert pair.same is same and pair.verdict.startswith(verdict), pair.verdict
    assert drift.conclusion(all_records) == [f"products highest: {pair.verdict}"]


def _shifted(found: dict, loss: list[float]) -> list[float]:
    """The made-up device's twin: as far from its run as the real one's is from the real run."""
    samples = found["samples"]
    pairs = zip(loss * TWINS, samples["loss"] * TWINS, samples["twin_loss"], strict=True)
    return [new * twin / old for new, old, twin in pairs]


def test_the_record_has_losses_norms_and_projections_of_every_array(own):
    _, found = own
    samples, leaves = found["samples"], found["provenance"]["leaves"]
    assert (
        len(leaves) == 6
        and len(samples["norm"]) == 6
        and len(samples["projection"]) == 6 * PROJECTIONS
    )
    assert (
        len(samples["loss"]) == found["metrics"]["steps"] == 18
        and len(samples["twin_loss"]) == TWINS * 18
    )
    twins = {tuple(samples["twin_loss"][first : first + 18]) for first in range(0, TWINS * 18, 18)}
    assert len(twins) > 1 and twins != {tuple(samples["loss"])}, (
        "twins are rounded otherwise, each in its own way"
    )
    assert 0 < found["metrics"]["rounding_drift"] < 0.1


def test_projections_estimate_a_distance():
    rng = np.random.default_rng(0)
    ours = {f"leaf {number:02}": rng.normal(size=(30, 20)) for number in range(40)}
    theirs = {name: leaf + 1e-3 * rng.normal(size=leaf.shape) for name, leaf in ours.items()}
    a, b = sketch(ours), sketch(theirs)
    estimate = np.sqrt(np.sum(np.square(np.subtract(a.projections, b.projections))) / PROJECTIONS)
    exact = np.sqrt(sum(np.sum(np.square(ours[name] - theirs[name])) for name in ours))
    assert estimate == pytest.approx(exact, rel=0.25)  # 160 projections: a standard error of 6 %
    assert a.norms == pytest.approx([np.linalg.norm(leaf) for leaf in ours.values()])


def test_a_nudge_changes_what_the_arithmetic_sees_and_not_the_weights():
    """With a rate of zero the weights stay, but for one rounding of taking the nudge off; the loss is another."""
    state, step = training.create(
        models.build("mlp:16"),
        training.optimizer("sgd", 1e-30, "constant", steps=1, steps_per_epoch=1),
    )
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, (4, 28, 28, 1), np.uint8),
        "label": np.arange(4, dtype=np.int32),
    }
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    after, metrics = jax.jit(Nudged(step, 2.0**-7))(Twin(**fields, number=np.int32(0)), batch)
    for new, old in zip(jax.tree.leaves(after.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(new, old, rtol=2.0**-22, atol=1e-29)
    _, expected = jax.jit(step)(state, batch)
    assert 1e-5 < abs(float(metrics["loss"] / expected["loss"]) - 1) < 0.1


def measured(backend: Backend, **changes) -> Record:
    """A run on the simulated devices; its record says it was made elsewhere."""
    config = RunConfig(model="mlp:16", dataset="synthetic:200", batch_size=16, epochs=2, **changes)
    (case,) = parity.cases(config, backend)
    found = parity.measure(case, Context(backend, None, None))
    origin = {"platform": "cpu", "accelerator": json.dumps(changes)} | found.provenance
    return Record(
        "parity",
        "case",
        "ok",
        settings={"strategy": "jit"},
        metrics=found.metrics,
        samples=found.samples,
        provenance=origin,
    )


def test_eight_devices_train_the_same_and_a_slightly_different_recipe_does_not(devices):
    backend = Backend("cpu", devices, simulated=True)
    (case,) = train.cases(
        RunConfig(model="mlp:16", dataset="synthetic:200", batch_size=16, epochs=2), backend
    )
    one = measured(backend, strategy="jit")
    (same,) = drift.parities([one, measured(backend, strategy="data")])
    assert same.same is True, same.verdict
    (rate,) = drift.parities(
        [one, measured(backend, strategy="jit", learning_rate=1.01 * case.config.learning_rate)]
    )
    assert rate.same is False and rate.verdict.startswith("different from step "), rate.verdict
    (seed,) = drift.parities([one, measured(backend, strategy="jit", seed=1)])
    assert seed.verdict.startswith("different from the start"), seed.verdict
