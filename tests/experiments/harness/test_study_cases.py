"""The cases of a study for several configurations: their order, equal ones, impossible ones."""

import dataclasses

import jax
import pytest
from rich.console import Console

from experiments.config import RunConfig
from experiments.config.configurations import parse
from experiments.harness import planning, runner
from experiments.harness.study import Case, CaseResult, Study
from experiments.harness.study_cases import collect_cases
from experiments.records import Record
from experiments.studies import STUDIES, batch_sweep
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

CPU = Backend("cpu", tuple(jax.devices("cpu")[:1]))


def fake_study(names: tuple[str, ...], **fields) -> Study:
    """A study whose cases differ in these options; its measurements fail the test."""

    def cases(config: RunConfig, backend: Backend) -> list[Case]:
        settings = {name: getattr(config, name) for name in names}
        return [Case(config, settings, tuple(map(str, settings.values())))]

    def measure(case, context):
        raise AssertionError("measured")

    return Study(about="?", cases=cases, measure=measure, **fields)


def visited(listed, statuses=lambda case: "ok") -> list[tuple[str, int]]:
    """The label of each case that is visited, and how many are known to be left with it."""
    visits = []

    def outcome(case, remaining):
        visits.append((" ".join(case.parts), remaining))
        return Record("fake", " ".join(case.parts), statuses(case))

    returned = listed.visit(CPU, outcome)
    assert [record.case for _, record in returned] == [label for label, _ in visits]
    return visits


def test_cases_come_in_the_order_of_the_configurations():
    configs = parse(["--batch-size=32,64", "--model=mlp,lenet5"])
    listed = collect_cases("fake", fake_study(("model", "batch_size")), configs, CPU)
    expected = [("mlp 32", 4), ("lenet5 32", 3), ("mlp 64", 2), ("lenet5 64", 1)]
    assert visited(listed) == expected


def test_equal_cases_are_visited_once():
    configs = parse(["--batch-size=32,64", "--model=mlp,lenet5"])
    listed = collect_cases("fake", fake_study(("batch_size",)), configs, CPU)
    assert len(listed.series) == 4 and len(listed.names(CPU)) == 2
    assert visited(listed) == [("32", 2), ("64", 1)]


def test_each_configuration_continues_by_itself():
    configs = parse(["--model=logistic,mlp:32", "--batch-size=16,32", "--preset=quick"])
    study = dataclasses.replace(STUDIES["batch_sweep"], measure=fake_study(()).measure)
    listed = collect_cases("batch_sweep", study, configs, CPU)

    def status(case):  # 48 images fit into the logistic regression's memory
        is_large = case.config.model == "logistic" and case.config.batch_size > 48
        return "out_of_memory" if is_large else "ok"

    labels = [label.replace(" jit float32", "") for label, _ in visited(listed, status)]
    # From 16 by doubling to 64, then the middle of 32 and 64; from 32 there is no middle; equal
    # cases of the second series of a model are not visited again.
    assert labels == [
        *("logistic b16", "logistic b32", "logistic b64", "logistic b48"),
        *("mlp:32 b16", "mlp:32 b32", "mlp:32 b64", "mlp:32 b128"),
    ]
    assert batch_sweep.PRESETS["quick"].doublings == 2  # from 16 to 64, and from 32 to 128


def test_an_impossible_combination_is_named():
    study = fake_study(("model", "batch_size"))

    def cases(config, backend):
        if (config.model, config.batch_size) == ("lenet5", 64):
            raise InputError("too large")
        return study.cases(config, backend)

    impossible = dataclasses.replace(study, cases=cases)
    configs = parse(["--batch-size=32,64", "--model=mlp,lenet5", "--seed=7"])
    with pytest.raises(InputError, match=r"^--model=lenet5 --batch-size=64: too large \(nothing"):
        collect_cases("fake", impossible, configs, CPU)
    with pytest.raises(InputError, match=r"^too large$"):
        collect_cases("fake", impossible, configs[-1:], CPU)


def test_each_of_several_configurations_is_checked_and_a_single_one_when_it_is_measured():
    checked = []

    def check(case):
        checked.append(case.config.model)
        if case.config.model == "lenet5":
            raise InputError("images too small")

    study = fake_study(("model",), check=check)
    configs = parse(["--model=mlp,logistic,lenet5", "--seed=1,2"])  # a seed is no other case
    with pytest.raises(InputError, match=r"^--model=lenet5 --seed=1: images too small"):
        collect_cases("fake", study, configs, CPU)
    assert checked == ["mlp", "logistic", "lenet5"]
    assert len(collect_cases("fake", study, configs[-1:], CPU).series) == 1


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        ("train", ["--batch-size=32,2000"], "batch size 2000 is larger than the training set"),
        ("dispatch", ["--image-size=32,9"], "model 'lenet5' cannot take images of 9×9"),
        ("precision", ["--image-size=32,9"], "model 'lenet5' cannot take images of 9×9"),
        ("search", ["--batch-size=32,2000"], "batch size 2000 is larger than the training set"),
        ("strategies", ["--image-size=32,9"], "model 'lenet5' cannot take images of 9×9"),
        ("batch_sweep", ["--image-size=32,9"], "model 'lenet5' cannot take images of 9×9"),
        ("train", ["--dataset=digits,folder:nowhere"], "nowhere is not a folder"),
        ("train", ["--model=lenet5,yolov2"], "model 'yolov2' detects objects"),
    ],
)
def test_what_the_data_or_the_network_rules_out_is_known_beforehand(study, options, message):
    configs = parse(options)
    with pytest.raises(InputError) as error:
        collect_cases(study, STUDIES[study], configs, CPU)
    name, _, values = options[0].partition("=")
    assert str(error.value).startswith(f"{name}={values.split(',')[1]}: ")
    assert message in str(error.value) and "nothing was measured" in str(error.value)


def test_weights_of_another_network_are_known_beforehand(tmp_path):
    weights = tmp_path / "mine.weights"
    weights.write_bytes(bytes(100))
    configs = parse(["--model=lenet5,darknet19", f"--init-from={weights}"])
    with pytest.raises(InputError, match=r"^--model=lenet5: .*nothing was measured"):
        collect_cases("train", STUDIES["train"], configs, CPU)


def test_a_case_that_several_configurations_have_is_measured_once_even_by_force(tmp_path):
    measured = []
    study = dataclasses.replace(
        fake_study(("batch_size",)),
        measure=lambda case, context: (
            measured.append(case.config.batch_size) or CaseResult({"step_time": 1.0})
        ),
        columns=("step_time",),
    )
    options = ["--model=mlp,lenet5", "--batch-size=32,64", "--force", f"--results={tmp_path}"]
    listed = collect_cases("fake", study, parse(options), CPU)
    for _ in range(2):
        runner.run_study(listed, CPU, Console(quiet=True))
    assert measured == [32, 64] * 2
    planned = planning.plan(
        collect_cases("fake", study, parse([*options[:2], options[3]]), CPU), CPU
    )
    assert [(row.case.config.batch_size, row.measured) for row in planned] == [
        (32, True),
        (64, True),
    ]
