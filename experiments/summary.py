"""Prints a network layer by layer: ``python -m experiments.summary --model=darknet19``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.cli import OK, OptionalInt, parse_options, run_command
from experiments.config import bounds
from experiments.interrupts import exit_with
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from experiments.measure.layer_row import LayerRow


_MAX_CHANNELS = 4096


@dataclass(frozen=True)
class SummaryConfig:
    """Prints a network layer by layer: output shape, parameters, FLOPs of one image forward."""

    model: str = "lenet5"
    """The network, see `python -m experiments.run --list`; mlp:4096 is an MLP of that width. Your
    own: ./file.py:Factory or package.module:Factory, with --image-size and --num-classes."""
    image_size: OptionalInt = None
    """Side of the images; default: the published one."""
    num_classes: OptionalInt = None
    """Number of classes; default: the published one."""
    channels: OptionalInt = None
    """Channels of the images, from 1 to 4096; default: the published ones, or 3."""

    def __post_init__(self):
        for name in ("image_size", "num_classes"):
            if (value := getattr(self, name)) is not None:
                bounds.require_count(name, value)
        if self.channels is not None and not 1 <= self.channels <= _MAX_CHANNELS:
            raise InputError(f"--channels={self.channels}: must be from 1 to {_MAX_CHANNELS}")


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; returns an exit code of `experiments.cli`."""
    return run_command(
        lambda console: _summarize(
            parse_options(SummaryConfig, "experiments.summary", arguments), console
        )
    )


def _summarize(config: SummaryConfig, console: "Console") -> int:
    from flax import nnx

    from experiments.measure.layers import all_rows
    from jaxcnn import backend, models

    backend.select("cpu")
    spec = models.spec(config.model)
    shape = _input_shape(config, spec.input_shape)
    if spec.num_classes is None and config.num_classes is None:
        raise InputError(f"model {config.model!r} has no published classes: give --num-classes")
    model = nnx.eval_shape(
        lambda: models.build(config.model, num_classes=config.num_classes, input_shape=shape)
    )
    title = f"{models.label(config.model)}, {'×'.join(map(str, shape))}: {spec.source}"
    _print_layers(console, title, all_rows(model, shape))
    return OK


def _input_shape(
    config: SummaryConfig, published: tuple[int, int, int] | None
) -> tuple[int, int, int]:
    """Height, width and channels of the images."""
    if published is None and config.image_size is None:
        raise InputError(f"model {config.model!r} has no published image size: give --image-size")
    height, width, channels = published or (config.image_size, config.image_size, 3)
    size = config.image_size
    return size or height, size or width, config.channels or channels


def _print_layers(console: "Console", title: str, rows: "Sequence[LayerRow]") -> None:
    """Prints the table, laid out as Keras and Darknet do, and the totals."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in ("", "layer", "kind", "output", "parameters", "MFLOP"):
        justify: JustifyMethod = "left" if heading in ("layer", "kind") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    for number, row in enumerate(rows):
        parameters = row.trainable + row.non_trainable
        table.add_row(
            str(number),
            row.name,
            row.kind,
            "×".join(map(str, row.output_shape)),
            f"{parameters:,}" if parameters else "",
            f"{row.flops / 1e6:,.3f}" if row.flops else "",
        )
    console.print(table)
    trainable = sum(row.trainable for row in rows)
    non_trainable = sum(row.non_trainable for row in rows)
    flops = sum(row.flops for row in rows)
    console.print(
        f"parameters {trainable + non_trainable:,}: {trainable:,} trainable, "
        f"{non_trainable:,} not; forward {flops / 1e9:,.4f} GFLOP an image",
        highlight=False,
    )


if __name__ == "__main__":
    exit_with(main())
