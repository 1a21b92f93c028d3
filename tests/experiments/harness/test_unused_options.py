"""Options that a study does not use are named."""

import pytest

from experiments.config.configurations import parse
from experiments.harness.study_cases import collect_cases
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
        (["--study=width_sweep", "--model=lenet_like"], ["model"]),  # it has models of its own
        (["--study=train", "--model=lenet5,lenet_like", "--seed=1,2"], []),
        (["--study=width_sweep", "--model=lenet5,lenet_like", "--batch-size=8,16"], ["model"]),
        (["--study=precision", "--precision=float32,bfloat16"], ["precision"]),
        (["--study=inference", "--batch-size=1,8", "--precision=float32,bfloat16"], ["precision"]),
        (["--study=strategies", "--strategy=jit,pmap"], []),
        (["--study=isa", "--strategy=jit,pmap", "--device=cpu"], ["strategy"]),
    ],
)
def test_options_that_change_no_case_of_any_chosen_study(arguments, unused):
    configs, devices = parse(arguments), backend.select("auto")
    studies = [collect_cases(name, STUDIES[name], configs, devices) for name in configs[0].studies]
    assert unused_options(configs, studies, devices) == unused


def test_the_command_names_them(capsys, tmp_path):
    code = main(["--study=kernels", "--model=vgg16", "--dry-run", f"--results={tmp_path}"])
    assert code == 0
    assert "note: --model has no effect on --study=kernels" in capsys.readouterr().out
