"""`check` on programs that are not of this project."""

import subprocess
import sys

import flax.linen as linen
import jax
import jax.numpy as jnp
import optax
import pytest

from experiments import records
from experiments.measure.memory import MemoryPlan
from experiments.preflight import check, libraries
from experiments.preflight.compiler import Compiler
from experiments.preflight.result import CompileResult
from jaxcnn import models, training
from jaxcnn.errors import InputError
from tests.support.paths import ROOT
from tests.support.preflight import needs_libtpu


@pytest.fixture(autouse=True)
def promotion():
    """A stranger's program runs under JAX's own default."""
    with jax.numpy_dtype_promotion("standard"):
        yield


class Mlp(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(10)(linen.relu(linen.Dense(32)(x)))


def linen_step():
    """A Linen MLP of 16 inputs with Adam; its state and a batch of 8, in shapes only."""
    model, optimizer = Mlp(), optax.adam(1e-3)
    batch = {
        "x": jax.ShapeDtypeStruct((8, 16), jnp.float32),
        "y": jax.ShapeDtypeStruct((8,), jnp.int32),
    }
    params = jax.eval_shape(model.init, jax.random.key(0), batch["x"])
    state = (params, jax.eval_shape(optimizer.init, params))

    def step(state, batch):
        params, moments = state

        def loss_of(params):
            logits = model.apply(params, batch["x"])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
            return losses.mean()

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(params, updates), moments), loss

    return step, state, batch


def test_a_linen_mlp_on_simulated_devices_sums_its_gradients(tmp_path):
    step, state, batch = linen_step()
    result = check(step, state, batch, ["cpu-2"], name="mlp", results=str(tmp_path / "results"))
    (record,) = result.records
    assert record.status == "predicted" and record.settings["precision"] == "float32"
    # forward and both gradients of two products, but no gradient of the images: 2 × 8 × products
    assert record.metrics["flops_per_step"] == 2 * 8 * (3 * 32 * 10 + 2 * 16 * 32)
    (entry,) = record.provenance["collectives"]
    parameters = 16 * 32 + 32 + 32 * 10 + 10
    assert entry["kind"] == "all-reduce" and entry["bytes"] >= 4 * parameters
    # weights and two moments on each device, and half of the batch
    state_bytes = 4 * 3 * parameters + 4
    assert record.metrics["memory_arguments"] == state_bytes + 4 * 4 * 16 + 4 * 4
    assert "cpu-2" in str(result) and "all-reduce" in str(result)
    loaded, problems = records.load([tmp_path / "results"])
    assert problems == [] and loaded[0].metrics == record.metrics


@needs_libtpu
def test_a_linen_mlp_on_a_tpu(tmp_path):
    (record,) = check(*linen_step(), ["tpu-v5e-1"], largest=False).records
    metrics = record.metrics
    assert record.status == "predicted" and metrics["memory_planned"] < 2**24
    low, high = metrics["step_time_estimate_low"], metrics["step_time_estimate_high"]
    assert 0 < low < metrics["step_time_estimate"] < high
    assert metrics["images_per_second_estimate"] * metrics["step_time_estimate"] == pytest.approx(8)


def test_a_scan_over_an_rnn_counts_its_steps():
    """Twelve steps of a cell with two products of 2 × 4 × 5 × 5 FLOPs."""
    weights = {name: jax.ShapeDtypeStruct((5, 5), jnp.float32) for name in ("x", "h")}
    sequences = jax.ShapeDtypeStruct((4, 12, 5), jnp.float32)

    @jax.jit
    def step(weights, sequences):
        def cell(h, x):
            return jnp.tanh(x @ weights["x"] + h @ weights["h"]), None

        start = jnp.zeros((sequences.shape[0], 5))
        return jax.lax.scan(cell, start, sequences.swapaxes(0, 1))[0]

    (record,) = check(step, weights, sequences, ["cpu"], largest=False).records
    assert record.status == "predicted", record.message
    assert record.metrics["flops_per_step"] == 12 * 2 * (2 * 4 * 5 * 5)


def test_an_equinox_network_keeps_its_functions():
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(jax.random.key(0), 2)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 4, 3, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(4 * 6 * 6, 3, key=keys[1]),
        ]
    )
    images = jnp.ones((2, 1, 8, 8))

    def step(model, images):
        def loss(model):
            return jax.vmap(model)(images).sum()

        gradients = eqx.filter_grad(loss)(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients))

    (record,) = check(step, model, images, ["cpu"], largest=False).records
    assert record.status == "predicted", record.message
    convolution, dense = 2 * 9 * 4 * 36, 2 * 4 * 36 * 3
    # No gradient of the images; nobody reads the loss, and so not the dense layer's result.
    assert record.metrics["flops_per_step"] == 2 * (2 * convolution + 2 * dense)


