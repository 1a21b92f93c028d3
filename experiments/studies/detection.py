"""Trains the detector on a few synthetic images until it has memorized them.

The original YOLOv2 was trained on photographs for days. This study only shows that the loss, the
decoding and the non-maximum suppression fit together, on images whose boxes are known.
"""

import time
from collections.abc import Callable

import jax
import numpy as np
from etils import epath
from flax import nnx
from PIL import Image

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context, training_case
from experiments.measure.flops import model_flops
from experiments.measure.timing import compile_program
from experiments.workloads.preprocessing import Preprocessing
from experiments.workloads.recipe_step import build_optimizer, create_step
from jaxcnn import detection, models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

WITHOUT = {"label_smoothing": 0.0, "mixup": 0.0, "cutmix": 0.0}  # they are for one label an image
CLASSES = tuple(detection.SHAPES)
COLUMNS = (
    "boxes_found",
    "boxes_right",
    "mean_overlap",
    "training_loss",
    "step_time",
    "images_per_second",
    "flops_per_second",
    "training_time",
)
IMAGE_FILE = "boxes.png"
STEPS_BETWEEN_LINES = 20
GRID = 32  # pixels of the input for one grid cell
ENLARGEMENT = 4  # of the images in the file
MIN_OVERLAP = 0.5  # of a detection that counts as correct, exclusive
DEFAULTS = {
    "batch_size": 4,
    "epochs": 300,
    "image_size": 128,
    "optimizer": "adam",
    "learning_rate": 2e-4,
    "schedule": "cosine",
    "weight_decay": 0.0,
    "moving_average": 0.0,
    "warmup": 0.0,
    "clip_norm": 0.0,
    "microbatches": 1,
    "normalise": "unit",
}


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """The one case; by default four images of 128×128 and 300 steps of Adam.

    Raises:
      InputError: the model is not a detector, or the image size does not fit its grid.
    """
    if not models.spec(config.model).detects:
        detectors = [name for name, spec in models.MODELS.items() if spec.detects]
        raise InputError(
            f"model {config.model!r} does not detect objects: --study=detection needs "
            f"--model={' or '.join(detectors)}"
        )
    config = config.with_defaults(DEFAULTS)
    if config.image_size % GRID:
        raise InputError(
            f"--image-size={config.image_size}: the detector needs a multiple of {GRID}"
        )
    config = config.replace(
        dataset=f"synthetic:{config.batch_size}", resize=config.image_size, **WITHOUT
    )
    build_optimizer(config, config.epochs, 1)  # raises
    return [training_case(config, backend)]


def measure(case: Case, context: Context) -> CaseResult:
    """Trains on one batch for `epochs` steps, then detects the objects in the same batch."""
    start, config = time.perf_counter(), case.config
    preprocessing = Preprocessing(config.image_size, config.image_size, 3, CLASSES)
    batch = detection.synthetic_scenes(
        config.batch_size, config.image_size, len(CLASSES), config.seed
    )
    model, state, step = _create(config, preprocessing)
    strategy = parallel.strategy(config.strategy, context.backend.devices, mesh=config.mesh)
    strategy = strategy.for_step(step, state, batch)
    flops = model_flops(step, state, batch)
    batch_on_devices, state = strategy.place_batch(batch), strategy.place(state)
    program = compile_program(strategy.compile(step), state, batch_on_devices)
    take_step = strategy.dispatchable(program.executable)
    state, losses, times = _train(take_step, state, batch_on_devices, config.epochs, context)
    state = strategy.fetch(state)
    detections = _detect(step, state, batch["image"])
    _save_state(state, preprocessing, config, context)
    path = context.scratch / IMAGE_FILE
    _save_images(path, batch["image"], detections)
    context.console.print(f"boxes     {path}", highlight=False, soft_wrap=True)
    step_time = float(np.median(times))
    return CaseResult(
        metrics=_scores(detections, batch)
        | program.metrics
        | {
            "training_loss": losses[-1],
            "step_time": step_time,
            "images_per_second": config.batch_size / step_time,
            "flops_per_step": flops,
            "flops_per_second": flops / step_time,
            "training_time": sum(times),
            "total_time": time.perf_counter() - start,
            "parameters": models.count_parameters(model),
            "steps": len(losses),
        },
        samples={"training_loss": losses, "step_time": times},
        provenance={
            "strategy_devices": len(strategy.devices),
            "compiler_options": strategy.options,
            "classes": list(CLASSES),
        },
    )


