"""Synthetic records of four accelerators, whose ranking is known by hand.

The numbers are made up: no such accelerator was measured. Every name says so.
"""

from typing import NamedTuple

from experiments.records import Record

MODEL, DATASET = "resnet18_cifar", "cifar10"
SIZES = (1_000, 10_000, 100_000, 1_000_000)  # parameters of the width sweep
CPU_SECONDS = (1.0, 2.0, 8.0, 64.0)


class Accelerator(NamedTuple):
    """What is made up about an accelerator.

    Attributes:
      name, platform: of the accelerator.
      rate: images per second.
      price: $ per hour.
      precision: of its fastest run.
      batch: its size.
      mfu: share of the published peak; None if there is none.
      seconds: training times of the width sweep.
    """

    name: str
    platform: str
    rate: float
    price: float
    precision: str
    batch: int
    mfu: float | None
    seconds: tuple[float, ...]


# $ per million images, 1e6 * price / 3600 / rate: 0.7037, 0.0648, 0.0347, 0.0185.
# The H100 is faster than the CPU from the geometric mean of 10,000 and 100,000 parameters on,
# 31,623: there the ratios are 4 / 2 and 4 / 8. The T4, with 16 s, from 178,000 on.
CPU = Accelerator(
    "AMD EPYC 7B12 64-Core Processor (synthetic)",
    "cpu", 150.0, 0.38, "float32", 128, None, CPU_SECONDS,
)  # fmt: skip
T4 = Accelerator(
    "NVIDIA Tesla T4 (synthetic)", "gpu", 1_500.0, 0.35, "float16", 256, 0.12, (16.0,) * 4
)
H100 = Accelerator(
    "NVIDIA H100 80GB HBM3 (synthetic)", "gpu", 24_000.0, 3.0, "bfloat16", 1024, 0.31, (4.0,) * 4
)
TPU = Accelerator(
    "TPU v5 lite (synthetic)", "tpu", 9_000.0, 0.6, "bfloat16", 1024, 0.42, (20.0,) * 4
)
ALL = (CPU, T4, H100, TPU)


def records() -> list[Record]:
    """Training on two data sets, the width sweep, batch sizes, latency, and a preflight."""
    rows = []
    for index, accelerator in enumerate(ALL):
        rows += [
            _train(accelerator, "lenet5", "mnist", 9.0),
            _train(accelerator, MODEL, DATASET, 1.0),
        ]
        rows += [_width(accelerator, size) for size in range(len(SIZES))]
        rows += [_batch(accelerator, batch) for batch in (32, 128, 512, 2048)]
        rows += [_latency(accelerator, batch, index) for batch in (1, 8, 64)]
    return [*rows, _preflight()]


def _train(accelerator: Accelerator, model: str, dataset: str, ease: float) -> Record:
    rate = accelerator.rate * ease
    epoch = 50_000 / rate
    metrics = {
        "images_per_second": rate,
        "step_time": accelerator.batch / rate,
        "step_time_low": 0.98 * accelerator.batch / rate,
        "step_time_high": 1.02 * accelerator.batch / rate,
        "flops_per_second": 3.3e9 * accelerator.rate,
        "arithmetic_intensity": 200.0,
        "peak_measured": 8e9 * accelerator.rate,
        "bandwidth_measured": 1e8 * accelerator.rate,
        "test_accuracy": 0.935,
        "training_time": 30 * epoch,
        "time_to_target": 12 * epoch,
        "cost_per_million_images": 1e6 * accelerator.price / 3600 / rate,
        "cost_to_target": 12 * epoch * accelerator.price / 3600,
        "roofline_share": 0.4,
    }
    if accelerator.mfu is None:
        metrics["mfu_measured_peak"] = 0.41
    else:
        metrics["mfu"] = accelerator.mfu
    curves = [
        {
            "epoch": number,
            "seconds": number * epoch,
            "validation_accuracy": 0.94 - 0.6 / number,
            "train_loss": 2.0 / number,
            "validation_loss": 2.2 / number,
        }
        for number in range(1, 31)
    ]
    settings = {
        "model": model,
        "dataset": dataset,
        "strategy": "jit",
        "precision": accelerator.precision,
        "batch_size": accelerator.batch,
        "target_accuracy": 0.9,
    }
    return _record("train", accelerator, settings, metrics, curves=curves)


def _width(accelerator: Accelerator, index: int) -> Record:
    metrics = {
        "parameters": SIZES[index],
        "training_time": accelerator.seconds[index],
        "copy_time": 0.5,
        "compile_time": 2.0,
        "setup_and_training_time": accelerator.seconds[index] + 2.5,
    }
    settings = {"model": f"mlp_{SIZES[index]}", "precision": "float32", "batch_size": 256}
    return _record("width_sweep", accelerator, settings, metrics)


def _batch(accelerator: Accelerator, batch: int) -> Record:
    metrics = {
        "images_per_second": accelerator.rate * batch / (batch + 64),
        "memory_planned": 2e5 * batch,
    }
    settings = {"model": MODEL, "precision": accelerator.precision, "batch_size": batch}
    return _record("batch_sweep", accelerator, settings, metrics)


def _latency(accelerator: Accelerator, batch: int, index: int) -> Record:
    seconds = 1e-3 + batch / accelerator.rate
    names = {"latency_p50": 1.0, "latency_p90": 1.1, "latency_p99": 1.5}
    metrics = {name: factor * seconds for name, factor in names.items()}
    metrics["images_per_second"] = batch / seconds
    settings = {"model": MODEL, "precision": accelerator.precision, "batch_size": batch}
    return _record("inference", accelerator, settings, metrics)


def _preflight() -> Record:
    """An estimate of 20,000 to 50,000 images/s at 1.2 $ per hour."""
    metrics = {
        "images_per_second_estimate": 32_000.0,
        "images_per_second_estimate_low": 20_000.0,
        "images_per_second_estimate_high": 50_000.0,
        "price_per_hour": 1.2,
        "largest_batch": 4096,
    }
    settings = {
        "target": "tpu-v6e-1", "model": MODEL, "precision": "bfloat16", "strategy": "jit",
        "batch_size": 1024,
    }  # fmt: skip
    chip = TPU._replace(name="TPU v6 lite (synthetic)")
    return _record("preflight", chip, settings, metrics, status="predicted")


def _record(study, accelerator, settings, metrics, status="ok", **fields) -> Record:
    provenance = {
        "accelerator": accelerator.name,
        "platform": accelerator.platform,
        "machine": accelerator.name,
        "time": f"2026-11-01T00:00:{2 if settings['model'] == MODEL else 1:02}",
        "simulated": False,
        "host_memory": 25_276_063_744,
        "remarks": ["synthetic: made up for a test"],
    }
    case = "-".join([study, accelerator.platform, accelerator.name, *map(str, settings.values())])
    safe = "".join(c if c.isalnum() else "_" for c in case)
    return Record(
        study, safe, status, settings=settings, metrics=metrics, provenance=provenance, **fields
    )
