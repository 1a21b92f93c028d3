"""Full-batch, mini-batch and single-sample descent: their paths over a cost of two parameters.

The cost is that of logistic regression with one weight and one bias on real data: is a tumour
malignant, given its mean radius (scikit-learn's breast cancer data set, 569 tumours)? With two
parameters the path can be drawn over the contours of the cost, as in Agrawal's talk "Graphical
Processing Units for Deep Learning".
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.config import RunConfig
from experiments.harness.study import Case, CaseResult, Context
from experiments.measure.timing import compile_program, time_call
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
EXAMPLES, MINI_BATCH, LEARNING_RATE = 569, 32, 0.5
EPOCHS = {"quick": 40, "full": 400}
START = (-1.0, 3.0)  # weight and bias, far from the minimum
BUDGET = 0.5  # seconds of sampling
# The grid of the contour plot: ranges of weight and bias, and the number of points on each axis.
WEIGHT_RANGE, BIAS_RANGE, GRID_SIZE = (-2.0, 6.0), (-4.0, 4.0), 41
MAX_POINTS = 500  # of a path in a record
NEWTON_STEPS = 25


def cases(config: RunConfig, backend: Backend) -> list[Case]:
    """One for each variant; all have the same learning rate and number of epochs.

    Raises:
      InputError: the mini-batch is larger than the data set.
    """
    mini_batch = config.batch_size or MINI_BATCH
    if mini_batch > EXAMPLES:
        raise InputError(
            f"--batch-size={mini_batch}: study 'descent' has {EXAMPLES} examples; "
            "choose a smaller mini-batch"
        )
    config = config.with_defaults({"learning_rate": LEARNING_RATE, "epochs": EPOCHS[config.preset]})
    batch_sizes = {"full batch": EXAMPLES, "mini-batch": mini_batch, "single sample": 1}
    return [_case(config, variant, size) for variant, size in batch_sizes.items()]


def _case(config: RunConfig, variant: str, batch_size: int) -> Case:
    settings = {
        "model": variant,
        "dataset": "breast_cancer",
        "batch_size": batch_size,
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "seed": config.seed,
    }
    parts = ("logistic", "breast_cancer", variant)
    return Case(config.replace(batch_size=batch_size), settings, parts)


def measure(case: Case, context: Context) -> CaseResult:
    """Times the descent, and records its path and the costs on a grid around it."""
    config, device = case.config, context.backend.devices[0]
    x, y = load_examples()
    rows = batch_rows(len(x), config.batch_size, config.epochs, config.seed)
    operands = jax.device_put(
        (x, y, rows, np.array(START, np.float32), np.float32(config.learning_rate)), device
    )
    program = compile_program(descend, *operands)
    timing = time_call(program.call, budget=BUDGET)
    path, steps = np.asarray(program.call()), len(rows)
    path_costs = np.asarray(jax.jit(costs)(jax.device_put(path, device), *operands[:2]))
    minimum, step_time = minimum_cost(x, y), timing.median / steps
    low, high = timing.interval
    return CaseResult(
        metrics={
            "step_time": step_time,
            "step_time_low": low / steps,
            "step_time_high": high / steps,
            "images_per_second": config.batch_size / step_time,
            "training_time": timing.median,
            **program.metrics,
            "training_loss": float(path_costs[-1]),
            "excess_loss": float(path_costs[-1]) - minimum,
            "parameters": 2,
            "steps": steps,
            "epochs": config.epochs,
        },
        samples={
            "step_time": [sample / steps for sample in timing.samples],
            **_path_samples(path, path_costs),
            **cost_grid(x, y),
        },
        provenance={"noise": timing.noise.verdict, "least_loss": minimum, "strategy_devices": 1},
    )


@functools.cache
def load_examples() -> tuple[np.ndarray, np.ndarray]:
    """Loads the breast cancer data set.

    Returns:
      The mean radius of each tumour, shifted and scaled to mean 0 and variance 1, ``f32[569]``; and
      labels, 1 for malignant tumours, ``f32[569]``.
    """
    from sklearn.datasets import load_breast_cancer

    dataset = load_breast_cancer()
    radius = dataset.data[:, 0]
    x, y = (radius - radius.mean()) / radius.std(), dataset.target == 0
    return x.astype(np.float32), y.astype(np.float32)


def batch_rows(examples: int, batch_size: int, epochs: int, seed: int) -> np.ndarray:
    """The rows of each step's batch: shuffled in each epoch, without the last, incomplete batch.

    Args:
      examples: the number of examples.
      batch_size: rows of a batch.
      epochs: passes over the examples.
      seed: of the order.

    Returns:
      ``i32[steps, batch_size]``.

    >>> batch_rows(5, 2, 3, seed=0).shape
    (6, 2)
    """
    rng, steps = np.random.default_rng(seed), examples // batch_size
    epoch_rows = [
        rng.permutation(examples)[: steps * batch_size].reshape(steps, batch_size)
        for _ in range(epochs)
    ]
    return np.concatenate(epoch_rows).astype(np.int32)


def cost(parameters: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy of logistic regression, in nats.

    Args:
      parameters: weight and bias, ``f32[2]``.
      x: examples, ``f32[N]``.
      y: labels, 0 or 1, ``f32[N]``.

    >>> print(f"{cost(jnp.zeros(2), jnp.ones(3), jnp.ones(3)):.4f}")  # ln 2
    0.6931
    """
    logits = parameters[0] * x + parameters[1]
    return jnp.mean(jax.nn.softplus(logits) - y * logits)


