"""Every strategy on 1, 2 and 8 devices computes what `jit` computes on one device."""

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxcnn import parallel, training
from jaxcnn.data.augment import make_preprocess
from jaxcnn.data.resident import ResidentFeed
from jaxcnn.errors import InputError
from jaxcnn.models.layers import Conv, Dropout
from jaxcnn.models.residual import StochasticDepth
from jaxcnn.models.shapes import flatten
from jaxcnn.ops import max_pool

STEPS = 4
# In float32 strategies differ only in the order of sums; in bfloat16 an activation may round to its
# neighbor, 1 part in 256.
TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 2e-6}, "bfloat16": {"rtol": 2e-2, "atol": 2e-3}}

EVERY_STRATEGY = pytest.mark.parametrize("name", parallel.FOR_ANY_NETWORK)


class SmallNet(nnx.Module):
    """Layers that are wrong if a strategy treats shares of a batch separately."""

    def __init__(self, rngs: nnx.Rngs):
        # The gradient of a bias before batch norm would be nothing but rounding errors.
        self.conv = Conv(1, 8, 3, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.stochastic_depth = StochasticDepth(0.2, rngs=rngs)
        self.dropout = Dropout(0.3, rngs=rngs)
        self.out = nnx.Linear(4 * 4 * 8, 10, rngs=rngs)

    def __call__(self, images):
        x = self.stochastic_depth(nnx.relu(self.norm(self.conv(images))))
        return self.out(self.dropout(flatten(max_pool(x))))


def create(precision: str = "float32") -> tuple[training.TrainState, training.TrainStep]:
    """A small network with augmentation and momentum."""
    return training.create(
        SmallNet(nnx.Rngs(0)),
        optax.sgd(0.1, momentum=0.9),
        precision=precision,
        preprocess=make_preprocess(("shift", "flip")),
    )


def random_batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": rng.integers(0, 256, (16, 8, 8, 1), np.uint8),
            "label": rng.integers(0, 10, 16, np.int32),
        }
        for _ in range(STEPS)
    ]


def train(strategy: parallel.Strategy, precision: str) -> tuple[list[float], training.TrainState]:
    """The losses and the last state of a few train steps."""
    state, step = create(precision)
    placed, compiled, losses = strategy.place(state), strategy.compile(step), []
    for batch in random_batches():
        placed, metrics = compiled(placed, strategy.place_batch(batch))
        losses.append(float(metrics["loss"] / metrics["count"]))
        assert float(metrics["count"]) == 16.0
    return losses, strategy.fetch(placed)


@pytest.fixture(scope="module")
def reference():
    """Losses and state of `jit`, by precision."""
    return {precision: train(parallel.strategy("jit"), precision) for precision in TOLERANCE}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("count", [1, 2, 8])
@EVERY_STRATEGY
def test_losses_and_state_are_those_of_one_device(name, count, precision, devices, reference):
    losses, state = train(parallel.strategy(name, devices[:count]), precision)
    expected_losses, expected_state = reference[precision]
    np.testing.assert_allclose(losses, expected_losses, **TOLERANCE[precision])
    assert int(state.step) == STEPS
    for field in ("params", "model_state"):
        pairs = zip(
            jax.tree.leaves_with_path(getattr(state, field)),
            jax.tree.leaves(getattr(expected_state, field)),
            strict=True,
        )
        for (path, leaf), expected in pairs:
            if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(
                    leaf, expected, err_msg=str(path), **TOLERANCE[precision]
                )


