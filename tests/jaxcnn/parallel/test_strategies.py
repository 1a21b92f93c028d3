"""Every strategy on 1, 2 and 8 devices reproduces `jit` on one: batch norm, dropout and augmentation included."""

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
from jaxcnn.models.layers import Conv, Dropout, flatten
from jaxcnn.ops import max_pool

STEPS = 4
# float32 strategies differ in the order of sums alone; in bfloat16 an activation may round to its neighbour, 1 part in 256
TOLERANCE = {"float32": {"rtol": 2e-5, "atol": 2e-6}, "bfloat16": {"rtol": 2e-2, "atol": 2e-3}}


class SmallNet(nnx.Module):
    """A little of everything that could tell strategies apart."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = Conv(
            1, 8, 3, use_bias=False, rngs=rngs
        )  # a bias before batch norm has only noise for a gradient
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = Dropout(0.3, rngs=rngs)
        self.out = nnx.Linear(4 * 4 * 8, 10, rngs=rngs)

    def __call__(self, images):
        return self.out(self.dropout(flatten(max_pool(nnx.relu(self.norm(self.conv(images)))))))


def created(precision: str):
    return training.create(
        SmallNet(nnx.Rngs(0)),
        optax.sgd(0.1, momentum=0.9),
        precision=precision,
        preprocess=make_preprocess(("shift", "flip")),
    )


def batches() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": rng.integers(0, 256, (16, 8, 8, 1), np.uint8),
            "label": rng.integers(0, 10, 16, np.int32),
        }
        for _ in range(STEPS)
    ]


def trained(strategy: parallel.Jit, precision: str):
    state, step = created(precision)
    placed, compiled, losses = strategy.place(state), strategy.compile(step), []
    for batch in batches():
        placed, metrics = compiled(placed, strategy.place_batch(batch))
        losses.append(float(metrics["loss"] / metrics["count"]))
        assert float(metrics["count"]) == 16.0
    return losses, strategy.fetch(placed)


@pytest.fixture(scope="module")
def reference():
    return {precision: trained(parallel.strategy("jit"), precision) for precision in TOLERANCE}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("name", parallel.STRATEGIES)
def test_losses_and_parameters_are_those_of_one_device(name, count, precision, devices, reference):
    losses, state = trained(parallel.strategy(name, devices[:count]), precision)
    expected_losses, expected = reference[precision]
    np.testing.assert_allclose(losses, expected_losses, **TOLERANCE[precision])
    assert int(state.step) == STEPS
    for part in ("params", "model_state"):
        pairs = zip(
            jax.tree.leaves_with_path(getattr(state, part)),
            jax.tree.leaves(getattr(expected, part)),
            strict=True,
        )
        for (path, found), wanted in pairs:
            if not jnp.issubdtype(found.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(found, wanted, err_msg=str(path), **TOLERANCE[precision])


def test_running_statistics_are_those_of_the_global_batch(devices, reference):
    """The mean of the convolution's output over all 16 images, by NumPy, is what batch norm saw in the first step."""
    state, step = training.create(SmallNet(nnx.Rngs(0)), optax.sgd(0.0))
    batch, over = batches()[0], parallel.strategy("pmap", devices)
    placed, _ = over.compile(step)(over.place(state), over.place_batch(batch))
    images = np.pad(np.float64(batch["image"]) / 255, [(0, 0), (1, 1), (1, 1), (0, 0)])
    kernel = np.float64(state.params["conv"]["kernel"])
    output = sum(
        images[:, i : i + 8, j : j + 8, :] @ kernel[i, j] for i in range(3) for j in range(3)
    )
    statistics = over.fetch(placed).model_state["norm"]
    np.testing.assert_allclose(
        statistics["mean"], 0.01 * output.mean((0, 1, 2)), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(statistics["var"], 0.99 + 0.01 * output.var((0, 1, 2)), rtol=1e-4)


@pytest.mark.parametrize("name", parallel.STRATEGIES)
def test_nothing_is_compiled_after_the_first_step(name, devices):
    over = parallel.strategy(name, devices)
    state, step = created("float32")
    placed, compiled = over.place(state), over.compile(step)
    on_device = [over.place_batch(batch) for batch in batches()]
    compilations: list[str] = []

    def listen(event: str, seconds: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        placed, _ = compiled(placed, on_device[0])
        assert len(compilations) == 1  # the listener hears compilations
        for batch in on_device[1:]:
            placed, _ = compiled(placed, batch)
        assert len(compilations) == 1
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("name", parallel.STRATEGIES)
def test_many_steps_in_one_dispatch_are_the_same_steps(name, devices):
    over = parallel.strategy(name, devices)
    rng = np.random.default_rng(1)
    data = {
        "image": rng.integers(0, 256, (40, 8, 8, 1), np.uint8),
        "label": rng.integers(0, 10, 40, np.int32),
    }
    feed = ResidentFeed(40, 16)
    state, step = created("float32")
    one, many = over.compile(step), over.compile(training.multi_step(step, feed), resident=True)
    singly, at_once = over.place(state), over.place(state)
    losses = []
    for index in range(feed.capacity):
        rows = np.asarray(feed.order(data, np.int32(index)))[index * 16 :][:16]
        singly, metrics = one(
            singly, over.place_batch({key: values[rows] for key, values in data.items()})
        )
        losses.append(float(metrics["loss"]))
    at_once, metrics = many(at_once, over.place_data(data), np.int32(feed.capacity))
    np.testing.assert_allclose(metrics["loss"], losses, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        over.fetch(at_once).params,
        over.fetch(singly).params,
    )


@pytest.mark.parametrize("name", parallel.STRATEGIES)
def test_placing_leaves_the_original_whole(name, devices):
    over = parallel.strategy(name, devices)
    state, step = created("float32")
    over.compile(step)(over.place(state), over.place_batch(batches()[0]))
    jax.tree.map(
        np.testing.assert_array_equal,
        over.fetch(over.place(state)).params,
        jax.device_get(state.params),
    )


@pytest.mark.parametrize("name", ["pmap", "data"])
@pytest.mark.parametrize("batch_size", [0, -8, 12])
def test_a_batch_that_does_not_divide_is_refused(name, batch_size, devices):
    with pytest.raises(
        InputError, match=f"batch size {batch_size} .* positive multiple of 8, such as"
    ):
        parallel.strategy(name, devices).check_batch_size(batch_size)


def test_an_unknown_strategy_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'pmap'"):
        parallel.strategy("pmpa")


def test_compiler_options_that_are_not_known_are_left_out(monkeypatch):
    from jaxcnn.parallel import options

    monkeypatch.setitem(options.OPTIONS, "cpu", {"xla_cpu_of_tomorrow": "1"})
    options.compiler_options.cache_clear()
    assert options.compiler_options("cpu") == {}
    options.compiler_options.cache_clear()
