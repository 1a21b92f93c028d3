"""The rungs of the matrix product: right, and accepted by the compilers of platforms that are not here."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from experiments.microbenchmarks import rungs

# Pallas's GPU compiler asks which GPU it compiles for.
H100 = AbstractMesh(
    (1,), ("x",), abstract_device=AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu")
)
RUNGS = {
    "scalar_loop": rungs.scalar_loop,
    "element": partial(rungs.element_per_program, platform="cpu"),
    "tiled": partial(rungs.tiled, platform="cpu"),
    "xla": rungs.xla,
}


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_against_float64(name):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((64, 128), (128, 192)))
    found = (
        jax.jit(RUNGS[name])(a[:8], b[:, :24])
        if name in ("scalar_loop", "element")
        else jax.jit(RUNGS[name])(a, b)
    )
    expected = (a.astype(np.float64) @ b)[: found.shape[0], : found.shape[1]]
    assert found.dtype == jnp.float32 and found.size in (8 * 24, 64 * 192)
    np.testing.assert_allclose(
        found, expected, atol=1e-4
    )  # sums of 128 products of 1 on average, each exact to 6e-8


@pytest.mark.parametrize("name", RUNGS)
def test_rows_are_not_taken_for_columns(name):
    """A permutation from the left moves rows: by hand, no sum has two terms."""
    a = np.roll(np.eye(64, dtype=np.float32), 1, axis=0)
    b = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    assert np.array_equal(jax.jit(RUNGS[name])(a, b), np.roll(b, 1, axis=0))


def test_a_product_that_is_not_made_of_tiles():
    with pytest.raises(
        ValueError, match="64×100 and 100×64 is not made of tiles of 64×64, depth 64"
    ):
        rungs.tiled(jnp.ones((64, 100)), jnp.ones((100, 64)), platform="cpu")


def lowered(function, n, lowering_platform):
    square = jax.ShapeDtypeStruct((n, n), jnp.float32)
    with use_abstract_mesh(H100):
        return (
            jax.jit(function)
            .trace(square, square)
            .lower(lowering_platforms=(lowering_platform,))
            .as_text()
        )


@pytest.mark.parametrize(
    ("platform", "target", "sign"),
    [("tpu", "tpu", "tpu_custom_call"), ("gpu", "cuda", "xla.gpu.triton")],
)
def test_pallas_kernels_compile_for_gpu_and_tpu(platform, target, sign):
    """At the sizes that are timed there; Mosaic and Triton refuse blocks and shapes that they cannot do."""
    pallas = [kernel for kernel in rungs.kernels(platform) if kernel.lowering == "pallas"]
    assert len(pallas) == 2
    for kernel in pallas:
        assert sign in lowered(
            kernel.function, kernel.make(np.random.default_rng(0))[0].shape[0], target
        )


def test_interpreted_programs_are_labelled_and_the_work_is_counted():
    on = {
        platform: {kernel.name.split("-")[1]: kernel for kernel in rungs.kernels(platform)}
        for platform in ("cpu", "gpu", "tpu")
    }
    assert [kernel.lowering for kernel in on["cpu"].values()] == [
        "xla",
        "pallas, interpreted",
        "pallas, interpreted",
        "xla",
    ]
    assert [kernel.lowering for kernel in on["gpu"].values()] == ["xla", "pallas", "pallas", "xla"]
    assert on["cpu"]["element"].flops == 2 * 64**3 and on["tpu"]["tiled"].flops == 2 * 1024**3
    assert {kernel.precision for kernels in on.values() for kernel in kernels.values()} == {
        "highest"
    }