def test_a_key_may_be_part_of_the_state():
    def step(state, batch):
        key, weights = state
        noise = jax.random.normal(key, batch.shape)
        return (jax.random.split(key)[0], weights + noise.T @ batch), None

    key = jax.eval_shape(jax.random.key, 0)
    weights = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    images = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    (record,) = check(step, (key, weights), images, ["cpu-2"], largest=False).records
    assert record.status == "predicted", record.message


@pytest.fixture
def compiled(monkeypatch):
    """A compiler that answers at once, also where none is installed: 1 GiB of 0.5 or 2 GiB."""

    def answer_with(available=2.0**31, collectives=None):
        memory = MemoryPlan(2**30, 0, 0, 0, 0)
        result = CompileResult(
            "compiled", memory=memory, available=available, collectives=collectives
        )
        monkeypatch.setattr(Compiler, "__call__", lambda self, request: result)
        monkeypatch.setattr(libraries, "missing", lambda target: "")

    return answer_with


def recurrent_step():
    """A cell whose state has as many rows as the batch."""
    weights = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    rows = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    return lambda state, x: (jnp.tanh(state[0] @ state[1] + x), state[1]), (rows, weights), rows


def test_a_step_that_takes_one_batch_size_alone_is_checked_with_that(compiled):
    """The search for the largest batch ends, and eight devices do an eighth of the work each."""
    compiled(collectives=())
    result = check(*recurrent_step(), ["gpu-t4-8", "gpu-t4"])
    eight, one = result.records
    for record in (eight, one):
        assert record.status == "predicted" and record.metrics["flops_per_step"] == 2 * 8 * 16 * 16
        (remark,) = (text for text in record.provenance["remarks"] if "largest batch" in text)
        assert "the function takes no batch of" in remark and remark in str(result)
    assert eight.metrics["step_time_estimate"] <= one.metrics["step_time_estimate"]


def test_a_step_that_asserts_its_batch_size_is_checked_with_that(compiled):
    compiled(collectives=())

    def step(weights, images):
        assert images.shape[0] == 8
        return weights - images.T @ images

    arguments = [jax.ShapeDtypeStruct(size, jnp.float32) for size in ((16, 16), (8, 16))]
    result = check(step, *arguments, ["gpu-t4-8", "gpu-t4"])
    assert [record.status for record in result.records] == ["predicted"] * 2
    with pytest.raises(AssertionError):
        check(lambda weights, images: step(weights, images[1:]), *arguments, ["gpu-t4"])


def test_a_program_with_64_bits_is_compiled_with_them():
    with jax.enable_x64(True):
        arguments = [jax.ShapeDtypeStruct(size, jnp.float64) for size in ((16, 16), (8, 16))]
        (record,) = check(lambda w, x: w - x.T @ (x @ w), *arguments, ["cpu"]).records
    assert record.status == "predicted", record.message
    assert record.metrics["memory_arguments"] == 8 * (16 * 16 + 8 * 16)


def test_our_own_train_step_is_checked_without_its_kernels():
    """They are custom calls, which JAX does not export."""
    state, step = training.create(models.build("lenet5", num_classes=10), optax.adam(1e-3), seed=0)
    batch = {
        "image": jax.ShapeDtypeStruct((8, 32, 32, 1), jnp.uint8),
        "label": jax.ShapeDtypeStruct((8,), jnp.int32),
    }
    with jax.numpy_dtype_promotion("strict"):
        (record,) = check(step, state, batch, ["cpu"]).records
    assert record.status == "predicted", record.message


def test_a_program_that_jax_cannot_export_is_an_error_in_one_line():
    def step(weights, images):
        jax.debug.print("{}", images.sum())
        return weights

    arguments = [jax.ShapeDtypeStruct(size, jnp.float32) for size in ((16, 16), (8, 16))]
    with pytest.raises(InputError, match=r"cannot be exported: .*host_callbacks.* jax\.debug") as e:
        check(step, *arguments, ["cpu"])
    assert "\n" not in str(e.value)


def test_the_flops_are_those_of_the_whole_batch():
    """All pairs of examples are compared: twice the batch on two devices is four times the work."""

    def step(weights, images):
        features = images @ weights
        return features @ features.T

    arguments = [jax.ShapeDtypeStruct(size, jnp.float32) for size in ((16, 4), (8, 16))]
    (record,) = check(step, *arguments, ["cpu-2"], largest=False).records
    assert record.metrics["flops_per_step"] == 2 * 8 * 16 * 4 + 2 * 8 * 8 * 4


