"""A step in microbatches compared with the step on the whole batch, and with NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import training
from jaxcnn.data.mixing import Mixing
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Dropout
from jaxcnn.training.microbatches import split


class SmallNet(nnx.Module):
    """Two layers with dropout, without batch norm."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.hidden = nnx.Linear(12, 8, rngs=rngs)
        self.dropout = Dropout(0.5, rngs=rngs)
        self.out = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, images):
        return self.out(self.dropout(nnx.relu(self.hidden(images.reshape(len(images), -1)))))


def random_batch(size: int = 24) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    mask = np.ones(size, np.float32)
    mask[[1, size // 4]] = 0
    return {
        "image": rng.random((size, 2, 2, 3), np.float32),
        "label": rng.integers(0, 3, size, np.int32),
        "mask": mask,
    }


def steps(count: int, **options) -> tuple[training.TrainState, list[dict[str, float]]]:
    """The state after two steps in `count` microbatches, and the metrics of both."""
    optimizer = training.optimizer(
        "momentum", 0.3, "constant", steps=9, steps_per_epoch=1, clip_norm=0.2
    )
    state, step = training.create(
        SmallNet(), optimizer, weight_decay=0.1, ema_decay=0.9, microbatches=count, **options
    )
    history = []
    for _ in range(2):
        state, metrics = jax.jit(step)(state, random_batch())
        history.append({name: float(value) for name, value in metrics.items()})
    return state, history


class RunningMean(nnx.Module):
    """A running mean that is divided by its weights, which a counter of steps tells."""

    def __init__(self):
        self.out = nnx.Linear(1, 2, rngs=nnx.Rngs(0))
        self.hidden, self.count = nnx.BatchStat(jnp.zeros(())), nnx.BatchStat(jnp.int32(0))
        self.pair = nnx.BatchStat((jnp.zeros(()), jnp.int32(0)))

    def __call__(self, images):
        self.hidden[...] = 0.9 * self.hidden[...] + 0.1 * images.mean()
        self.count[...] += 1
        return self.out(images.reshape(len(images), -1))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_counters_of_the_network_advance_with_what_they_count(count):
    """The mean of a constant 3 is 3, after any number of parts."""
    state, step = training.create(RunningMean(), optax.sgd(0.1), microbatches=count)
    batch = {"image": np.full((8, 1, 1, 1), 3, np.float32), "label": np.zeros(8, np.int32)}
    state, _ = jax.jit(step)(state, batch)
    hidden, parts = state.model_state["hidden"], state.model_state["count"]
    assert parts == count and float(hidden / (1 - 0.9**parts)) == pytest.approx(3, rel=1e-5)


@pytest.mark.parametrize("count", [2, 3, 12])
@pytest.mark.parametrize(
    "options",
    [{}, {"mix": Mixing(mixup=1.0, cutmix=1.0), "label_smoothing": 0.1}, {"precision": "float16"}],
    ids=["plain", "mixed", "float16"],
)
def test_microbatches_take_the_step_of_the_whole_batch(count, options):
    """Dropout, mixing, masks, penalty, clipping, loss scale and average included."""
    (state, history), (expected, expected_history) = steps(count, **options), steps(1, **options)
    tolerance = 2e-3 if "precision" in options else 1e-5
    for metrics, expected_metrics in zip(history, expected_history, strict=True):
        assert metrics == pytest.approx(expected_metrics, rel=tolerance)
    for field in ("params", "ema_params"):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 5),
            getattr(state, field),
            getattr(expected, field),
        )
    assert int(state.model_state["dropout"]["rngs"]["count"]) == 2
    assert float(state.loss_scale) == float(expected.loss_scale)


def test_the_parts_of_a_batch_are_rows_apart():
    parts = split({"x": jnp.arange(12)}, 3)["x"]
    np.testing.assert_array_equal(parts, np.arange(12).reshape(4, 3).T)
    pairs = np.asarray(split(jnp.arange(12), 3, together=2))
    np.testing.assert_array_equal(pairs, [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]])


@pytest.mark.parametrize(("count", "mix"), [(5, None), (24, Mixing(mixup=1.0))])
def test_a_batch_that_cannot_be_divided_is_refused(count, mix):
    state, step = training.create(SmallNet(), optax.sgd(0.1), microbatches=count, mix=mix)
    with pytest.raises(InputError, match=f"24 images .* cannot be divided into {count} microbatch"):
        jax.jit(step)(state, random_batch())


def test_a_number_of_microbatches_below_one_is_refused():
    with pytest.raises(InputError, match="0 microbatches: the number must be 1 or more"):
        training.create(SmallNet(), optax.sgd(0.1), microbatches=0)


def test_an_overflow_in_one_microbatch_skips_the_whole_step():
    state, step = training.create(
        SmallNet(), optax.sgd(0.1), precision="float16", microbatches=2, ema_decay=0.9
    )
    batch = random_batch(4)
    batch["mask"][:] = 1
    batch["image"][1] = 1e4  # of the second microbatch
    state = state.replace(loss_scale=jnp.float32(2.0**24))
    after, _ = jax.jit(step)(state, batch)
    jax.tree.map(np.testing.assert_array_equal, after.params, state.params)
    jax.tree.map(np.testing.assert_array_equal, after.ema_params, state.ema_params)
    assert float(after.loss_scale) == 2.0**23


def test_memory_of_the_activations_shrinks():
    """The compiler plans less temporary memory for eight microbatches than for one."""

    class Wide(nnx.Module):
        def __init__(self):
            self.hidden = nnx.Linear(12, 2048, rngs=nnx.Rngs(0))
            self.out = nnx.Linear(2048, 3, rngs=nnx.Rngs(1))

        def __call__(self, images):
            return self.out(jnp.tanh(self.hidden(images.reshape(len(images), -1))))

    sizes = []
    for count in (1, 8):
        state, step = training.create(Wide(), optax.sgd(0.1), microbatches=count)
        compiled = jax.jit(step).lower(state, random_batch(2048)).compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < sizes[0] / 3
