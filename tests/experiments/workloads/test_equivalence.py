"""The largest difference of two trees, worked out by hand, and the remark on it."""

import jax
import numpy as np
import pytest

from experiments.config import RunConfig
from experiments.workloads import equivalence, synthetic_step
from jaxcnn.backend import Backend


@pytest.mark.parametrize(
    ("values", "reference", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.0], 0.5),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
    ids=["equal", "relative", "absolute", "both not finite", "one not finite", "empty"],
)
def test_the_largest_difference(values, reference, difference):
    trees = {"leaf": np.array(values)}, {"leaf": np.array(reference)}
    assert equivalence.largest_difference(*trees) == difference


def test_a_difference_beyond_rounding_is_a_remark():
    metrics = {"largest_loss_difference": 0.5, "largest_parameter_difference": 1e-6}
    (line,) = equivalence.remarks(metrics)
    assert line == "largest loss difference 5.0e-01: more than 0.001, the tolerance for rounding"


def differences(loss: float, parameters: float) -> dict[str, float]:
    return dict(zip(equivalence.NAMES, (loss, parameters), strict=True))


@pytest.mark.parametrize(
    ("ours", "twins", "words"),
    [
        (differences(1e-6, 9e-4), [differences(1e-7, 1e-7)], "the results agree: "),
        # A network that amplifies rounding: the parameters of its twins differ as much.
        (
            differences(0.2, 4.07),
            [differences(0.22, 1.0), differences(0.01, 5.0)],
            "the results differ, as rounding alone would make them: ",
        ),
        (
            differences(0.2, 4.07),
            [differences(0.22, 0.4)],
            "the results differ by more than rounding: ",
        ),
        (differences(np.inf, 0.0), [differences(1.0, 1.0)], "the results differ by more than"),
    ],
)
def test_the_yardstick_is_what_rounding_makes(ours, twins, words):
    remark = equivalence.Equivalence(ours, tuple(twins)).remark
    assert remark.startswith(words)
    loss, parameters = (max(twin[name] for twin in twins) for name in equivalence.NAMES)
    yardstick = f"losses by up to {loss:.1e}, parameters by {parameters:.1e}"
    assert remark.endswith(f"; weights rounded once more: {yardstick}")


@pytest.mark.slow
def test_a_training_that_amplifies_rounding_is_not_said_to_agree():
    """A difference of one unit in the last place of the weights grows by orders in eight steps."""
    config = RunConfig(model="cats_vs_dogs", image_size=72, batch_size=4, strategy="data")
    config = synthetic_step.fill_defaults(config)
    backend = Backend("cpu", tuple(jax.devices("cpu")[:1]))
    step = synthetic_step.build(config, backend)
    # As another strategy would, this one starts from weights that are rounded otherwise.
    step.state = step.state.replace(
        params=equivalence._round(step.state.params, jax.random.key(7), 2.0**-23)
    )
    result = equivalence.compare_with_one_device(step, config, backend)
    assert result.metrics["largest_parameter_difference"] > equivalence.TOLERANCE
    assert result.remark.startswith("the results differ, as rounding alone would make them")
