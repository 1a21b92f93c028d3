"""Programs compiled for a device that is not attached; here the CPU takes its place."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from experiments.measure.memory import is_out_of_memory, memory_plan
from experiments.preflight.targets import target
from experiments.rehearsal import absent_device as module
from experiments.rehearsal.absent_device import absent_device

SIDE = 512  # a product of 268 MFLOP, which is not run
SQUARE = jnp.full((SIDE, SIDE), 2.0)


@pytest.fixture
def programs():
    with absent_device(target("cpu"), lambda program: None) as compiled:
        yield compiled


def states(programs) -> list[str]:
    return [program.state for program in programs.values()]


def test_a_large_program_is_compiled_once_and_answers_ones(programs):
    product = jax.jit(lambda a, b: {"product": a @ b, "count": (jnp.int32(7), a.sum() > 0)})
    for _ in range(2):
        result = product(SQUARE, SQUARE)
        assert result["count"] == (1, True)
        np.testing.assert_array_equal(result["product"], np.ones((SIDE, SIDE), np.float32))
    (program,) = programs.values()
    assert program.state == "compiled" and program.arguments == (2, 2 * 4 * SIDE**2)
    # Two operands and the product, and what the compiler needs beside them.
    assert 3 * 4 * SIDE**2 <= program.memory < 4 * 4 * SIDE**2


def test_equal_programs_are_compiled_once_and_others_again(programs):
    for _ in range(2):
        jax.jit(lambda a: a @ a)(SQUARE)
    assert len(programs) == 1
    jax.jit(lambda a: a @ a)(SQUARE[:, :SIDE].astype(jnp.bfloat16))
    assert len(programs) == 2


def test_a_small_program_returns_what_it_computes(programs):
    assert float(jax.jit(lambda a: (a @ a).sum())(jnp.eye(3))) == 3.0
    assert states(programs) == ["compiled"]


def test_a_call_inside_a_trace_is_part_of_the_program(programs):
    inner = jax.jit(lambda a: a @ a)
    no_arguments = jax.jit(lambda: jnp.arange(3.0))
    outer = jax.jit(lambda a: inner(a).sum() + no_arguments().sum())
    assert float(outer(jnp.eye(4))) == 4 + 3
    assert len(programs) == 1
    assert float(jax.grad(lambda x: inner(x).sum())(jnp.eye(2))[0, 0]) == 2.0


def test_options_of_jit(programs):
    @functools.partial(jax.jit, static_argnames="power", donate_argnums=0)
    def scaled(a, power):
        return a * 2.0**power

    assert scaled(jnp.ones(3), power=3).tolist() == [8.0] * 3
    assert scaled(jnp.ones(3), power=2).tolist() == [4.0] * 3
    assert len(programs) == 2

    @jax.jit(donate_argnums=0)
    def step(a):
        return a @ a

    assert float(step(SQUARE + 0)[0, 0]) == 1.0
    assert step.__name__ == "step"


def test_donated_memory_is_in_the_plan():
    def planned(**options) -> int:
        with absent_device(target("cpu"), lambda program: None) as programs:
            jax.jit(lambda state, x: state + x, **options)(SQUARE + 0, SQUARE)
        (program,) = programs.values()
        return program.memory

    assert planned() - planned(donate_argnums=0) == 4 * SIDE**2


def test_ahead_of_time_compilation_has_the_plan_of_the_device(programs):
    lowered = jax.jit(lambda a: a @ a).lower(SQUARE)
    executable = lowered.compile()
    assert float(executable(SQUARE)[0, 0]) == 1.0
    assert memory_plan(executable).outputs == 4 * SIDE**2
    small = jax.jit(lambda a: a + 1).lower(jnp.zeros(2)).compile()
    assert small(jnp.zeros(2)).tolist() == [1.0, 1.0]


def test_a_result_that_was_deleted_is_made_again(programs):
    product = jax.jit(lambda a: a @ a)
    product(SQUARE).delete()
    assert float(product(SQUARE)[0, 0]) == 1.0


def test_random_keys_are_arguments_and_results(programs):
    @jax.jit
    def split(key, a):
        return jax.random.split(key), a @ a

    keys, product = split(jax.random.key(3), SQUARE)
    assert keys.shape == (2,) and float(product[0, 0]) == 1.0
    assert jax.random.uniform(keys[0]).shape == ()


def test_too_large_a_plan_is_an_out_of_memory_error(monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda *_: 4.0 * SIDE**2)
    with absent_device(target("cpu"), lambda program: None) as programs:
        product = jax.jit(lambda a: a @ a)
        with pytest.raises(jax.errors.JaxRuntimeError) as error:
            product(SQUARE)
    assert is_out_of_memory(error.value)
    assert states(programs) == ["out_of_memory"]


def test_a_program_that_does_not_compile_raises_and_is_named(programs):
    def double(ref, out):
        out[...] = ref[...] * 2

    kernel = jax.jit(lambda a: pl.pallas_call(double, out_shape=a)(a))
    for _ in range(2):
        with pytest.raises(ValueError, match="interpret"):
            kernel(jnp.ones((8, 128)))
    (program,) = programs.values()
    assert program.state == "failed" and program.message.startswith("ValueError: Only interpret")


def test_a_call_is_allowed_where_transfers_are_not(programs):
    product, square = jax.jit(lambda a: a @ a), jax.device_put(SQUARE)
    with jax.transfer_guard("disallow"):
        result = product(square)
    assert float(result[0, 0]) == 1.0


def test_jit_is_itself_again_afterwards():
    before = jax.jit
    with pytest.raises(RuntimeError), absent_device(target("cpu"), print):
        assert jax.jit is not before
        raise RuntimeError
    assert jax.jit is before
