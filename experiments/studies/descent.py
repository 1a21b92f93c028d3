"""Three ways down one hill: full-batch, mini-batch and single-sample descent on a cost of two parameters (A6).

The cost is that of logistic regression with one weight and one bias on real data: is a tumour malignant, by its mean radius
(scikit-learn's breast cancer set, 569 tumours)? Two parameters, so the path can be drawn over the contours of the cost.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.timing import compiled, timed
from jaxcnn.backend import Backend
from jaxcnn.errors import InputError

COLUMNS = (
    "step_time",
    "images_per_second",
    "steps",
    "training_time",
    "training_loss",
    "excess_loss",
)
EXAMPLES, MINI_BATCH, RATE = 569, 32, 0.5
EPOCHS = {"quick": 40, "full": 400}
START = (-1.0, 3.0)  # far from the least cost, so that there is a way to go
WEIGHTS, BIASES, SIDE = (-2.0, 6.0), (-4.0, 4.0), 41  # the map that the contours are drawn on
POINTS = 500  # of a path, at most, that are kept


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each way, all of them with the same rate and the same passes over the data.

    Raises:
      InputError: a batch of more examples than there are.
    """
    mini = config.batch_size or MINI_BATCH
    if mini > EXAMPLES:
        raise InputError(
            f"--batch-size={mini}: descent has {EXAMPLES} examples; choose a mini-batch of at most that many"
        )
    config = config.with_defaults({"learning_rate": RATE, "epochs": EPOCHS[config.preset]})
    return [
        _case(config, way, size)
        for way, size in {"full batch": EXAMPLES, "mini-batch": mini, "single sample": 1}.items()
    ]


def _case(config: RunConfig, way: str, batch_size: int) -> Case:
    settings = {"model": way, "dataset": "breast_cancer", "batch_size": batch_size}
    settings |= {
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "seed": config.seed,
    }
    return Case(config.replace(batch_size=batch_size), settings, ("logistic", "breast_cancer", way))


def measure(case: Case, context: Context) -> CaseResult:
    """The path, what it cost, and the map around it."""
    config, device = case.config, context.backend.devices[0]
    x, y = examples()
    rows = order(len(x), config.batch_size, config.epochs, config.seed)
    operands = jax.device_put(
        (x, y, rows, np.float32(START), np.float32(config.learning_rate)), device
    )
    program = compiled(descend, *operands)
    timing = timed(program.call, budget=0.5)
    path, steps = np.asarray(program.call()), len(rows)
    heights = np.asarray(jax.jit(costs)(jax.device_put(path, device), *operands[:2]))
    step_time = timing.median / steps
    least = least_cost(x, y)
    return CaseResult(
        metrics={
            "step_time": step_time,
            "step_time_low": timing.interval[0] / steps,
            "step_time_high": timing.interval[1] / steps,
            "images_per_second": config.batch_size / step_time,
            "training_time": timing.median,
            "compile_time": program.lower_time + program.compile_time,
            "training_loss": float(heights[-1]),
            "excess_loss": float(heights[-1]) - least,
            "parameters": 2,
            "steps": steps,
            "epochs": config.epochs,
        },
        samples={"step_time": [sample / steps for sample in timing.samples]}
        | _path(path, heights)
        | contours(x, y),
        provenance={"noise": timing.noise.verdict, "least_loss": least, "strategy_devices": 1},
    )


@functools.cache
def examples() -> tuple[np.ndarray, np.ndarray]:
    """Mean radius of the tumours, of mean 0 and variance 1, ``f32[569]``, and 1 for the malignant ones, ``f32[569]``."""
    from sklearn.datasets import load_breast_cancer

    raw = load_breast_cancer()
    radius = raw.data[:, 0]
    return np.float32((radius - radius.mean()) / radius.std()), np.float32(raw.target == 0)


def order(examples: int, batch_size: int, epochs: int, seed: int) -> np.ndarray:
    """The rows of each step, ``i32[steps, batch_size]``: another order in each epoch, what does not fill a batch left out.

    >>> order(5, 2, 3, seed=0).shape
    (6, 2)
    """
    rng, steps = np.random.default_rng(seed), examples // batch_size
    epoch = [
        rng.permutation(examples)[: steps * batch_size].reshape(steps, batch_size)
        for _ in range(epochs)
    ]
    return np.concatenate(epoch).astype(np.int32)


def cost(parameters: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy in nat of weight and bias ``f32[2]`` over examples ``f32[N]`` and their labels 0 or 1, ``f32[N]``."""
    logits = parameters[0] * x + parameters[1]
    return jnp.mean(jax.nn.softplus(logits) - y * logits)


costs = jax.vmap(cost, (0, None, None))


def descend(
    x: jax.Array, y: jax.Array, rows: jax.Array, start: jax.Array, rate: jax.Array
) -> jax.Array:
    """Gradient descent, a step for each line of rows; returns all points, the start first, ``f32[steps + 1, 2]``."""

    def step(parameters: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        parameters = parameters - rate * jax.grad(cost)(parameters, x[row], y[row])
        return parameters, parameters

    return jnp.concatenate([start[None], jax.lax.scan(step, start, rows)[1]])


def least_cost(x: np.ndarray, y: np.ndarray) -> float:
    """The least that the cost can be, in nat, by Newton's method in float64."""
    design, labels, parameters = (
        np.stack([x, np.ones_like(x)], 1).astype(np.float64),
        y.astype(np.float64),
        np.zeros(2),
    )
    for _ in range(25):
        share = 1 / (1 + np.exp(-design @ parameters))
        curvature = design.T @ (design * (share * (1 - share))[:, None])
        parameters -= np.linalg.solve(curvature, design.T @ (share - labels))
    logits = design @ parameters
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def contours(x: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """The cost over the map: its weights, its biases, and row by row, a row a bias, the cost in nat."""
    weights, biases = (np.linspace(*span, SIDE, dtype=np.float32) for span in (WEIGHTS, BIASES))
    points = np.stack(np.meshgrid(weights, biases), -1).reshape(-1, 2)
    heights = np.asarray(jax.jit(costs)(points, x, y))
    return {
        "grid_weight": weights.tolist(),
        "grid_bias": biases.tolist(),
        "grid_cost": heights.tolist(),
    }


def _path(path: np.ndarray, heights: np.ndarray) -> dict[str, list[float]]:
    """At most `POINTS` of its points, evenly spread, the first and the last among them, and the steps they came after."""
    kept = np.unique(np.linspace(0, len(path) - 1, POINTS).round().astype(int))
    columns = {
        "path_step": kept,
        "path_weight": path[kept, 0],
        "path_bias": path[kept, 1],
        "path_cost": heights[kept],
    }
    return {name: column.tolist() for name, column in columns.items()}