def test_products_in_full_float32_are_not_taken_for_tf32(compiled):
    compiled()
    weights, images = (jax.ShapeDtypeStruct((2048, 2048), jnp.float32) for _ in range(2))

    def seconds(precision):
        def step(weights, images):
            return jnp.matmul(images, weights, precision=precision)

        result = check(step, weights, images, ["gpu-h100", "tpu-v5e-1"], largest=False)
        h100, v5e = result.records
        return h100.metrics["step_time_estimate"], v5e.metrics.get("step_time_estimate"), result

    default, full = seconds(None), seconds("highest")
    assert full[0] > 3 * default[0] and default[1] is not None and full[1] is None
    reason = "no estimate: no published peak of float32 at matmul precision 'highest' for TPU v5e"
    assert f"tpu-v5e-1: {reason}" in str(full[2])


def test_targets_are_named_as_on_the_command_line(compiled):
    compiled()
    step, state, batch = linen_step()
    result = check(step, state, batch, "colab,gpu-h100", largest=False)
    names = [record.settings["target"] for record in result.records]
    assert names == ["tpu-v5e-1", "gpu-t4", "gpu-h100"]


def test_what_cannot_be_compiled_says_why(monkeypatch):
    monkeypatch.setattr(libraries, "missing", lambda target: "install this compiler")
    result = check(*linen_step(), ["tpu-v5e-1"])
    assert result.records[0].status == "unsupported"
    assert "tpu-v5e-1: install this compiler" in str(result)


def test_a_program_that_does_not_fit_says_so(compiled):
    compiled(available=2.0**29)
    (record,) = check(*linen_step(), ["cpu-2"], largest=False).records
    assert record.status == "out_of_memory"
    assert record.message == (
        "compiles, but does not fit: 1.00 GiB planned on a device, 0.50 GiB available"
    )
    assert any("collectives unknown" in line for line in record.provenance["remarks"])


def test_a_batch_that_does_not_divide_is_an_input_error():
    step, state, batch = linen_step()
    with pytest.raises(InputError, match="batch of 8: does not divide among the 3 devices"):
        check(step, state, batch, ["cpu-3"])
    with pytest.raises(InputError, match="must have one size, not"):
        check(step, state, batch | {"y": jax.ShapeDtypeStruct((7,), jnp.int32)}, ["cpu"])
    with pytest.raises(InputError, match="target"):
        check(step, state, batch, ["tpu-v99"])
    for limit in (-1, "5"):
        with pytest.raises(InputError, match=f"time_limit={limit!r}: must be a positive number"):
            check(step, state, batch, ["cpu"], time_limit=limit)


@pytest.mark.parametrize("name", ["a/b", "../a", "", ".hidden"])
def test_a_name_that_is_no_part_of_a_file_is_rejected_before_anything_is_compiled(name):
    with pytest.raises(InputError, match="it is part of a file's name"):
        check(*linen_step(), ["cpu"], name=name)


def test_a_folder_that_cannot_be_written_is_rejected_before_anything_is_compiled(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write there"):
        check(*linen_step(), ["cpu"], results=str(tmp_path / "file"))


def outer_product_step(weights, images):
    return weights + images.T @ (images @ weights)


def test_the_newest_of_two_checks_of_one_name_counts(tmp_path, compiled):
    compiled()
    for size in (16, 32):
        weights = jax.ShapeDtypeStruct((size, size), jnp.float32)
        images = jax.ShapeDtypeStruct((8, size), jnp.float32)
        check(outer_product_step, weights, images, ["gpu-t4"], largest=False, results=str(tmp_path))
    (newest,) = records.latest(records.load([tmp_path])[0])
    assert newest.metrics["flops_per_step"] == 2 * 2 * 8 * 32 * 32


def test_flops_that_depend_on_the_data_are_an_input_error():
    def experts(weights, batch):
        sizes = jnp.sum(batch["x"], axis=1, dtype=jnp.int32)
        return jax.lax.ragged_dot(batch["y"], weights, sizes), None

    weights = jax.ShapeDtypeStruct((8, 4, 4), jnp.float32)
    batch = {
        "x": jax.ShapeDtypeStruct((8, 2), jnp.int32),
        "y": jax.ShapeDtypeStruct((8, 4), jnp.float32),
    }
    with pytest.raises(InputError, match="step: cannot count a product over groups"):
        check(experts, weights, batch, ["cpu"])


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_not_run_again(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "import jax, jax.numpy as jnp\n"
        "print('once', jnp.ones(1).sum())\n"
        "from experiments.preflight import check\n"
        "x = jnp.ones((4, 4))\n"
        "print(check(lambda w, x: w @ x, x, x, ['cpu'], largest=False).records[0].status)\n"
    )
    environment = {"JAX_PLATFORMS": "cpu", "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=True,
    )
    assert process.stdout.splitlines() == ["once 1.0", "predicted"]
