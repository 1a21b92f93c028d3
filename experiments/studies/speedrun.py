"""CIFAR-10 to a target accuracy, as quickly as possible, here and in PyTorch.

The network, its optimizer and its augmentation are those of `speedrun_cnn` (Jordan 2024, *94% on
CIFAR-10 in 3.29 Seconds on a Single GPU*), with options in place of any part. All training images
train, for a fixed number of epochs; nothing is chosen by a validation set, and the test set is used
once, at the end. An epoch is one call. Before the clock starts, the program is compiled, the data
are on the device, and one step has run, which is then undone. The clock stops when the last weights
are ready.

With --preset=full the same recipe runs in PyTorch, written from the paper
(`experiments.peers.speedrun_torch`), on the same data and the same processors, one library after
the other: eager or compiled, in the memory format whose steps take the least time here. It trains
on one device, and is left out where ours trains on several. Random numbers differ between the
libraries, so compare means over several seeds (``--seed=0,1,2``).
"""

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Mapping
from functools import partial

import jax
import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.flops import model_flops
from experiments.measure.timing import compile_program
from experiments.measure.utilisation import Sampler
from experiments.peers.definition import thread_count
from experiments.peers.process import PeerFailed
from experiments.peers.speedrun_launch import run_in_torch
from experiments.peers.speedrun_task import SpeedrunTask
from experiments.studies.speedrun_cases import OURS, may_compare
from experiments.workloads import pipelines, training_metrics
from experiments.workloads.multicrop_evaluation import MultiCropEvaluation
from experiments.workloads.reading import read_in_parts
from experiments.workloads.setup import TrainingSetup, abstract_batch, build_setup
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.models.speedrun import WIDTHS
from jaxcnn.training import TrainState, evaluate_dataset, means
from jaxcnn.training.speedrun import (
    BIAS_RATE,
    HEAD_RATE,
    MUON_MOMENTUM,
    NEWTON_SCHULZ_STEPS,
    SGD_MOMENTUM,
)

COLUMNS = (
    "test_accuracy_multicrop",
    "test_accuracy",
    "training_time",
    "time_to_target",
    "compile_time",
    "images_per_second",
    "flops_per_second",
    "energy_per_step",
)
MAX_SHIFT = 2  # pixels, of the augmentation `mirror_shift` of 32×32 images


def measure(case: Case, context: Context) -> CaseResult:
    """Trains and tests once, in the library of the case."""
    setup = build_setup(case.config, context.backend, holds_out=False)
    say = partial(context.console.print, highlight=False, markup=False)
    for note in setup.dataset.notes:
        say(f"note: {note}")
    with Sampler(setup.strategy.devices) as sampler:
        sampler.phase("preparing")
        run = _train if case.settings["library"] == OURS else _train_in_torch
        result = run(setup, sampler, say)
    if result.status != "ok":
        return result
    steps = setup.fit_config.steps
    flops = model_flops(setup.step, setup.state, abstract_batch(setup.config, setup.preprocessing))
    metrics = result.metrics
    step_time = metrics["training_time"] / steps
    metrics |= {
        "steps": steps,
        "images_per_second": case.config.batch_size / step_time,
        "flops_per_step": flops,
        "flops_per_second": flops / step_time,
    }
    if metrics["test_accuracy_multicrop"] >= case.config.target_accuracy:
        metrics["time_to_target"] = metrics["training_time"]
    provenance = {
        "strategy_devices": len(setup.strategy.devices),
        "notes": list(setup.dataset.notes),
        "examples": {"train": len(setup.splits.train), "test": len(setup.splits.test)},
        "remarks": _remarks(case.config, setup, metrics) + sampler.problems,
    }
    return dataclasses.replace(
        result,
        metrics=metrics,
        utilisation=sampler.to_json(),
        provenance=result.provenance | provenance,
    )


def _remarks(config: RunConfig, setup: TrainingSetup, metrics: Mapping[str, float]) -> list[str]:
    """What a reader of the metrics should know."""
    remarks = [*filter(None, [training_metrics.precision_remark(setup)])]
    accuracy, devices = metrics["test_accuracy_multicrop"], len(setup.strategy.devices)
    if accuracy < config.target_accuracy:
        remarks.append(
            f"accuracy {accuracy:.4f}, below the target of {config.target_accuracy:g}: raise "
            "--epochs, which are fixed before the run"
        )
    if devices > 1 and may_compare(config):
        remarks.append(
            f"PyTorch, which would train on one device, is left out beside {devices}: give one "
            "device, as by --device=gpu:1"
        )
    return remarks


