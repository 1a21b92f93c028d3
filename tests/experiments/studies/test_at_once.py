"""Training parallelism: many networks at once come to the same as one by one, and every member has its own data."""

import json

import jax
import numpy as np
import pytest

from experiments import run
from experiments.config import RunConfig
from experiments.studies import at_once, train
from experiments.workloads import equivalence
from experiments.workloads.ensembles import members
from experiments.workloads.setup import build_setup
from jaxcnn import models, training
from jaxcnn.backend import Backend
from jaxcnn.data.scheduled import ScheduledFeed, table
from jaxcnn.errors import InputError
from jaxcnn.parallel.members import Members

SMALL = ["--study=at_once", "--model=logistic", "--dataset=synthetic:200", "--batch-size=16"]
SHARED = {"image": None, "label": None, "rows": 0}
STEPS, BATCH = 3, 4
SAME = 1e-5  # of the largest parameter of an array: three steps of momentum, sums in another order


def both_ways(model: str, shape: tuple[int, int, int], count: int, devices):
    """Parameters of so many networks after `STEPS` steps: all at once, and each by a program of its own."""
    rng = np.random.default_rng(0)
    data = {
        "image": rng.integers(0, 256, (40, *shape), np.uint8),
        "label": rng.integers(0, 10, 40, np.int32),
    }
    optimizer = training.optimizer("momentum", 0.05, "constant", steps=1, steps_per_epoch=1)
    created = [
        training.create(models.build(model, input_shape=shape, seed=seed), optimizer, seed=seed)
        for seed in range(count)
    ]
    states, step = [state for state, _ in created], created[0][1]
    run_steps = training.multi_step(step, ScheduledFeed(STEPS))
    rows = np.stack([table(range(40), STEPS, BATCH, seed) for seed in range(count)])
    over = Members(count, devices)
    together = over.compile(run_steps, (0, SHARED, None))
    after, _ = together(
        over.place(states), over.place_data(data | {"rows": rows}, SHARED), np.int32(STEPS)
    )
    single = jax.jit(run_steps)
    alone = [
        single(state, data | {"rows": own}, np.int32(STEPS))[0].params
        for state, own in zip(states, rows, strict=True)
    ]
    return over, over.fetch(after.params), jax.device_get(alone)


@pytest.mark.parametrize("count", [1, 8], ids=["one device", "eight devices"])
def test_eight_lenet_likes_at_once_have_the_parameters_of_eight_runs(count, devices):
    over, together, alone = both_ways("lenet_like", (32, 32, 1), 8, devices[:count])
    assert len(over.devices) == count
    assert equivalence.largest_difference(together, alone) < SAME
    assert equivalence.largest_difference(together[0], alone[1]) > 0.1, (
        "members are different networks"
    )


def test_dropout_draws_for_each_member_what_it_draws_alone(devices):
    _, together, alone = both_ways("mlp:16", (28, 28, 1), 4, devices[:2])
    assert equivalence.largest_difference(together, alone) < SAME


@pytest.mark.parametrize(
    ("count", "devices_there", "used"), [(8, 8, 8), (6, 8, 6), (6, 4, 3), (5, 4, 1), (1, 8, 1)]
)
def test_as_many_devices_as_divide_the_members(count, devices_there, used, devices):
    assert len(Members(count, devices[:devices_there]).devices) == used


def test_members_that_cannot_be(devices):
    with pytest.raises(ValueError, match="needs members and devices"):
        Members(0, devices)
    with pytest.raises(ValueError, match="1 states for 2 members"):
        Members(2, devices).place(
            [
                training.create(
                    models.build("logistic"),
                    training.optimizer("sgd", 0.1, "constant", steps=1, steps_per_epoch=1),
                )[0]
            ]
        )


def test_a_table_holds_whole_batches_epoch_by_epoch():
    rows = table(
        range(10, 17), steps=5, batch_size=3, seed=1
    )  # two batches an epoch, one of seven rows is left out
    assert rows.shape == (5, 3) and rows.dtype == np.int32
    for epoch in (rows[:2], rows[2:4]):
        assert len(set(epoch.ravel())) == 6 and set(epoch.ravel()) <= set(range(10, 17))
    assert rows[:2].tolist() != rows[2:4].tolist()
    assert table(range(10, 17), 5, 3, seed=2).tolist() != rows.tolist()