def _create(
    config: RunConfig, preprocessing: Preprocessing
) -> tuple[nnx.Module, training.TrainState, training.TrainStep]:
    model = models.build(
        config.model,
        num_classes=len(CLASSES),
        input_shape=preprocessing.network_shape,
        seed=config.seed,
    )
    state, step = create_step(
        model,
        config,
        preprocessing.make_preprocess(),
        steps=config.epochs,
        steps_per_epoch=1,
        precision=config.precision,
        objective=detection.region_objective,
        seed=config.seed,
    )
    return model, state, step


def _train(
    take_step: Callable[..., tuple[training.TrainState, dict[str, jax.Array]]],
    state: training.TrainState,
    batch: dict[str, jax.Array],
    steps: int,
    context: Context,
) -> tuple[training.TrainState, list[float], list[float]]:
    """Trains and prints the loss now and then.

    Returns:
      The state; the loss of each step; and the seconds of each step.
    """
    losses, times = [], []
    for number in range(1, steps + 1):
        start = time.perf_counter()
        state, metrics = take_step(state, batch)
        losses.append(training.means(jax.device_get(metrics))["loss"])
        times.append(time.perf_counter() - start)
        if not np.isfinite(losses[-1]):
            message = f"the loss became {losses[-1]} at step {number}"
            raise training.NonFiniteLossError(message, training.History())
        if number % STEPS_BETWEEN_LINES == 0 or number == steps:
            line = f"step {number:>4}/{steps}  loss {losses[-1]:.4f}  {sum(times):.1f} s"
            context.console.print(line, highlight=False)
    return state, losses, times


def _detect(
    step: training.TrainStep, state: training.TrainState, images: np.ndarray
) -> list[detection.Detections]:
    """The detections in each image."""
    detect = jax.jit(lambda state, images: detection.detect(step.evaluation.outputs(state, images)))
    detections = jax.device_get(detect(state, images))
    return [detections.for_image(row) for row in range(len(images))]


def _save_state(
    state: training.TrainState, preprocessing: Preprocessing, config: RunConfig, context: Context
) -> None:
    settings = config.case_settings() | {"inputs": preprocessing.to_json()}
    checkpoints = training.Checkpoints(context.scratch, settings)
    checkpoints.delete()
    checkpoints.save(state, None, training.History())
    checkpoints.close()


def _scores(
    detections: list[detection.Detections], batch: dict[str, np.ndarray]
) -> dict[str, float]:
    """Recall, precision and mean overlap of the detections in a batch.

    Args:
      detections: of each image.
      batch: the true ``boxes: f32[N, K, 4]`` and classes ``label: i32[N, K]``; -1 for no box.
    """
    overlaps = [
        _best_overlap(box, in_image.boxes[in_image.classes == label])
        for in_image, boxes, labels in zip(detections, batch["boxes"], batch["label"], strict=True)
        for box, label in zip(boxes, labels, strict=True)
        if label >= 0
    ]
    correct = sum(overlap > MIN_OVERLAP for overlap in overlaps)
    count = sum(len(in_image.boxes) for in_image in detections)
    return {
        "boxes_found": correct / len(overlaps),
        "boxes_right": correct / count if count else 0.0,
        "mean_overlap": float(np.mean(overlaps)),
    }


def _best_overlap(box: np.ndarray, detected: np.ndarray | jax.Array) -> float:
    """The largest IoU of a true box with the detected ones of its class; 0 if there are none."""
    return float(np.max(detection.iou(box[None], detected), initial=0.0)) if len(detected) else 0.0


def _save_images(
    path: epath.Path, images: np.ndarray, detections: list[detection.Detections]
) -> None:
    """Saves the images side by side, enlarged, with the detected boxes drawn."""
    size = ENLARGEMENT * images.shape[1]
    sheet = Image.new("RGB", (size * len(images), size))
    for column, (image, in_image) in enumerate(zip(images, detections, strict=True)):
        enlarged = Image.fromarray(image).resize((size, size), Image.Resampling.NEAREST)
        drawn = detection.draw(np.asarray(enlarged), in_image, CLASSES)
        sheet.paste(drawn, (size * column, 0))
    with path.open("wb") as file:
        sheet.save(file, "PNG")