def _train(setup: TrainingSetup, sampler: Sampler, say: Callable[[str], None]) -> CaseResult:
    strategy, config = setup.strategy, setup.fit_config
    state = strategy.place(setup.state)
    pipeline = pipelines.build(setup, state, name="resident")
    multicrop = _compile_multicrop_test(setup, state)
    pipeline.run_steps(state, 0, 1)  # donates the state
    state = jax.block_until_ready(strategy.place(setup.state))
    sampler.phase("training")
    curves, start = [], time.perf_counter()
    for epoch in range(config.epochs):
        state, sums = pipeline.run_steps(
            state, epoch * config.steps_per_epoch, config.steps_per_epoch
        )
        loss = means({name: np.sum(values) for name, values in sums.items()})["loss"]
        seconds = time.perf_counter() - start
        curves.append({"epoch": epoch + 1, "seconds": seconds, "train_loss": loss})
        say(f"epoch {epoch + 1}/{config.epochs}  loss {loss:.4f}  {seconds:.1f} s")
    jax.block_until_ready(state)
    training_time = time.perf_counter() - start
    sampler.phase("testing")
    energy = training_metrics.energy_metrics(sampler, config.steps)
    accuracy = means(jax.device_get(pipeline.evaluate(state, "test")))["accuracy"]
    metrics = {
        "training_time": training_time,
        "test_accuracy": accuracy,
        "test_accuracy_multicrop": multicrop(state),
        "training_loss": curves[-1]["train_loss"],
    }
    return CaseResult(
        metrics=metrics | energy | pipeline.program.metrics,
        curves=curves,
        provenance={"compiler_options": strategy.options, "pipeline": pipeline.name},
    )


def _compile_multicrop_test(
    setup: TrainingSetup, state: TrainState
) -> Callable[[TrainState], float]:
    """The share of correct predictions of the test images by six views of each."""
    strategy, count = setup.strategy, len(setup.splits.test)
    test = read_in_parts(setup.splits.test, setup.preprocessing.stored_shape)
    images = strategy.place_data({"image": test.images, "label": test.labels})
    feed = ResidentFeed(count, min(count, setup.config.batch_size))
    program = strategy.compile_evaluation(
        evaluate_dataset(MultiCropEvaluation(setup.step.evaluation), feed), resident=True
    )
    placed_count = strategy.place_data(np.int32(count))
    program = compile_program(program, state, images, placed_count).executable
    return lambda state: means(jax.device_get(program(state, images, placed_count)))["accuracy"]


def _train_in_torch(
    setup: TrainingSetup, sampler: Sampler, say: Callable[[str], None]
) -> CaseResult:
    say("PyTorch compiles, and trains without further output")
    config, shape = setup.config, setup.preprocessing.stored_shape
    task = SpeedrunTask(
        widths=WIDTHS,
        epochs=config.epochs,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        muon_momentum=MUON_MOMENTUM,
        newton_schulz_steps=NEWTON_SCHULZ_STEPS,
        head_rate=config.learning_rate * HEAD_RATE,
        bias_rate=config.learning_rate * BIAS_RATE,
        momentum=SGD_MOMENTUM,
        weight_decay=config.weight_decay * config.learning_rate,
        label_smoothing=config.label_smoothing,
        max_shift=MAX_SHIFT,
        seed=config.seed,
        threads=thread_count(),
        device="cuda" if setup.strategy.devices[0].platform == "gpu" else "cpu",
    )
    train, test = (read_in_parts(split, shape) for split in (setup.splits.train, setup.splits.test))
    arrays = {
        "train_images": train.images,
        "train_labels": train.labels,
        "test_images": test.images,
        "test_labels": test.labels,
        "whitening": np.asarray(setup.state.model_state["whitening"]["kernel"]),
        "mean": np.array(setup.preprocessing.mean, np.float32),
        "std": np.array(setup.preprocessing.std, np.float32),
    }
    try:
        result = run_in_torch(task, arrays, config.time_limit)
    except PeerFailed as error:
        return CaseResult(status="failed", message=str(error))
    metrics = {
        "training_time": result["training_time"],
        "test_accuracy": result["test_accuracy"],
        "test_accuracy_multicrop": result["test_accuracy_multicrop"],
        "training_loss": result["loss"],
    }
    versions = {"torch": importlib.metadata.version("torch")}
    provenance = {"variant": result["variant"], "peer_versions": versions}
    return CaseResult(metrics, provenance=provenance)