costs = jax.vmap(cost, (0, None, None))


def descend(
    x: jax.Array, y: jax.Array, rows: jax.Array, start: jax.Array, rate: jax.Array
) -> jax.Array:
    """Gradient descent, with a step for each batch.

    Args:
      x: examples, ``f32[N]``.
      y: labels, ``f32[N]``.
      rows: of each step's batch, ``i32[steps, batch_size]``.
      start: initial weight and bias, ``f32[2]``.
      rate: learning rate, ``f32[]``.

    Returns:
      The path from the start on, ``f32[steps + 1, 2]``.
    """

    def step(parameters: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        parameters = parameters - rate * jax.grad(cost)(parameters, x[row], y[row])
        return parameters, parameters

    return jnp.concatenate([start[None], jax.lax.scan(step, start, rows)[1]])


def minimum_cost(x: np.ndarray, y: np.ndarray) -> float:
    """The minimum of the cost over all parameters, in nats, by Newton's method in float64."""
    design = np.stack([x, np.ones_like(x)], 1).astype(np.float64)
    labels, parameters = y.astype(np.float64), np.zeros(2)
    for _ in range(NEWTON_STEPS):
        probabilities = 1 / (1 + np.exp(-design @ parameters))
        hessian = design.T @ (design * (probabilities * (1 - probabilities))[:, None])
        parameters -= np.linalg.solve(hessian, design.T @ (probabilities - labels))
    logits = design @ parameters
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def cost_grid(x: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """The cost on the grid of the contour plot.

    Returns:
      ``grid_weight`` and ``grid_bias``, the coordinates; and ``grid_cost`` in nats, row by row,
      with a row for each bias.
    """
    weights = np.linspace(*WEIGHT_RANGE, GRID_SIZE, dtype=np.float32)
    biases = np.linspace(*BIAS_RANGE, GRID_SIZE, dtype=np.float32)
    points = np.stack(np.meshgrid(weights, biases), -1).reshape(-1, 2)
    return {
        "grid_weight": weights.tolist(),
        "grid_bias": biases.tolist(),
        "grid_cost": np.asarray(jax.jit(costs)(points, x, y)).tolist(),
    }


def _path_samples(path: np.ndarray, path_costs: np.ndarray) -> dict[str, list[float]]:
    """At most `MAX_POINTS` points of a path, evenly spaced, the first and the last included."""
    steps = np.unique(np.linspace(0, len(path) - 1, MAX_POINTS).round().astype(int))
    columns = {
        "path_step": steps,
        "path_weight": path[steps, 0],
        "path_bias": path[steps, 1],
        "path_cost": path_costs[steps],
    }
    return {name: column.tolist() for name, column in columns.items()}
