"""What a training run is set up with: the options that reach its loop."""

import jax

from experiments.config import RunConfig
from experiments.studies import train_cases
from experiments.workloads.setup import build_setup
from jaxcnn.backend import Backend


def test_options_of_the_loop_reach_it():
    config = RunConfig(
        model="logistic",
        dataset="synthetic:200",
        batch_size=16,
        epochs=3,
        patience=(2,),
        monitor="validation_loss",
        target_accuracy=0.75,
        target_loss=0.5,
        save_every=7,
    )
    backend = Backend("cpu", tuple(jax.devices()[:1]))
    (case,) = train_cases.cases(config, backend)
    loop = build_setup(case.config, backend).fit_config
    assert (loop.epochs, loop.steps_per_epoch) == (3, 9)  # 40 of 200 test, 16 of 160 validate
    assert loop.monitor == "validation_loss" and loop.patience == (2,)
    assert (loop.target_accuracy, loop.target_loss, loop.save_every) == (0.75, 0.5, 7)
