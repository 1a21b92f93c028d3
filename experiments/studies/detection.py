"""Can the detector be trained? It learns a handful of pictures by heart, and its boxes are compared with the true ones.

System C5 of the studied documents. Its YOLOv2 was trained on photographs for days; here the loss, the decoding and the
suppression of doubles are shown to fit together, on pictures whose boxes are known.
"""

import time

import jax
import numpy as np
from etils import epath
from PIL import Image

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context, training_case
from experiments.measure.flops import model_flops
from experiments.workloads.preprocessing import Preprocessing
from jaxcnn import detection, models, parallel, training
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

PICTURES = "boxes.png"
STEPS_BETWEEN_LINES = 20


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One; the defaults are four pictures of 128×128 and 300 steps of Adam."""
    if not models.spec(config.model).detects:
        known = [name for name, row in models.MODELS.items() if row.detects]
        raise InputError(
            f"model {config.model!r} does not find objects; --study=detection needs --model={', '.join(known)}"
        )
    defaults = {
        "batch_size": 4, "epochs": 300, "image_size": 128, "optimizer": "adam", "learning_rate": 2e-4, "schedule": "cosine",
        "weight_decay": 0.0, "moving_average": 0.0, "normalise": "unit",
    }  # fmt: skip
    config = config.with_defaults(defaults)
    if config.image_size % 32:
        raise InputError(f"--image-size={config.image_size}: the detector needs a multiple of 32")
    config = config.replace(dataset=f"synthetic:{config.batch_size}", resize=config.image_size)
    return [training_case(config, backend)]


def measure(case: Case, context: Context) -> CaseResult:
    """Trains on one batch, `epochs` times over, and looks at what is found in it."""
    began, config = time.perf_counter(), case.config
    classes = tuple(detection.SHAPES)
    preprocessing = Preprocessing(config.image_size, config.image_size, 3, classes)
    batch = detection.synthetic_pictures(
        config.batch_size, config.image_size, len(classes), config.seed
    )
    model = models.build(
        config.model,
        num_classes=len(classes),
        input_shape=preprocessing.network_shape,
        seed=config.seed,
    )
    optimizer = training.optimizer(
        config.optimizer,
        config.learning_rate,
        config.schedule,
        steps=config.epochs,
        steps_per_epoch=1,
    )
    state, step = training.create(
        model, optimizer, seed=config.seed, precision=config.precision, preprocess=preprocessing.make_preprocess(), objective=detection.region_objective,
        weight_decay=config.weight_decay, ema_decay=config.moving_average,
    )  # fmt: skip
    strategy = parallel.strategy(config.strategy, context.backend.devices)
    flops = model_flops(step, state, batch)
    state, losses, times = _train(strategy, step, state, batch, config.epochs, context)
    found = _found(step, state, batch)
    checkpoints = training.Checkpoints(
        context.scratch, config.case_settings() | {"inputs": preprocessing.to_json()}
    )
    checkpoints.delete()
    checkpoints.save(state, None, training.History())
    checkpoints.close()
    path = _save_pictures(context.scratch / PICTURES, batch, found, classes)
    context.console.print(f"boxes     {path}", highlight=False, soft_wrap=True)
    step_time = float(np.median(times[1:]))
    return CaseResult(
        metrics=_scores(found, batch)
        | {
            "training_loss": losses[-1],
            "step_time": step_time,
            "images_per_second": config.batch_size / step_time,
            "flops_per_step": flops,
            "flops_per_second": flops / step_time,
            "training_time": sum(times),
            "total_time": time.perf_counter() - began,
            "parameters": models.count_parameters(model),
            "steps": len(losses),
        },
        samples={"training_loss": losses, "step_time": times},
        provenance={
            "strategy_devices": len(strategy.devices),
            "compiler_options": strategy.options,
            "classes": list(classes),
        },
    )


def _train(strategy, step, state, batch, steps: int, context: Context):
    """The state, on the host, and the loss and the seconds of every step, the first one's compilation included."""
    placed, state, compiled = (
        strategy.place_batch(batch),
        strategy.place(state),
        strategy.compile(step),
    )
    losses, times = [], []
    for number in range(1, steps + 1):
        start = time.perf_counter()
        state, metrics = compiled(state, placed)
        losses.append(training.means(jax.device_get(metrics))["loss"])
        times.append(time.perf_counter() - start)
        if not np.isfinite(losses[-1]):
            raise training.NonFiniteLossError(
                f"the loss became {losses[-1]} at step {number}", training.History()
            )
        if number % STEPS_BETWEEN_LINES == 0 or number == steps:
            context.console.print(
                f"step {number:>4}/{steps}  loss {losses[-1]:.4f}  {sum(times):.1f} s",
                highlight=False,
            )
    return strategy.fetch(state), losses, times


def _found(
    step: training.TrainStep, state: training.TrainState, batch
) -> list[detection.Detections]:
    """What is found in each picture."""
    evaluate = jax.jit(
        lambda state, images: detection.detect(step.evaluation.outputs(state, images))
    )
    found = jax.device_get(evaluate(state, batch["image"]))
    return [found.picture(row) for row in range(len(batch["image"]))]


def _scores(found: list[detection.Detections], batch) -> dict[str, float]:
    """The share of true boxes found, their mean overlap, and the share of what was found that is there."""
    overlaps, hits, detected = [], 0, 0
    for picture, boxes, labels in zip(found, batch["boxes"], batch["label"], strict=True):
        detected += len(picture.boxes)
        for box, label in zip(boxes[labels >= 0], labels[labels >= 0], strict=True):
            same = picture.boxes[picture.classes == label]
            overlap = (
                float(np.max(detection.iou(box[None], same), initial=0.0)) if len(same) else 0.0
            )
            overlaps.append(overlap)
            hits += overlap > 0.5
    return {
        "boxes_found": hits / len(overlaps),
        "boxes_right": hits / detected if detected else 0.0,
        "mean_overlap": float(np.mean(overlaps)),
    }


def _save_pictures(
    path: epath.Path, batch, found: list[detection.Detections], classes: tuple[str, ...]
) -> epath.Path:
    """The pictures side by side, enlarged, with what was found in them."""
    side = 4 * batch["image"].shape[1]
    sheet = Image.new("RGB", (side * len(found), side))
    for place, (image, picture) in enumerate(zip(batch["image"], found, strict=True)):
        enlarged = Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST)
        sheet.paste(detection.draw(np.asarray(enlarged), picture, classes), (side * place, 0))
    with path.open("wb") as file:
        sheet.save(file, "PNG")
    return path
