"""Train steps on images of noise."""

from experiments.config import RunConfig
from experiments.workloads import synthetic_step
from jaxcnn.backend import Backend


def test_the_step_uses_the_mesh_of_its_configuration(devices):
    config = RunConfig(model="logistic", batch_size=8, strategy="data_tensor", mesh="1x4")
    backend = Backend("cpu", devices[:4], simulated=True)
    step = synthetic_step.build(synthetic_step.fill_defaults(config), backend)
    assert step.strategy.mesh_sizes == {"data": 1, "tensor": 4}
