"""The rungs of the matrix product: correct, and accepted by the compilers of GPU and TPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from experiments.microbenchmarks import rungs

# Pallas's GPU compiler needs to know the GPU.
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
def test_every_rung_equals_float64(name):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((64, 128), (128, 192)))
    if name in ("scalar_loop", "element"):  # slow
        a, b = a[:8], b[:, :24]
    product = jax.jit(RUNGS[name])(a, b)
    assert product.dtype == jnp.float32 and product.shape == (len(a), b.shape[1])
    # sums of 128 products of magnitude 1 on average, each exact to 6e-8
    np.testing.assert_allclose(product, a.astype(np.float64) @ b, atol=1e-4)


@pytest.mark.parametrize("name", RUNGS)
def test_rows_and_columns_are_not_confused(name):
    """A permutation matrix on the left moves rows; no sum has two terms, so the result is exact."""
    a = np.roll(np.eye(64, dtype=np.float32), 1, axis=0)
    b = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    assert np.array_equal(jax.jit(RUNGS[name])(a, b), np.roll(b, 1, axis=0))


def test_a_product_that_cannot_be_divided_into_tiles():
    message = "64×100 and 100×64 cannot be divided into tiles of 64×64, depth 64"
    with pytest.raises(ValueError, match=message):
        rungs.tiled(jnp.ones((64, 100)), jnp.ones((100, 64)), platform="cpu")


def lower(function, n, platform):
    square = jax.ShapeDtypeStruct((n, n), jnp.float32)
    with use_abstract_mesh(H100):
        traced = jax.jit(function).trace(square, square)
        return traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize(
    ("platform", "lowering_platform", "call"),
    [("tpu", "tpu", "tpu_custom_call"), ("gpu", "cuda", "xla.gpu.triton")],
)
def test_pallas_kernels_compile_for_gpu_and_tpu(platform, lowering_platform, call):
    """At the sizes timed there; Mosaic and Triton reject unsupported blocks and shapes."""
    pallas = [kernel for kernel in rungs.kernels(platform) if kernel.lowering == "pallas"]
    assert len(pallas) == 2
    for kernel in pallas:
        operand, _ = kernel.make_operands(np.random.default_rng(0))
        assert call in lower(kernel.function, len(operand), lowering_platform)


def test_lowering_flops_and_precision_of_the_rungs():
    rows = {
        platform: {kernel.name.split("-")[1]: kernel for kernel in rungs.kernels(platform)}
        for platform in ("cpu", "gpu", "tpu")
    }
    assert [kernel.lowering for kernel in rows["cpu"].values()] == [
        "xla",
        "pallas, interpreted",
        "pallas, interpreted",
        "xla",
    ]
    assert [kernel.lowering for kernel in rows["gpu"].values()] == [
        "xla",
        "pallas",
        "pallas",
        "xla",
    ]
    assert rows["cpu"]["element"].flops == 2 * 64**3 and rows["tpu"]["tiled"].flops == 2 * 1024**3
    assert {kernel.precision for kernels in rows.values() for kernel in kernels.values()} == {
        "highest"
    }
