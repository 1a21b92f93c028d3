"""The program of strategy `pipeline`, compiled for TPUs that are not there."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies

from experiments.measure.collectives import bytes_all_reduced
from experiments.preflight import libraries
from experiments.preflight.program import ProgramSpec, build_program, compile_arguments
from jaxcnn import parallel

needs_libtpu = pytest.mark.skipif(
    not libraries.version("libtpu"), reason="libtpu exists only for Linux"
)


@needs_libtpu
@pytest.mark.slow
def test_four_chips_pass_activations_on_and_sum_only_scalars():
    """LeNet-5 in four stages; the largest activation between two is that after S2, 14×14×6."""
    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2x1")
    spec = ProgramSpec("lenet5", 64, "pipeline", "float32", 32, microbatches=4)
    strategy = parallel.strategy("pipeline", topology.devices)
    step, state, batch = compile_arguments(build_program(spec), strategy)
    text = step.lower(state, batch).compile().as_text()
    permuted = re.findall(r"= \(?(f32\[\d+\]).* collective-permute", text)
    assert len(set(permuted)) == 1
    assert f"f32[{16 * 14 * 14 * 6}]" in permuted
    assert "all-gather" not in text
    # The norm of the gradients, whether they are finite, the loss, and two counts: 4 B each. The
    # compiler leaves out what is not used.
    assert 0 < bytes_all_reduced(text) <= 4 * 5


def test_the_program_is_exported_for_other_platforms(devices):
    spec = ProgramSpec("lenet5", 64, "pipeline", "float32", 32, microbatches=4)
    program = build_program(spec)
    strategy = parallel.strategy("pipeline", devices[:2])
    strategy = strategy.for_step(program.step, program.state, program.batch)
    exported = jax.export.export(strategy.compile_for_export(program.step), platforms=["tpu"])(
        strategy.abstract_state(program.state), strategy.abstract_batch(program.batch)
    )
    assert exported.nr_devices == 2 and exported.platforms == ("tpu",)
    assert exported.in_avals[0].dtype in (jnp.int32, jnp.float32)
