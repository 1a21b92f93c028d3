"""The program of strategy `pipeline`, compiled for TPUs that are not there."""

import jax
import jax.numpy as jnp
import pytest

from experiments.preflight.program import ProgramSpec, build_program
from jaxcnn import parallel
from tests.support.preflight import needs_libtpu, run


@needs_libtpu
@pytest.mark.slow
def test_four_chips_pass_activations_on_and_sum_only_scalars(tmp_path):
    """LeNet-5 in four stages; the largest activation between two is that after S2, 14×14×6."""
    options = ["--target=tpu-v5e-4", "--model=lenet5", "--strategy=pipeline", "--fixed-batch"]
    code, (record,) = run(tmp_path, *options, "--batch-size=64", "--microbatches=4")
    assert code == 0 and record.status == "predicted" and record.settings["microbatches"] == 4
    collectives = {entry["kind"]: entry for entry in record.provenance["collectives"]}
    assert collectives.keys() == {"all-reduce", "collective-permute"}
    # forward and backward, each in the body of a loop
    assert collectives["collective-permute"]["count"] == 2
    assert collectives["collective-permute"]["bytes"] == 2 * 4 * 16 * 14 * 14 * 6
    assert collectives["all-reduce"]["bytes"] <= 4 * 5  # loss, counts, the norm of gradients


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
