"""The fastest and the cheapest accelerator, by hand."""

import pytest

from experiments.analysis.standings import estimates, standings
from experiments.records import Record

ORIGIN = ("elsewhere", "simulated")


def run(accelerator, rate, *, study="train", status="ok", cost=None, **changes) -> Record:
    settings = {"model": "lenet5", "dataset": "mnist", "batch_size": 32, "precision": "float32"}
    origin = {"accelerator": accelerator, "platform": "cpu"}
    return Record(
        study,
        f"{accelerator}-{rate}",
        status,
        settings=settings | {k: v for k, v in changes.items() if k not in ORIGIN},
        metrics={"images_per_second": rate} | ({"cost_per_million_images": cost} if cost else {}),
        provenance=origin | {k: v for k, v in changes.items() if k in ORIGIN},
    )


def names(records) -> list[str]:
    return [record.provenance["accelerator"] for record in records]


def test_each_accelerator_is_represented_by_its_fastest_run():
    rows = [
        run("slow", 100.0, cost=0.5),
        run("fast", 300.0, cost=2.0),
        run("fast", 900.0, cost=0.7, batch_size=256, precision="bfloat16"),
    ]
    result = standings(rows)
    assert names(result.records) == ["fast", "slow"]
    assert result.fastest.metrics["images_per_second"] == 900.0
    assert result.cheapest.provenance["accelerator"] == "slow"
    assert result.differing == ("precision", "batch_size")
    assert result.configuration == "lenet5, mnist"


def test_the_configuration_that_most_accelerators_trained_is_compared():
    rows = [
        run("a", 1.0, model="mlp"),
        run("b", 2.0, model="mlp"),
        run("a", 3.0),
        run("c", 9.0),  # the newest, but trained by two accelerators as the other
        run("d", 4.0, model="vgg16"),
    ]
    result = standings(rows)
    assert result.configuration == "lenet5, mnist" and names(result.records) == ["c", "a"]
    assert names(result.others) == ["d", "b"]


def test_failed_simulated_and_published_runs_do_not_take_part():
    rows = [
        run("failed", 9.0, status="failed"),
        run("simulated", 9.0, simulated=True),
        run("published", 9.0, elsewhere=True),
        run("kernels", 9.0, study="kernels"),
    ]
    assert standings(rows) is None
    assert names(standings([*rows, run("own", 1.0)]).records) == ["own"]
    assert standings([run("own", 1.0)]).cheapest is None


def preflight(rate: float, price: float | None, model="lenet5") -> Record:
    ends = {"": rate, "_low": rate / 2, "_high": rate * 2}
    metrics = {f"images_per_second_estimate{end}": value for end, value in ends.items()}
    return Record(
        "preflight",
        "p",
        "predicted",
        settings={"target": "tpu", "model": model, "precision": "bfloat16"},
        metrics=metrics | ({"price_per_hour": price} if price else {}),
    )


def test_estimates_of_the_compared_network_have_the_interval_of_their_record():
    compared = standings([run("a", 1.0), run("b", 2.0)])
    (estimate,) = estimates([preflight(200.0, 3.6), preflight(7.0, None, "vgg16")], compared)
    assert (estimate.low, estimate.rate, estimate.high) == (100.0, 200.0, 400.0)
    # 3.6 $ an hour is 0.001 $ a second, in which 200 images are trained.
    assert estimate.cost(200.0) == pytest.approx(5.0)
    assert estimates([preflight(400.0, None)], compared)[0].cost(1.0) is None
    other_size = preflight(400.0, None)
    other_size.settings["image_size"] = 64
    for measured in compared.records:
        measured.settings["image_size"] = 32
    assert estimates([other_size], compared) == []
    without = Record("preflight", "p", "predicted", settings={"model": "lenet5"})
    assert estimates([without], compared) == []
