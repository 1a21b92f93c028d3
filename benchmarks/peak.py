"""Is the measured peak of this CPU right? JAX's matrix product and NumPy's, timed in turn.

    python -m benchmarks.peak

NumPy calls another library (OpenBLAS in its wheels) by another path, so that an error in our
timing, in the count of FLOPs or in the choice of the size would show.
`experiments.microbenchmarks.peak` should agree within 15 %. Takes a quarter of a minute. Run it on
an idle machine: OpenBLAS's threads busy-wait for each other, and fall to a tenth of their speed if
another program uses a processor.
"""

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import command
from experiments.measure.noise import compare
from experiments.measure.timing import Timing, compile_program, time_interleaved
from experiments.microbenchmarks.kernel import normal_operands
from experiments.microbenchmarks.matmul import product
from experiments.microbenchmarks.peak import Peak, measure_peak
from jaxcnn import backend

SIDE, ROUNDS = 2048, 31
FLOPS = 2 * SIDE**3


def main() -> None:
    """Prints both rates, their ratio, and the peak as the studies measure it, in GFLOP/s."""
    command.refuse_options("benchmarks.peak")
    device = backend.select("cpu").devices[0]
    peak = measure_peak(device, "float32")
    a, b = normal_operands("float32", (SIDE, SIDE), (SIDE, SIDE))(np.random.default_rng(0))
    jax_product = compile_program(product, *jax.device_put((a, b), device)).call
    timings = time_interleaved({"NumPy": lambda: a @ b, "JAX": jax_product}, ROUNDS)
    console = Console()
    console.print(_table(timings, peak))
    numpy = timings["NumPy"]
    ratio = compare(timings["JAX"].samples, numpy.samples, paired=True)
    console.print(
        f"JAX's time over NumPy's: {ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})",
        highlight=False,
    )
    share = peak.flops_per_second * numpy.median / FLOPS
    console.print(f"measured peak over NumPy's rate: {share:.3f}", highlight=False)


def _table(timings: dict[str, Timing], peak: Peak) -> Table:
    title = f"float32, GFLOP/s, {ROUNDS} rounds in turn"
    table = Table("matrix product", "side", "median", "best", "noise", title=title)
    for name, timing in timings.items():
        seconds = timing.median, min(timing.samples)
        rates = [f"{FLOPS / duration / 1e9:.1f}" for duration in seconds]
        table.add_row(name, str(SIDE), *rates, timing.noise.verdict)
    rate = f"{peak.flops_per_second / 1e9:.1f}"
    table.add_row("experiments.microbenchmarks.peak", str(peak.size), rate, "", "")
    return table


if __name__ == "__main__":
    command.run(main)
