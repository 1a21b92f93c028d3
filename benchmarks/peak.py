"""Is the measured peak of this CPU right? JAX's matrix product against NumPy's, in turn: ``python -m benchmarks.peak``.

NumPy calls another library (OpenBLAS in its wheels) by another way, so that an error in our timing, in the count of FLOPs or in the
choice of the size would show. `experiments.microbenchmarks.peak` should agree within 15 %. Takes a quarter of a minute. Leave the machine
alone: OpenBLAS's threads wait for each other turning, and fall to a tenth where another program takes a processor.
"""

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.measure.timing import compare, compiled, interleaved
from experiments.microbenchmarks.kernel import normal
from experiments.microbenchmarks.matmul import product
from experiments.microbenchmarks.peak import measured
from jaxcnn import backend

SIDE, ROUNDS = 2048, 31


def main() -> None:
    """Prints both rates, their ratio and the peak as studies measure it, in GFLOP/s."""
    device = backend.select("cpu").devices[0]
    peak = measured(device, "float32")
    a, b = normal("float32", (SIDE, SIDE), (SIDE, SIDE))(np.random.default_rng(0))
    calls = {"NumPy": lambda: a @ b, "JAX": compiled(product, *jax.device_put((a, b), device)).call}
    timings = interleaved(calls, ROUNDS)
    numpy, ours = (timings[name] for name in calls)
    table = Table(
        "matrix product",
        "side",
        "median",
        "best",
        "noise",
        title=f"float32, GFLOP/s, {ROUNDS} rounds in turn",
    )
    for name, timing in timings.items():
        rates = [
            f"{2 * SIDE**3 / seconds / 1e9:.1f}" for seconds in (timing.median, min(timing.samples))
        ]
        table.add_row(name, str(SIDE), *rates, timing.noise.verdict)
    table.add_row(
        "experiments.microbenchmarks.peak",
        str(peak.size),
        f"{peak.flops_per_second / 1e9:.1f}",
        "",
        "",
    )
    console = Console()
    console.print(table)
    ratio = compare(ours.samples, numpy.samples, paired=True)
    console.print(
        f"JAX's time over NumPy's: {ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})",
        highlight=False,
    )
    against = peak.flops_per_second * numpy.median / (2 * SIDE**3)
    console.print(f"measured peak over NumPy's rate: {against:.3f}", highlight=False)


if __name__ == "__main__":
    main()
