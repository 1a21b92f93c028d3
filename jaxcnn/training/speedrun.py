"""The optimizer of a training run that is over in minutes."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from optax.contrib import scale_by_muon

from jaxcnn.errors import InputError
from jaxcnn.training.decoupled import kernel_matrices

# Jordan's program `airbench94_muon.py`, 2024. The learning rates of SGD are multiples of that of
# the kernels, and those of the program times 2,000: its loss is the sum over a batch of that size.
MUON_MOMENTUM, NEWTON_SCHULZ_STEPS = 0.6, 3
HEAD_RATE, BIAS_RATE = 2000 * 0.67 / 0.24, 2000 * 0.053 / 0.24
SGD_MOMENTUM = 0.85


def speedrun(
    learning_rate: optax.ScalarOrSchedule, weight_decay: float = 0.0, layers: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """Muon for kernels of constant norm, SGD for the last layer and for everything else.

    The kernels of all layers but ``out`` are scaled to a norm of √outputs in each step, and get
    momentum made orthogonal. The last layer and biases get SGD with Nesterov momentum, at learning
    rates of their own, and decay.

    Args:
      learning_rate: of the kernels, a constant or a function of the number of steps taken.
      weight_decay: added to the gradient of a weight, times the weight, in units that make the
        decay of a step ``learning_rate * weight_decay`` in both groups that decay.
      layers: must be empty; it is not chosen which layers decay.

    References:
      Jordan 2024, *94% on CIFAR-10 in 3.29 Seconds on a Single GPU*, arXiv 2404.00498; Jordan et
      al. 2024, *Muon: An optimizer for hidden layers in neural networks*.
    """
    if layers:
        raise InputError(
            f"optimizer speedrun has no weight decay by layer, such as of {', '.join(layers)}: "
            "choose another optimizer"
        )
    muon = optax.chain(
        scale_by_muon(
            ns_steps=NEWTON_SCHULZ_STEPS,
            beta=MUON_MOMENTUM,
            weight_dimension_numbers=kernel_matrices,
        ),
        optax.scale_by_learning_rate(learning_rate),
        _with_constant_norm(),
    )
    sgd = {
        name: optax.chain(
            optax.add_decayed_weights(weight_decay / factor),
            optax.sgd(_scaled(learning_rate, factor), SGD_MOMENTUM, nesterov=True),
        )
        for name, factor in (("head", HEAD_RATE), ("bias", BIAS_RATE))
    }
    return optax.partition({"kernel": muon} | sgd, _groups)


def _groups(params: Any) -> Any:
    """The group of each parameter: ``kernel``, ``head`` or ``bias``."""

    def group(path: tuple[Any, ...], leaf: Array) -> str:
        if path[0].key == "out":
            return "head"
        return "kernel" if leaf.ndim > 1 else "bias"

    return jax.tree.map_with_path(group, params)


def _with_constant_norm() -> optax.GradientTransformationExtraArgs:
    """Makes the update begin at the kernel scaled to a norm of the square root of its outputs.

    `TrainStep` multiplies the update by ``lr_scale``, which is for the learning rate alone.
    """

    def update(updates, state, params, *, lr_scale=1.0, **extra_args):
        del extra_args

        def from_scaled(change, kernel):
            norm = jnp.sqrt(jnp.float32(kernel.shape[-1]))
            return change + kernel * (norm / jnp.linalg.norm(kernel.ravel()) - 1) / lr_scale

        return jax.tree.map(from_scaled, updates, params), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def _scaled(rate: optax.ScalarOrSchedule, factor: float) -> optax.ScalarOrSchedule:
    return (lambda count: factor * rate(count)) if callable(rate) else factor * rate
