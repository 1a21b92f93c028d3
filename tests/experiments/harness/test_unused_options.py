"""Options that a study does not use are named."""

import pytest

from experiments.config import parse
from experiments.harness.unused_options import unused_options
from experiments.run import main
from experiments.studies import STUDIES
from jaxcnn import backend


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["--study=kernels", "--model=lenet_like", "--epochs=3"], ["model", "epochs"]),
        (["--study=train", "--model=lenet_like", "--epochs=3", "--seed=1"], []),
        (["--study=train,kernels", "--model=lenet_like"], []),  # one of the two uses it
        (["--study=strategies", "--batch-size=64", "--weight-decay=0.1"], ["weight_decay"]),
        (["--study=kernels", "--model=lenet5", "--results=other"], []),  # the default; no identity
    ],
)
def test_options_that_change_no_case_of_any_chosen_study(arguments, unused):
    config, devices = parse(arguments), backend.select("auto")
    studies = {
        name: (STUDIES[name], STUDIES[name].cases(config, devices)) for name in config.studies
    }
    assert unused_options(config, studies, devices) == unused


def test_the_command_names_them(capsys, tmp_path):
    code = main(["--study=kernels", "--model=vgg16", "--dry-run", f"--results={tmp_path}"])
    assert code == 0
    assert "note: --model has no effect on --study=kernels" in capsys.readouterr().out