@pytest.fixture(scope="module")
def setup():
    config = RunConfig(
        model="logistic",
        dataset="synthetic:200",
        batch_size=16,
        epochs=2,
        strategy="jit",
        preset="full",
    )
    backend = Backend("cpu", tuple(jax.devices()[:1]))
    (case,) = train.cases(config, backend)
    return case.config, build_setup(case.config, backend)


def test_folds_are_judged_by_what_they_were_not_trained_on_and_all_is_judged_once(setup):
    config, run_ = setup
    found = members("folds", 4, config, run_, 18)  # 160 images: 40 a fold
    for member in found:
        assert len(member.held_out) == 40 and not set(member.rows.ravel()) & set(member.held_out)
    assert sorted(np.concatenate([member.held_out for member in found])) == list(range(160))


def test_seeds_differ_in_weights_and_order_and_rates_in_the_rate_alone(setup):
    config, run_ = setup
    one, two = members("seeds", 2, config, run_, 9)
    assert (
        equivalence.largest_difference(one.state.params, two.state.params) > 0.1
        and one.rows.tolist() != two.rows.tolist()
    )
    assert equivalence.largest_difference(one.state.params, run_.state.params) == 0, (
        "the first has the run's own seed"
    )
    slow, quick = members("rates", 2, config, run_, 9)
    assert slow.rows.tolist() == quick.rows.tolist()
    assert float(quick.state.lr_scale / slow.state.lr_scale) == pytest.approx(128)  # from 1/16 to 8
    assert quick.learning_rate == pytest.approx(8 * config.learning_rate)


def test_too_many_folds_are_refused(setup):
    config, run_ = setup
    with pytest.raises(InputError, match="160 training images are too few for 161 folds"):
        members("folds", 161, config, run_, 9)


def found_in(folder) -> dict[str, dict]:
    records = [json.loads(path.read_text()) for path in (folder / "at_once").glob("*.json")]
    return {record["settings"]["kind"]: record for record in records}


def test_the_study_reports_equal_results_and_the_speed_up(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(at_once.CASES, "quick", (("seeds", 2), ("folds", 2), ("rates", 2)))
    assert run.main([*SMALL, "--device=cpu:1", f"--results={tmp_path}"]) == 0
    found = found_in(tmp_path)
    assert found.keys() == {"seeds", "folds", "rates"}
    for record in found.values():
        metrics = record["metrics"]
        assert (
            metrics["largest_parameter_difference"] < equivalence.SAME
            and metrics["largest_loss_difference"] < equivalence.SAME
        )
        assert metrics["speed_up_low"] <= metrics["speed_up"] <= metrics["speed_up_high"]
        assert metrics["flops_per_step"] == 2 * (2 * 16 * 2 * 7840), (
            "two networks, forward and backward"
        )
        accuracies = [member["accuracy"] for member in record["provenance"]["members"]]
        assert metrics["mean_accuracy"] == pytest.approx(sum(accuracies) / 2)
        assert metrics["accuracy_spread"] == pytest.approx(
            abs(accuracies[0] - accuracies[1]) / 2**0.5
        )
    assert (
        "ensemble_accuracy" in found["seeds"]["metrics"]
        and "ensemble_accuracy" not in found["folds"]["metrics"]
    )
    assert "best_learning_rate" in found["rates"]["metrics"]
    assert "2 members one by one, against at once: " in capsys.readouterr().out


def test_simulated_devices_have_no_speed_up(tmp_path, monkeypatch):
    monkeypatch.setitem(at_once.CASES, "quick", (("seeds", 8),))
    assert run.main([*SMALL, "--device=cpu:8", f"--results={tmp_path}"]) == 0
    (record,) = found_in(tmp_path).values()
    assert (
        record["provenance"]["strategy_devices"] == 8
        and record["metrics"]["largest_parameter_difference"] < equivalence.SAME
    )
    assert (
        not {"speed_up", "step_time", "images_per_second", "one_by_one_time"}
        & record["metrics"].keys()
    )


def test_weights_to_start_from_are_refused(tmp_path, capsys):
    assert (
        run.main([*SMALL, "--device=cpu:1", "--init-from=somewhere", f"--results={tmp_path}"]) == 2
    )
    assert (
        "--init-from: the members of an ensemble start from weights of their own"
        in capsys.readouterr().err
    )
