"""A network's table: ``python -m experiments.summary --model=darknet19``."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.cli import parse_options, run_command
from jaxcnn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from experiments.measure.layers import LayerRow


@dataclass(frozen=True)
class SummaryConfig:
    """Prints a network layer by layer: output shape, parameters, FLOPs of one image forward."""

    model: str = "lenet5"
    """The network; mlp:4096 is an MLP of that width. `python -m experiments.run --list` names them all."""
    image_size: int | None = None
    """Side of the images; the published one if not given."""
    num_classes: int | None = None
    """The published number if not given."""

    def __post_init__(self):
        for name, value in (("image-size", self.image_size), ("num-classes", self.num_classes)):
            if value is not None and value < 1:
                raise InputError(f"--{name}={value}: must be 1 or more")


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; the exit codes are those of `experiments.run`."""
    return run_command(
        lambda console: _summarise(
            parse_options(SummaryConfig, "experiments.summary", arguments), console
        )
    )


def _summarise(config: SummaryConfig, console: "Console") -> int:
    from flax import nnx

    from experiments.measure.layers import layer_rows
    from jaxcnn import backend, models

    backend.select("cpu")
    row = models.spec(config.model)
    height, width, channels = row.input_shape
    shape = (config.image_size or height, config.image_size or width, channels)
    model = nnx.eval_shape(
        lambda: models.build(config.model, num_classes=config.num_classes, input_shape=shape)
    )
    _print_layers(
        console,
        f"{config.model}, {'×'.join(map(str, shape))}: {row.source}",
        layer_rows(model, shape),
    )
    return 0


def _print_layers(console: "Console", title: str, rows: "Sequence[LayerRow]") -> None:
    """A network's layers, as Keras's and Darknet's tables have them."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in ("", "layer", "what", "output", "parameters", "MFLOP"):
        table.add_column(
            heading, justify="left" if heading in ("layer", "what") else "right", no_wrap=True
        )
    for number, row in enumerate(rows):
        held = row.trainable + row.non_trainable
        shape, flops = (
            "×".join(map(str, row.output_shape)),
            f"{row.flops / 1e6:,.3f}" if row.flops else "",
        )
        table.add_row(str(number), row.name, row.kind, shape, f"{held:,}" if held else "", flops)
    console.print(table)
    trainable, other, flops = (
        sum(getattr(row, name) for row in rows) for name in ("trainable", "non_trainable", "flops")
    )
    console.print(
        f"parameters {trainable + other:,}: {trainable:,} trainable, {other:,} not; forward {flops / 1e9:,.4f} GFLOP an image",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