def test_running_statistics_are_those_of_the_global_batch(devices):
    """Compared with NumPy's mean and variance of the convolution's output over all 16 images."""
    state, step = training.create(SmallNet(nnx.Rngs(0)), optax.sgd(0.0))
    batch, pmap = random_batches()[0], parallel.strategy("pmap", devices)
    placed, _ = pmap.compile(step)(pmap.place(state), pmap.place_batch(batch))
    images = np.pad(np.float64(batch["image"]) / 255, [(0, 0), (1, 1), (1, 1), (0, 0)])
    kernel = np.float64(state.params["conv"]["kernel"])
    outputs = sum(
        images[:, i : i + 8, j : j + 8, :] @ kernel[i, j] for i in range(3) for j in range(3)
    )
    statistics = pmap.fetch(placed).model_state["norm"]
    np.testing.assert_allclose(
        statistics["mean"], 0.01 * outputs.mean((0, 1, 2)), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(statistics["var"], 0.99 + 0.01 * outputs.var((0, 1, 2)), rtol=1e-4)


@EVERY_STRATEGY
def test_nothing_is_compiled_after_the_first_step(name, devices):
    strategy = parallel.strategy(name, devices)
    state, step = create()
    placed, compiled = strategy.place(state), strategy.compile(step)
    batches = [strategy.place_batch(batch) for batch in random_batches()]
    compilations: list[str] = []

    def listen(event: str, seconds: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        placed, _ = compiled(placed, batches[0])
        assert len(compilations) == 1  # the listener receives compilations
        for batch in batches[1:]:
            placed, _ = compiled(placed, batch)
        assert len(compilations) == 1
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@EVERY_STRATEGY
def test_many_steps_in_one_dispatch_are_the_same_steps(name, devices):
    strategy = parallel.strategy(name, devices)
    rng = np.random.default_rng(1)
    data = {
        "image": rng.integers(0, 256, (40, 8, 8, 1), np.uint8),
        "label": rng.integers(0, 10, 40, np.int32),
    }
    examples, data = data, data | {"seed": np.uint32(0)}
    feed = ResidentFeed(40, 16)
    state, step = create()
    single = strategy.compile(step)
    many = strategy.compile(training.multi_step(step, feed), resident=True)
    state_of_single, state_of_many = strategy.place(state), strategy.place(state)
    losses = []
    for index in range(feed.capacity):
        rows = np.asarray(feed.order(data, np.int32(index)))[index * 16 :][:16]
        batch = {key: values[rows] for key, values in examples.items()}
        state_of_single, metrics = single(state_of_single, strategy.place_batch(batch))
        losses.append(float(metrics["loss"]))
    state_of_many, metrics = many(state_of_many, strategy.place_data(data), np.int32(feed.capacity))
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        strategy.fetch(state_of_many).params,
        strategy.fetch(state_of_single).params,
    )


@EVERY_STRATEGY
def test_the_original_state_stays_valid_after_a_step_on_its_copy(name, devices):
    strategy = parallel.strategy(name, devices)
    state, step = create()
    strategy.compile(step)(strategy.place(state), strategy.place_batch(random_batches()[0]))
    jax.tree.map(
        np.testing.assert_array_equal,
        strategy.fetch(strategy.place(state)).params,
        jax.device_get(state.params),
    )


@pytest.mark.parametrize("name", ["pmap", "data"])
@pytest.mark.parametrize("batch_size", [0, -8, 12])
def test_a_batch_that_does_not_divide_evenly_is_refused(name, batch_size, devices):
    with pytest.raises(
        InputError, match=f"batch size {batch_size} .* positive multiple of 8, such as"
    ):
        parallel.strategy(name, devices).check_batch_size(batch_size)


def test_an_unknown_strategy_suggests_the_nearest():
    with pytest.raises(InputError, match="did you mean 'pmap'"):
        parallel.strategy("pmpa")


def test_compiler_options_that_the_compiler_does_not_support_are_left_out(monkeypatch):
    from jaxcnn.parallel import options

    monkeypatch.setitem(options.OPTIONS, "cpu", {"xla_cpu_unknown_option": "1"})
    options.compiler_options.cache_clear()
    assert options.compiler_options("cpu") == {}
    options.compiler_options.cache_clear()


def test_an_empty_list_of_devices_is_refused():
    with pytest.raises(InputError, match="devices is empty: give at least one"):
        parallel.strategy("data", [])
